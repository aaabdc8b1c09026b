"""A model as a graph of operations, by torch.fx, with the same gate names that capture gives."""

import inspect
import threading
from collections import Counter
from collections.abc import Mapping

import torch
from torch import nn
from torch.fx import Graph, Node

from gatelab.errors import UnsupportedModelError
from gatelab.gates.events import is_gate, is_gate_module
from gatelab.network.nodes import describe, is_shape, module_path, node_operation
from gatelab.network.tracer import WritingTracer
from gatelab.network.writes import follow_writes
from gatelab.observe import observable, stand_in

_ALONE = threading.RLock()  # while it traces, torch.fx changes what a call of a module means, for all threads


def trace(model: nn.Module) -> Graph:
    """The graph of ``model``'s operations, torch's own modules being single nodes.

    Raises:
        UnsupportedModelError: the model's Python code branches on its data, so that it has no one graph.
    """
    model = observable(model)
    _refuse_hooks(model)
    tracer = WritingTracer()
    tracer.record_stack_traces = True
    double = stand_in(model)
    try:
        # Optional arguments stand at their defaults: a symbolic "mask" would never be None.
        parameters = inspect.signature(model.forward).parameters.values()
        defaults = {p.name: p.default for p in parameters if p.default is not p.empty}
        with _ALONE, torch.random.fork_rng(devices=[]):
            # Tracing runs the model's Python code, which may keep what it meets.
            graph = tracer.trace(double, concrete_args=defaults)
    except UnsupportedModelError:
        raise
    except Exception as error:  # fx raises many kinds: TraceError, TypeError on len(), AttributeError, …
        raise UnsupportedModelError(
            f"{type(model).__name__} has no fixed graph of operations: {error}. Control flow must not depend on the "
            "data; move such code out of forward"
        ) from error
    _take_constants(graph, model, double)
    _put_arguments_in_order(graph)
    for node in graph.nodes:
        if node.op == "placeholder" and str(node.target).startswith("*") and node.users:
            raise UnsupportedModelError(
                f"{type(model).__name__}.forward takes {node.target}; it must take one tensor, x, by name"
            )
    return follow_writes(graph, dict(model.named_modules()))


def _take_constants(graph: Graph, model: nn.Module, double: nn.Module) -> None:
    """Tensors that forward makes: fx puts them on the module that it traced; here the nodes keep them."""
    for node in graph.nodes:
        name = str(node.target)
        if node.op == "get_attr" and name.startswith("_tensor_constant"):
            node.meta["constant"] = getattr(double, name)
    if double is model:  # a model that cannot be copied stood in for itself
        for name in {str(node.target) for node in graph.nodes if "constant" in node.meta}:
            delattr(model, name)


def _put_arguments_in_order(graph: Graph) -> None:
    """``relu(input=h)`` becomes ``relu(h)``, so that whoever reads a node finds its data first."""
    for node in graph.nodes:
        kwargs = dict(node.kwargs)
        if node.op in ("call_function", "call_module") and not node.args and isinstance(kwargs.get("input"), Node):
            first = (kwargs.pop("input"),)
            node.args = (*first, kwargs.pop("other")) if "other" in kwargs else first
            node.kwargs = kwargs


def _refuse_hooks(model: nn.Module) -> None:
    for name, module in model.named_modules():
        if module._forward_hooks or module._forward_pre_hooks:
            raise UnsupportedModelError(
                f"module '{name}' ({type(module).__name__}) has forward hooks, which may change what passes and do not "
                "show in the graph; remove them (or weight_norm, which is one: use parametrizations.weight_norm)"
            )


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


def value_chain(graph: Graph, modules: Mapping[str, nn.Module]) -> list[Node]:
    """The nodes through which values pass from the input to the output, in order, neither end included.

    What only decides over a gate (the feature network of a deep gated network), only tells a shape, or does not reach
    the output, is left out.

    Raises:
        UnsupportedModelError: values split and meet again (a sum, a concatenation), or there is not one output.
    """
    nodes = list(graph.nodes)
    from_input = {next(node for node in nodes if node.op == "placeholder")}
    for node in nodes:
        if not is_shape(node) and any(source in from_input for source in value_sources(node)):
            from_input.add(node)
    (node,) = (node for node in nodes if node.op == "output")
    if not (isinstance(node.args[0], Node) and node.args[0] in from_input):
        raise UnsupportedModelError("the model must return one tensor that depends on its input, no tuple or dict")
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
    """The nodes whose values this node passes on: all of its inputs, but for a gate's pre-activation and shapes."""
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
    return ".".join(filter(None, (module_path(node), operation)))
