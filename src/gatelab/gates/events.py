"""Reading the state of one gate operation from its arguments, before it runs."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from jaxtyping import Bool
from torch import Tensor, nn

from gatelab.errors import UnsupportedModelError
from gatelab.gates.functions import HardGate, LeakyGate, SoftGate, StraightThroughGate
from gatelab.gates.operations import operation_name
from gatelab.gates.pattern import GateKind
from gatelab.gates.pooling import AdaptiveMaxPool, MaxPool, pooling_of

# Modules that are one gate: the event is named by the module's path alone.
POINTWISE_MODULES = (nn.ReLU, nn.LeakyReLU, nn.Threshold)
POOLING_MODULES = (
    *(nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d),
    *(nn.AdaptiveMaxPool1d, nn.AdaptiveMaxPool2d, nn.AdaptiveMaxPool3d),
)
POOLING_ARGUMENTS = ("kernel_size", "stride", "padding", "dilation", "ceil_mode")
ADAPTIVE_POOLING_ARGUMENTS = ("output_size",)
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
    gate, slope = _argument(args, kwargs, 2, "gate"), 0.0
    if isinstance(gate, LeakyGate):
        gate, slope = gate.gate, gate.slope
    if not isinstance(gate, HardGate | SoftGate | StraightThroughGate):
        raise UnsupportedModelError(
            f"gated(value, q, gate) with {gate!r}: only HardGate, SoftGate and StraightThroughGate are known to be "
            "open exactly when q > 0"
        )
    return GateState(GateKind.GATED, _argument(args, kwargs, 1, "q") > 0, _argument(args, kwargs, 0, "value"), slope)


def _max_pool(axes: int, adaptive: bool) -> Callable[[tuple[Any, ...], dict[str, Any]], GateState | None]:
    names = ADAPTIVE_POOLING_ARGUMENTS if adaptive else POOLING_ARGUMENTS

    def read(args: tuple[Any, ...], kwargs: dict[str, Any]) -> GateState | None:
        q = _argument(args, kwargs, 0, "input")
        pool = pooling_of(axes, dict(zip(names, args[1:], strict=False)) | kwargs)
        return _pooled(q, q, pool) if q.ndim == axes + 2 else None

    return read


def _gated_max_pool(args: tuple[Any, ...], kwargs: dict[str, Any]) -> GateState | None:
    value, q, pool = (_argument(args, kwargs, place, name) for place, name in enumerate(("value", "q", "pool")))
    return _pooled(value, q, pool)


def _pooled(value: Tensor, q: Tensor, pool: MaxPool | AdaptiveMaxPool) -> GateState | None:
    windows = pool.windows(q) if isinstance(pool, AdaptiveMaxPool) else pool
    return None if windows is None else GateState(GateKind.MAX_POOL, windows.winning_taps(q), value)


_REQUIRED: Any = object()


def _argument(args: tuple[Any, ...], kwargs: dict[str, Any], position: int, name: str, default: Any = _REQUIRED) -> Any:
    if len(args) > position:
        return args[position]
    return kwargs[name] if default is _REQUIRED else kwargs.get(name, default)


_READERS: dict[str, Callable[[tuple[Any, ...], dict[str, Any]], GateState | None]] = {
    **dict.fromkeys(("relu", "clamp", "clip", "clamp_min", "threshold"), _relu),
    "leaky_relu": _leaky_relu,
    "gated": _gated,
    "gated_max_pool": _gated_max_pool,
    **{
        f"{'adaptive_' * adaptive}max_pool{axes}d{suffix}": _max_pool(axes, adaptive)
        for axes in (1, 2, 3)
        for adaptive in (False, True)
        for suffix in ("", "_with_indices")
    },
}
