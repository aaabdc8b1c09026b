"""A model, read once: its operations, what each does to paths, and where it stands in the source."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from torch import Tensor, nn
from torch.fx import Graph, Node

from gatelab.errors import UnsupportedModelError
from gatelab.network.abilities import abilities
from gatelab.network.drawing import picture, table
from gatelab.network.kinds import Kind, kind_of, operation_of
from gatelab.network.nodes import ancestors, describe, is_shape
from gatelab.network.recording import record
from gatelab.network.tracing import gate_names, trace, value_sources
from gatelab.observe import examples, observable, stand_in, undisturbed


@dataclass(frozen=True, eq=False)
class Network:
    """A model as a graph of operations; printed, it is a table, and in a notebook a picture.

    Attributes:
        model: the model that was read.
        graph: its operations, as a torch.fx graph; nodes of a recorded graph know their shapes.
        modules: the model's modules by path.
        gates: the name of each gate, as in a GatePattern.

    Example:
        >>> import torch
        >>> network = read(nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1)), torch.zeros(1, 2))
        >>> print(network)
        node  operation  kind          shape
        x                input         2
        0     linear     weight layer  3
        1     relu       gate          3
        2     linear     weight layer  1
        >>> network.abilities()["path kernel (neural_path_kernel)"]
        'yes'
    """

    model: nn.Module
    graph: Graph
    modules: Mapping[str, nn.Module]
    gates: Mapping[Node, str]

    @cached_property
    def nodes(self) -> list[Node]:
        """The nodes that the output depends on, in order; parameters and sizes are left out."""
        (output,) = (node for node in self.graph.nodes if node.op == "output")
        needed = ancestors(output)
        return [node for node in self.graph.nodes if node in needed and node.op != "get_attr" and not is_shape(node)]

    def abilities(self) -> dict[str, str]:
        """Return, for each part of gatelab, "yes" or the node that stands in its way, with its line in the source."""
        return abilities(self)

    def draw(self, path: str | Path | None = None) -> str:
        """Return the network as an SVG picture, one row for each operation; write it to ``path`` if given."""
        svg = picture(self)
        if path is not None:
            Path(path).write_text(svg, encoding="utf-8")
        return svg

    def __str__(self) -> str:
        return table(self)

    def __repr__(self) -> str:
        return f"Network of {type(self.model).__name__}: {len(self.nodes) - 2} operations, {len(self.gates)} gates"

    def _repr_svg_(self) -> str:
        return picture(self)

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

    Example:
        >>> import torch
        >>> read(nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1)), torch.zeros(1, 2))
        Network of Sequential: 3 operations, 1 gates
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
