"""Follow in-place writes through a graph."""

import inspect
from collections.abc import Mapping

from torch import nn
from torch.fx import Graph, Node
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.conv import _ConvNd

from gatelab.errors import UnsupportedModelError
from gatelab.gates.events import GATE_MODULES
from gatelab.gates.operations import BILINEAR, SHAPE_ONLY
from gatelab.network.nodes import describe, is_shape, node_operation

# Return fresh memory. Any other operation may return its input, or a view of it.
_FRESH = (
    BILINEAR
    | SHAPE_ONLY
    | frozenset(
        """
        add radd sub rsub subtract neg negative sum mean cumsum amax amin var std norm abs sqrt rsqrt exp log pow
        cat concat concatenate stack hstack vstack dstack clone repeat repeat_interleave tile roll flip pad
        relu leaky_relu clamp clip clamp_min threshold gated gated_max_pool sigmoid tanh gelu silu elu softplus relu6
        softmax log_softmax layer_norm group_norm batch_norm where masked_fill index_select gather one_hot
        eq ne lt le gt ge logical_and logical_or logical_not argmax argmin
        max_pool1d max_pool2d max_pool3d adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d
        avg_pool1d avg_pool2d avg_pool3d adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d interpolate
        """.split()
    )
)
_FRESH_MODULES = (
    *GATE_MODULES,
    *(nn.Linear, _ConvNd, _BatchNorm, nn.LayerNorm, nn.GroupNorm, nn.GELU, nn.SiLU, nn.Sigmoid, nn.Tanh, nn.Softmax),
    *(nn.AvgPool1d, nn.AvgPool2d, nn.AvgPool3d, nn.LogSoftmax),
    *(nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d, nn.AdaptiveAvgPool3d),
)


def follow_writes(graph: Graph, modules: Mapping[str, nn.Module]) -> Graph:
    """Redirect later readers of a tensor to the result of an in-place write.

    torch.fx records ``h.relu_()`` as a new node, but leaves later readers of ``h`` at the old node. When the graph runs
    in order that is the overwritten tensor; read as a formula it is the tensor before the write.

    Raises:
        UnsupportedModelError: a write reaches readers through another view of the same memory, or changes the model's
            own parameters or buffers.
    """
    order = {node: place for place, node in enumerate(graph.nodes)}
    memory: dict[Node, Node] = {}
    for node in graph.nodes:
        sources = [source for source in node.all_input_nodes if not is_shape(source)]
        written = sources[0] if sources and writes_in_place(node, modules) else None
        fresh = written is None and (not sources or is_shape(node) or _makes_memory(node, modules))
        memory[node] = node if fresh else memory[sources[0]]
        if "out" in node.kwargs or (written is not None and memory[written].op == "get_attr"):
            raise UnsupportedModelError(
                f"{describe(node, modules)} writes into a tensor that the graph cannot follow (out=, a parameter or a "
                "buffer); compute a new tensor there"
            )
        if written is not None:
            _redirect(node, written, memory, order, modules)
    return graph


def _redirect(
    node: Node, written: Node, memory: Mapping[Node, Node], order: Mapping[Node, int], modules: Mapping[str, nn.Module]
) -> None:
    for other, place in memory.items():
        later = [user for user in other.users if order[user] > order[node] and not is_shape(user)]
        if place is not memory[node] or other is node or not later:
            continue
        if other is not written:
            raise UnsupportedModelError(
                f"{describe(node, modules)} writes into memory that {describe(later[0], modules)} reads through "
                "another view; write out of place there"
            )
        for user in later:
            user.replace_input_with(written, node)


def writes_in_place(node: Node, modules: Mapping[str, nn.Module]) -> bool:
    """Whether the node overwrites its first argument."""
    if node.op == "call_module":
        return bool(getattr(modules[str(node.target)], "inplace", False))
    if node.op == "call_method":
        return str(node.target).endswith("_") and not str(node.target).startswith("__")
    if node.op != "call_function" or not callable(node.target):
        return False
    if getattr(node.target, "__name__", "").endswith("_"):
        return getattr(node.target, "__module__", "") != "_operator"  # operator.and_ does not write
    try:
        given = inspect.signature(node.target).bind_partial(*node.args, **node.kwargs).arguments
    except (TypeError, ValueError):  # built-in functions have neither a signature nor an inplace argument
        return False
    return given.get("inplace") is True


def _makes_memory(node: Node, modules: Mapping[str, nn.Module]) -> bool:
    if node.op == "call_module":
        return isinstance(modules[str(node.target)], _FRESH_MODULES)
    return node.op in ("placeholder", "get_attr") or node_operation(node) in _FRESH
