"""One operation with its arguments by name, whether it was written as a module, a function or a method."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn
from torch.fx import Node

from gatelab.errors import UnsupportedModelError
from gatelab.network.operations import Kind, argument_names, module_operation, operation, operation_name


@dataclass(frozen=True)
class Call:
    """An operation and its arguments.

    Attributes:
        operation: its plain name.
        arguments: by the names of the table, in order: nodes for what the graph computes, and the parameters of
            modules themselves.
    """

    operation: str
    arguments: Mapping[str, Any]

    def __getitem__(self, name: str) -> Any:
        return self.arguments[name]

    @property
    def kind(self) -> Kind:
        """What the operation does to signals."""
        return operation(self.operation).kind

    @property
    def drops_units(self) -> bool:
        """Whether a dropout draws random numbers."""
        return self.kind is Kind.DROPOUT and bool(self["training"]) and self["p"] != 0

    @property
    def mixes_examples(self) -> bool:
        """Whether a normalisation takes its statistics from the examples."""
        return self.kind is Kind.NORMALISATION and (bool(self["training"]) or self["running_mean"] is None)


def operation_of(node: Node, modules: Mapping[str, nn.Module]) -> str:
    """Return the plain name of a node's operation; a module has the name of its function."""
    if node.op == "call_module":
        return module_operation(modules[str(node.target)])
    if node.op == "call_function":
        if node.target is getattr:  # x.T
            return str(node.args[1])
        return operation_name(node.target)
    return str(node.target).strip("_") if node.op == "call_method" else node.op


def bound(function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Call:
    """Return a call of one of torch's functions, with its arguments by name."""
    return _bound(function, operation_name(function), args, kwargs)


def call_of(node: Node, modules: Mapping[str, nn.Module]) -> Call:
    """Return what a node computes, with its arguments by name.

    Raises:
        UnsupportedModelError: the call has more arguments than the table knows.
    """
    call = _bound(node.target, operation_of(node, modules), node.args, node.kwargs)
    if node.op != "call_module":
        return call
    module = modules[str(node.target)]
    names = argument_names(None, call.operation)
    held = {name: getattr(module, name) for name in names if hasattr(module, name)}
    return Call(call.operation, {**call.arguments, **held, **dict(zip(names, node.args, strict=False)), **node.kwargs})


def _bound(function: Any, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Call:
    names = argument_names(function, name)
    if names and len(args) > len(names):
        raise UnsupportedModelError(f"{name} is called with {len(args)} arguments; known are {', '.join(names)}")
    return Call(name, {**operation(name).defaults, **dict(zip(names, args, strict=False)), **kwargs})


def with_first_argument(
    first: str, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Give the first argument by position, where a call like ``F.conv2d(input=h, weight=w)`` names it."""
    if args or first not in kwargs:
        return args, kwargs
    return (kwargs[first],), {key: value for key, value in kwargs.items() if key != first}
