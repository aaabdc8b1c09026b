"""Gates: which node passes, which node decides, and how."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool
from torch import Tensor, nn
from torch.fx import Node

from gatelab.errors import UnsupportedModelError
from gatelab.gates.activations import ActivationGate
from gatelab.gates.functions import BoundedGate, FactorGate, GateFunction, HardGate, LeakyGate, StraightThroughGate
from gatelab.gates.layer import GateKind, GateLayer, Slope, factors_of
from gatelab.gates.pooling import AdaptiveMaxPool, MaxPool, per_axis
from gatelab.network.calls import Call, call_of, operation_of
from gatelab.network.factors import bounds_of, factor_of
from gatelab.network.operations import PRODUCTS, Kind, operation


@dataclass(frozen=True)
class Gating:
    """How one gate of a network decides.

    Attributes:
        kind: the kind of gate.
        value: the node that passes through.
        q: the node that decides; the same one, except in decoupled networks and products.
        slope: what a closed gate passes: a number, or the node or parameter of a PReLU's slopes.
        bounds: the bounds outside of which the gate is constant, or None.
        pool: the windows of a max-pooling, or None.
        gate: the function that gives the gate's factor, if the gate is soft; None if it is a bit.
        decoupled: whether the gate belongs to a deep gated network, where another network decides.
    """

    kind: GateKind
    value: Node
    q: Node
    slope: Any = 0.0
    bounds: tuple[float, float] | None = None
    pool: MaxPool | AdaptiveMaxPool | None = None
    gate: GateFunction | None = None
    decoupled: bool = False

    @property
    def is_constant_somewhere(self) -> bool:
        """Whether the gate adds a constant, from which paths may start: outside its bounds, or f(0) of a Softplus."""
        return self.bounds is not None or (isinstance(self.gate, ActivationGate) and self.gate.constant != 0)

    def offset(self, q: Tensor) -> Tensor:
        """Return the constant that the gate adds."""
        if self.bounds is not None:
            return BoundedGate(*self.bounds).offset(q)
        return torch.full_like(q, self.gate.constant if isinstance(self.gate, ActivationGate) else 0.0)

    def opened(self, q: Tensor) -> Bool[Tensor, "n ..."]:
        """Return which gates are open, from the values of the node that decides."""
        if self.pool is not None:
            windows = self.pool.windows(q) if isinstance(self.pool, AdaptiveMaxPool) else self.pool
            assert windows is not None
            return windows.winning_taps(q)
        if self.bounds is not None:
            low, high = self.bounds
            return (q > low) & (q < high)
        return q > (self.gate.threshold if isinstance(self.gate, FactorGate) else 0)

    def hardened(self, q: Tensor, slope: Slope) -> Tensor:
        """Return the factor of the hardened gate, from the values of the node that decides."""
        if isinstance(self.gate, FactorGate | ActivationGate):
            return q.new_tensor(self.gate.ends)[self.opened(q).long()]  # torch.where would round them to float32
        return factors_of(self.opened(q), slope, q.dtype)

    def layer(self, q: Tensor, slope: Slope, shape: tuple[int, ...]) -> GateLayer:
        """Return the gates, packed and as numbers; ``shape`` is that of the units; factors may broadcast."""
        opened = self.opened(q)
        if self.gate is None:
            return GateLayer.of(opened, self.kind, slope)
        return GateLayer.of(opened.expand(-1, *shape), self.kind, slope, self.gate(q))


def is_piecewise_linear(gating: Gating) -> bool:
    """Whether the network is affine where such a gate is constant; soft gates count as hard, not smooth activations."""
    return gating.gate is None or gating.decoupled


def gating_of(node: Node, modules: Mapping[str, nn.Module]) -> Gating | None:
    """Return how a node gates, or None if it is not a gate."""
    if node.op not in ("call_module", "call_function", "call_method"):
        return None
    name = operation_of(node, modules)
    kind = operation(name).kind
    if kind is Kind.SELECTION:
        return _pooling(call_of(node, modules))
    if name in PRODUCTS:
        return _factor(node, call_of(node, modules), modules)
    return _unit_gate(call_of(node, modules)) if kind is Kind.GATE else None


def _unit_gate(call: Call) -> Gating | None:
    """A gate that decides unit by unit."""
    if call.operation == "gated":
        return _decoupled(call)
    q = call["input"]
    bounds = bounds_of(call)
    if bounds is not None:
        return Gating(GateKind.BOUNDED, q, q, bounds=bounds)
    gate = _activation(call)
    if gate is not None:
        return Gating(GateKind.ACTIVATION, q, q, gate=gate)
    if call.operation in ("leaky_relu", "prelu"):
        slope = call["weight"] if call.operation == "prelu" else float(call["negative_slope"])
        return Gating(GateKind.LEAKY_RELU, q, q, slope)
    return Gating(GateKind.RELU, q, q) if _is_relu(call) else None


def slopes(weight: Tensor, q_axes: int) -> Slope:
    """Return the slopes of a PReLU, one for each channel; one number if they are shared."""
    if weight.numel() == 1:
        return float(weight.detach())
    if q_axes < 2:
        raise UnsupportedModelError("a PReLU with a slope for each channel needs a channel axis after the examples")
    return tuple(weight.detach().flatten().tolist())


def _is_relu(call: Call) -> bool:
    if call.operation == "relu":
        return True
    if call.operation == "threshold":
        return call["threshold"] == 0 and call["value"] == 0
    low = call["min"]
    return isinstance(low, int | float) and low == 0 and call.arguments.get("max") is None


def _activation(call: Call) -> ActivationGate | None:
    if call.operation in ("silu", "hardswish", "mish", "selu"):
        return ActivationGate(call.operation)
    if call.operation == "gelu":
        return ActivationGate("gelu", float(call["approximate"] == "tanh"))
    if call.operation in ("elu", "celu"):
        return ActivationGate(call.operation, float(call["alpha"]))
    if call.operation == "softplus":
        return ActivationGate("softplus", float(call["beta"]), float(call["threshold"]))
    return None


def _decoupled(call: Call) -> Gating:
    gate, slope = call["gate"], 0.0
    if isinstance(gate, BoundedGate):
        return Gating(GateKind.BOUNDED, call["value"], call["q"], bounds=(gate.low, gate.high), decoupled=True)
    if isinstance(gate, LeakyGate):
        slope = gate.slope
    innermost = gate.gate if isinstance(gate, LeakyGate) else gate
    numbers = None if isinstance(innermost, HardGate | StraightThroughGate) else gate
    kind = GateKind.FACTOR if isinstance(gate, FactorGate) else GateKind.GATED
    return Gating(kind, call["value"], call["q"], slope, gate=numbers, decoupled=True)


def _factor(node: Node, call: Call, modules: Mapping[str, nn.Module]) -> Gating | None:
    """A product of two signals, if one of them is a gate: squeezed between bounds, or at least an activation."""
    one, other = call["input"], call["other"]
    if not all(isinstance(part, Node) and part.meta.get("data") for part in (one, other)):
        return None
    first, second = factor_of(one, modules), factor_of(other, modules)
    value, factor, found = (one, other, second) if second.rank > first.rank else (other, one, first)
    shapes = [part.meta.get("shape", ()) for part in (value, factor, node)]
    if first.rank == second.rank or shapes[0] != shapes[2] or len(shapes[1]) != len(shapes[2]):
        return None
    return Gating(GateKind.FACTOR, value, factor, gate=found.gate)


def _pooling(call: Call) -> Gating | None:
    if call.operation == "gated_max_pool":
        return _with_windows(call["value"], call["q"], call["pool"], decoupled=True)
    axes = next(axes for axes in (1, 2, 3) if f"{axes}d" in call.operation)
    source = call["input"]
    if "adaptive" in call.operation:
        return _with_windows(source, source, AdaptiveMaxPool(per_axis(call["output_size"], axes)))
    kernel = per_axis(call["kernel_size"], axes)
    stride = per_axis(call["stride"] or kernel, axes)
    padding, dilation = per_axis(call["padding"], axes), per_axis(call["dilation"], axes)
    return _with_windows(source, source, MaxPool(kernel, stride, padding, dilation, bool(call["ceil_mode"])))


def _with_windows(value: Any, q: Any, pool: MaxPool | AdaptiveMaxPool, *, decoupled: bool = False) -> Gating | None:
    """A max-pooling as a gate; none if examples have no axis of their own, or its windows differ in size."""
    shape = q.meta["shape"] if isinstance(q, Node) else ()
    if len(shape) != pool.axes + 2:
        return None
    if isinstance(pool, AdaptiveMaxPool) and pool.windows(torch.empty(shape, device="meta")) is None:
        return None
    return Gating(GateKind.MAX_POOL, value, q, pool=pool, decoupled=decoupled)
