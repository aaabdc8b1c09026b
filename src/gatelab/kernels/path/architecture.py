"""A traced model, as the rules of the path kernel read it."""

from collections.abc import Mapping
from dataclasses import dataclass

from torch import nn
from torch.fx import Graph, Node

from gatelab.errors import UnsupportedModelError
from gatelab.network.nodes import describe, node_operation
from gatelab.network.tracing import gate_names, trace


@dataclass(frozen=True)
class Architecture:
    """A model's graph and modules, with the names that capture gives to its gates."""

    model: nn.Module
    graph: Graph
    modules: Mapping[str, nn.Module]
    gate_names: Mapping[Node, str]

    @classmethod
    def of(cls, model: nn.Module) -> "Architecture":
        """Trace a model."""
        graph, modules = trace(model), dict(model.named_modules())
        return cls(model, graph, modules, gate_names(graph, modules))

    @property
    def output(self) -> Node:
        """The node at which paths end: the model's output, or the input of a final softmax or sigmoid."""
        (output,) = (node for node in self.graph.nodes if node.op == "output")
        node = output.args[0]
        while isinstance(node, Node) and self._is_final(node):
            node = node.args[0]
        if not isinstance(node, Node):
            raise UnsupportedModelError("the model must return one tensor, no tuple or dict")
        return node

    def where(self, node: Node) -> str:
        """Return a node's name and place, for error messages."""
        return describe(node, self.modules)

    def _is_final(self, node: Node) -> bool:
        if node.op == "call_module":
            return isinstance(self.modules[str(node.target)], nn.Softmax | nn.LogSoftmax | nn.Sigmoid)
        return node_operation(node) in ("softmax", "log_softmax", "sigmoid")
