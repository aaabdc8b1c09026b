"""What runs while a model is recorded: modules, and the lines of the user's code."""

import linecache
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

import jaxtyping
import torch
from torch import Tensor, nn

from gatelab.network.operations import Kind, module_operation, operation

# Packages whose frames are not the user's: torch, and decorators that check types.
_WRAPPERS = tuple(str(Path(module.__file__ or "").parent) for module in (torch, jaxtyping))
_RECORDER = str(Path(__file__).parent)
_OF_TORCH = "torch.nn.modules"
_CALL = "_compiled_call_impl"  # the attribute that a module runs in place of its own call, if it is there


def start(model: nn.Module, x: Tensor) -> Any:
    """Call a model; its code is in the frames inside this one."""
    return model(x)


def source_line(known: dict[tuple[str, int], str]) -> str:
    """Return the innermost line outside torch and this package, up to the call of the model; empty if none.

    Args:
        known: the lines that were shown before, by file and number; the line is added.
    """
    frame = sys._getframe(2)
    while frame is not None:
        file = frame.f_code.co_filename
        if _is_users(file):
            place = file, frame.f_lineno
            if place not in known:
                line = linecache.getline(*place).strip()
                known[place] = f" at {os.path.basename(file)}:{place[1]} `{line}`"  # noqa: PTH119  # Path is slow
            return known[place]
        if file == __file__ and frame.f_code.co_name == "start":
            break
        frame = frame.f_back
    return ""


@lru_cache(maxsize=4096)
def _is_users(file: str) -> bool:
    return not file.startswith((_RECORDER, *_WRAPPERS))


@contextmanager
def called_through(model: nn.Module, watched: Callable[[str, nn.Module], Callable[..., Any]]) -> Iterator[None]:
    """Let a call of each module be one of ``watched(path, module)``, around its hooks and its forward.

    Two hooks for each module would do the same, and cost as much time as the rest of a record.
    """
    before = [(path, module, vars(module).get(_CALL)) for path, module in model.named_modules()]
    try:
        for path, module, _ in before:
            vars(module)[_CALL] = watched(path, module)
        yield
    finally:
        for _, module, own in before:
            vars(module).pop(_CALL, None)
            if own is not None:
                vars(module)[_CALL] = own


def is_of_torch(module: nn.Module) -> bool:
    """Whether a module is one of torch's own, not a user's subclass."""
    return type(module).__module__.startswith(_OF_TORCH)


def is_one_operation(module: nn.Module) -> bool:
    """Whether a module is one of torch's own and runs only its own forward, so that it is one node."""
    return (
        _may_be_one_operation(type(module))
        and all(part is None for part in module._modules.values())
        and "forward" not in vars(module)
        and not (module._forward_hooks or module._forward_pre_hooks)
    )


@lru_cache(maxsize=1024)
def _may_be_one_operation(kind: type[nn.Module]) -> bool:
    containers = (nn.Sequential, nn.ModuleList, nn.ModuleDict)
    return kind.__module__.startswith(_OF_TORCH) and not issubclass(kind, containers)


def draws_nothing(module: nn.Module) -> bool:
    """Whether one of torch's modules is an operation of the table that never draws random numbers."""
    return operation(module_operation(module)).kind not in (Kind.OBSTACLE, Kind.DROPOUT)
