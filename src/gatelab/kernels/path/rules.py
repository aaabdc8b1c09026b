"""The rules of the path kernel: what each kind of operation does to a signal."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

import torch
from torch import Tensor, nn
from torch.fx import Node

from gatelab.errors import UnsupportedModelError
from gatelab.gates import GatePattern
from gatelab.gates.pattern import GateKind
from gatelab.kernels.path.axes import probe
from gatelab.kernels.path.covariances import WeightLayer
from gatelab.kernels.path.layers import layer_of
from gatelab.kernels.path.rearranging import rearranged
from gatelab.kernels.path.signals import INPUT, Signal, field_signal, input_signal
from gatelab.kernels.path.windows import winners_of
from gatelab.network.evaluation import run_node, run_on
from gatelab.network.kinds import Kind
from gatelab.network.network import Network

Value = Signal | tuple[Signal, ...]  # a node that returns several tensors has several signals


def refuse_what_has_no_rule(network: Network) -> None:
    """Raise an error that names every node before the output that has no rule."""
    unknown = [node for node in network.value_nodes if node.op != "placeholder" and network.kind(node) not in RULES]
    if unknown:
        names = "; ".join(network.where(node) for node in unknown[:8])
        raise UnsupportedModelError(
            f"no path-kernel rule for: {names}. Rules exist for dense and convolutional layers, ReLU and its piecewise "
            "linear kin, pooling, padding, upsampling, sums, concatenation, rearrangements and constant factors"
        )


@dataclass
class Reading:
    """The signals of one set of examples, followed through a network.

    Attributes:
        network: the model as it was read.
        x: the examples.
        gates: their gates.
        normalise: weights have variance 1 / fan in behind the first layer, and 1 otherwise.
        biases: whether paths also start at biases.
        layers: the weight layers met so far.
    """

    network: Network
    x: Tensor
    gates: GatePattern
    normalise: bool
    biases: bool
    layers: list[WeightLayer] = field(default_factory=list)
    _met: dict[frozenset[str], Node] = field(default_factory=dict)  # parameters by the node that uses them

    @torch.no_grad()
    def run(self) -> Signal:
        """Follow the graph from the input to the output."""
        signals: dict[Node, Value] = {}
        for node in self.network.value_nodes:
            if node.op == "placeholder":
                signals[node] = input_signal(self.x)
            else:
                signals[node] = RULES[self.network.kind(node)](self, node, signals)
        output = signals.get(self.network.output)
        if not isinstance(output, Signal):
            raise UnsupportedModelError("the output does not depend on the input")
        return output

    def where(self, node: Node) -> str:
        """Return a node's name and place, for error messages."""
        return self.network.where(node)

    def refuse(self, node: Node, why: str) -> UnsupportedModelError:
        """Return an error about a node."""
        return UnsupportedModelError(f"{self.where(node)}: {why}")

    def constant(self, node: Node) -> Any:
        """Return the value of a node that does not depend on the data."""
        return run_node(node, self.network.model, self.constant, self.network.modules)

    def add_layer(self, node: Node, parameters: frozenset[str], layer: WeightLayer) -> int:
        """Register a weight layer and return its number, the origin of its field."""
        for met, other in self._met.items():
            if met & parameters:
                raise self.refuse(
                    node,
                    f"it uses the same weight as {self.where(other)}: paths that pass a weight twice have no "
                    "path-kernel rule; give each layer its own weight",
                )
        if parameters:
            self._met[parameters] = node
        first = layer.inputs.is_input
        scale = 1.0 if first or not self.normalise else layer.scale
        self.layers.append(replace(layer, scale=scale, bias=layer.bias if self.biases else 0.0))
        return len(self.layers) - 1


Rule = Callable[[Reading, Node, dict[Node, Value]], Value]


def _one(reading: Reading, node: Node, signals: dict[Node, Value]) -> Signal:
    """The one signal that a node passes on."""
    found = [signals[source] for source in node.all_input_nodes if source in signals]
    if len(found) != 1 or not isinstance(found[0], Signal):
        raise reading.refuse(node, "it joins signals in a way that has no path-kernel rule")
    return found[0]


def _weight(reading: Reading, node: Node, signals: dict[Node, Value]) -> Signal:
    source = node.args[0]
    signal = signals.get(source) if isinstance(source, Node) else None
    others = [other for other in node.all_input_nodes if other in signals and other is not source]
    if not isinstance(signal, Signal) or others:
        raise reading.refuse(node, "its weight depends on the data")
    layer, parameters = layer_of(reading.network, node, signal)
    number = reading.add_layer(node, parameters, layer)
    return field_signal(number, layer.channels, layer.size, reading.x)


def _gate(reading: Reading, node: Node, signals: dict[Node, Value]) -> Signal:
    if node not in reading.network.gates:
        raise reading.refuse(node, "it is not a gate: its pieces are not linear")
    source = node.args[0]
    signal = signals[source] if isinstance(source, Node) else _one(reading, node, signals)
    assert isinstance(signal, Signal)
    layer = reading.gates.layer(reading.network.gates[node])
    if layer.kind is GateKind.BOUNDED and reading.biases:
        raise reading.refuse(node, "its constants are starts of paths without a rule; use biases=False")
    gates = layer.gates().to(reading.x.dtype)
    return signal.gated(gates + layer.slope * (1 - gates) if layer.slope else gates)


def _selection(reading: Reading, node: Node, signals: dict[Node, Value]) -> Signal:
    source = node.args[0]
    signal = signals[source] if isinstance(source, Node) else _one(reading, node, signals)
    assert isinstance(signal, Signal)
    layer = reading.gates.layer(reading.network.gates[node])
    winners, size, reach = winners_of(reading.network, node, layer, signal.size)
    return signal.selected(winners, size, reach)


def _rearrangement(reading: Reading, node: Node, signals: dict[Node, Value]) -> Value:
    source = next(source for source in node.all_input_nodes if source in signals)
    value = signals[source]
    if isinstance(value, tuple):  # one of several results
        place = node.args[1]
        assert isinstance(place, int)
        return value[place]
    shape = source.meta["shape"][1:]
    # Each unit carries its number, so that the result tells where it went; 0 is a zero.
    numbers = torch.arange(1, prod(shape) + 1, dtype=torch.float64, device=reading.x.device).view(1, *shape)
    moved = run_on(node, reading.network.model, reading.network.modules, numbers)
    if isinstance(moved, tuple | list):
        return tuple(rearranged(signal=value, moved=part, refuse=reading.refuse, node=node) for part in moved)
    return rearranged(signal=value, moved=moved, refuse=reading.refuse, node=node)


def _spatial(reading: Reading, node: Node, signals: dict[Node, Value]) -> Signal:
    signal = _one(reading, node, signals)

    def run(images: Tensor) -> Tensor:
        return run_on(node, reading.network.model, reading.network.modules, images)

    images = torch.rand(1, 2, *signal.size, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    images = images.to(reading.x.device)
    keeps_channels = bool(signal.size) and torch.allclose(
        run(images).reshape(2, -1), run(images.transpose(0, 1)).reshape(2, -1)
    )
    maps = probe(run, signal.size, reading.x) if keeps_channels else None
    if maps is None:
        raise reading.refuse(node, "it does not treat every channel and every axis of positions by itself")
    return signal.mapped(maps)


def _sum(reading: Reading, node: Node, signals: dict[Node, Value]) -> Signal:
    scale = float(node.kwargs.get("alpha", 1.0))  # pyright: ignore[reportArgumentType]
    if "sub" in reading.network.operation(node):
        scale = -scale
    parts = []
    for place, argument in enumerate(node.args[:2]):
        if isinstance(argument, Node) and argument in signals:
            part = signals[argument]
            assert isinstance(part, Signal)
            if argument.meta["shape"] != node.meta["shape"]:
                raise reading.refuse(node, "it adds signals of different shapes")
            parts.append(part.scaled(scale) if place and scale != 1 else part)
        elif reading.biases:
            raise reading.refuse(node, "it adds a constant, from which paths have no rule; use biases=False")
    if len(parts) == 1:
        return parts[0]
    if (parts[0].channels, parts[0].positions) != (parts[1].channels, parts[1].positions):
        raise reading.refuse(node, "it adds signals whose channels do not correspond")
    return parts[0].plus(parts[1])


def _concatenation(reading: Reading, node: Node, signals: dict[Node, Value]) -> Signal:
    parts, dim = node.args[0], node.args[1] if len(node.args) > 1 else node.kwargs.get("dim", 0)
    axes = len(node.meta["shape"])
    if not isinstance(parts, list | tuple) or not isinstance(dim, int) or dim % axes != 1:
        raise reading.refuse(node, "only signals side by side on axis 1 have a path-kernel rule")
    found = [signals[part] for part in parts if isinstance(part, Node) and part in signals]
    first = next(part for part in found if isinstance(part, Signal))
    total: Signal | None = None
    for part in parts:
        assert isinstance(part, Node)
        signal = signals.get(part)
        if signal is None:  # a constant: no path starts there
            if reading.biases and bool(torch.as_tensor(reading.constant(part)).any()):
                raise reading.refuse(node, "it joins a constant, from which paths have no rule; use biases=False")
            signal = replace(first, terms=(), channels=part.meta["shape"][1])
        assert isinstance(signal, Signal)
        if signal.positions != first.positions or signal.channels * signal.positions != prod(part.meta["shape"][1:]):
            raise reading.refuse(node, "it joins signals with different positions")
        total = signal if total is None else total.beside(signal)
    assert total is not None
    return replace(total, size=first.size)


def _scale(reading: Reading, node: Node, signals: dict[Node, Value]) -> Signal:
    signal = _one(reading, node, signals)
    operation = reading.network.operation(node)
    if operation.startswith("neg"):
        return signal.scaled(-1.0)
    (factor,) = (
        (argument for argument in node.args if not (isinstance(argument, Node) and argument in signals))
        if sum(isinstance(a, Node) and a in signals for a in node.args) == 1
        else (None,)
    )
    if factor is None or (operation in ("div", "truediv", "divide", "true_divide") and node.args[0] not in signals):
        raise reading.refuse(node, "it multiplies data by data")
    value = reading.constant(factor) if isinstance(factor, Node) else factor
    if isinstance(value, nn.Parameter):
        return signal  # a value, like the scale of batch-norm: it counts as one
    inverse = operation.startswith(("div", "true", "itrue"))
    factors = torch.as_tensor(value, dtype=reading.x.dtype, device=reading.x.device)
    factors = 1 / factors if inverse else factors
    if factors.numel() == 1:
        return signal.scaled(float(factors))
    shape = node.meta["shape"]
    return signal.gated(factors.expand(1, *shape[1:]))


def _pass(reading: Reading, node: Node, signals: dict[Node, Value]) -> Signal:
    """Pass a signal on: batch-norm and dropout in evaluation mode belong to the values."""
    source = node.args[0]
    signal = signals[source] if isinstance(source, Node) else _one(reading, node, signals)
    assert isinstance(signal, Signal)
    return signal


def _ones(reading: Reading, node: Node, signals: dict[Node, Value]) -> Signal:
    """Start the values at ones: the input acts through the gates alone (DLGN-PWC)."""
    signal = _one(reading, node, signals)
    if any(term.origin != INPUT for term in signal.terms):
        raise reading.refuse(node, "values that start behind the input have no rule")
    return input_signal(torch.ones_like(reading.x))


RULES: dict[Kind, Rule] = {
    Kind.WEIGHT: _weight,
    Kind.GATE: _gate,
    Kind.SELECTION: _selection,
    Kind.REARRANGEMENT: _rearrangement,
    Kind.SPATIAL: _spatial,
    Kind.SUM: _sum,
    Kind.CONCATENATION: _concatenation,
    Kind.SCALE: _scale,
    Kind.PASSING: _pass,
    Kind.START: _ones,
}
