"""Split a model into two networks: one computes the gates, the other passes values through given gates.

Random path features need this: they compute the gates once and pass many random value networks through them.
"""

import operator
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from torch import Tensor, nn
from torch.fx import Graph, Node

from gatelab.convert.branch import Branch
from gatelab.convert.match import Parts, Role, match
from gatelab.convert.twin import GraphNetwork, graft
from gatelab.errors import UnsupportedModelError
from gatelab.gates import HardGate, LeakyGate
from gatelab.gates.functions import BoundedGate, GateFunction
from gatelab.gates.layer import factors_of
from gatelab.gates.pooling import take
from gatelab.network.nodes import dense_parameters, value_sources
from gatelab.network.operations import TRANSPOSED, Kind

_PREFIX = "part"  # both halves hold the modules of the model under this name


@dataclass(frozen=True)
class ValueLayer:
    """A weight layer of the value network.

    Attributes:
        weight: its weight.
        fan_in: the number of inputs that each unit sums.
        first: whether it is a first layer, with no weight layer before it.
    """

    weight: nn.Parameter
    fan_in: int
    first: bool


@dataclass(frozen=True)
class Halves:
    """A model split into gates and values.

    Attributes:
        deciding: x ↦ the factor of each gate and the winning positions of each max-pooling.
        values: (x, *gates) ↦ the activations before the last dense layer, or the outputs if the model does not end with
            one. It has no biases and no batch-norm: paths start at x, and their value is the product of their weights.
        layers: the weight layers of ``values``.
        last: the dense layer after ``values``, or None.
    """

    deciding: GraphNetwork
    values: GraphNetwork
    layers: tuple[ValueLayer, ...]
    last: ValueLayer | None


def halves(model: nn.Module, x: Tensor | None = None, *, hard: bool = False) -> Halves:
    """Split a model, on copies of its parameters.

    Args:
        model: the model.
        x: examples, needed if something in its forward depends on shapes.
        hard: whether soft gates count as bits.

    Raises:
        UnsupportedModelError: an operation is neither a gate nor linear.
    """
    parts = match(model, x, decoupled=True)
    parts.refuse_curved_heads("path features")
    neutral = {name: parts.neutral(name) for name in parts.loose_parameters(deciding=False)}
    loose = [name for name, start in neutral.items() if start is None]
    if loose:
        raise UnsupportedModelError(
            f"path features: {', '.join(loose[:5])}{', …' if len(loose) > 5 else ''} are not weights of Linear or Conv "
            "layers, scales or shifts, so their paths are unknown; make them buffers, or use neural_path_kernel"
        )
    end = _end(parts)
    last = end if _is_dense(parts, end) else None
    values = _values(parts, end, {name: start for name, start in neutral.items() if start is not None})
    layers = {
        node: ValueLayer(
            parts.model.get_parameter(name) if node is last else values.get_parameter(f"{_PREFIX}.{name}"),
            _fan_in(parts, node),
            first,
        )
        for node, name, first in _weight_layers(parts)
    }
    last_layer = layers.pop(last) if last is not None else None
    return Halves(_decisions(parts, hard), values, tuple(layers.values()), last_layer)


def _end(parts: Parts) -> Node:
    """Return the last node on the paths, before batch-norm, dropout and operations that are not linear."""
    node = next(node for node, role in parts.roles.items() if role is Role.OUTPUT)
    while parts.roles[node] in (Role.OUTPUT, Role.HEAD) or _lets_pass(parts, node):
        sources = [source for source in value_sources(node) if parts.roles[source] is not Role.FIXED]
        if len(sources) != 1:
            raise UnsupportedModelError(
                f"{parts.network.where(node)} joins signals after the last gate and is not linear; return its "
                "inputs instead"
            )
        (node,) = sources
    return _behind_selection(parts, node)


def _behind_selection(parts: Parts, node: Node) -> Node:
    """Return the dense layer whose outputs the node selects from, or the node itself."""
    source = node
    while parts.network.kind(source) in (Kind.REARRANGEMENT, Kind.PASSING) and isinstance(source.args[0], Node):
        source = source.args[0]
    return source if _is_dense(parts, source) else node


def _is_dense(parts: Parts, node: Node) -> bool:
    return node in parts.weights and dense_parameters(node, parts.network.modules) is not None


def _lets_pass(parts: Parts, node: Node) -> bool:
    """Whether paths ignore the node: batch-norm and dropout only scale values."""
    kinds = (Kind.NORMALISATION, Kind.DROPOUT, Kind.PASSING)
    if parts.roles[node] is Role.FIXED or node.op == "output" or parts.network.operation(node) == "contiguous":
        return False  # a view may follow, which needs the layout
    return parts.network.kind(node) in kinds


def _decisions(parts: Parts, hard: bool) -> GraphNetwork:
    graph, root = Graph(), nn.Module()
    branch = Branch(parts, parts.model, graph, root, _PREFIX)
    decided = []
    for node, role in parts.roles.items():
        if role in (Role.GATE, Role.MAX_POOL):
            graft(root, parts.gate_paths[node], GateDecision(_decision(parts, node, hard)))
            decided.append(graph.call_module(parts.gate_paths[node], (branch.decides(node),)))
        if role is Role.INPUT:
            branch.made[node] = graph.placeholder("x")
        elif node in parts.deciding:
            branch.carry(node)
    graph.output(tuple(decided))
    return GraphNetwork(graph, root).eval()


def _decision(parts: Parts, node: Node, hard: bool) -> GateFunction:
    """The function from what decides a gate to its factor, or to the winners of a max-pooling."""
    gating, slope = parts.network.gating(node), parts.network.slope(node)
    if gating.pool is not None:
        return gating.pool.winners
    if gating.bounds is not None:
        return BoundedGate(*gating.bounds)
    if gating.gate is not None:
        return (lambda q: factors_of(gating.opened(q), slope, q.dtype)) if hard else gating.gate
    return LeakyGate(HardGate(), slope) if slope else HardGate()


def _values(parts: Parts, end: Node, neutral: Mapping[str, float]) -> GraphNetwork:
    """Write the value network; ``neutral`` has the number at which a parameter that scales or shifts does nothing."""
    graph, root = Graph(), nn.Module()
    branch = Branch(parts, parts.model, graph, root, _PREFIX)
    x = graph.placeholder("x")
    gating = [node for node, role in parts.roles.items() if role in (Role.GATE, Role.MAX_POOL)]
    gates = {node: graph.placeholder(f"gate_{place}") for place, node in enumerate(gating)}
    for node, role in parts.roles.items():
        if node is end and _is_dense(parts, end):
            graph.output(branch.source(node))
            break
        if role is Role.INPUT:
            branch.made[node] = x
        elif role is Role.GATE:
            # If the gate is the only reader of a weight layer's output, overwrite it, which saves memory.
            source = parts.network.gating(node).value
            only_reader = parts.roles[source] is Role.WEIGHT and len(source.users) == 1
            branch.made[node] = graph.call_method("mul_" if only_reader else "mul", (branch.source(node), gates[node]))
        elif role is Role.MAX_POOL:
            branch.made[node] = graph.call_function(take, (branch.source(node), gates[node]))
        elif role is Role.DECIDING:
            continue
        elif _lets_pass(parts, node):
            branch.follow(node)
        else:
            _without_constant(branch, graph, parts, node)
        if node is end:
            graph.output(branch.made[node])
            break
    network = GraphNetwork(graph, root).eval().requires_grad_(False)
    held = {**dict(network.named_parameters()), **dict(network.named_buffers())}
    starts = {**{bias: 0.0 for _, bias in parts.weights.values() if bias is not None}, **neutral}
    for name, start in starts.items():
        if f"{_PREFIX}.{name}" in held:
            held[f"{_PREFIX}.{name}"].fill_(start)
    return network


def _without_constant(branch: Branch, graph: Graph, parts: Parts, node: Node) -> None:
    """Write a node with zero in place of a constant that it adds or pads with: paths start at the input."""
    if parts.roles[node] is not Role.FIXED and parts.network.kind(node) is Kind.SUM and _adds_a_constant(parts, node):
        _drop_constant(branch, graph, parts, node)
    elif branch.writes(node):
        branch.made[node] = branch.zero_padded(node)
    else:
        branch.copy(node)


def _adds_a_constant(parts: Parts, node: Node) -> bool:
    data = [arg for arg in node.args if isinstance(arg, Node) and parts.roles[arg] is not Role.FIXED]
    return len(data) == 1


def _drop_constant(branch: Branch, graph: Graph, parts: Parts, node: Node) -> None:
    """Replace an added constant by zero."""
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
    """Yield each weight layer, the name of its weight, and whether it is a first layer."""
    behind: set[Node] = set()
    for node in parts.roles:
        if parts.roles[node] is Role.DECIDING:
            continue
        weighted = any(source in behind for source in value_sources(node))
        if node in parts.weights:
            yield node, parts.weights[node][0], not weighted
        if weighted or node in parts.weights:
            behind.add(node)


def _fan_in(parts: Parts, node: Node) -> int:
    weight = parts.model.get_parameter(parts.weights[node][0])
    if parts.network.operation(node) not in TRANSPOSED:
        return weight[0].numel()
    return weight[:, 0].numel() // parts.network.call(node)["groups"]  # its weight is (in, out / groups, …)


class GateDecision(nn.Module):
    """Return the factor of a gate, or the winning positions of a max-pooling."""

    def __init__(self, decide: GateFunction):
        """Use this function of the pre-activation."""
        super().__init__()
        self.decide = decide

    def forward(self, q: Tensor) -> Tensor:
        """Apply the function; the values must not inherit the memory layout of what decides."""
        return self.decide(q).contiguous()
