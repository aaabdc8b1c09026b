"""Read single nodes of a graph: their line in the source, their inputs, their parameters."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import nn
from torch.fx import Node, map_arg

from gatelab.errors import UnsupportedModelError
from gatelab.network.calls import call_of, operation_of
from gatelab.network.operations import AFFINE, MULTILINEAR, QUOTIENTS, SIZES, Kind, operation

Modules = Mapping[str, nn.Module]


def is_shape(node: Node) -> bool:
    """Whether a node holds a size rather than values: x.size(0), or anything computed from it."""
    if node.op not in ("call_function", "call_method"):
        return False
    sources = node.all_input_nodes
    return operation_of(node, {}) in SIZES or (bool(sources) and all(map(is_shape, sources)))


def ancestors(*nodes: Node, sources: Callable[[Node], Iterable[Node]] = lambda node: node.all_input_nodes) -> set[Node]:
    """Return the nodes and all nodes they depend on; ``sources`` returns the direct dependencies of a node."""
    found, waiting = set(nodes), list(nodes)
    while waiting:
        for source in sources(waiting.pop()):
            if source not in found:
                found.add(source)
                waiting.append(source)
    return found


def value_sources(node: Node) -> list[Node]:
    """Return the nodes whose values this node passes on: its inputs, except a gate's pre-activation and shapes."""
    gating = node.meta.get("gating")
    sources = node.all_input_nodes if gating is None else [gating.value]
    return [source for source in sources if isinstance(source, Node) and not is_shape(source)]


def is_affine(node: Node, modules: Modules) -> bool:
    """Whether a node is affine in the data that reaches it, in evaluation mode and with fixed parameters."""
    data = [source for source in node.all_input_nodes if source.meta.get("data")]
    name = operation_of(node, modules)
    kind = operation(name).kind
    if not node.meta.get("dtype", torch.float32).is_floating_point:
        return False
    if kind is Kind.NORMALISATION:
        return len(data) == 1
    if kind in MULTILINEAR:
        call = call_of(node, modules)
        if call.arguments.get("rounding_mode") or (name in QUOTIENTS and data != [call["input"]]):
            return False
        return sum(argument in data for argument in _arguments(node)) == 1
    return kind in AFFINE


def _arguments(node: Node) -> list[Node]:
    """The nodes among a node's arguments, each as often as it is used."""
    found: list[Node] = []
    map_arg((node.args, node.kwargs), found.append)
    return found


def used_twice(node: Node) -> bool:
    """Whether a node uses one signal in two places, as in h + h."""
    found = _arguments(node)
    return any(found.count(source) > 1 for source in value_sources(node))


def weight_parameters(node: Node, modules: Modules) -> tuple[str, str | None] | None:
    """Return the paths of weight and bias if the node is a layer whose weight is not computed, else None."""
    if operation(operation_of(node, modules)).kind is not Kind.WEIGHT:
        return None
    call = call_of(node, modules)
    if node.op == "call_module":
        return f"{node.target}.weight", f"{node.target}.bias" if call["bias"] is not None else None
    weight, bias = call["weight"], call["bias"]
    fixed = all(isinstance(part, Node) and part.op == "get_attr" for part in (weight, bias) if part is not None)
    if weight is None or not fixed:
        return None
    return str(weight.target), None if bias is None else str(bias.target)


def dense_parameters(node: Node, modules: Modules) -> tuple[str, str | None] | None:
    """Return the paths of weight and bias if the node is a dense layer (nn.Linear, F.linear), else None."""
    return weight_parameters(node, modules) if operation_of(node, modules) == "linear" else None


def parameter(model: nn.Module, path: str, where: str) -> nn.Parameter:
    """Return the parameter at a path; refuse weights that are computed."""
    try:
        return model.get_parameter(path)
    except AttributeError:
        raise UnsupportedModelError(
            f"{where}: '{path}' is not a parameter: it is computed or constant (a parametrization, pruning, a buffer); "
            "make it a plain parameter first, e.g. torch.nn.utils.parametrize.remove_parametrizations"
        ) from None


def module_path(node: Node) -> str:
    """Return the path of the module whose forward created the node; empty for the model itself."""
    return node.meta.get("module", "")


def describe(node: Node, modules: Modules) -> str:
    """Describe a node and its place in the source, for an error message."""
    source: Any = node.meta.get("source", "")
    if node.op == "call_module":
        return f"module '{node.target}' ({type(modules[str(node.target)]).__name__}){source}"
    path = module_path(node)
    known = node.op in ("call_function", "call_method")
    what = operation_of(node, modules) if known else f"{node.op} {node.target}"
    where = f"in module '{path}'" if path else "in the model's forward"
    return f"{what} {where}{source}"
