"""The networks that conversion returns; they run a rewritten graph."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.fx import Graph, Interpreter, Node, map_arg
from torch.fx.node import map_aggregate

from gatelab.errors import InputError, UnsupportedModelError
from gatelab.gates import LeakyGate, gated
from gatelab.gates.functions import FactorGate, GateFunction
from gatelab.gates.layer import Slope
from gatelab.gates.pooling import AdaptiveMaxPool, MaxPool, gated_max_pool


class GraphNetwork(nn.Module):
    """A module that runs a torch.fx graph over its own sub-modules; ``print(network.code)`` shows the Python code.

    Unlike a ``torch.fx.GraphModule``, it keeps the attributes of its subclasses when it is copied.
    """

    def __init__(self, graph: Graph, parts: nn.Module):
        """Take over from ``parts`` the sub-modules, parameters and buffers that ``graph`` names."""
        super().__init__()
        for name in (*parts._modules, *parts._parameters, *parts._buffers):
            if hasattr(type(self), name) or name in ("graph", "_run"):
                raise UnsupportedModelError(
                    f"the model has a part named '{name}', which the converted network needs for itself; rename it"
                )
        for name, child in parts.named_children():
            self.add_module(name, child)
        for name, parameter in parts.named_parameters(recurse=False):
            self.register_parameter(name, parameter)
        for name, buffer in parts.named_buffers(recurse=False):
            self.register_buffer(name, buffer, persistent=name not in parts._non_persistent_buffers_set)
        graph.lint()
        self.graph = graph
        self._compile()

    def forward(self, x: Tensor) -> Tensor:
        """Run the graph."""
        return self._run(self, x)

    def run(self, *inputs: Tensor) -> Any:
        """Run a graph with several inputs or outputs."""
        return self._run(self, *inputs)

    @property
    def code(self) -> str:
        """The Python code of the network."""
        return self.graph.python_code("self").src.strip()

    def _compile(self) -> None:
        # torch.fx renders the graph as a function of self; exec makes it as fast as a written forward.
        source = self.graph.python_code("self")
        namespace: dict[str, Any] = dict(source.globals)
        try:
            exec(source.src, namespace)
            self._run = namespace["forward"]
        except SyntaxError:  # a sub-module named "in" or "class" is not a valid attribute
            self._run = _interpret

    def __getstate__(self) -> dict[str, Any]:
        """Store the graph as a flat list: pickle would recurse along the chain of nodes, too deep for large graphs."""
        state = {name: value for name, value in self.__dict__.items() if name not in ("_run", "graph")}
        return state | {"graph": _flat(self.graph)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Rebuild the graph and compile it."""
        super().__setstate__({**state, "graph": _graph(state["graph"])})
        self._compile()


def _interpret(network: GraphNetwork, *inputs: Tensor) -> Any:
    return Interpreter(network, graph=network.graph).run(*inputs)


@dataclass(frozen=True)
class _Node:
    """A reference to a node by its index in a list."""

    place: int


def _flat(graph: Graph) -> list[tuple[str, str, Any, Any, Any]]:
    places: dict[Node, Any] = {node: _Node(place) for place, node in enumerate(graph.nodes)}
    return [
        (node.name, node.op, node.target, *map_arg((node.args, node.kwargs), places.__getitem__))
        for node in graph.nodes
    ]


def _graph(nodes: list[tuple[str, str, Any, Any, Any]]) -> Graph:
    graph, made = Graph(), []
    for name, op, target, args, kwargs in nodes:
        args_, kwargs_ = map_aggregate((args, kwargs), lambda a: made[a.place] if isinstance(a, _Node) else a)
        made.append(graph.create_node(op, target, args_, kwargs_, name))
    return graph


class GatedTwin(GraphNetwork):
    """A network whose gates come from one copy of a model and whose values come from another.

    Parameters are named ``feature.…`` and ``value.…`` after the model's own; gates are under ``gate.…``.

    Attributes:
        fixed_gates: the feature network does not learn: its parameters need no gradient, and its batch-norm and dropout
            stay in evaluation mode, even after :meth:`train`.
    """

    feature: nn.Module
    value: nn.Module
    gate: nn.Module

    def __init__(self, graph: Graph, parts: nn.Module, *, fixed_gates: bool):
        """Build the twin; see :func:`gatelab.to_dgn`."""
        super().__init__(graph, parts)
        self.fixed_gates = fixed_gates
        self.requires_grad_(True)  # even if the model was frozen
        if fixed_gates:
            self.feature.requires_grad_(False).eval()

    def train(self, mode: bool = True) -> "GatedTwin":
        """Set the mode of the value network, and of the feature network unless gates are fixed."""
        super().train(mode)
        if self.fixed_gates:
            self.feature.eval()
        return self

    def feature_parameters(self) -> list[nn.Parameter]:
        """Return Θᶠ, the parameters of the gates."""
        return list(self.feature.parameters())

    def value_parameters(self) -> list[nn.Parameter]:
        """Return Θᵛ, the parameters of the values."""
        return list(self.value.parameters())

    def set_gates(self, function: GateFunction) -> "GatedTwin":
        """Replace all gate functions, e.g. by hard gates to analyse a twin trained with soft ones.

        Gates that are signals (squeeze-and-excitation, GLU) stay: they have no pre-activation.
        """
        for module in self.gate.modules():
            if isinstance(module, Gate) and not isinstance(module.function, FactorGate):
                module.function = function
        return self


class Gate(nn.Module):
    """The twin's counterpart of a ReLU: the value times the gate of the feature network's pre-activation.

    Attributes:
        function: the gate function.
        slope: the share that a closed gate passes; one for each channel if the model has a PReLU there.
        copies: how many times wider the value is (npk, Definition C.1).
        blocks: the numbers of channels that are repeated together.
    """

    def __init__(self, function: GateFunction, slope: Slope = 0.0):
        """Build a gate without parameters."""
        super().__init__()
        self.function, self.slope = function, slope
        self.copies, self.blocks = 1, ()

    def forward(self, value: Tensor, q: Tensor) -> Tensor:
        """Gate the value."""
        gate = LeakyGate(self.function, self.slope) if self.slope else self.function
        q = _repeated(q, self.copies, self.blocks)
        return gated(value, q if q.shape == value.shape else q.expand(value.shape), gate)

    def extra_repr(self) -> str:
        """Show the gate function."""
        return f"{self.function}, slope={self.slope}, copies={self.copies}"


class Winner(nn.Module):
    """The twin's counterpart of a max-pooling: the value at the winner of the feature network."""

    def __init__(self, pool: MaxPool | AdaptiveMaxPool):
        """Build a pooling gate, which has no parameters and is always hard."""
        super().__init__()
        self.pool = pool
        self.copies, self.blocks = 1, ()

    def forward(self, value: Tensor, q: Tensor) -> Tensor:
        """Pool the value."""
        return gated_max_pool(value, _repeated(q, self.copies, self.blocks), self.pool)

    def extra_repr(self) -> str:
        """Show the windows."""
        return f"{self.pool}, copies={self.copies}"


def _repeated(q: Tensor, copies: int, blocks: tuple[int, ...]) -> Tensor:
    """Repeat each block of channels ``copies`` times; flattened positions multiply the size of every block."""
    if copies == 1 or q.shape[1] == 1 < sum(blocks):  # a gate that all channels share
        return q
    unit, start, parts = q.shape[1] // sum(blocks), 0, []
    for block in blocks:
        parts += [q.narrow(1, start * unit, block * unit)] * copies
        start += block
    return torch.cat(parts, dim=1)


def graft(root: nn.Module, path: str, part: nn.Module | Tensor) -> None:
    """Put a module, parameter or buffer at a dotted path; create plain modules on the way."""
    *owners, name = path.split(".")
    for owner in owners:
        if owner not in root._modules:
            root.add_module(owner, nn.Module())
        root = root.get_submodule(owner)
    if isinstance(part, nn.Module):
        root.add_module(name, part)
    elif isinstance(part, nn.Parameter):
        root.register_parameter(name, part)
    elif isinstance(part, Tensor):
        root.register_buffer(name, part)
    else:
        raise InputError(f"'{path}' is a {type(part).__name__}, which cannot be copied into a network")
