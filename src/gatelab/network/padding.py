"""The padding of a convolution, as numbers."""

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
