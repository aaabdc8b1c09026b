"""Trace a model with torch.fx, and give its gates the names that capture gives them."""

import inspect
import threading
from collections import Counter
from collections.abc import Mapping

import torch
from torch import nn
from torch.fx import Graph, Node

from gatelab.errors import UnsupportedModelError
from gatelab.gates.events import is_gate, is_gate_module
from gatelab.network.nodes import describe, is_shape, module_path, node_operation, put_arguments_in_order
from gatelab.network.tracer import WritingTracer
from gatelab.network.writes import follow_writes
from gatelab.observe import observable, stand_in

_ALONE = threading.RLock()  # torch.fx patches nn.Module.__call__ for all threads while it traces


def trace(model: nn.Module) -> Graph:
    """Return the graph of the model's operations; torch's own modules are single nodes.

    Raises:
        UnsupportedModelError: the forward branches on the data, so the model has no fixed graph.
    """
    model = observable(model)
    _refuse_hooks(model)
    tracer = WritingTracer()
    tracer.record_stack_traces = True
    double = stand_in(model)
    try:
        # Fix optional arguments at their defaults: a symbolic "mask" would never be None.
        parameters = inspect.signature(model.forward).parameters.values()
        defaults = {p.name: p.default for p in parameters if p.default is not p.empty}
        with _ALONE, torch.random.fork_rng(devices=[]):
            # Tracing runs the model's Python code, which may store proxies on the module; hence the copy.
            graph = tracer.trace(double, concrete_args=defaults)
    except UnsupportedModelError:
        raise
    except Exception as error:  # fx raises many kinds: TraceError, TypeError on len(), AttributeError, …
        raise UnsupportedModelError(
            f"{type(model).__name__} has no fixed graph of operations: {error}. Control flow must not depend on the "
            "data; if it depends on shapes only, pass examples as x="
        ) from error
    _take_constants(graph, model, double)
    put_arguments_in_order(graph)
    for node in graph.nodes:
        if node.op == "placeholder" and str(node.target).startswith("*") and node.users:
            raise UnsupportedModelError(
                f"{type(model).__name__}.forward takes {node.target}; it must take one tensor, x, by name"
            )
    return follow_writes(graph, dict(model.named_modules()))


def _take_constants(graph: Graph, model: nn.Module, double: nn.Module) -> None:
    """Move tensors that forward creates from the traced module, where fx stores them, to their nodes."""
    for node in graph.nodes:
        name = str(node.target)
        if node.op == "get_attr" and name.startswith("_tensor_constant"):
            node.meta["constant"] = getattr(double, name)
    if double is model:  # the model could not be copied
        for name in {str(node.target) for node in graph.nodes if "constant" in node.meta}:
            delattr(model, name)


def _refuse_hooks(model: nn.Module) -> None:
    for name, module in model.named_modules():
        if module._forward_hooks or module._forward_pre_hooks:
            raise UnsupportedModelError(
                f"module '{name}' ({type(module).__name__}) has forward hooks, which may change the signal and do not "
                "appear in the graph; remove them (weight_norm is one: use parametrizations.weight_norm)"
            )


def gate_names(graph: Graph, modules: Mapping[str, nn.Module]) -> dict[Node, str]:
    """Return the name that :func:`gatelab.capture_gates` gives to each gate node.

    Args:
        graph: the graph from :func:`trace`.
        modules: the model's modules by path.
    """
    calls: Counter[str] = Counter()
    names = {}
    for node in graph.nodes:
        base = _gate_base(node, modules)
        if base is not None:
            calls[base] += 1
            names[node] = base if calls[base] == 1 else f"{base}#{calls[base]}"
    return names


def value_chain(graph: Graph, modules: Mapping[str, nn.Module]) -> list[Node]:
    """Return the nodes that values pass from the input to the output, in order, without both ends.

    Nodes that only open gates (the feature network of a deep gated network), only hold a shape, or do not reach the
    output are left out.

    Raises:
        UnsupportedModelError: values branch and join again (a sum, a concatenation), or the model has several outputs.
    """
    nodes = list(graph.nodes)
    from_input = {next(node for node in nodes if node.op == "placeholder")}
    for node in nodes:
        if not is_shape(node) and any(source in from_input for source in value_sources(node)):
            from_input.add(node)
    (node,) = (node for node in nodes if node.op == "output")
    if not (isinstance(node.args[0], Node) and node.args[0] in from_input):
        raise UnsupportedModelError("the model must return one tensor that depends on its input, not a tuple or dict")
    chain: list[Node] = []
    node = node.args[0]
    while node.op != "placeholder":
        chain.append(node)
        sources = [source for source in value_sources(node) if source in from_input]
        if len(sources) != 1:
            raise UnsupportedModelError(
                f"{describe(node, modules)} joins several signals; it has no place in a fully connected chain, and no "
                "path-kernel rule"
            )
        (node,) = sources
    return chain[::-1]


def value_sources(node: Node) -> list[Node]:
    """Return the nodes whose values this node passes on: its inputs, except a gate's pre-activation and shapes."""
    sources = node.all_input_nodes
    if node_operation(node) in ("gated", "gated_max_pool"):
        sources = [node.args[0]] if isinstance(node.args[0], Node) else []
    return [source for source in sources if not is_shape(source)]


def _gate_base(node: Node, modules: Mapping[str, nn.Module]) -> str | None:
    if node.op == "call_module":
        path = str(node.target)
        return path if is_gate_module(modules[path]) else None
    operation = node_operation(node)
    if operation is None or not is_gate(operation, node.args, dict(node.kwargs)):
        return None
    path = module_path(node)
    if path and is_gate_module(modules[path]):  # a recorded gate module that does more, such as one with hooks
        return path
    return ".".join(filter(None, (path, operation)))
