"""Reading the state of one gate operation from its arguments, before it runs."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool
from torch import Tensor, nn

from gatelab.errors import UnsupportedModelError
from gatelab.gates.functions import HardGate, SoftGate, StraightThroughGate
from gatelab.gates.operations import operation_name
from gatelab.gates.pattern import GateKind

# Modules that are one gate: the event is named by the module's path alone.
POINTWISE_MODULES = (nn.ReLU, nn.LeakyReLU, nn.Threshold)
POOLING_MODULES = (
    *(nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d),
    *(nn.AdaptiveMaxPool1d, nn.AdaptiveMaxPool2d, nn.AdaptiveMaxPool3d),
)
GATE_MODULES = (*POINTWISE_MODULES, *POOLING_MODULES)


def is_gate_module(module: nn.Module) -> bool:
    """Whether a module is one gate and nothing else: torch's own, not a user's subclass with a forward of its own."""
    return isinstance(module, GATE_MODULES) and type(module).__module__.startswith("torch.nn")


@dataclass(frozen=True)
class GateState:
    """What one gate operation does to its input.

    Attributes:
        kind: what it is.
        gates: on or off, per example and unit.
        slope: what a closed gate lets through.
        value: the argument that paths run through.
    """

    kind: GateKind
    gates: Bool[Tensor, "n ..."]
    value: Tensor
    slope: float = 0.0


def is_gate(operation: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether a call is a gate, judged by its plain name and the arguments that are not tensors."""
    if operation in {"clamp", "clip", "clamp_min"}:
        low, high = _argument(args, kwargs, 1, "min", None), _argument(args, kwargs, 2, "max", None)
        return isinstance(low, int | float) and low == 0 and high is None
    if operation == "threshold":
        return _argument(args, kwargs, 1, "threshold") == 0 and _argument(args, kwargs, 2, "value") == 0
    return operation in _READERS


def gate_state(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> GateState | None:
    """The gate's state if ``function`` is a gate, None if it is something else."""
    operation = operation_name(function)
    if not is_gate(operation, args, kwargs):
        return None
    return _READERS[operation](args, kwargs)


def _relu(args: tuple[Any, ...], kwargs: dict[str, Any]) -> GateState:
    q = _argument(args, kwargs, 0, "input")
    return GateState(GateKind.RELU, q > 0, q)


def _leaky_relu(args: tuple[Any, ...], kwargs: dict[str, Any]) -> GateState:
    q = _argument(args, kwargs, 0, "input")
    return GateState(GateKind.LEAKY_RELU, q > 0, q, float(_argument(args, kwargs, 1, "negative_slope", 0.01)))


def _gated(args: tuple[Any, ...], kwargs: dict[str, Any]) -> GateState:
    gate = _argument(args, kwargs, 2, "gate")
    if not isinstance(gate, HardGate | SoftGate | StraightThroughGate):
        raise UnsupportedModelError(
            f"gated(value, q, gate) with {gate!r}: only HardGate, SoftGate and StraightThroughGate are known to be "
            "open exactly when q > 0"
        )
    return GateState(GateKind.GATED, _argument(args, kwargs, 1, "q") > 0, _argument(args, kwargs, 0, "value"))


def _max_pool(axes: int) -> Callable[[tuple[Any, ...], dict[str, Any]], GateState | None]:
    with_indices = {1: F.max_pool1d_with_indices, 2: F.max_pool2d_with_indices, 3: F.max_pool3d_with_indices}[axes]

    def read(args: tuple[Any, ...], kwargs: dict[str, Any]) -> GateState | None:
        q = _argument(args, kwargs, 0, "input")
        kernel = _per_axis(_argument(args, kwargs, 1, "kernel_size"), axes)
        stride = _per_axis(_argument(args, kwargs, 2, "stride", None) or kernel, axes)
        padding = _per_axis(_argument(args, kwargs, 3, "padding", 0), axes)
        dilation = _per_axis(_argument(args, kwargs, 4, "dilation", 1), axes)
        ceil_mode = bool(_argument(args, kwargs, 5, "ceil_mode", False))
        if q.ndim != axes + 2:
            return None
        _, winners = with_indices(q, kernel, stride, padding, dilation, ceil_mode)
        return GateState(GateKind.MAX_POOL, _winning_taps(winners, q.shape[2:], kernel, stride, padding, dilation), q)

    return read


def _adaptive_max_pool(axes: int) -> Callable[[tuple[Any, ...], dict[str, Any]], GateState | None]:
    pool = _max_pool(axes)

    def read(args: tuple[Any, ...], kwargs: dict[str, Any]) -> GateState | None:
        q = _argument(args, kwargs, 0, "input")
        output = _per_axis(_argument(args, kwargs, 1, "output_size"), axes)
        sizes = q.shape[2:]
        output = tuple(size if out is None else out for size, out in zip(sizes, output, strict=True))
        if any(size % out for size, out in zip(sizes, output, strict=True)):
            return None
        return pool((q, tuple(size // out for size, out in zip(sizes, output, strict=True))), {})

    return read


def _winning_taps(
    winners: Tensor,
    sizes: torch.Size,
    kernel: tuple[int, ...],
    stride: tuple[int, ...],
    padding: tuple[int, ...],
    dilation: tuple[int, ...],
) -> Bool[Tensor, "n c *positions taps"]:
    """One-hot over the window's taps, from torch's flat indices into the input plane."""
    tap = torch.zeros_like(winners)
    rest = winners
    scale = 1
    for axis in reversed(range(len(kernel))):
        coordinate = rest % sizes[axis]
        rest = rest // sizes[axis]
        shape = [1] * winners.ndim
        shape[2 + axis] = -1
        start = torch.arange(winners.shape[2 + axis], device=winners.device).view(shape) * stride[axis] - padding[axis]
        tap += (coordinate - start) // dilation[axis] * scale
        scale *= kernel[axis]
    return F.one_hot(tap, scale).bool()


_REQUIRED: Any = object()


def _argument(args: tuple[Any, ...], kwargs: dict[str, Any], position: int, name: str, default: Any = _REQUIRED) -> Any:
    if len(args) > position:
        return args[position]
    return kwargs[name] if default is _REQUIRED else kwargs.get(name, default)


def _per_axis(value: Any, axes: int) -> tuple[Any, ...]:
    if value is None or isinstance(value, int):
        return (value,) * axes
    return tuple(value) * (axes if len(value) == 1 else 1)


_READERS: dict[str, Callable[[tuple[Any, ...], dict[str, Any]], GateState | None]] = {
    **dict.fromkeys(("relu", "clamp", "clip", "clamp_min", "threshold"), _relu),
    "leaky_relu": _leaky_relu,
    "gated": _gated,
    **{f"max_pool{axes}d": _max_pool(axes) for axes in (1, 2, 3)},
    **{f"max_pool{axes}d_with_indices": _max_pool(axes) for axes in (1, 2, 3)},
    **{f"adaptive_max_pool{axes}d": _adaptive_max_pool(axes) for axes in (1, 2, 3)},
    **{f"adaptive_max_pool{axes}d_with_indices": _adaptive_max_pool(axes) for axes in (1, 2, 3)},
}
