"""Run single nodes of a recorded graph on chosen values."""

import operator
from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor, nn
from torch.fx import Node, map_arg


def attribute(model: nn.Module, path: str) -> Any:
    """Return the attribute at a dotted path."""
    owner, _, name = path.rpartition(".")
    return getattr(model.get_submodule(owner), name)


def number_of(node: Node, examples: int) -> Any:
    """Return the value of a node that holds a size, for a number of examples."""
    if node.op == "call_method" and node.target == "size":
        return examples
    if node.target is operator.mul:
        sizes: list[Any] = [number_of(arg, examples) if isinstance(arg, Node) else arg for arg in node.args]
        return sizes[0] * sizes[1]
    raise ValueError(f"{node.format_node()} is not a size")


def run_node(
    node: Node, model: nn.Module, value_of: Callable[[Node], Any], modules: Mapping[str, nn.Module] | None = None
) -> Any:
    """Run one node.

    Args:
        node: a module call, a function or a method.
        model: the model whose parameters and buffers it uses.
        value_of: the values of the nodes it reads.
        modules: the model's modules by path, if they are at hand.
    """
    args: tuple[Any, ...] = map_arg(node.args, value_of)
    kwargs: Any = map_arg(node.kwargs, value_of)
    if node.op == "call_module":
        module = modules[str(node.target)] if modules else model.get_submodule(str(node.target))
        return module(*args, **kwargs)
    if node.op == "call_method":
        return getattr(args[0], str(node.target))(*args[1:], **kwargs)
    if node.op == "get_attr":
        constant = node.meta.get("constant")
        return attribute(model, str(node.target)) if constant is None else constant
    assert callable(node.target)
    return node.target(*args, **kwargs)


def run_on(node: Node, model: nn.Module, modules: Mapping[str, nn.Module], signal: Tensor) -> Any:
    """Run one node with the same tensor in place of every signal it reads; sizes follow its number of examples."""

    def value(source: Node) -> Any:
        if source.meta.get("data"):
            return signal
        if "shape" not in source.meta:
            return number_of(source, signal.shape[0])
        return run_node(source, model, value, modules)

    return run_node(node, model, value, modules)
