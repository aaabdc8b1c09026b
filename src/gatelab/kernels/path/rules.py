"""The rules of the path kernel: what each kind of operation does to a signal."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from math import isfinite, prod
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.fx import Node

from gatelab.errors import UnsupportedModelError
from gatelab.gates import GatePattern
from gatelab.kernels.path.axes import probe
from gatelab.kernels.path.layers import Used, layer_of
from gatelab.kernels.path.planning import WeightLayer
from gatelab.kernels.path.rearranging import Moved, moved
from gatelab.kernels.path.signals import Signal, field_signal, input_signal
from gatelab.kernels.path.windows import winners_of
from gatelab.network.evaluation import held, run_node, run_on
from gatelab.network.network import Network
from gatelab.network.nodes import ancestors
from gatelab.network.operations import DIFFERENCES, QUOTIENTS, Kind
from gatelab.network.padding import written

# A node that returns several tensors has several signals.
Value = Signal | Moved | tuple[Signal | Moved, ...]


def refuse_what_has_no_rule(network: Network) -> None:
    """Raise an error that names every node before the output that has no rule."""
    known = (node for node in network.value_nodes if node.op != "placeholder" and node not in network.gates)
    unknown = [node for node in known if network.kind(node) not in RULES]
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
        normalise: weights after the first layer have variance 1 / fan in; otherwise 1.
        biases: whether paths also start at biases.
        layers: the weight layers met so far.
    """

    network: Network
    x: Tensor
    gates: GatePattern
    normalise: bool
    biases: bool
    layers: list[WeightLayer] = field(default_factory=list)
    _met: list[tuple[Used, Node]] = field(default_factory=list)  # parameters, and the node that uses each

    @torch.no_grad()
    def run(self) -> Signal:
        """Follow the graph from the input to the output."""
        signals: dict[Node, Value] = {}
        for node in self.network.value_nodes:
            if node.op == "placeholder":
                signals[node] = input_signal(self.x)
            else:
                kind = self.network.kind(node)
                factor = kind is Kind.SCALE and node in self.network.gates  # a product of two signals
                signals[node] = RULES[Kind.GATE if factor else kind](self, node, signals)
        if self.network.output not in signals:
            raise UnsupportedModelError("the output does not depend on the input")
        return self.signal(self.network.output, signals)

    def where(self, node: Node) -> str:
        """Return a node's name and place, for error messages."""
        return self.network.where(node)

    def refuse(self, node: Node, why: str) -> UnsupportedModelError:
        """Return an error about a node."""
        return UnsupportedModelError(f"{self.where(node)}: {why}")

    def signal(self, node: Any, signals: "dict[Node, Value]") -> Signal:
        """Return the signal of a node; refuse one whose channels and positions are mixed."""
        value = signals[node]
        if isinstance(value, Moved):
            raise self.refuse(value.node, "it moves units between channels and positions")
        if not isinstance(value, Signal):
            raise self.refuse(node, "it returns several tensors, where one is needed")
        return value

    def holds_parameter(self, node: Node) -> bool:
        """Whether a constant is, or is computed from, one of the model's parameters."""
        sources = [source for source in ancestors(node) if source.op == "get_attr" and "constant" not in source.meta]
        return any(isinstance(held(source, self.network.model), nn.Parameter) for source in sources)

    def add_layer(self, node: Node, used: Used, layer: WeightLayer) -> int:
        """Register a weight layer and return its number, the origin of its field."""
        for met, other in self._met:
            if any(bool((met[name] & used[name]).any()) for name in met.keys() & used.keys()):
                raise self.refuse(
                    node,
                    f"it uses the same weight as {self.where(other)}: the values of paths that pass a weight twice are "
                    "not independent, and their mean product depends on more than the variance of the weights; give "
                    "each layer its own weight",
                )
        self._met.append((used, node))
        first = layer.inputs.is_input
        scale = 1.0 if first or not self.normalise else layer.scale
        self.layers.append(replace(layer, scale=scale, bias=layer.bias if self.biases else 0.0))
        return len(self.layers) - 1


Rule = Callable[[Reading, Node, dict[Node, Value]], Value]


def _one(reading: Reading, node: Node, signals: dict[Node, Value]) -> Signal:
    """Return the one signal that a node passes on."""
    found = [source for source in node.all_input_nodes if source in signals]
    if len(found) != 1:
        raise reading.refuse(node, "it joins signals in a way that has no path-kernel rule")
    return reading.signal(found[0], signals)


def _weight(reading: Reading, node: Node, signals: dict[Node, Value]) -> Signal:
    source = node.args[0]
    if any(other in signals and other is not source for other in node.all_input_nodes) or source not in signals:
        raise reading.refuse(node, "its weight depends on the data")
    weight = reading.network.call(node)["weight"]
    if not (reading.holds_parameter(weight) if isinstance(weight, Node) else isinstance(weight, nn.Parameter)):
        return _fixed_filter(reading, node, reading.signal(source, signals), weight)
    signal = reading.signal(source, signals)
    layer, used = layer_of(reading.network, node, signal)
    number = reading.add_layer(node, used, layer)
    return field_signal(number, layer.channels, layer.size, reading.x, layer.groups)


def _fixed_filter(reading: Reading, node: Node, signal: Signal, weight: Node | Tensor) -> Signal:
    """Apply a filter that is not a parameter, such as a blur: one fixed map of positions, the same in all channels."""
    value: Any = reading.network.constant(weight) if isinstance(weight, Node) else weight
    call = reading.network.call(node)
    single = value.ndim > 2 and value.shape[1] == 1 and len(value) == signal.channels == call.arguments["groups"]
    if not single or not bool((value == value[:1]).all()):
        raise reading.refuse(
            node,
            "its weight is not a parameter, and not one filter for each channel by itself; make it a parameter, which "
            "counts as random",
        )
    kept = call.arguments.keys() - {"input", "weight", "bias", "groups", "output_size"}
    options = {name: call[name] for name in kept}
    if options.pop("padding_mode", "zeros") != "zeros":
        raise reading.refuse(node, "its filter is fixed and its padding is not zero; pad with F.pad before it")
    if reading.biases and call["bias"] is not None:
        raise reading.refuse(node, "its constants are starts of paths without a rule; use biases=False")
    convolve: Any = getattr(F, call.operation)

    def run(images: Tensor) -> Tensor:
        filtered = convolve(images.flatten(0, 1).unsqueeze(1), value[:1].to(images), None, **options)
        return filtered.view(*images.shape[:2], *filtered.shape[2:])

    return _mapped(reading, node, signal, run)


def _gate(reading: Reading, node: Node, signals: dict[Node, Value]) -> Signal:
    if node not in reading.network.gates:
        raise reading.refuse(node, "it is not a gate: its pieces are not linear")
    # A feature network that decides matters only through its gates.
    signal = reading.signal(reading.network.gating(node).value, signals)
    layer = reading.gates.layer(reading.network.gates[node])
    if reading.network.gating(node).is_constant_somewhere and reading.biases:
        raise reading.refuse(node, "its constants are starts of paths without a rule; use biases=False")
    return signal.gated(layer.factors(reading.x.dtype))


def _selection(reading: Reading, node: Node, signals: dict[Node, Value]) -> Value:
    if node not in reading.network.gates:
        raise reading.refuse(node, "the windows of its maximum differ in size; use windows of one size")
    signal = reading.signal(reading.network.gating(node).value, signals)
    layer = reading.gates.layer(reading.network.gates[node])
    winners, size, reach = winners_of(reading.network, node, layer, signal.size)
    selected = signal.selected(winners, size, reach)
    return selected if "shape" in node.meta else (selected,)  # a pooling that also returns its winners returns a tuple


def _rearrangement(reading: Reading, node: Node, signals: dict[Node, Value]) -> Value:
    source = next(source for source in node.all_input_nodes if source in signals)
    value = signals[source]
    if isinstance(value, tuple):  # one of several results
        place = node.args[1]
        if not isinstance(place, int) or place >= len(value):
            raise reading.refuse(node, "it takes the winners of a maximum, which are not a signal")
        return value[place]
    shape = source.meta["shape"][1:]
    if isinstance(value, Signal) and _is_whole_input(value):
        made = _rearranged(reading, node, _images(value, source))
        return tuple(map(input_signal, made)) if isinstance(made, tuple | list) else input_signal(made)
    # Each unit carries its number, so the result shows where it went; 0 means no unit.
    numbers = torch.arange(1, prod(shape) + 1, dtype=torch.float64, device=reading.x.device).view(1, *shape)
    places = _rearranged(reading, node, numbers)
    parts = [moved(value, part, node) for part in (places if isinstance(places, tuple | list) else [places])]
    known = tuple(part for part in parts if part is not None)
    if len(known) < len(parts):
        raise reading.refuse(node, "it does not only move units")
    return known if isinstance(places, tuple | list) else known[0]


def _rearranged(reading: Reading, node: Node, images: Tensor) -> Any:
    """Run a rearrangement, with zero in place of a constant that it writes: no path starts there."""
    made = run_on(node, reading.network.model, images)
    constant = written(reading.network.call(node))
    if not constant:
        return made
    if reading.biases and isfinite(constant):  # padding by -inf never wins the maximum that follows
        raise reading.refuse(node, "it pads with a constant, from which paths have no rule; use biases=False")
    zeros, ones = (run_on(node, reading.network.model, torch.full_like(images, number)) for number in (0, 1))
    return made.masked_fill(zeros == ones, 0)


def _is_whole_input(signal: Signal) -> bool:
    """Whether a signal is nothing but the input, whose values are known."""
    return len(signal.terms) == 1 and signal.is_input and len(signal.terms[0].channels) == signal.channels


def _images(value: Value, node: Node) -> Tensor:
    """The values of an input signal, in the shape of its node."""
    assert isinstance(value, Signal)
    return value.terms[0].multiplier.reshape(-1, *node.meta["shape"][1:]).contiguous()


def _spatial(reading: Reading, node: Node, signals: dict[Node, Value]) -> Signal:
    branches = signals.get(node.args[0]) if isinstance(node.args[0], Node) else None
    if isinstance(branches, tuple):
        return _mean_of_branches(reading, node, branches)
    signal = _one(reading, node, signals)
    summed = _sum_of_channels(reading, node, signal)
    if summed is not None:
        return summed
    return _mapped(reading, node, signal, lambda images: run_on(node, reading.network.model, images))


def _sum_of_channels(reading: Reading, node: Node, signal: Signal) -> Signal | None:
    """The sum or mean over axes that hold channels, such as branches that were stacked (SKNet, ResNeSt)."""
    call = reading.network.call(node)
    if call.operation not in ("sum", "mean") or call["dim"] is None:
        return None
    shape = call["input"].meta["shape"]
    dims = {dim % len(shape) for dim in ([call["dim"]] if isinstance(call["dim"], int) else call["dim"])}
    axes = next((k for k in range(1, len(shape)) if prod(shape[1 : k + 1]) == signal.channels >= 2), 0)
    if not dims or not axes or not all(1 <= dim <= axes for dim in dims):
        return None
    numbers = torch.arange(signal.channels, device=reading.x.device).view(tuple(shape[1 : axes + 1]))
    kept = [axis for axis in range(axes) if axis + 1 not in dims]
    groups = numbers.permute(*(dim - 1 for dim in sorted(dims)), *kept).reshape(-1, prod(shape[a + 1] for a in kept))
    total = signal.with_channels(groups[0])
    for group in groups[1:]:
        total = total.plus(signal.with_channels(group))
    return total.scaled(1 / len(groups)) if call.operation == "mean" else total


def _mapped(reading: Reading, node: Node, signal: Signal, run: Callable[[Tensor], Tensor]) -> Signal:
    """Return the signal after a linear map of positions, which is found by applying ``run`` to images."""
    images = torch.rand(1, 2, *signal.size, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    images = images.to(reading.x.device)
    side_by_side, apart = (run(part) for part in (images, images.transpose(0, 1)))
    keeps_channels = (
        bool(signal.size)
        and side_by_side.numel() == apart.numel()
        and torch.allclose(side_by_side.reshape(2, -1), apart.reshape(2, -1))
    )
    maps = probe(run, signal.size, reading.x) if keeps_channels else None
    if maps is None:
        raise reading.refuse(node, "it does not treat every channel and every axis of positions by itself")
    return signal.mapped(maps)


def _mean_of_branches(reading: Reading, node: Node, branches: tuple[Signal | Moved, ...]) -> Signal:
    """The mean or sum over an axis on which signals were stacked."""
    call = reading.network.call(node)
    if call.operation not in ("mean", "sum") or call["dim"] not in (0, (0,), [0]):
        raise reading.refuse(node, "of signals side by side only the mean or sum has a path-kernel rule")
    total: Signal | None = None
    for branch in branches:
        assert isinstance(branch, Signal)
        total = branch if total is None else total.plus(branch)
    assert total is not None
    return total.scaled(1 / len(branches)) if call.operation == "mean" else total


def _sum(reading: Reading, node: Node, signals: dict[Node, Value]) -> Signal:
    call = reading.network.call(node)
    scale = -float(call["alpha"]) if call.operation in DIFFERENCES else float(call["alpha"])
    parts = []
    for place, argument in enumerate((call["input"], call["other"])):
        if isinstance(argument, Node) and argument in signals:
            part = reading.signal(argument, signals)
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


def _concatenation(reading: Reading, node: Node, signals: dict[Node, Value]) -> Value:
    call = reading.network.call(node)
    parts, dim = call["tensors"], call["dim"]
    axes = len(node.meta["shape"])
    found = [signals.get(part) for part in parts] if isinstance(parts, list | tuple) else []
    if any(isinstance(value, Moved) for value in found):
        return _joined_while_moving(reading, node, signals)
    if all(isinstance(value, Signal) and _is_whole_input(value) for value in found):
        images = {part: _images(signals[part], part) for part in parts}
        return input_signal(run_node(node, reading.network.model, images.__getitem__))
    if call.operation == "stack" and dim == 0:  # branches side by side, to be averaged
        return tuple(reading.signal(part, signals) for part in parts)
    if not isinstance(parts, list | tuple) or not isinstance(dim, int) or dim % axes != 1:
        raise reading.refuse(node, "only signals side by side on axis 1 have a path-kernel rule")
    first = next(reading.signal(part, signals) for part in parts if part in signals)
    total: Signal | None = None
    for part in parts:
        assert isinstance(part, Node)
        if part in signals:
            signal = reading.signal(part, signals)
        else:  # a constant: no path starts there
            if reading.biases and bool(torch.as_tensor(reading.network.constant(part)).any()):
                raise reading.refuse(node, "it joins a constant, from which paths have no rule; use biases=False")
            signal = replace(first, terms=(), channels=part.meta["shape"][1])
        if signal.positions != first.positions or signal.channels * signal.positions != prod(part.meta["shape"][1:]):
            raise reading.refuse(node, "it joins signals with different positions")
        total = signal if total is None else total.beside(signal)
    assert total is not None
    return replace(total, size=first.size)


def _joined_while_moving(reading: Reading, node: Node, signals: dict[Node, Value]) -> Value:
    """Join pieces of one signal that rearrangements have cut, before they are analysed as a whole."""
    pieces = {source: signals[source] for source in node.all_input_nodes if source in signals}
    bases = {id(piece.signal) for piece in pieces.values() if isinstance(piece, Moved)}
    if len(bases) != 1 or not all(isinstance(piece, Moved) for piece in pieces.values()):
        raise reading.refuse(node, "it joins signals whose channels and positions are mixed")
    numbers = {
        source: (piece.units + 1.0).double().view(1, *piece.shape)
        for source, piece in pieces.items()
        if isinstance(piece, Moved)
    }
    places = run_node(node, reading.network.model, lambda source: numbers[source])
    first = next(piece for piece in pieces.values() if isinstance(piece, Moved))
    joined = moved(first.signal, places, first.node)
    if joined is None:
        raise reading.refuse(node, "it does not only move units")
    return joined


def _scale(reading: Reading, node: Node, signals: dict[Node, Value]) -> Signal:
    signal = _one(reading, node, signals)
    call = reading.network.call(node)
    if "other" not in call.arguments:
        return signal.scaled(-1.0)
    operands = (call["input"], call["other"])
    constants = [operand for operand in operands if not (isinstance(operand, Node) and operand in signals)]
    inverse = call.operation in QUOTIENTS
    if len(constants) != 1 or (inverse and constants[0] is operands[0]):
        raise reading.refuse(node, "it multiplies data by data")
    (factor,) = constants
    if isinstance(factor, Node) and reading.holds_parameter(factor):
        return signal  # a value, like the scale of batch-norm: it counts as 1
    value = reading.network.constant(factor) if isinstance(factor, Node) else factor
    factors = torch.as_tensor(value, dtype=reading.x.dtype, device=reading.x.device)
    factors = 1 / factors if inverse else factors
    if factors.numel() == 1:
        return signal.scaled(float(factors))
    shape = node.meta["shape"]
    return signal.gated(factors.expand(1, *shape[1:]))


def _pass(reading: Reading, node: Node, signals: dict[Node, Value]) -> Value:
    """Pass a signal on: batch-norm and dropout in evaluation mode belong to the values."""
    del reading
    source: Any = node.args[0]
    return signals[source]


def _ones(reading: Reading, node: Node, signals: dict[Node, Value]) -> Signal:
    """Start the values at ones: the input acts only through the gates (piecewise constant DLGN)."""
    signal = _one(reading, node, signals)
    if not signal.is_input:
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
    Kind.NORMALISATION: _pass,
    Kind.DROPOUT: _pass,
    Kind.PASSING: _pass,
    Kind.START: _ones,
}
