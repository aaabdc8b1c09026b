"""What a record must know about one of torch's functions, found out once for each."""

import operator
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.fx import Graph

from gatelab.network.operations import READS, argument_names, operation_name
from gatelab.observe import MAY_DRAW, RANDOM

# The results of in-place writes that have no out-of-place form.
OVERWRITING: dict[str, Callable[..., tuple[str, Any, Any, Any]]] = {
    "zero_": lambda old: ("call_function", torch.zeros_like, (old,), {}),
    "fill_": lambda old, value: ("call_function", torch.full_like, (old, value), {}),
    "copy_": lambda old, new, *_: ("call_method", "expand_as", (new, old), {}),
}
# Python's operators that fx knows under another name.
_OPERATORS = {
    "__getitem__": operator.getitem,
    "__add__": operator.add,
    "__sub__": operator.sub,
    "__mul__": operator.mul,
}
_UNUSED = Graph()  # knows how fx names nodes


@dataclass(frozen=True, slots=True)
class Function:
    """One of torch's functions.

    Attributes:
        name: the plain name of its operation.
        own: its own name, such as ``"relu_"`` or ``"__radd__"``.
        first: the name of its first argument.
        reads: whether it passes a value to Python.
        writes: whether it overwrites its first argument.
        draws: whether it may draw random numbers.
        form: what computes the same out of place: an operation of fx and its target; None if nothing does.
        turned: whether that takes the arguments in reverse order.
    """

    name: str
    own: str
    first: str
    reads: bool
    writes: bool
    draws: bool
    form: tuple[str, Any] | None
    turned: bool


@lru_cache(maxsize=1024)
def function_of(function: Callable[..., Any]) -> Function:
    """Return what a record must know about a function.

    Example:
        >>> function_of(Tensor.relu_).form, function_of(Tensor.__rsub__).form
        (('call_method', 'relu'), ('call_function', <built-in function sub>))
    """
    name, own = operation_name(function), getattr(function, "__name__", "")
    turned = own.startswith("__r") and own not in _OPERATORS and hasattr(operator, name[1:])  # 2 - x is __rsub__(x, 2)
    return Function(
        name,
        own,
        next(iter(argument_names(function, name)), "input"),
        name in READS and (own.startswith("__") or name not in ("bool", "int", "float")),  # float(h), not h.float()
        _writes_first(own),
        name in RANDOM or name in MAY_DRAW,
        ("call_function", getattr(operator, name[1:])) if turned else _form(function, own),
        turned,
    )


@lru_cache(maxsize=4096)
def node_name(target: Any) -> str:
    """Return the name that fx gives the first node of a target, which it finds with regular expressions, slowly."""
    return _UNUSED._target_to_str(target)


def _form(function: Callable[..., Any], own: str) -> tuple[str, Any] | None:
    """The operation of fx that computes the same out of place."""
    if own in _OPERATORS:
        return "call_function", _OPERATORS[own]
    plain = own if own.startswith("__") else own.rstrip("_")
    if own != plain and not (hasattr(Tensor, plain) or hasattr(torch, plain) or hasattr(F, plain)):
        return None
    wrapped = getattr(function, "__module__", "") == "torch._tensor" and hasattr(Tensor, plain)  # h ** 2
    if wrapped or getattr(Tensor, own, None) is function or hasattr(function, "__objclass__"):
        return "call_method", plain
    return "call_function", function if own == plain else getattr(torch, plain, None) or getattr(F, plain)


def _writes_first(name: str) -> bool:
    """Whether a function overwrites its first argument, judged by torch's convention of names."""
    own = name.removeprefix("_foreach_")
    return own.startswith("__i") or own in ("__setitem__", "__set__") or (own[-1:] == "_" and own[:1] != "_")
