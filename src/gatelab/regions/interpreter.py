"""The one interpreter of ``regions``: it runs a traced graph node by node, with any model's weights and any gates."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.fx import Graph, Node, map_arg

from gatelab.network.nodes import ancestors

# Called with a gate's name and its pre-activation q. Returns what the gate multiplies by, or None to run it as it is.
Decide = Callable[[str, Tensor], Tensor | None]


class Interpreter:
    """Runs a graph for models of one structure.

    Args:
        graph: the traced graph.
        gates: the name of each gate node, and the node of its pre-activation.
    """

    def __init__(self, graph: Graph, gates: Mapping[Node, tuple[str, Node]]):
        self._graph, self.gates = graph, gates
        self._orders: dict[tuple[Node, ...], tuple[list[Node], list[list[Node]]]] = {}

    def run(
        self,
        model: nn.Module,
        targets: Sequence[Node],
        x: Tensor,
        decide: Decide | None = None,
        instead: Mapping[Node, Callable[..., Any]] | None = None,
    ) -> list[Tensor]:
        """Return the values of some nodes.

        Args:
            model: provides the weights.
            targets: the nodes.
            x: the input.
            decide: decides each gate; None runs the gates as they are.
            instead: functions that replace the operations of some nodes (not of gates).
        """
        values: dict[Node, Any] = {}
        for node, unneeded in zip(*self._order(targets), strict=True):
            filled: Any = map_arg((node.args, node.kwargs), values.__getitem__)
            args, kwargs = filled
            factor = None
            if decide is not None and node in self.gates:
                name, q = self.gates[node]
                factor = decide(name, values[q])  # before an in-place gate overwrites q
            if factor is not None:
                values[node] = (args[0] if args else kwargs["value"]) * factor
            elif node.op == "placeholder":
                values[node] = x.clone()  # the model may write into its input
            elif node.op == "get_attr":
                values[node] = held(node, model, x.dtype)
            elif instead is not None and node in instead:
                values[node] = instead[node](*args, **kwargs)
            else:
                values[node] = call(node, model, *args, **kwargs)
            for source in unneeded:
                del values[source]
        return [values[target] for target in targets]

    def nodes_before(self, target: Node) -> list[Node]:
        """Return the nodes that a node depends on, and the node itself, in order."""
        return self._order([target])[0]

    def _order(self, targets: Sequence[Node]) -> tuple[list[Node], list[list[Node]]]:
        """The nodes to run, and after each of them the nodes whose values nobody needs any more."""
        key = tuple(targets)
        if key not in self._orders:
            needed = ancestors(*targets)
            nodes = [node for node in self._graph.nodes if node in needed]
            last = {source: node for node in nodes for source in node.all_input_nodes}
            unneeded = [[s for s in node.all_input_nodes if last[s] is node and s not in targets] for node in nodes]
            self._orders[key] = nodes, unneeded
        return self._orders[key]


def call(node: Node, model: nn.Module, *args: Any, **kwargs: Any) -> Any:
    """Run a node's operation on these arguments."""
    if node.op == "call_module":
        return model.get_submodule(str(node.target))(*args, **kwargs)
    if node.op == "call_method":
        return getattr(args[0], str(node.target))(*args[1:], **kwargs)
    return node.target(*args, **kwargs)  # pyright: ignore


def held(node: Node, model: nn.Module, dtype: torch.dtype) -> Any:
    """Return what a ``get_attr`` node holds: a constant of the trace, or an attribute of the model."""
    constant = node.meta.get("constant")
    if constant is None:
        owner, _, name = str(node.target).rpartition(".")
        return getattr(model.get_submodule(owner), name)
    return constant.to(dtype) if constant.is_floating_point() else constant


def argument(node: Node, position: int, name: str, default: Any = None) -> Any:
    """Return an argument of a node, given by position or by name."""
    return node.args[position] if len(node.args) > position else node.kwargs.get(name, default)


def modules_of(model: nn.Module) -> dict[str, nn.Module]:
    """Return all modules by path; a shared module appears under each of its paths."""
    return dict(model.named_modules(remove_duplicate=False))
