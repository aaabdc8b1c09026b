"""Read single nodes of a graph: their operation, their place in the source, their parameters."""

import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from torch import nn
from torch.fx import Graph, Node, map_arg
from torch.nn.modules.conv import _ConvNd

from gatelab.errors import UnsupportedModelError
from gatelab.gates.events import bounds
from gatelab.gates.operations import operation_name
from gatelab.gates.pooling import AdaptiveMaxPool, MaxPool, pooling_of

WEIGHING = frozenset("linear conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d".split())
_TRACER = Path(__file__).with_name("tracing.py")


def node_operation(node: Node) -> str | None:
    """Return the plain name of a function or method node's operation; None for other nodes."""
    if node.op == "call_function":
        return operation_name(node.target)  # pyright: ignore[reportArgumentType]
    return str(node.target).strip("_") if node.op == "call_method" else None


def is_shape(node: Node) -> bool:
    """Whether a node holds sizes, not values: x.shape, x.size(0), and anything computed from them."""
    if node_operation(node) in {"size", "dim", "numel", "ndimension"}:
        return True
    if node.op == "call_function" and node.target is getattr:
        return node.args[1] in {"shape", "ndim", "dtype", "device"}
    return (
        node.op in ("call_function", "call_method")
        and bool(node.all_input_nodes)
        and all(map(is_shape, node.all_input_nodes))
    )


def ancestors(*nodes: Node, sources: Callable[[Node], Iterable[Node]] = lambda node: node.all_input_nodes) -> set[Node]:
    """Return the nodes and all nodes they depend on; ``sources`` returns the direct dependencies of a node."""
    found, waiting = set(nodes), list(nodes)
    while waiting:
        for source in sources(waiting.pop()):
            if source not in found:
                found.add(source)
                waiting.append(source)
    return found


def holds_node(value: Any) -> bool:
    """Whether an argument, or something inside it, is computed in the graph."""
    found: list[Node] = []
    map_arg(value, found.append)
    return bool(found)


def dense_parameters(node: Node, modules: Mapping[str, nn.Module]) -> tuple[str, str | None] | None:
    """Return the paths of weight and bias if the node is a dense layer (nn.Linear, F.linear), else None."""
    if node.op == "call_module":
        dense = isinstance(modules[str(node.target)], nn.Linear)
    else:
        dense = node_operation(node) == "linear"
    return weight_parameters(node, modules) if dense else None


def weight_parameters(node: Node, modules: Mapping[str, nn.Module]) -> tuple[str, str | None] | None:
    """Return the paths of weight and bias if the node is a dense or convolutional layer, else None."""
    if node.op == "call_module":
        module = modules[str(node.target)]
        if not isinstance(module, nn.Linear | _ConvNd):
            return None
        return f"{node.target}.weight", f"{node.target}.bias" if module.bias is not None else None
    if node_operation(node) not in WEIGHING:
        return None
    weight, bias = (
        node.args[position] if len(node.args) > position else node.kwargs.get(name)
        for position, name in ((1, "weight"), (2, "bias"))
    )
    fixed = all(isinstance(part, Node) and part.op == "get_attr" for part in (weight, bias) if part is not None)
    if weight is None or not fixed:
        return None
    return str(weight.target), None if bias is None else str(bias.target)  # pyright: ignore


def is_bounded(node: Node, modules: Mapping[str, nn.Module]) -> bool:
    """Whether a node is constant outside two bounds (ReLU6, Hardtanh): paths then start at its constants, too."""
    if node.op == "call_module":
        return isinstance(modules[str(node.target)], nn.Hardtanh)
    return bounds(node_operation(node) or "", node.args, dict(node.kwargs)) is not None


def max_pooling(node: Node, modules: Mapping[str, nn.Module]) -> MaxPool | AdaptiveMaxPool:
    """Return the windows of a max-pooling module or function."""
    if node.op == "call_module":
        module = modules[str(node.target)]
        return pooling_of(type(module).__name__, (), vars(module))
    if holds_node((node.args[1:], node.kwargs)):
        raise UnsupportedModelError(f"{describe(node, modules)}: the window must be given in numbers, not computed")
    return pooling_of(node_operation(node) or "", node.args[1:], node.kwargs)


def parameter(model: nn.Module, path: str, where: str) -> nn.Parameter:
    """Return the parameter at a path; refuse weights that are computed."""
    try:
        return model.get_parameter(path)
    except AttributeError:
        raise UnsupportedModelError(
            f"{where}: '{path}' is not a parameter: it is computed or constant (a parametrization, pruning, a buffer); "
            "make it a plain parameter first, e.g. torch.nn.utils.parametrize.remove_parametrizations"
        ) from None


def put_arguments_in_order(graph: Graph) -> None:
    """Turn ``relu(input=h)`` into ``relu(h)``: readers of a node expect its data first."""
    for node in graph.nodes:
        kwargs = dict(node.kwargs)
        if node.op in ("call_function", "call_module") and not node.args and isinstance(kwargs.get("input"), Node):
            first = (kwargs.pop("input"),)
            node.args = (*first, kwargs.pop("other")) if "other" in kwargs else first
            node.kwargs = kwargs


def module_path(node: Node) -> str:
    """Return the path of the module whose forward created the node; empty for the model itself."""
    stack: dict[str, Any] = node.meta.get("nn_module_stack") or {}
    return next(reversed(list(stack.values())))[0] if stack else ""


def describe(node: Node, modules: Mapping[str, nn.Module]) -> str:
    """Describe a node and its place in the source, for an error message."""
    if node.op == "call_module":
        return f"module '{node.target}' ({type(modules[str(node.target)]).__name__}){_source(node)}"
    path = module_path(node)
    what = node_operation(node) or f"{node.op} {node.target}"
    where = f"in module '{path}'" if path else "in the model's forward"
    return f"{what} {where}{_source(node)}"


def _source(node: Node) -> str:
    """Return the source line of a node: the innermost frame of the traced forward outside torch and gatelab."""
    if "source" in node.meta:  # a recorded graph
        return node.meta["source"]
    frames = re.findall(r'File "(.+)", line (\d+), in .+\n\s*(.*)', node.stack_trace or "")
    started = max((place for place, frame in enumerate(frames) if Path(frame[0]) == _TRACER), default=-1)
    files = [(Path(file), line, code) for file, line, code in frames[started + 1 :]]
    own = [frame for frame in files if "torch" not in frame[0].parts and frame[0].parent != _TRACER.parent]
    if not own:
        return ""
    file, line, code = own[-1]
    return f" at {file.name}:{line} `{code}`"
