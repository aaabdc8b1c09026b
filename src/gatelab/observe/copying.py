"""A copy of a user's model that may be changed and run."""

import copy
from collections import OrderedDict
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn


def stand_in(model: nn.Module) -> nn.Module:
    """Copy ``model``: parameters are shared, buffers and attributes are not, backward hooks are dropped.

    Attributes that cannot be copied (a lock, an open file) are shared as well.
    """
    shared: dict[int, Any] = {id(parameter): parameter for parameter in model.parameters()}
    try:
        return _copied_module(model, dict(shared))
    except Exception:  # a user's module may hold locks, open files, tensors with a gradient history
        return _deeply_copied(model, shared | _uncopyable(model, shared))


_OLD_STATES = ("torch.nn.modules.conv", "torch.nn.modules.batchnorm")  # their __setstate__ only adapts old files
_ATOMS = frozenset({bool, int, float, str, bytes, type(None), torch.dtype, torch.device})  # immutable
_EMPTY = frozenset({dict, OrderedDict, set})  # most of a module's attributes
_BACKWARD = frozenset({"_backward_hooks", "_backward_pre_hooks"})


def _copied_module(module: nn.Module, memo: dict[int, Any]) -> nn.Module:
    """Like ``copy.deepcopy``, in a fifth of the time: most attributes of a module are plain numbers."""
    if id(module) in memo:
        return memo[id(module)]
    if not _copies_plainly(type(module)):
        return _deeply_copied(module, memo)
    copied = type(module).__new__(type(module))
    memo[id(module)] = copied
    attributes = copied.__dict__
    for name, value in vars(module).items():
        kind = type(value)
        if name == "_compiled_call_impl":  # runs the original, not its copy
            continue
        if kind in _ATOMS:
            attributes[name] = value
        elif kind in _EMPTY and (not value or name in _BACKWARD):
            attributes[name] = kind()
        else:
            attributes[name] = _copied_attribute(name, value, memo)
    return copied


def _deeply_copied(module: nn.Module, memo: dict[int, Any]) -> nn.Module:
    copied = copy.deepcopy(module, memo)
    for part in copied.modules():
        part._backward_hooks.clear()
        part._backward_pre_hooks.clear()
    return copied


def _copied_attribute(name: str, value: Any, memo: dict[int, Any]) -> Any:
    if name == "_modules":
        return {key: None if part is None else _copied_module(part, memo) for key, part in value.items()}
    if name == "_parameters":
        return dict(value)  # the parameters themselves are shared
    if name == "_buffers":
        with torch._C.DisableTorchFunction():
            return {key: _copied_buffer(part, memo) for key, part in value.items()}
    if type(value) in (tuple, list) and id(value) not in memo and _ATOMS.issuperset(map(type, value)):
        memo[id(value)] = value if type(value) is tuple else list(value)
        return memo[id(value)]
    return copy.deepcopy(value, memo)


def _copied_buffer(buffer: Tensor | None, memo: dict[int, Any]) -> Tensor | None:
    if type(buffer) is not Tensor or buffer.requires_grad:
        return copy.deepcopy(buffer, memo)
    if id(buffer) not in memo:
        memo[id(buffer)] = buffer.clone()
    return memo[id(buffer)]


@lru_cache(maxsize=256)
def _copies_plainly(kind: type[nn.Module]) -> bool:
    """Return whether copying its attributes is enough to copy such a module."""
    own = ("__deepcopy__", "__copy__", "__getstate__", "__reduce__", "__reduce_ex__", "__new__", "__slots__")
    changed = any(name in vars(base) for base in kind.__mro__ if base not in (nn.Module, object) for name in own)
    own_state = kind.__setstate__ is not nn.Module.__setstate__
    return not changed and (not own_state or kind.__module__ in _OLD_STATES)


def _uncopyable(model: nn.Module, shared: dict[int, Any]) -> dict[int, Any]:
    """The attributes of a model's modules that cannot be copied, by identity."""
    found: dict[int, Any] = {}
    for module in model.modules():
        for name, value in vars(module).items():
            if name in ("_parameters", "_modules"):
                continue
            for part in (value, *(value.values() if isinstance(value, dict) else ())):
                try:
                    copy.deepcopy(part, dict(shared))
                except Exception:
                    found[id(part)] = part.detach().clone() if isinstance(part, Tensor) else part
            if name.startswith("_") and isinstance(value, dict):  # torch's own tables of buffers and hooks
                found.pop(id(value), None)
    return found
