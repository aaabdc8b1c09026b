"""Rewrite operations: matrix products as dense layers, GLUs and addcmul as products, writes into channels as cat."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.fx import Graph, Node

from gatelab.network.calls import call_of, operation_of
from gatelab.network.memory import overlaid
from gatelab.network.nodes import ancestors

_TRANSPOSES = frozenset({"t", "T", "mT"})


def write_dense_layers(graph: Graph) -> None:
    """Write ``x @ W`` and ``addmm(b, x, W)`` as ``linear(x, Wᵀ, b)`` where x is data and W made of parameters."""
    for node in list(graph.nodes):
        name = operation_of(node, {}) if node.op in ("call_function", "call_method") else ""
        if name in ("matmul", "mm") and len(node.args) == 2:
            bias, (x, weight) = None, node.args
        elif name == "addmm" and len(node.args) == 3 and not node.kwargs:
            bias, x, weight = node.args
        else:
            continue
        if not (_is_data(x) and _is_matrix(weight)) or _is_data(bias):
            continue
        with graph.inserting_before(node):
            layer = graph.call_function(
                F.linear, (x, _transposed(graph, weight), *([bias] if bias is not None else []))
            )
        layer.meta = dict(node.meta)
        node.replace_all_uses_with(layer)
        graph.erase_node(node)


def write_sums_of_products(graph: Graph) -> None:
    """Write ``addcmul(a, b, c, value=v)`` as ``a + v (b c)``."""
    for node in list(graph.nodes):
        called = node.op in ("call_function", "call_method") and operation_of(node, {}) == "addcmul"
        factors = node.args[1:]
        if not called or len(factors) != 2 or not all(isinstance(factor, Node) for factor in factors):
            continue
        with graph.inserting_before(node):
            product = graph.call_function(torch.mul, factors)
            total = graph.call_function(torch.add, (node.args[0], product), {"alpha": node.kwargs.get("value", 1)})
        shapes = [factor.meta["shape"] for factor in factors if isinstance(factor, Node)]
        product.meta = {
            **node.meta,
            "shape": tuple(torch.broadcast_shapes(*shapes)),
            "data": any(map(_is_data, factors)),
        }
        total.meta = dict(node.meta)
        node.replace_all_uses_with(total)
        graph.erase_node(node)


def write_gated_linear_units(graph: Graph, modules: Mapping[str, nn.Module]) -> None:
    """Write ``glu(x)`` as ``a * sigmoid(b)``, where a and b are the halves of x."""
    for node in list(graph.nodes):
        if operation_of(node, modules) != "glu":
            continue
        call = call_of(node, modules)
        shape, dim = node.meta["shape"], call["dim"]
        with graph.inserting_before(node):
            halves = [
                graph.call_method("narrow", (call["input"], dim, place * shape[dim], shape[dim])) for place in (0, 1)
            ]
            gate = graph.call_function(torch.sigmoid, (halves[1],))
            product = graph.call_function(torch.mul, (halves[0], gate))
        for new in (*halves, gate, product):
            new.meta = dict(node.meta)
        node.replace_all_uses_with(product)
        graph.erase_node(node)


def write_concatenations(graph: Graph) -> None:
    """Write ``h[:, a:b] = y``, a write into whole channels, as a concatenation of what is left of h and y."""
    written: dict[Node, list[_Channels]] = {}
    for node in list(graph.nodes):
        block = _channel_block(node) if node.target is overlaid else None
        if block is None:
            continue
        old, new = node.args[:2]
        assert isinstance(old, Node)
        assert isinstance(new, Node)
        channels = old.meta["shape"][1]
        if len(new.meta["shape"]) < len(old.meta["shape"]):  # h[:, 2] = y
            with graph.inserting_before(node):
                single = graph.call_method("unsqueeze", (new, 1))
            single.meta = {**new.meta, "shape": (new.meta["shape"][0], 1, *new.meta["shape"][1:])}
            new = single
        parts = written.get(old) or [_Channels(old, 0, channels)]
        parts = [*_cut(parts, 0, block[0]), _Channels(new, 0, block[1] - block[0]), *_cut(parts, block[1], channels)]
        with graph.inserting_before(node):
            joined = graph.call_function(torch.cat, ([_narrowed(graph, part) for part in parts], 1))
        joined.meta = dict(node.meta)
        written[joined] = parts
        node.replace_all_uses_with(joined)
        graph.erase_node(node)


@dataclass(frozen=True)
class _Channels:
    """Some channels of a node, from ``start`` to ``stop``."""

    node: Node
    start: int
    stop: int


def _cut(parts: list[_Channels], start: int, stop: int) -> list[_Channels]:
    """The channels from ``start`` to ``stop`` of a concatenation."""
    found, place = [], 0
    for part in parts:
        low, high = max(start - place, 0), min(stop - place, part.stop - part.start)
        if low < high:
            found.append(_Channels(part.node, part.start + low, part.start + high))
        place += part.stop - part.start
    return found


def _narrowed(graph: Graph, part: _Channels) -> Node:
    shape = part.node.meta["shape"]
    if (part.start, part.stop) == (0, shape[1]):
        return part.node
    node = graph.call_method("narrow", (part.node, 1, part.start, part.stop - part.start))
    node.meta = {**part.node.meta, "shape": (shape[0], part.stop - part.start, *shape[2:])}
    node.meta.pop("constant", None)
    return node


def _channel_block(node: Node) -> tuple[int, int] | None:
    """The channels that a write fills, in order, with another signal; None if it is another kind of write."""
    arguments: tuple[Any, ...] = node.args
    old, new, places, shape = arguments
    if not (isinstance(old, Node) and _is_data(new) and isinstance(places, Node) and isinstance(new, Node)):
        return None
    units = old.meta.get("shape", ())[1:]
    if not units or new.meta.get("shape", ())[1:] != tuple(shape):
        return None
    block = shape if len(shape) == len(units) else (1, *shape)
    if tuple(block[1:]) != tuple(units[1:]):
        return None
    taken = places.meta["constant"].reshape(units[0], -1)
    filled = (taken[:, 0] >= 0).nonzero().flatten().tolist()
    if not filled or filled != list(range(filled[0], filled[-1] + 1)) or len(filled) != block[0]:
        return None
    inside = taken[filled[0] : filled[-1] + 1].flatten()
    rest = torch.cat([taken[: filled[0]], taken[filled[-1] + 1 :]])
    in_order = torch.equal(inside, torch.arange(len(inside), device=inside.device)) and bool((rest < 0).all())
    return (filled[0], filled[-1] + 1) if in_order else None


def _is_data(value: object) -> bool:
    return isinstance(value, Node) and bool(value.meta.get("data"))


def _is_matrix(value: object) -> bool:
    if not isinstance(value, Node) or value.meta.get("data") or len(value.meta.get("shape", ())) != 2:
        return False
    return any(source.op == "get_attr" and "constant" not in source.meta for source in ancestors(value))


def _transposed(graph: Graph, weight: Node) -> Node:
    """Return the transpose of a fixed matrix: the original, if the matrix is a transpose itself."""
    source = weight.args[0] if weight.args else None
    swaps = operation_of(weight, {}) == "transpose" and set(weight.args[1:]) in ({0, 1}, {-1, -2}, {0, -1}, {1, -2})
    if isinstance(source, Node) and (operation_of(weight, {}) in _TRANSPOSES or swaps):
        return source
    node = graph.call_function(torch.t, (weight,))
    node.meta = {**weight.meta, "shape": weight.meta["shape"][::-1]}
    return node
