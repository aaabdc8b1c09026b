"""Operations that write in place, followed through the graph."""

import inspect
from collections.abc import Mapping

from torch import nn
from torch.fx import Graph, Node

from gatelab.errors import UnsupportedModelError
from gatelab.graph.nodes import describe, node_operation

# May hand back the memory they were given, or a part of it.
_ALIASING = frozenset(
    """
    view view_as reshape reshape_as flatten unflatten ravel squeeze unsqueeze permute transpose swapaxes swapdims
    movedim moveaxis t T mT expand expand_as narrow select split chunk unbind diagonal getitem contiguous to detach
    dropout dropout1d dropout2d dropout3d alpha_dropout
    """.split()
)
_ALIASING_MODULES = (nn.Identity, nn.Flatten, nn.Unflatten, nn.modules.dropout._DropoutNd)


def follow_writes(graph: Graph, modules: Mapping[str, nn.Module]) -> Graph:
    """Let whoever reads a tensor after an in-place write take what was written.

    torch.fx notes ``h.relu_()`` as a new node and lets later readers of ``h`` read the old one, which in the graph's
    order is the overwritten tensor, but read as mathematics is not.

    Raises:
        UnsupportedModelError: a write reaches readers through another view of the same memory.
    """
    order = {node: place for place, node in enumerate(graph.nodes)}
    memory: dict[Node, Node] = {}
    for node in graph.nodes:
        sources = node.all_input_nodes
        written = sources[0] if sources and _writes(node, modules) else None
        aliases = written is not None or _is_alias(node, modules)
        memory[node] = memory[sources[0]] if aliases and sources else node
        if written is None:
            continue
        for other, place in memory.items():
            later = [user for user in other.users if order[user] > order[node]]
            if place is not memory[node] or other is node or not later:
                continue
            if other is not written:
                raise UnsupportedModelError(
                    f"{describe(node, modules)} writes into memory that {describe(later[0], modules)} reads through "
                    "another view; write out of place there"
                )
            for user in later:
                user.replace_input_with(written, node)
    return graph


def _writes(node: Node, modules: Mapping[str, nn.Module]) -> bool:
    if node.op == "call_module":
        return bool(getattr(modules[str(node.target)], "inplace", False))
    if node.op == "call_method":
        return str(node.target).endswith("_") and not str(node.target).startswith("__")
    if node.op != "call_function" or not callable(node.target):
        return False
    if getattr(node.target, "__name__", "").endswith("_"):
        return True
    try:
        given = inspect.signature(node.target).bind_partial(*node.args, **node.kwargs).arguments
    except (TypeError, ValueError):  # built-in functions have no signature, and no inplace argument
        return False
    return given.get("inplace") is True


def _is_alias(node: Node, modules: Mapping[str, nn.Module]) -> bool:
    if node.op == "call_module":
        return isinstance(modules[str(node.target)], _ALIASING_MODULES)
    return node_operation(node) in _ALIASING
