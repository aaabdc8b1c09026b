"""The rules of the path kernel: what each kind of module or operation does to a signal."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.fx import Node

from gatelab.errors import UnsupportedModelError
from gatelab.gates import GatePattern
from gatelab.gates.pattern import GateKind
from gatelab.gates.pooling import AdaptiveMaxPool, MaxPool, pooling_of
from gatelab.kernels.path import terms as path_terms
from gatelab.kernels.path.architecture import Architecture
from gatelab.kernels.path.engine import WeightLayer
from gatelab.kernels.path.terms import INPUT, Signal
from gatelab.network.nodes import ancestors, holds_node, max_pooling, node_operation, parameter, weight_parameters
from gatelab.network.tracing import value_sources


def refuse_what_has_no_rule(architecture: Architecture) -> None:
    """Raise an error that names every node before the output that has no rule."""
    operations = ("call_module", "call_function", "call_method")
    wanted = ancestors(architecture.output, sources=value_sources)
    nodes = [node for node in architecture.graph.nodes if node.op in operations and node in wanted]
    unknown = [node for node in nodes if node not in architecture.gate_names and _rule(architecture, node) is None]
    if unknown:
        names = "; ".join(architecture.where(node) for node in unknown[:8])
        raise UnsupportedModelError(
            f"no path-kernel rule for: {names}. Rules exist for "
            f"{', '.join(sorted(kind.__name__ for kind in MODULE_RULES))}, ReLU, LeakyReLU, max-pooling, sums and "
            "concatenation of channels, and their functional forms"
        )


def _rule(architecture: Architecture, node: Node) -> "Rule | None":
    """The rule for a node that is not a gate; None if there is none."""
    if node.op == "call_module":
        module = architecture.modules[str(node.target)]
        return next((rule for kind, rule in MODULE_RULES.items() if isinstance(module, kind)), None)
    return OPERATION_RULES.get(node_operation(node) or "")


@dataclass
class Reading:
    """The signals of one set of examples, followed through an architecture.

    Attributes:
        gates: the examples' gates.
        normalise: weights have variance 1 / fan in behind the first layer, and 1 otherwise.
        biases: whether paths also start at biases.
        layers: the weight layers met so far.
    """

    architecture: Architecture
    x: Tensor
    gates: GatePattern
    normalise: bool
    biases: bool
    layers: list[WeightLayer] = field(default_factory=list)
    _met: dict[int, Node] = field(default_factory=dict)  # weights by the node that uses them

    def run(self) -> Signal:
        """Follow the graph from the input to the output."""
        signals: dict[Node, Signal] = {}
        output = self.architecture.output
        wanted = ancestors(output, sources=value_sources)
        for node in self.architecture.graph.nodes:
            if node.op == "placeholder":
                if not signals:
                    signals[node] = path_terms.input_signal(self.x)
            elif node in wanted:
                inputs = [signals[source] for source in value_sources(node) if source in signals]
                if inputs:
                    signals[node] = self._apply(node, inputs)
        if output not in signals:
            raise UnsupportedModelError("the output does not depend on the input")
        return signals[output]

    def _apply(self, node: Node, inputs: list[Signal]) -> Signal:
        if node in self.architecture.gate_names:
            return self._gate(node, inputs[0])
        rule = _rule(self.architecture, node)
        assert rule is not None, "refuse_what_has_no_rule was not called"
        return rule(self, node, inputs)

    def where(self, node: Node) -> str:
        """Return a node's name and place, for error messages."""
        return self.architecture.where(node)

    def options(self, node: Node, names: tuple[str, ...], **defaults: Any) -> dict[str, Any]:
        """Return a module's attributes or a function's arguments, under the same names."""
        if node.op == "call_module":
            module = self.architecture.modules[str(node.target)]
            return {name: getattr(module, name, defaults.get(name)) for name in names}
        given = dict(zip(names, node.args[1:], strict=False)) | dict(node.kwargs)
        made = {name: given.get(name, defaults.get(name)) for name in names}
        computed = [name for name, value in made.items() if name not in ("weight", "bias") and holds_node(value)]
        if computed:
            raise UnsupportedModelError(f"{self.where(node)}: {', '.join(computed)} must be numbers, not be computed")
        return made

    def _gate(self, node: Node, signal: Signal) -> Signal:
        layer = self.gates.layer(self.architecture.gate_names[node])
        gates = layer.gates().to(self.x.dtype)
        if layer.kind is not GateKind.MAX_POOL:
            return signal.times(gates + layer.slope * (1 - gates))
        # Capture accepts adaptive pooling only if its windows are all alike; then they tile the image.
        window = (signal.size[0] // layer.shape[1], signal.size[1] // layer.shape[2])
        pool = self._max_pool(node)
        if isinstance(pool, MaxPool):
            window = _tiling_window(self, node, signal, pool)
        winners = gates.view(-1, signal.channels, *layer.shape[1:3], *window).transpose(3, 4)
        return signal.times(winners.reshape(-1, signal.channels, *signal.size)).pooled(window, 1.0)

    def _max_pool(self, node: Node) -> MaxPool | AdaptiveMaxPool:
        if node_operation(node) == "gated_max_pool":
            made: Any = node.args[2]  # fx records a dataclass as a call of its constructor
            return made.target(**made.kwargs)
        return max_pooling(node, self.architecture.modules)

    def add_layer(self, node: Node, weight: Tensor, layer: WeightLayer) -> int:
        """Register a weight layer and return its number, the origin of its field."""
        met = self._met.setdefault(id(weight), node)
        if met is not node:
            raise UnsupportedModelError(
                f"{self.where(node)} uses the same weight as {self.where(met)}: paths that pass a weight twice have no "
                "path-kernel rule; give each layer its own weight"
            )
        first = all(term.origin == INPUT for term in layer.inputs.terms)
        self.layers.append(replace(layer, scale=1.0 if first or not self.normalise else 1 / weight[0].numel()))
        return len(self.layers) - 1


Rule = Callable[[Reading, Node, list[Signal]], Signal]


def _dense(reading: Reading, node: Node, inputs: list[Signal]) -> Signal:
    (signal,) = inputs
    weight, bias = _weight(reading, node)
    units = signal.channels * signal.size[0] * signal.size[1]
    if not signal.flat or weight.shape[1] != units:
        raise UnsupportedModelError(
            f"{reading.where(node)} takes {weight.shape[1]} units where each example has {units}: it is shared over "
            "positions, for which there is no path-kernel rule; flatten the examples first"
        )
    number = reading.add_layer(node, weight, WeightLayer(signal, 1.0, bias, dense=True))
    return Signal((path_terms.field(number, weight.shape[0], (1, 1), reading.x),), weight.shape[0], (1, 1), flat=True)


def _convolution(reading: Reading, node: Node, inputs: list[Signal]) -> Signal:
    (signal,) = inputs
    weight, bias = _weight(reading, node)
    keys = ("weight", "bias", "stride", "padding", "dilation", "groups")
    options = reading.options(node, keys, stride=1, padding=0, dilation=1, groups=1)
    module = reading.architecture.modules[str(node.target)] if node.op == "call_module" else None
    mode = getattr(module, "padding_mode", "zeros")
    if signal.flat or mode not in ("zeros", "circular"):
        raise UnsupportedModelError(
            f"{reading.where(node)}: only images, padded by zeros or circularly, have a path-kernel rule"
        )
    kernel = (weight.shape[2], weight.shape[3])
    stride, dilation = _pair(options["stride"]), _pair(options["dilation"])
    padding = _padding(reading, node, options["padding"], kernel, dilation)
    out, terms = weight.shape[0] // int(options["groups"]), []
    for channel in range(0, weight.shape[0], out):  # each group is a layer of its own
        part = signal.channel_range(channel // out * weight.shape[1], weight.shape[1])
        layer = WeightLayer(part, 1.0, bias, False, kernel, stride, padding, dilation, mode == "circular")
        number = reading.add_layer(node, weight, layer)
        terms.append(path_terms.field(number, out, layer.out_size, reading.x, channel=channel))
    return Signal(tuple(terms), weight.shape[0], terms[0].size)


def _average_pool(reading: Reading, node: Node, inputs: list[Signal]) -> Signal:
    (signal,) = inputs
    names = ("kernel_size", "stride", "padding", "ceil_mode", "count_include_pad", "divisor_override")
    options = reading.options(node, names, padding=0)
    if options["divisor_override"] is not None:
        raise UnsupportedModelError(f"{reading.where(node)}: divisor_override has no path-kernel rule")
    window = _tiling_window(reading, node, signal, pooling_of("avg_pool2d", (), options))
    return signal.pooled(window, 1 / (window[0] * window[1]))


def _adaptive_average_pool(reading: Reading, node: Node, inputs: list[Signal]) -> Signal:
    (signal,) = inputs
    output = reading.options(node, ("output_size",))["output_size"]
    sizes = tuple(size if out is None else out for size, out in zip(signal.size, _pair(output), strict=True))
    if any(size % out for size, out in zip(signal.size, sizes, strict=True)):
        raise UnsupportedModelError(f"{reading.where(node)}: windows of {signal.size} to {sizes} overlap; no rule")
    window = (signal.size[0] // sizes[0], signal.size[1] // sizes[1])
    return signal.pooled(window, 1 / (window[0] * window[1]))


def _mean(reading: Reading, node: Node, inputs: list[Signal]) -> Signal:
    (signal,) = inputs
    options = reading.options(node, ("dim", "keepdim"), keepdim=False)
    axes = options["dim"] if isinstance(options["dim"], tuple | list) else (options["dim"],)
    if signal.flat or sorted(axis % 4 for axis in axes if isinstance(axis, int)) != [2, 3]:
        raise UnsupportedModelError(f"{reading.where(node)}: only the mean over both positions has a path-kernel rule")
    area = signal.size[0] * signal.size[1]
    return replace(signal.pooled(signal.size, 1 / area), flat=not options["keepdim"])


def _flatten(reading: Reading, node: Node, inputs: list[Signal]) -> Signal:
    (signal,) = inputs
    units = signal.channels * signal.size[0] * signal.size[1]
    if node_operation(node) in ("view", "reshape"):
        _, *shape = node.args
        flattens = len(shape) == 2 and (shape[1] == -1 or shape == [-1, units])
    else:
        options = reading.options(node, ("start_dim", "end_dim"), start_dim=0, end_dim=-1)
        flattens = (options["start_dim"], options["end_dim"]) in ((1, -1), (1, 3))
    if not flattens:
        raise UnsupportedModelError(
            f"{reading.where(node)}: only flattening all but the examples has a rule: flatten(1), view(n, -1) or "
            f"view(-1, {units})"
        )
    return replace(signal, flat=True)


def _ones(reading: Reading, node: Node, inputs: list[Signal]) -> Signal:
    """Start the values at ones: the input acts through the gates alone (DLGN-PWC)."""
    if any(term.origin != INPUT for signal in inputs for term in signal.terms):
        raise UnsupportedModelError(f"{reading.where(node)}: values that start behind the input have no rule")
    return path_terms.input_signal(torch.ones_like(reading.x))


def _squeeze(reading: Reading, node: Node, inputs: list[Signal]) -> Signal:
    (signal,) = inputs
    if signal.size != (1, 1):
        raise UnsupportedModelError(f"{reading.where(node)}: squeezing positions that are not one has no rule")
    return replace(signal, flat=True)


def _sum(reading: Reading, node: Node, inputs: list[Signal]) -> Signal:
    operands = [arg for arg in node.args if isinstance(arg, Node)]
    if len(inputs) == 1 and len(operands) == 2 and operands[0] is operands[1]:
        inputs = inputs * 2
    if len(inputs) != 2 or "alpha" in node.kwargs:
        raise UnsupportedModelError(f"{reading.where(node)}: only the sum of two signals has a path-kernel rule")
    return inputs[0].plus(inputs[1], reading.where(node))


def _concatenate(reading: Reading, node: Node, inputs: list[Signal]) -> Signal:
    dim = reading.options(node, ("dim",), dim=0)["dim"]
    (parts, *_), first = node.args, inputs[0]
    repeated = not isinstance(parts, list | tuple) or len(parts) != len(inputs)
    if dim != 1 or repeated or any((s.size, s.flat) != (first.size, first.flat) for s in inputs):
        raise UnsupportedModelError(f"{reading.where(node)}: only different signals side by side on axis 1 have a rule")
    if first.flat and first.size != (1, 1):
        raise UnsupportedModelError(f"{reading.where(node)}: flattened images side by side have no rule")
    total = first
    for signal in inputs[1:]:
        total = total.beside(signal)
    return total


def _pass(reading: Reading, node: Node, inputs: list[Signal]) -> Signal:
    """Pass a signal on: batch-norm and dropout in evaluation mode belong to the values."""
    del reading, node
    (signal,) = inputs
    return signal


MODULE_RULES: dict[type[nn.Module], Rule] = {
    nn.Linear: _dense,
    nn.Conv2d: _convolution,
    nn.AvgPool2d: _average_pool,
    nn.AdaptiveAvgPool2d: _adaptive_average_pool,
    nn.Flatten: _flatten,
    nn.Identity: _pass,
    nn.Dropout: _pass,
    nn.Dropout2d: _pass,
    nn.BatchNorm1d: _pass,
    nn.BatchNorm2d: _pass,
}
OPERATION_RULES: dict[str, Rule] = {
    "linear": _dense,
    "conv2d": _convolution,
    "avg_pool2d": _average_pool,
    "adaptive_avg_pool2d": _adaptive_average_pool,
    "mean": _mean,
    "squeeze": _squeeze,
    "ones_like": _ones,
    **dict.fromkeys(("flatten", "view", "reshape"), _flatten),
    **dict.fromkeys(("add", "iadd"), _sum),
    **dict.fromkeys(("cat", "concat", "concatenate"), _concatenate),
    **dict.fromkeys(("dropout", "dropout2d", "batch_norm", "contiguous", "clone"), _pass),
}


def _weight(reading: Reading, node: Node) -> tuple[nn.Parameter, float]:
    """The weight of a layer, and the variance of its bias; 0 if no paths start there."""
    names = weight_parameters(node, reading.architecture.modules)
    if names is None:
        raise UnsupportedModelError(f"{reading.where(node)} does not take its weight from the model's parameters")
    weight = parameter(reading.architecture.model, names[0], reading.where(node))
    return weight, 1.0 if reading.biases and names[1] is not None else 0.0


def _tiling_window(reading: Reading, node: Node, signal: Signal, pool: MaxPool | AdaptiveMaxPool) -> tuple[int, int]:
    assert isinstance(pool, MaxPool)
    plain = pool.stride == pool.kernel and pool.padding == (0, 0) and pool.dilation == (1, 1)
    if not plain or signal.size[0] % pool.kernel[0] or signal.size[1] % pool.kernel[1]:
        raise UnsupportedModelError(
            f"{reading.where(node)}: windows of {pool.kernel} with stride {pool.stride} do not tile {signal.size}; "
            "overlapping, padded or cut windows have no path-kernel rule"
        )
    return (pool.kernel[0], pool.kernel[1])


def _padding(
    reading: Reading, node: Node, padding: Any, kernel: tuple[int, int], dilation: tuple[int, int]
) -> tuple[int, int]:
    if padding == "valid":
        return (0, 0)
    if padding == "same":
        total = tuple(d * (k - 1) for d, k in zip(dilation, kernel, strict=True))
        if any(t % 2 for t in total):
            raise UnsupportedModelError(f"{reading.where(node)}: padding 'same' of an even kernel has no rule")
        return (total[0] // 2, total[1] // 2)
    return _pair(padding)


def _pair(value: Any) -> tuple[int, int]:
    values = (value,) * 2 if value is None or isinstance(value, int) else tuple(value)
    return (values * 2)[:2] if len(values) == 1 else values  # pyright: ignore
