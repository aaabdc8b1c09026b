"""Read the state of one gate operation from its arguments, before it runs."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from jaxtyping import Bool
from torch import Tensor, nn

from gatelab.errors import UnsupportedModelError
from gatelab.gates.functions import HardGate, LeakyGate, SoftGate, StraightThroughGate
from gatelab.gates.operations import operation_name
from gatelab.gates.pattern import GateKind
from gatelab.gates.pooling import AdaptiveMaxPool, pooling_of

POOLING_MODULES = (
    *(nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d),
    *(nn.AdaptiveMaxPool1d, nn.AdaptiveMaxPool2d, nn.AdaptiveMaxPool3d),
)
# Each of these modules is one gate, which takes its name from the module's path alone.
GATE_MODULES = (nn.ReLU, nn.LeakyReLU, nn.Threshold, nn.Hardtanh, *POOLING_MODULES)  # ReLU6 is a Hardtanh

_RELUS = frozenset({"relu", "clamp", "clip", "clamp_min", "threshold"})
_MAX_POOLS = frozenset(
    f"{adaptive}max_pool{axes}d{suffix}"
    for adaptive in ("", "adaptive_")
    for axes in (1, 2, 3)
    for suffix in ("", "_with_indices")
)


def is_gate_module(module: nn.Module) -> bool:
    """Whether a module is one gate and nothing else: torch's own, not a user's subclass with another forward."""
    return isinstance(module, GATE_MODULES) and type(module).__module__.startswith("torch.nn")


@dataclass(frozen=True)
class GateState:
    """What one gate operation does to its input.

    Attributes:
        kind: the kind of gate.
        gates: open or closed, per example and unit.
        value: the argument that paths run through.
        slope: the share that a closed gate passes.
    """

    kind: GateKind
    gates: Bool[Tensor, "n ..."]
    value: Tensor
    slope: float = 0.0


def is_gate(operation: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether a call is a gate, judged by its plain name and its arguments other than tensors."""
    if bounds(operation, args, kwargs) is not None:
        return True
    if operation in {"clamp", "clip", "clamp_min"}:
        low, high = _argument(args, kwargs, 1, "min", None), _argument(args, kwargs, 2, "max", None)
        return isinstance(low, int | float) and low == 0 and high is None
    if operation == "threshold":
        return _argument(args, kwargs, 1, "threshold") == 0 and _argument(args, kwargs, 2, "value") == 0
    return operation in {"relu", "leaky_relu", "gated", "gated_max_pool"} | _MAX_POOLS


def bounds(operation: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[float, float] | None:
    """Return the two bounds outside of which a gate is constant; None for other calls."""
    if operation == "relu6":
        return 0.0, 6.0
    low, high = _argument(args, kwargs, 1, "min", None), _argument(args, kwargs, 2, "max", None)
    if operation == "hardtanh":
        low, high = _argument(args, kwargs, 1, "min_val", -1.0), _argument(args, kwargs, 2, "max_val", 1.0)
    elif operation not in {"clamp", "clip"}:
        return None
    numbers = isinstance(low, int | float) and isinstance(high, int | float)
    return (float(low), float(high)) if numbers else None


def gate_state(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> GateState | None:
    """Return the state of the gate, or None if the call is not a gate."""
    operation = operation_name(function)
    if not is_gate(operation, args, kwargs):
        return None
    if operation == "gated":
        return _gated(args, kwargs)
    if operation == "gated_max_pool" or operation in _MAX_POOLS:
        return _max_pooled(operation, args, kwargs)
    q = _argument(args, kwargs, 0, "input")
    limits = bounds(operation, args, kwargs)
    if limits is not None:
        return GateState(GateKind.BOUNDED, (q > limits[0]) & (q < limits[1]), q)
    if operation in _RELUS:
        return GateState(GateKind.RELU, q > 0, q)
    return GateState(GateKind.LEAKY_RELU, q > 0, q, float(_argument(args, kwargs, 1, "negative_slope", 0.01)))


def _gated(args: tuple[Any, ...], kwargs: dict[str, Any]) -> GateState:
    gate, slope = _argument(args, kwargs, 2, "gate"), 0.0
    if isinstance(gate, LeakyGate):
        gate, slope = gate.gate, gate.slope
    if not isinstance(gate, HardGate | SoftGate | StraightThroughGate):
        raise UnsupportedModelError(
            f"gated(value, q, gate) with {gate!r}: only HardGate, SoftGate and StraightThroughGate are known to be "
            "open exactly when q > 0"
        )
    return GateState(GateKind.GATED, _argument(args, kwargs, 1, "q") > 0, _argument(args, kwargs, 0, "value"), slope)


def _max_pooled(operation: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> GateState | None:
    if operation == "gated_max_pool":
        value, q, pool = (_argument(args, kwargs, place, name) for place, name in enumerate(("value", "q", "pool")))
    else:
        value = q = _argument(args, kwargs, 0, "input")
        pool = pooling_of(operation, args[1:], kwargs)
        if q.ndim != pool.axes + 2:  # without a batch axis there are no examples to tell apart
            return None
    windows = pool.windows(q) if isinstance(pool, AdaptiveMaxPool) else pool
    return None if windows is None else GateState(GateKind.MAX_POOL, windows.winning_taps(q), value)


_REQUIRED: Any = object()


def _argument(args: tuple[Any, ...], kwargs: dict[str, Any], position: int, name: str, default: Any = _REQUIRED) -> Any:
    if len(args) > position:
        return args[position]
    return kwargs[name] if default is _REQUIRED else kwargs.get(name, default)
