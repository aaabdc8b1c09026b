"""A model, read once: its operations, what each does to paths, and where it stands in the source."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from torch import Tensor, nn
from torch.fx import Graph, Node

from gatelab.errors import UnsupportedModelError
from gatelab.network.kinds import Kind, kind_of, operation_of
from gatelab.network.nodes import ancestors, describe
from gatelab.network.recording import record
from gatelab.network.tracing import gate_names, trace, value_sources
from gatelab.observe import examples, observable, stand_in, undisturbed


@dataclass(frozen=True, eq=False)
class Network:
    """A model as a graph of operations.

    Attributes:
        model: the model that was read.
        graph: its operations, as a torch.fx graph; nodes of a recorded graph know their shapes.
        modules: the model's modules by path.
        gates: the name of each gate, as in a GatePattern.
    """

    model: nn.Module
    graph: Graph
    modules: Mapping[str, nn.Module]
    gates: Mapping[Node, str]

    @cached_property
    def output(self) -> Node:
        """The node at which paths end: the model's output, or the input of a final softmax or sigmoid."""
        (output,) = (node for node in self.graph.nodes if node.op == "output")
        node = output.args[0]
        while isinstance(node, Node) and node.op != "placeholder" and self.kind(node) is Kind.HEAD:
            node = node.args[0]
        if not isinstance(node, Node):
            raise UnsupportedModelError("the model must return one tensor, not a tuple or dict")
        return node

    @cached_property
    def value_nodes(self) -> list[Node]:
        """The nodes that values pass on their way from the input to the output, in order."""
        wanted = ancestors(self.output, sources=value_sources)
        return [node for node in self.graph.nodes if node in wanted and node.meta.get("data")]

    def kind(self, node: Node) -> Kind:
        """Return what a node does to the signals that pass it."""
        return Kind.GATE if node in self.gates and not self._selects(node) else kind_of(node, self.modules)

    def operation(self, node: Node) -> str:
        """Return the plain name of a node's operation."""
        return operation_of(node, self.modules)

    def where(self, node: Node) -> str:
        """Return a node's name and place in the source, for error messages."""
        return describe(node, self.modules)

    def _selects(self, node: Node) -> bool:
        return kind_of(node, self.modules) is Kind.SELECTION


def read(model: nn.Module, x: Tensor | None = None) -> Network:
    """Read a model as a graph of operations.

    Args:
        model: any module in evaluation mode, or without batch-norm and dropout.
        x: examples; the model runs on two of them, and its operations are recorded. Without examples it is traced
            symbolically, which suffices if nothing in its forward depends on shapes.

    Returns:
        The network.

    Raises:
        UnsupportedModelError: control flow depends on values, or a signal cannot be followed.
    """
    model = observable(model)
    if x is None:
        graph = trace(model)
    else:
        x = examples(x, model)
        with undisturbed(model, x):
            graph = record(stand_in(model), x)
    modules = dict(model.named_modules(remove_duplicate=False))
    return Network(model, graph, modules, gate_names(graph, modules))
