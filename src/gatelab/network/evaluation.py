"""Run nodes of a recorded graph: one of them on chosen values, or all of them under chosen gates."""

import operator
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.fx import Graph, Node, map_arg

from gatelab.network.nodes import ancestors

# Called with a gate's name and its pre-activation q. Returns the gate's factor, or a function of the value that passes
# it; None runs the gate unchanged.
Decide = Callable[[str, Tensor], Tensor | Callable[[Tensor], Any] | None]


def attribute(model: nn.Module, path: str) -> Any:
    """Return the attribute at a dotted path."""
    owner, _, name = path.rpartition(".")
    return getattr(model.get_submodule(owner), name)


def held(node: Node, model: nn.Module, dtype: torch.dtype | None = None) -> Any:
    """Return what a ``get_attr`` node holds: a constant of the record, in another dtype if asked, or an attribute."""
    constant = node.meta.get("constant")
    if constant is None:
        return attribute(model, str(node.target))
    return constant.to(dtype) if dtype is not None and constant.is_floating_point() else constant


def call(node: Node, model: nn.Module, *args: Any, **kwargs: Any) -> Any:
    """Run a node's operation on these arguments without changing them."""
    if node.op == "call_module":
        module = model.get_submodule(str(node.target))
        if getattr(module, "inplace", False):
            args = (args[0].clone(), *args[1:])
        return module(*args, **kwargs)
    if node.op == "call_method":
        return getattr(args[0], str(node.target))(*args[1:], **kwargs)
    assert callable(node.target)
    return node.target(*args, **kwargs)


def run_node(node: Node, model: nn.Module, value_of: Callable[[Node], Any]) -> Any:
    """Run one node.

    Args:
        node: a module call, a function, a method or an attribute.
        model: the model whose parameters and buffers it uses.
        value_of: the values of the nodes it reads.
    """
    if node.op == "get_attr":
        return held(node, model)
    filled: Any = map_arg((node.args, node.kwargs), value_of)
    args, kwargs = filled
    return call(node, model, *args, **kwargs)


def run_on(node: Node, model: nn.Module, signal: Tensor) -> Any:
    """Run one node with the same tensor in place of every signal it reads; sizes follow its number of examples."""

    def value(source: Node) -> Any:
        if source.meta.get("data"):
            return signal
        if "shape" not in source.meta:
            return number_of(source, signal.shape[0])
        return run_node(source, model, value)

    return run_node(node, model, value)


def number_of(node: Node, examples: int) -> Any:
    """Return the value of a node that holds a size, for a number of examples."""
    if node.op == "call_method" and node.target == "size":
        return examples
    if node.target is operator.mul:
        sizes: list[Any] = [number_of(arg, examples) if isinstance(arg, Node) else arg for arg in node.args]
        return sizes[0] * sizes[1]
    raise ValueError(f"{node.format_node()} is not a size")


class Interpreter:
    """Runs a graph, with the weights of any model of its structure and with any gates.

    Args:
        graph: the recorded graph.
        gates: the name of each gate node, the node that passes through it, and the node of its pre-activation.
        dtype: the dtype in which the graph was recorded.
    """

    def __init__(self, graph: Graph, gates: Mapping[Node, tuple[str, Node, Node]], dtype: torch.dtype):
        self._graph, self.gates, self._dtype = graph, gates, dtype
        self._orders: dict[tuple[tuple[Node, ...], frozenset[Node]], tuple[list[Node], list[list[Node]]]] = {}

    def run(
        self,
        model: nn.Module,
        targets: Sequence[Node],
        x: Tensor,
        decide: Decide | None = None,
        instead: Mapping[Node, Callable[..., Any]] | None = None,
        given: Mapping[Node, Any] | None = None,
    ) -> list[Any]:
        """Return the values of some nodes.

        Args:
            model: provides the weights.
            targets: the nodes.
            x: the input.
            decide: decides each gate; None runs the gates unchanged.
            instead: functions that replace the operations of some nodes (not of gates).
            given: known values of some nodes; nodes that only these depend on do not run.
        """
        with torch.autocast(x.device.type, enabled=False):  # the caller's autocast would silently change results
            return self._run(model, targets, x, decide, instead or {}, given or {})

    def _run(
        self,
        model: nn.Module,
        targets: Sequence[Node],
        x: Tensor,
        decide: Decide | None,
        instead: Mapping[Node, Callable[..., Any]],
        given: Mapping[Node, Any],
    ) -> list[Any]:
        values: dict[Node, Any] = dict(given)
        constants_in = x.dtype if x.dtype != self._dtype else None
        for node, unneeded in zip(*self._order(targets, given), strict=True):
            filled: Any = map_arg((node.args, node.kwargs), values.__getitem__)
            args, kwargs = filled
            decided = None
            if decide is not None and node in self.gates:
                name, passing, q = self.gates[node]
                factor = decide(name, values[q])
                if factor is not None:
                    decided = values[passing] * factor if isinstance(factor, Tensor) else factor(values[passing])
            if decided is not None:
                values[node] = decided
            elif node.op == "placeholder":
                values[node] = x
            elif node.op == "get_attr":
                values[node] = held(node, model, constants_in)
            elif node in instead:
                values[node] = instead[node](*args, **kwargs)
            else:
                values[node] = call(node, model, *args, **kwargs)
            for source in unneeded:
                del values[source]
        return [values[target] for target in targets]

    def nodes_before(self, target: Node) -> list[Node]:
        """Return the nodes that a node depends on, and the node itself, in order."""
        return self._order([target])[0]

    def nodes_between(self, target: Node, known: Collection[Node]) -> list[Node]:
        """Return the nodes that a node depends on when some are known, and the node itself, in order."""
        return self._order([target], known)[0]

    def _order(self, targets: Sequence[Node], known: Collection[Node] = ()) -> tuple[list[Node], list[list[Node]]]:
        """Return the nodes to run, and after each of them the nodes whose values are no longer needed."""
        key = tuple(targets), frozenset(known)
        if key not in self._orders:
            needed = ancestors(*targets, sources=lambda node: () if node in key[1] else node.all_input_nodes) - key[1]
            nodes = [node for node in self._graph.nodes if node in needed]
            last = {source: node for node in nodes for source in node.all_input_nodes}
            kept = {*targets, *known}
            unneeded = [[s for s in node.all_input_nodes if last[s] is node and s not in kept] for node in nodes]
            self._orders[key] = nodes, unneeded
        return self._orders[key]
