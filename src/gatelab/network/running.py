"""What runs while a model is recorded: modules, and the lines of the user's code."""

import linecache
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jaxtyping
import torch
from torch import Tensor, nn

# Packages whose frames are not the user's: torch, and decorators that check types.
_WRAPPERS = tuple(str(Path(module.__file__ or "").parent) for module in (torch, jaxtyping))
_RECORDER = str(Path(__file__).parent)
_CALL = "_compiled_call_impl"  # the attribute that a module runs in place of its own call, if it is there


def start(model: nn.Module, x: Tensor) -> Any:
    """Call a model; its code is in the frames inside this one."""
    return model(x)


def source_line() -> str:
    """Return the innermost line outside torch and this package, up to the call of the model; empty if none."""
    frame = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        if file == __file__ and frame.f_code.co_name == "start":
            break
        if not file.startswith((_RECORDER, *_WRAPPERS)):
            code = linecache.getline(file, frame.f_lineno).strip()
            return f" at {os.path.basename(file)}:{frame.f_lineno} `{code}`"  # noqa: PTH119  # once for each node: Path is slow
        frame = frame.f_back
    return ""


@contextmanager
def called_through(model: nn.Module, watched: Callable[[str, nn.Module], Callable[..., Any]]) -> Iterator[None]:
    """Let a call of each module be one of ``watched(path, module)``, around its hooks and its forward.

    Two hooks for each module would do the same, and cost as much time as the rest of a record.
    """
    before = [(module, vars(module).get(_CALL)) for module in model.modules()]
    try:
        for path, module in model.named_modules():
            vars(module)[_CALL] = watched(path, module)
        yield
    finally:
        for module, own in before:
            vars(module).pop(_CALL, None)
            if own is not None:
                vars(module)[_CALL] = own


def is_of_torch(module: nn.Module) -> bool:
    """Whether a module is one of torch's own, not a user's subclass."""
    return type(module).__module__.startswith("torch.nn.modules")


def is_one_operation(module: nn.Module) -> bool:
    """Whether a module is one of torch's own and runs only its own forward, so that it is one node."""
    return (
        is_of_torch(module)
        and not isinstance(module, nn.Sequential | nn.ModuleList | nn.ModuleDict)
        and all(part is None for part in module._modules.values())
        and "forward" not in vars(module)
        and not (module._forward_hooks or module._forward_pre_hooks)
    )
