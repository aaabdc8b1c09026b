"""Rewrite operations: matrix products as dense layers, gated linear units as products."""

from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import nn
from torch.fx import Graph, Node

from gatelab.network.calls import call_of, operation_of
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
