"""Fixed gates, computed once for all examples and kept as bits, so the feature network runs once, not every epoch."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int64, UInt8
from torch import Tensor, nn
from torch.fx import Graph, Node

from gatelab.convert.twin import Gate, GatedTwin, GraphNetwork
from gatelab.data.user_data import Examples
from gatelab.gates import HardGate
from gatelab.gates.bits import pack
from gatelab.kernels.compiled import compiled
from gatelab.lab.channels_last import channels_last

_COMPILED = "gatelab.lab.octets"
_BATCH = 250  # examples whose gates are computed at a time
_MOST_BYTES = 4 * 2**30
_NUMBERS = {torch.float32: torch.int32, torch.float64: torch.int64}

Bits = list[Tensor]  # for each gate of a network, (n, octets) of uint8


@dataclass(frozen=True)
class _Kept:
    """The gates of all examples of a data set."""

    data: Examples
    train: Bits
    test: Bits


class FixedGates:
    """A twin with fixed hard gates, split into a feature network that gives gates and a value network that takes them.

    Both share their modules and parameters with the twin.
    """

    def __init__(self, twin: GatedTwin, gates: Sequence[Node]):
        """Split a twin whose gates are these nodes; :func:`fixed_gates` decides when that is possible."""
        self._features = GraphNetwork(_part(twin.graph, [node.args[1] for node in gates]), twin)
        self._values = GraphNetwork(_with_bits(twin.graph, gates), twin)
        self._kept: _Kept | None = None

    @torch.no_grad()
    def runs(self, data: Examples) -> bool:
        """Whether the value network runs on an example in the gates' layout, where ``view`` may fail."""
        first = data.train_x[:1]
        bits = self._bits(data, first)
        try:
            self._values.run(channels_last(data.inputs(first)), *bits)
        except RuntimeError:
            return False
        return True

    def answers(self, data: Examples, rows: Int64[Tensor, " b"], *, test: bool) -> Float[Tensor, "b k"]:
        """The twin's answers to rows of the training or the test examples."""
        if self._kept is None or self._kept.data is not data:
            self._kept = _Kept(data, self._bits(data, data.train_x), self._bits(data, data.test_x))
        x, bits = (data.test_x, self._kept.test) if test else (data.train_x, self._kept.train)
        return self._values.run(channels_last(data.inputs(x[rows])), *(gate[rows] for gate in bits))

    @torch.no_grad()
    def _bits(self, data: Examples, x: Tensor) -> Bits:
        parts = [
            [pack(_flat(q > 0)).view(torch.uint8) for q in self._features.run(channels_last(data.inputs(batch)))]
            for batch in x.split(_BATCH)
        ]
        return [torch.cat(layer) for layer in zip(*parts, strict=True)]


def fixed_gates(model: nn.Module, data: Examples) -> FixedGates | None:
    """Split a model if its gates are hard and fixed, their bits fit in memory, and its values run; else return None."""
    if not isinstance(model, GatedTwin) or not model.fixed_gates or compiled(_COMPILED) is None:
        return None
    if not {(p.dtype, p.device.type) for p in model.parameters()} <= {(dtype, "cpu") for dtype in _NUMBERS}:
        return None
    inputs = [node for node in model.graph.nodes if node.op == "placeholder"]
    gates = [node for node in model.graph.nodes if node.op == "call_module" and str(node.target).startswith("gate.")]
    if len(inputs) != 1 or not gates or not all(_is_plain(model.get_submodule(str(node.target))) for node in gates):
        return None
    probe = GraphNetwork(_part(model.graph, [source for node in gates for source in node.args]), model)
    with torch.no_grad(), _evaluating(model):
        shapes = [tensor.shape for tensor in probe.run(channels_last(data.inputs(data.train_x[:1])))]
    if shapes[::2] != shapes[1::2]:  # a gate that several units share
        return None
    octets = sum(shape.numel() for shape in shapes[1::2]) / 8
    if octets * (len(data.train_x) + len(data.test_x)) > _MOST_BYTES:
        return None
    fixed = FixedGates(model, gates)
    with _evaluating(model):
        return fixed if fixed.runs(data) else None


@contextmanager
def _evaluating(model: nn.Module) -> Iterator[None]:
    """The values' batch norm must not normalise by one example, nor update its statistics."""
    training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(training)


def keep_open(value: Float[Tensor, "n ..."], octets: UInt8[Tensor, "n octets"]) -> Float[Tensor, "n ..."]:
    """Multiply a value by gates that are packed in the order of :func:`channels_last`."""
    return _KeepOpen.apply(value, octets)


class _KeepOpen(torch.autograd.Function):
    """Gates are their own derivative: the gradient passes where the value did."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, octets: Tensor) -> Tensor:
        ctx.save_for_backward(octets)
        return _masked(value, octets)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return _masked(gradients[0], *ctx.saved_tensors), None


def _masked(value: Tensor, octets: Tensor) -> Tensor:
    value = channels_last(value) if value.ndim == 4 else value.contiguous()
    out = torch.empty_like(value)
    numbers, written = (_flat(tensor.detach()).view(_NUMBERS[value.dtype]).numpy() for tensor in (value, out))
    compiled(_COMPILED).keep_open(numbers, octets.numpy(), written)
    return out


def _flat(x: Tensor) -> Tensor:
    """Examples as rows, in the order in which :func:`channels_last` lies in memory."""
    return (x.permute(0, 2, 3, 1) if x.ndim == 4 else x).flatten(1)


def _is_plain(gate: nn.Module) -> bool:
    return isinstance(gate, Gate) and isinstance(gate.function, HardGate) and not gate.slope and gate.copies == 1


def _part(graph: Graph, outputs: Sequence[Any]) -> Graph:
    """The part of a graph on which some of its nodes depend; they are returned as a tuple."""
    needed = _ancestors(outputs)
    part, made = Graph(), {}
    for node in graph.nodes:
        if node in needed or node.op == "placeholder":
            made[node] = part.node_copy(node, made.__getitem__)
    part.output(tuple(made[node] for node in outputs))
    return part


def _with_bits(graph: Graph, gates: Sequence[Node]) -> Graph:
    """The value network's part of a twin's graph; instead of pre-activations it takes an input for each gate."""
    (last,) = (node for node in graph.nodes if node.op == "output")
    taken = {node: node.args[0] for node in gates}  # a gate depends on its value alone
    needed = _ancestors([last.args[0]], taken)
    part, made = Graph(), dict[Node, Node]()
    (x,) = (node for node in graph.nodes if node.op == "placeholder")
    made[x] = part.node_copy(x)
    bits = {gate: part.placeholder(f"bits_{number}") for number, gate in enumerate(gates)}
    for node in graph.nodes:
        if node is x:
            continue
        if node in taken:
            made[node] = part.call_function(keep_open, (made[node.args[0]], bits[node]))
        elif node in needed:
            made[node] = part.node_copy(node, made.__getitem__)
    part.output(made[last.args[0]])
    return part


def _ancestors(nodes: Sequence[Any], only: dict[Node, Any] | None = None) -> set[Node]:
    """Return the nodes and everything they depend on; a key of ``only`` depends only on its value there."""
    found: set[Node] = set()
    waiting = [node for node in nodes if isinstance(node, Node)]
    while waiting:
        node = waiting.pop()
        if node not in found:
            found.add(node)
            waiting += [only[node]] if only and node in only else node.all_input_nodes
    return found
