"""A model's two halves as networks of their own: what decides over the gates, and what passes through given ones."""

import operator
from collections.abc import Iterator
from dataclasses import dataclass

from torch import Tensor, nn
from torch.fx import Graph, Node
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd

from gatelab.convert.branch import Branch
from gatelab.convert.match import Parts, Role, match
from gatelab.convert.twin import GraphNetwork, graft
from gatelab.errors import UnsupportedModelError
from gatelab.gates import HardGate, LeakyGate
from gatelab.gates.functions import GateFunction
from gatelab.gates.pooling import take
from gatelab.network.nodes import dense_parameters, describe, max_pooling, node_operation

_PREFIX = "part"  # the halves keep the model's parts under a name of their own
_SELECTING = frozenset("squeeze unsqueeze getitem select flatten view reshape contiguous clone".split())
_SUMS = frozenset({"add", "radd", "iadd", "sub", "rsub", "isub", "subtract"})


@dataclass(frozen=True)
class ValueLayer:
    """A weight layer of the value network.

    Attributes:
        weight: its weight.
        fan_in: how many inputs each of its units sums.
        first: whether no weight layer stands before it.
    """

    weight: nn.Parameter
    fan_in: int
    first: bool


@dataclass(frozen=True)
class Halves:
    """A model taken apart.

    Attributes:
        deciding: x ↦ for each gate what it multiplies by, for each max-pooling the positions that win.
        values: (x, *gates) ↦ the activations before the last dense layer, or the outputs if the model does not end with
            one. Neither biases nor batch-norm are in it: paths start at x and are worth the product of their weights.
        layers: the weight layers of ``values``.
        last: the dense layer behind ``values``, if there is one.
    """

    deciding: GraphNetwork
    values: GraphNetwork
    layers: tuple[ValueLayer, ...]
    last: ValueLayer | None


def halves(model: nn.Module) -> Halves:
    """Take a model apart, on copies of its parameters.

    Raises:
        UnsupportedModelError: something in it is neither a gate nor linear.
    """
    parts = match(model)
    parts.refuse_curved_heads("path features")
    loose = parts.loose_parameters()
    if loose:
        raise UnsupportedModelError(
            f"path features: {', '.join(loose)} are no weights of Linear or Conv layers; their paths are not known"
        )
    end = _end(parts)
    last = end if dense_parameters(end, parts.modules) is not None else None
    values = _values(parts, end)
    layers = {
        node: ValueLayer(
            parts.model.get_parameter(name) if node is last else values.get_parameter(f"{_PREFIX}.{name}"),
            _fan_in(parts, node),
            first,
        )
        for node, name, first in _weight_layers(parts)
    }
    last_layer = layers.pop(last) if last is not None else None
    return Halves(_decisions(parts), values, tuple(layers.values()), last_layer)


def _end(parts: Parts) -> Node:
    """The last node on the paths, before batch-norm, dropout and whatever is not linear behind the last gate."""
    node = next(node for node, role in parts.roles.items() if role is Role.OUTPUT)
    while parts.roles[node] in (Role.OUTPUT, Role.HEAD) or _lets_pass(parts, node):
        sources = [source for source in node.all_input_nodes if parts.roles[source] is not Role.FIXED]
        if len(sources) != 1:
            raise UnsupportedModelError(
                f"{describe(node, parts.modules)} joins signals behind the last gate and is not linear; return what "
                "stands before it"
            )
        (node,) = sources
    return _behind_selection(parts, node)


def _behind_selection(parts: Parts, node: Node) -> Node:
    """The dense layer of whose outputs the node takes some; the node itself if there is none."""
    found = node
    while node_operation(found) in _SELECTING and isinstance(found.args[0], Node):
        found = found.args[0]
    return found if dense_parameters(found, parts.modules) is not None else node


def _lets_pass(parts: Parts, node: Node) -> bool:
    """Whether paths pass the node as if it were not there: batch-norm and dropout scale the values, no more."""
    if node.op == "call_module":
        return isinstance(parts.modules[str(node.target)], _BatchNorm | _DropoutNd | nn.Identity)
    return parts.roles[node] is Role.DROPOUT


def _decisions(parts: Parts) -> GraphNetwork:
    graph, root = Graph(), nn.Module()
    branch = Branch(parts, parts.model, graph, root, _PREFIX)
    decided = []
    for node, role in parts.roles.items():
        if role in (Role.GATE, Role.MAX_POOL):
            decide = _gate(branch.slope(node)) if role is Role.GATE else max_pooling(node, parts.modules).winners
            graft(root, parts.gate_paths[node], Verdict(decide))
            decided.append(graph.call_module(parts.gate_paths[node], (branch.source(node),)))
        if role is Role.INPUT:
            branch.made[node] = graph.placeholder("x")
        elif node in parts.deciding:
            branch.carry(node)
    graph.output(tuple(decided))
    return GraphNetwork(graph, root).eval()


def _values(parts: Parts, end: Node) -> GraphNetwork:
    graph, root = Graph(), nn.Module()
    branch = Branch(parts, parts.model, graph, root, _PREFIX)
    x = graph.placeholder("x")
    gating = [node for node, role in parts.roles.items() if role in (Role.GATE, Role.MAX_POOL)]
    gates = {node: graph.placeholder(f"gate_{place}") for place, node in enumerate(gating)}
    for node, role in parts.roles.items():
        if node is end and dense_parameters(end, parts.modules) is not None:
            graph.output(branch.source(node))
            break
        if role is Role.INPUT:
            branch.made[node] = x
        elif role is Role.GATE:
            # What a weight layer made for this gate alone may be overwritten, which saves memory.
            source = node.all_input_nodes[0]
            own = parts.roles[source] is Role.WEIGHT and len(source.users) == 1
            branch.made[node] = graph.call_method("mul_" if own else "mul", (branch.source(node), gates[node]))
        elif role is Role.MAX_POOL:
            branch.made[node] = graph.call_function(take, (branch.source(node), gates[node]))
        elif _lets_pass(parts, node):
            branch.follow(node)
        elif role is not Role.FIXED and node_operation(node) in _SUMS and _adds_a_constant(parts, node):
            _drop_constant(branch, graph, parts, node)
        else:
            branch.copy(node)
        if node is end:
            graph.output(branch.made[node])
            break
    network = GraphNetwork(graph, root).eval().requires_grad_(False)
    held = {**dict(network.named_parameters()), **dict(network.named_buffers())}
    for _, bias in parts.weights.values():
        name = f"{_PREFIX}.{bias}"
        if name in held:
            held[name].zero_()
    return network


def _adds_a_constant(parts: Parts, node: Node) -> bool:
    data = [arg for arg in node.args if isinstance(arg, Node) and parts.roles[arg] is not Role.FIXED]
    return len(data) == 1


def _drop_constant(branch: Branch, graph: Graph, parts: Parts, node: Node) -> None:
    """Paths start at the input: a constant that is added becomes zero, and the sum else stays what it is."""
    new = branch.copy(node)
    args = []
    for arg, old in zip(new.args, node.args, strict=True):
        fixed = isinstance(old, Node) and parts.roles[old] is Role.FIXED
        with graph.inserting_before(new):
            args.append(
                graph.call_function(operator.mul, (arg, 0)) if fixed else 0 if isinstance(arg, int | float) else arg
            )
    new.args = tuple(args)


def _weight_layers(parts: Parts) -> Iterator[tuple[Node, str, bool]]:
    """Weight layers, their weights' names, and whether no other stands before."""
    behind: set[Node] = set()
    for node in parts.roles:
        weighted = any(source in behind for source in node.all_input_nodes)
        if node in parts.weights:
            yield node, parts.weights[node][0], not weighted
        if weighted or node in parts.weights:
            behind.add(node)


def _fan_in(parts: Parts, node: Node) -> int:
    weight = parts.model.get_parameter(parts.weights[node][0])
    name = type(parts.modules[str(node.target)]).__name__ if node.op == "call_module" else node_operation(node) or ""
    # A transposed convolution's weight is (in, out, …).
    return weight[:, 0].numel() if "transpose" in name.lower() else weight[0].numel()


def _gate(slope: float) -> GateFunction:
    return LeakyGate(HardGate(), slope) if slope else HardGate()


class Verdict(nn.Module):
    """What a gate multiplies by, or which positions win at a max-pooling."""

    def __init__(self, decide: GateFunction):
        """Decide by this function of the pre-activation."""
        super().__init__()
        self.decide = decide

    def forward(self, q: Tensor) -> Tensor:
        """Decide."""
        return self.decide(q)
