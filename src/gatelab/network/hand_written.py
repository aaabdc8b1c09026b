"""Gates that a model writes by hand, ``torch.where(q > 0, q, 0)`` or ``h.amax((2, 3))``, as torch's own operations."""

import operator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.fx import Graph, Node

from gatelab.network.calls import operation_of

_ABOVE, _BELOW = frozenset({"gt", "ge", "greater", "greater_equal"}), frozenset({"lt", "le", "less", "less_equal"})
_NOT = frozenset({"invert", "logical_not", "bitwise_not"})
_CONVERSIONS = frozenset({"float", "double", "half", "bfloat16", "to", "type_as", "type"})
_ZEROS = frozenset({"zeros", "zeros_like", "new_zeros"})
_FULL = frozenset({"full_like", "full", "new_full"})
_LARGER = frozenset({"maximum", "max", "fmax"})
_PRODUCTS = frozenset({"mul", "rmul", "imul", "multiply"})
_POOLS = {1: F.adaptive_max_pool1d, 2: F.adaptive_max_pool2d, 3: F.adaptive_max_pool3d}


def write_activations(graph: Graph) -> None:
    """Write activations that are made of comparisons and maxima as ``relu`` and ``leaky_relu``."""
    for node in list(graph.nodes):
        found = _activation(node, _name(node)) if node.meta.get("data") else None
        if found is None or any(node.meta.get(key) != found[0].meta.get(key) for key in ("shape", "dtype")):
            continue
        q, slope = found
        with graph.inserting_before(node):
            own = graph.call_function(F.relu, (q,)) if slope == 0 else graph.call_function(F.leaky_relu, (q, slope))
        _replace(graph, node, own)


def write_global_maxima(graph: Graph) -> None:
    """Write ``h.amax((2, 3))`` and ``h.max(-1).values``, over all positions of an image, as max-pooling."""
    for node in list(graph.nodes):
        name = _name(node)
        if name not in ("amax", "max") or not node.meta.get("data"):
            continue
        source, dims, keep = _reduction(node)
        values = node if name == "amax" else _values_of(node)
        axes = len(source.meta.get("shape", ())) - 2 if isinstance(source, Node) else 0
        if values is None or axes not in _POOLS or {dim % (axes + 2) for dim in dims} != set(range(2, axes + 2)):
            continue
        with graph.inserting_before(values):
            own = graph.call_function(_POOLS[axes], (source, 1))
            own.meta = {**values.meta, "shape": (*source.meta["shape"][:2], *(1,) * axes)}
            if not keep:
                own = graph.call_function(torch.flatten, (own, 1))
        _replace(graph, values, own)


def _replace(graph: Graph, node: Node, own: Node) -> None:
    own.meta = dict(node.meta)
    node.replace_all_uses_with(own)
    graph.erase_node(node)


def _activation(node: Node, name: str) -> tuple[Node, float] | None:
    """The pre-activation and the slope below zero, if a node is a ReLU or a leaky one."""
    args = node.args
    if node.kwargs or not args:
        return None
    if name in _LARGER and len(args) == 2:
        return _larger(*args) or _larger(*args[::-1])
    if name == "where" and len(args) == 3:
        return _chosen(args[0], args[1], args[2])
    if name == "masked_fill" and len(args) == 3:
        return _chosen(args[1], args[2], args[0])
    if name in _PRODUCTS and len(args) == 2:
        return _masked(*args) or _masked(*args[::-1])
    return None


def _larger(q: Any, other: Any) -> tuple[Node, float] | None:
    """max(q, 0), or max(q, s q) with s between 0 and 1."""
    if not _is_data(q):
        return None
    slope = _multiple_of(q, other)
    return (q, slope) if slope is not None and 0 <= slope < 1 else None


def _chosen(condition: Any, yes: Any, no: Any) -> tuple[Node, float] | None:
    """One of two values, if one of them is what is compared with zero, and the other a multiple of it."""
    q, above = _comparison(condition)
    if q is None:
        return None
    opened, closed = (yes, no) if above else (no, yes)
    slope = _multiple_of(q, closed)
    return (q, slope) if opened is q and slope is not None else None


def _masked(q: Any, mask: Any) -> tuple[Node, float] | None:
    while _name(mask) in _CONVERSIONS and mask.args:
        mask = mask.args[0]
    compared, above = _comparison(mask)
    return (q, 0.0) if compared is not None and compared is q and above else None


def _comparison(condition: Any) -> tuple[Node | None, bool]:
    """What a condition compares with zero, and whether it holds above."""
    name = _name(condition)
    args: tuple[Any, ...] = condition.args if isinstance(condition, Node) else ()
    if name in _NOT and len(args) == 1:
        q, above = _comparison(args[0])
        return q, not above
    if name not in _ABOVE | _BELOW or len(args) != 2:
        return None, False
    if _is_data(args[0]) and _is_zero(args[1]):
        return args[0], name in _ABOVE
    if _is_data(args[1]) and _is_zero(args[0]):
        return args[1], name in _BELOW
    return None, False


def _multiple_of(q: Node, other: Any) -> float | None:
    """The number s with other = s q."""
    if _is_zero(other):
        return 0.0
    if _name(other) in _PRODUCTS and len(other.args) == 2 and q in other.args:
        factor = other.args[1] if other.args[0] is q else other.args[0]
        return float(factor) if isinstance(factor, int | float) else None
    return None


def _name(value: Any) -> str:
    """The operation of a node that is a function or a method."""
    called = isinstance(value, Node) and value.op in ("call_function", "call_method")
    return operation_of(value, {}) if called else ""


def _is_data(value: Any) -> bool:
    return isinstance(value, Node) and bool(value.meta.get("data"))


def _is_zero(value: Any) -> bool:
    """Whether an argument is zero whatever the weights: a number, or a tensor that forward makes."""
    if isinstance(value, int | float):
        return value == 0
    if not isinstance(value, Node) or value.meta.get("data"):
        return False
    constant = value.meta.get("constant")
    if isinstance(constant, Tensor):
        return not bool(constant.any())
    name = _name(value)
    return name in _ZEROS or (name in _FULL and len(value.args) > 1 and value.args[1] in (0, False))


def _reduction(node: Node) -> tuple[Any, tuple[int, ...], bool]:
    """What a maximum is taken of, over which axes, and whether they stay."""
    given: dict[str, Any] = dict(zip(("input", "dim", "keepdim"), node.args, strict=False)) | dict(node.kwargs)
    dim = given.get("dim", ())
    dims = (dim,) if isinstance(dim, int) else tuple(dim) if isinstance(dim, list | tuple) else ()
    return given.get("input"), dims, bool(given.get("keepdim", False))


def _values_of(node: Node) -> Node | None:
    """The values of a maximum that returns values and places, if nobody needs the places."""
    parts = {user.args[1]: user for user in node.users if user.target is operator.getitem and len(user.args) == 2}
    if len(parts) != len(node.users) or set(parts) - {0, 1} or (1 in parts and parts[1].users):
        return None
    return parts.get(0)
