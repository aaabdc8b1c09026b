"""Gates as the table knows them: what passes, what decides, and how."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool
from torch import Tensor, nn
from torch.fx import Node

from gatelab.errors import UnsupportedModelError
from gatelab.gates.functions import HardGate, LeakyGate, SoftGate, StraightThroughGate
from gatelab.gates.pattern import GateKind, GateLayer, Slope
from gatelab.gates.pooling import AdaptiveMaxPool, MaxPool, per_axis
from gatelab.network.calls import Call, call_of
from gatelab.network.operations import Kind

_KNOWN_GATES = (HardGate, SoftGate, StraightThroughGate)


@dataclass(frozen=True)
class Gating:
    """How one gate of a network decides.

    Attributes:
        kind: the kind of gate.
        value: the node that passes through.
        q: the node that decides; the same one, except in decoupled networks.
        slope: what a closed gate passes: a number, or the node or parameter of a PReLU's slopes.
        bounds: the bounds outside of which the gate is constant, or None.
        pool: the windows of a max-pooling, or None.
    """

    kind: GateKind
    value: Node
    q: Node
    slope: Any = 0.0
    bounds: tuple[float, float] | None = None
    pool: MaxPool | AdaptiveMaxPool | None = None

    def opened(self, q: Tensor) -> Bool[Tensor, "n ..."]:
        """Return which gates are open, from the values of the node that decides."""
        if self.pool is not None:
            windows = self.pool.windows(q) if isinstance(self.pool, AdaptiveMaxPool) else self.pool
            assert windows is not None
            return windows.winning_taps(q)
        if self.bounds is not None:
            low, high = self.bounds
            return (q > low) & (q < high)
        return q > 0

    def layer(self, q: Tensor, slope: Slope) -> GateLayer:
        """Return the gates in packed form."""
        return GateLayer.of(self.opened(q), self.kind, slope)


def gating_of(node: Node, modules: Mapping[str, nn.Module]) -> Gating | None:
    """Return how a node gates, or None if it is no gate.

    Raises:
        UnsupportedModelError: the gate function is not known to be open exactly where q > 0.
    """
    if node.op not in ("call_module", "call_function", "call_method"):
        return None
    call = call_of(node, modules)
    if call.kind is Kind.SELECTION:
        return _pooling(call)
    return _unit_gate(call) if call.kind is Kind.GATE else None


def _unit_gate(call: Call) -> Gating | None:
    """A gate that decides unit by unit."""
    if call.operation == "gated":
        return _decoupled(call)
    q = call["input"]
    bounds = _bounds(call)
    if bounds is not None:
        return Gating(GateKind.BOUNDED, q, q, bounds=bounds)
    if call.operation in ("leaky_relu", "prelu"):
        slope = call["weight"] if call.operation == "prelu" else float(call["negative_slope"])
        return Gating(GateKind.LEAKY_RELU, q, q, slope)
    return Gating(GateKind.RELU, q, q) if _is_relu(call) else None


def slopes(weight: Tensor, q_axes: int) -> Slope:
    """Return the slopes of a PReLU, one for each channel; one number if they are shared."""
    if weight.numel() == 1:
        return float(weight.detach())
    if q_axes < 2:
        raise UnsupportedModelError("a PReLU with a slope for each channel needs a channel axis behind the examples")
    return tuple(weight.detach().flatten().tolist())


def _is_relu(call: Call) -> bool:
    if call.operation == "relu":
        return True
    if call.operation == "threshold":
        return call["threshold"] == 0 and call["value"] == 0
    low = call["min"]
    return isinstance(low, int | float) and low == 0 and call.arguments.get("max") is None


def _bounds(call: Call) -> tuple[float, float] | None:
    if call.operation == "relu6":
        return 0.0, 6.0
    if call.operation == "hardtanh":
        return float(call["min_val"]), float(call["max_val"])
    if call.operation not in ("clamp", "clip"):
        return None
    low, high = call["min"], call["max"]
    return (float(low), float(high)) if isinstance(low, int | float) and isinstance(high, int | float) else None


def _decoupled(call: Call) -> Gating:
    gate, slope = call["gate"], 0.0
    if isinstance(gate, LeakyGate):
        gate, slope = gate.gate, gate.slope
    if not isinstance(gate, _KNOWN_GATES):
        raise UnsupportedModelError(
            f"gated(value, q, gate) with {gate!r}: only HardGate, SoftGate and StraightThroughGate are known to be "
            "open exactly when q > 0"
        )
    return Gating(GateKind.GATED, call["value"], call["q"], slope)


def _pooling(call: Call) -> Gating | None:
    if call.operation == "gated_max_pool":
        return _with_windows(call["value"], call["q"], call["pool"])
    axes = next(axes for axes in (1, 2, 3) if f"{axes}d" in call.operation)
    source = call["input"]
    if "adaptive" in call.operation:
        return _with_windows(source, source, AdaptiveMaxPool(per_axis(call["output_size"], axes)))
    kernel = per_axis(call["kernel_size"], axes)
    stride = per_axis(call["stride"] or kernel, axes)
    padding, dilation = per_axis(call["padding"], axes), per_axis(call["dilation"], axes)
    return _with_windows(source, source, MaxPool(kernel, stride, padding, dilation, bool(call["ceil_mode"])))


def _with_windows(value: Any, q: Any, pool: MaxPool | AdaptiveMaxPool) -> Gating | None:
    """A max-pooling as a gate; none if examples have no axis of their own, or its windows differ in size."""
    shape = q.meta["shape"] if isinstance(q, Node) else ()
    if len(shape) != pool.axes + 2:
        return None
    if isinstance(pool, AdaptiveMaxPool) and pool.windows(torch.empty(shape, device="meta")) is None:
        return None
    return Gating(GateKind.MAX_POOL, value, q, pool=pool)
