"""Padding: the same gates with a wider value network (npk, Definition C.1)."""

import copy
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.fx import Graph, Node
from torch.nn.modules.batchnorm import _BatchNorm

from gatelab.convert.twin import Gate, GatedTwin, Winner
from gatelab.errors import InputError, UnsupportedModelError
from gatelab.models import DeepGatedNetwork
from gatelab.models.init import glorot_
from gatelab.network.calls import call_of, operation_of
from gatelab.network.nodes import describe, is_shape, weight_parameters
from gatelab.network.operations import TRANSPOSED, Kind, operation

# Kinds of operations that treat every channel alike, whatever their number, so they act on a wide signal as on a narrow
# one; of the rearrangements only these do.
_WIDE_KINDS = frozenset({Kind.SUM, Kind.SPATIAL, Kind.DROPOUT, Kind.PASSING})
_WIDE_OPERATIONS = frozenset({"flatten", "neg"})


def widen_values(
    dgn: GatedTwin | DeepGatedNetwork, m: int, *, generator: torch.Generator | None = None
) -> GatedTwin | DeepGatedNetwork:
    """Make every hidden value layer m times wider; each gate then serves m value units (npk, Definition C.1).

    The feature network is unchanged. The value network is redrawn, Glorot-uniform with zero biases. The normalised path
    kernel does not change (npk, Corollary C.1).

    Args:
        dgn: a network from :func:`gatelab.to_dgn` or :func:`gatelab.to_dlgn`, or a DeepGatedNetwork.
        m: the factor.
        generator: source of the new weights.

    Returns:
        A wider copy of the network.

    Raises:
        UnsupportedModelError: the value network contains an operation without a known wider form, e.g. a grouped
            convolution or a skip from the input around all weight layers.

    Example:
        >>> widen_values(DeepGatedNetwork([2, 3, 1]), 4).value[0]
        Linear(in_features=2, out_features=12, bias=False)
    """
    if not isinstance(m, int) or m < 1:
        raise InputError(f"m is {m}; give a factor of at least 1")
    if isinstance(dgn, DeepGatedNetwork):
        return _wider_dense(dgn, m, generator)
    if not isinstance(dgn, GatedTwin):
        raise InputError(f"{type(dgn).__name__} has no value network to widen; convert it with gatelab.to_dgn first")
    if any(isinstance(module, Gate | Winner) and module.copies > 1 for module in dgn.modules()):
        raise InputError("the network is widened already; widen the original network by the product of both factors")
    wide = copy.deepcopy(dgn)
    _Widening(wide, m, generator).run()
    wide._compile()
    return wide.train(dgn.training)


def _wider_dense(dgn: DeepGatedNetwork, m: int, generator: torch.Generator | None) -> DeepGatedNetwork:
    first: Any = dgn.feature[0]
    last: Any = dgn.value[-1]
    widths = [first.in_features, *(layer.out_features for layer in dgn.feature), last.out_features]
    wide = DeepGatedNetwork(
        widths,
        gate=dgn.gate,
        padding=dgn.padding * m,
        bias=first.bias is not None,
        dtype=first.weight.dtype,
        generator=generator,
    ).to(first.weight.device)
    wide.feature.load_state_dict(dgn.feature.state_dict())
    for new, old in zip(wide.feature.parameters(), dgn.feature.parameters(), strict=True):
        new.requires_grad_(old.requires_grad)
    return wide.train(dgn.training)


class _Widening:
    """Walk through a twin's graph and widen its value layers.

    A wide signal holds its m copies one after another within each block of channels: blocks (c₁, c₂) mean m · c₁
    channels from one layer, then m · c₂ from another. None marks narrow signals: the input's and the output's.
    """

    def __init__(self, twin: GatedTwin, m: int, generator: torch.Generator | None):
        self._twin, self._m, self._generator = twin, m, generator
        self._modules = dict(twin.named_modules(remove_duplicate=False))
        self._blocks: dict[Node, tuple[int, ...] | None] = {}
        self._last = _last_layers(twin.graph, self._modules)

    def run(self) -> None:
        for node in list(self._twin.graph.nodes):
            self._blocks[node] = self._widen(node)

    def _widen(self, node: Node) -> tuple[int, ...] | None:
        target = str(node.target)
        if node.op == "call_module" and target.startswith("gate."):
            gate: Any = self._modules[target]
            blocks = self._of(node.args[0])
            gate.copies, gate.blocks = (1, ()) if blocks is None else (self._m, blocks)
            return blocks
        if node.op == "get_attr" or (node.op == "call_module" and target.startswith("feature.")) or is_shape(node):
            return None
        names = weight_parameters(node, self._modules)
        if names is not None:
            return self._layer(node, names) if names[0].startswith("value.") else None
        sources = [source for source in node.all_input_nodes if not is_shape(source)]
        layouts = [self._of(source) for source in sources]
        if all(layout is None for layout in layouts):
            return None
        if None in layouts:
            raise UnsupportedModelError(
                f"{describe(node, self._modules)} joins a widened signal with one that cannot be widened (the input or "
                "a constant); remove that skip"
            )
        return self._between(node, [layout for layout in layouts if layout is not None])

    def _of(self, node: Any) -> tuple[int, ...] | None:
        return self._blocks[node]

    def _layer(self, node: Node, names: tuple[str, str | None]) -> tuple[int, ...] | None:
        before = 1 if self._of(node.args[0]) is None else self._m
        after = 1 if node in self._last else self._m
        call = call_of(node, self._modules)
        if call.arguments.get("groups", 1) != 1 or call.operation in TRANSPOSED:
            raise UnsupportedModelError(
                f"{describe(node, self._modules)}: grouped and transposed convolutions have no known wider form"
            )
        if names[1] is not None and names[1] not in dict(self._twin.named_parameters()):
            raise UnsupportedModelError(f"{describe(node, self._modules)}: its bias is not a parameter; no wider form")
        weight = self._twin.get_parameter(names[0])
        wide = weight.new_empty(weight.shape[0] * after, weight.shape[1] * before, *weight.shape[2:])
        self._replace(names[0], glorot_(wide, self._generator))
        if names[1] is not None:
            self._replace(names[1], weight.new_zeros(weight.shape[0] * after))
        if node.op == "call_module":
            _note_sizes(self._modules[str(node.target)], before, after)
        return None if node in self._last else (weight.shape[0],)

    def _replace(self, path: str, tensor: Tensor) -> None:
        owner, _, name = path.rpartition(".")
        old = self._twin.get_parameter(path)
        setattr(self._twin.get_submodule(owner), name, nn.Parameter(tensor, requires_grad=old.requires_grad))

    def _between(self, node: Node, layouts: list[tuple[int, ...]]) -> tuple[int, ...]:
        """Widen an operation between weight layers, and return the blocks of its output."""
        name = operation_of(node, self._modules)
        kind = operation(name).kind
        if kind is Kind.NORMALISATION and node.op == "call_module":
            norm: Any = self._modules[str(node.target)]
            self._twin.set_submodule(str(node.target), _wide_norm(norm, self._m))
        elif name in ("view", "reshape"):
            self._reshape(node)
        elif kind is Kind.CONCATENATION and name != "stack":
            call = call_of(node, self._modules)
            if call["dim"] == 1:
                return tuple(block for part in call["tensors"] for block in self._of(part) or ())
            self._refuse(node)
        elif not (node.op == "output" or kind in _WIDE_KINDS or name in _WIDE_OPERATIONS):
            self._refuse(node)
        if len(set(layouts)) > 1 or (name in ("mean", "sum") and not self._axes(node) <= {2, 3, 4}):
            self._refuse(node)
        return layouts[0]

    def _axes(self, node: Node) -> set[int]:
        given: Any = call_of(node, self._modules)["dim"]
        if given is None:
            return {0, 1}  # the mean over all axes includes these two
        return {given} if isinstance(given, int) else set(given)

    def _reshape(self, node: Node) -> None:
        """Multiply a literal number of channels (or channels times positions) by m."""
        arguments: Any = node.args
        source, *given = arguments
        first: Any = given[0]
        together = isinstance(first, tuple | list)
        shape: list[Any] = list(first) if together else list(given)
        if len(shape) > 1 and isinstance(shape[1], int) and shape[1] > 0:
            shape[1] *= self._m
        node.args = (source, tuple(shape)) if together else (source, *shape)

    def _refuse(self, node: Node) -> None:
        raise UnsupportedModelError(f"{describe(node, self._modules)} has no known wider form: it may mix channels")


def _wide_norm(norm: _BatchNorm, m: int) -> _BatchNorm:
    like = next(iter(norm.state_dict().values()))
    wide = type(norm)(
        norm.num_features * m, norm.eps, norm.momentum, norm.affine, norm.track_running_stats, device=like.device
    )
    return wide.to(like.dtype).train(norm.training)


def _note_sizes(module: Any, before: int, after: int) -> None:
    names = ("in_channels", "out_channels") if hasattr(module, "in_channels") else ("in_features", "out_features")
    for name, factor in zip(names, (before, after), strict=True):
        setattr(module, name, getattr(module, name) * factor)


def _last_layers(graph: Graph, modules: Mapping[str, nn.Module]) -> set[Node]:
    """Return the value layers with no other value layer after them: their outputs are the network's."""
    last: set[Node] = set()
    before_another: set[Node] = set()
    for node in reversed(graph.nodes):
        names = weight_parameters(node, modules)
        value = names is not None and names[0].startswith("value.")
        if any(user in before_another for user in node.users):
            before_another.add(node)
        elif value:
            last.add(node)
        if value:
            before_another.add(node)
    return last
