"""The rules of the path kernel: what each kind of operation does to a signal."""

from collections.abc import Callable
from math import prod
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.fx import Node

from gatelab.errors import UnsupportedModelError
from gatelab.kernels.path.axes import probe
from gatelab.kernels.path.joining_rules import concatenation, mean_of_branches, sum_of_signals
from gatelab.kernels.path.layers import layer_of
from gatelab.kernels.path.moving_rules import rearrangement
from gatelab.kernels.path.reading import Reading, Value
from gatelab.kernels.path.signals import Signal, field_signal, input_signal
from gatelab.kernels.path.windows import winners_of
from gatelab.network.evaluation import run_on
from gatelab.network.network import Network
from gatelab.network.operations import QUOTIENTS, Kind

Rule = Callable[[Reading, Node, dict[Node, Value]], Value]


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


@torch.no_grad()
def output_signal(reading: Reading) -> Signal:
    """Follow the graph from the input to the output; the reading then holds the weight layers that were met."""
    network = reading.network
    signals: dict[Node, Value] = {}
    for node in network.value_nodes:
        if node.op == "placeholder":
            signals[node] = input_signal(reading.x)
        else:
            kind = network.kind(node)
            factor = kind is Kind.SCALE and node in network.gates  # a product of two signals
            signals[node] = RULES[Kind.GATE if factor else kind](reading, node, signals)
    if network.output not in signals:
        raise UnsupportedModelError("the output does not depend on the input")
    return reading.signal(network.output, signals)


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


def _spatial(reading: Reading, node: Node, signals: dict[Node, Value]) -> Signal:
    branches = signals.get(node.args[0]) if isinstance(node.args[0], Node) else None
    if isinstance(branches, tuple):
        return mean_of_branches(reading, node, branches)
    signal = reading.one(node, signals)
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


def _scale(reading: Reading, node: Node, signals: dict[Node, Value]) -> Signal:
    signal = reading.one(node, signals)
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
    signal = reading.one(node, signals)
    if not signal.is_input:
        raise reading.refuse(node, "values that start behind the input have no rule")
    return input_signal(torch.ones_like(reading.x))


RULES: dict[Kind, Rule] = {
    Kind.WEIGHT: _weight,
    Kind.GATE: _gate,
    Kind.SELECTION: _selection,
    Kind.REARRANGEMENT: rearrangement,
    Kind.SPATIAL: _spatial,
    Kind.SUM: sum_of_signals,
    Kind.CONCATENATION: concatenation,
    Kind.SCALE: _scale,
    Kind.NORMALISATION: _pass,
    Kind.DROPOUT: _pass,
    Kind.PASSING: _pass,
    Kind.START: _ones,
}
