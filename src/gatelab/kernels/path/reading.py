"""The signals of a set of examples on their way through a network; what the rules of the path kernel work on."""

from dataclasses import dataclass, field, replace
from typing import Any

from torch import Tensor, nn
from torch.fx import Node

from gatelab.errors import UnsupportedModelError
from gatelab.gates import GatePattern
from gatelab.kernels.path.layers import Used
from gatelab.kernels.path.planning import WeightLayer
from gatelab.kernels.path.rearranging import Moved
from gatelab.kernels.path.signals import Signal
from gatelab.network.evaluation import held
from gatelab.network.network import Network
from gatelab.network.nodes import ancestors

# A node that returns several tensors has several signals.
Value = Signal | Moved | tuple[Signal | Moved, ...]


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

    def one(self, node: Node, signals: "dict[Node, Value]") -> Signal:
        """Return the one signal that a node passes on."""
        found = [source for source in node.all_input_nodes if source in signals]
        if len(found) != 1:
            raise self.refuse(node, "it joins signals in a way that has no path-kernel rule")
        return self.signal(found[0], signals)

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
