"""Padding: how wide it is around the image of a convolution, and which number it writes."""

from typing import Any

from gatelab.gates.pooling import per_axis
from gatelab.network.calls import Call


def paddings(call: Call, kernel: tuple[int, ...]) -> list[tuple[int, int]]:
    """Return the padding before and after the image, along each axis.

    Args:
        call: a convolution.
        kernel: the size of its filter along each axis.

    Example:
        >>> paddings(Call("conv1d", {"padding": "same", "dilation": 1}), (4,))
        [(1, 2)]
    """
    padding: Any = call["padding"]
    if padding == "valid":
        return [(0, 0)] * len(kernel)
    if padding == "same":
        steps = per_axis(call["dilation"], len(kernel))
        totals = [step * (taps - 1) for step, taps in zip(steps, kernel, strict=True)]
        return [(total // 2, total - total // 2) for total in totals]
    return [(one, one) for one in per_axis(padding, len(kernel))]


def written(call: Call) -> float:
    """Return the number that an operation writes around its input: that of a constant padding; 0 for all others.

    Example:
        >>> written(Call("pad", {"mode": "constant", "value": -1.0})), written(Call("relu", {}))
        (-1.0, 0.0)
    """
    return float(call.arguments.get("value") or 0.0) if call.operation == "pad" else 0.0
