"""A model as a graph of operations, by torch.fx, with the same gate names that capture gives."""

import inspect
import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import nn
from torch.fx import Graph, Node, Tracer

from gatelab.errors import UnsupportedModelError
from gatelab.gates.events import GATE_MODULES, is_gate
from gatelab.gates.operations import operation_name
from gatelab.observe import observable


def trace(model: nn.Module) -> Graph:
    """The graph of ``model``'s operations, torch's own modules being single nodes.

    Raises:
        UnsupportedModelError: the model's Python code branches on its data, so that it has no one graph.
    """
    model = observable(model)
    tracer = Tracer()
    tracer.record_stack_traces = True
    try:
        # Optional arguments stand at their defaults: a symbolic "mask" would never be None.
        parameters = inspect.signature(model.forward).parameters.values()
        defaults = {p.name: p.default for p in parameters if p.default is not p.empty}
        return tracer.trace(model, concrete_args=defaults)
    except UnsupportedModelError:
        raise
    except Exception as error:  # fx raises many kinds: TraceError, TypeError on len(), AttributeError, …
        raise UnsupportedModelError(
            f"{type(model).__name__} has no fixed graph of operations: {error}. Control flow must not depend on the "
            "data; move such code out of forward"
        ) from error


def gate_names(graph: Graph, modules: Mapping[str, nn.Module]) -> dict[Node, str]:
    """The name that :func:`gatelab.capture_gates` gives to each gate node of the graph."""
    calls: Counter[str] = Counter()
    names = {}
    for node in graph.nodes:
        base = _gate_base(node, modules)
        if base is not None:
            calls[base] += 1
            names[node] = base if calls[base] == 1 else f"{base}#{calls[base]}"
    return names


def value_nodes(graph: Graph) -> list[Node]:
    """The nodes through which values pass from the input to the output, in order; neither end is included.

    What only decides over a gate (the feature network of a deep gated network), only tells a shape, or does not reach
    the output, is left out.
    """
    nodes = list(graph.nodes)
    from_input = {next(node for node in nodes if node.op == "placeholder")}
    for node in nodes:
        if not _is_shape(node) and any(source in from_input for source in value_sources(node)):
            from_input.add(node)
    to_output = {next(node for node in nodes if node.op == "output")}
    for node in reversed(nodes):
        if node in to_output:
            to_output.update(value_sources(node))
    return [n for n in nodes if n in from_input and n in to_output and n.op not in ("placeholder", "output")]


def value_sources(node: Node) -> list[Node]:
    """The nodes whose values this node passes on: all of its inputs, but for a gate's pre-activation and shapes."""
    sources = node.all_input_nodes
    if node_operation(node) == "gated":
        sources = [node.args[0]] if isinstance(node.args[0], Node) else []
    return [source for source in sources if not _is_shape(source)]


def _is_shape(node: Node) -> bool:
    """Whether a node holds sizes, not values: x.shape, x.size(0), and what is reckoned from them."""
    if node_operation(node) in {"size", "dim", "numel", "ndimension"}:
        return True
    if node.op == "call_function" and node.target is getattr:
        return node.args[1] in {"shape", "ndim", "dtype", "device"}
    return (
        node.op in ("call_function", "call_method")
        and bool(node.all_input_nodes)
        and all(map(_is_shape, node.all_input_nodes))
    )


def _gate_base(node: Node, modules: Mapping[str, nn.Module]) -> str | None:
    if node.op == "call_module":
        path = str(node.target)
        return path if isinstance(modules[path], GATE_MODULES) else None
    operation = node_operation(node)
    if operation is None or not is_gate(operation, node.args, dict(node.kwargs)):
        return None
    return ".".join(filter(None, (module_path(node), operation)))


def node_operation(node: Node) -> str | None:
    """The plain name of a function or method node's operation; None for other nodes."""
    if node.op == "call_function":
        return operation_name(node.target)  # pyright: ignore[reportArgumentType]
    return str(node.target).strip("_") if node.op == "call_method" else None


def dense_parameters(node: Node, modules: Mapping[str, nn.Module]) -> tuple[str, str | None] | None:
    """Paths of weight and bias if the node is a dense layer, nn.Linear or F.linear on parameters; None otherwise."""
    if node.op == "call_module":
        module = modules[str(node.target)]
        if not isinstance(module, nn.Linear):
            return None
        return f"{node.target}.weight", f"{node.target}.bias" if module.bias is not None else None
    if node_operation(node) != "linear":
        return None
    weight, bias = (
        node.args[position] if len(node.args) > position else node.kwargs.get(name)
        for position, name in ((1, "weight"), (2, "bias"))
    )
    if not (isinstance(weight, Node) and weight.op == "get_attr"):
        return None
    return str(weight.target), str(bias.target) if isinstance(bias, Node) else None


def module_path(node: Node) -> str:
    """The path of the module whose forward made the node; empty for the model itself."""
    stack: dict[str, Any] = node.meta.get("nn_module_stack") or {}
    return next(reversed(list(stack.values())))[0] if stack else ""


def describe(node: Node, modules: Mapping[str, nn.Module]) -> str:
    """What a node is and where it stands, for an error message."""
    if node.op == "call_module":
        return f"module '{node.target}' ({type(modules[str(node.target)]).__name__})"
    path = module_path(node)
    what = node_operation(node) or f"{node.op} {node.target}"
    where = f"in module '{path}'" if path else "in the model's forward"
    return f"{what} {where}{_source(node)}"


def _source(node: Node) -> str:
    """The user's line of code behind a node: the innermost frame outside torch and gatelab."""
    frames = re.findall(r'File "(.+)", line (\d+), in .+\n\s*(.*)', node.stack_trace or "")
    own = [frame for frame in frames if not any(part in ("torch", "gatelab") for part in Path(frame[0]).parts)]
    if not own:
        return ""
    file, line, code = own[-1]
    return f" at {Path(file).name}:{line} `{code}`"
