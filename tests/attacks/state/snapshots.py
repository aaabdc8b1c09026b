"""Everything that a call must leave as it found it."""

import copy
import random
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from tests.attacks.outcomes import ChangedStateError

_HOOKS = (
    "_forward_hooks",
    "_forward_pre_hooks",
    "_backward_hooks",
    "_backward_pre_hooks",
    "_state_dict_hooks",
    "_load_state_dict_pre_hooks",
)


def snapshot(model: nn.Module, x: Tensor) -> dict[str, Any]:
    """Return the state of a model, its input and the process, as plain values."""
    state: dict[str, Any] = {
        "x": (x.detach().clone(), x.requires_grad, x._version if not x.is_inference() else 0),
        "torch's random state": torch.get_rng_state(),
        "numpy's random state": repr(np.random.get_state()),  # noqa: NPY002
        "python's random state": random.getstate(),
        "default dtype": torch.get_default_dtype(),
        "thread count": torch.get_num_threads(),
        "grad mode": torch.is_grad_enabled(),
        "inference mode": torch.is_inference_mode_enabled(),
        "autocast": torch.is_autocast_enabled("cpu"),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
    }
    for name, module in model.named_modules():
        state[f"'{name}' hooks"] = [list(getattr(module, hooks)) for hooks in _HOOKS]
        state[f"'{name}' mode"] = module.training
        state[f"'{name}' class"] = type(module)
        state[f"'{name}' attributes"] = _attributes(module)
    for name, parameter in model.named_parameters():
        gradient = None if parameter.grad is None else parameter.grad.clone()
        state[f"'{name}'"] = (
            parameter.detach().clone(),
            parameter.requires_grad,
            gradient,
            id(parameter),
            parameter._version,
        )
    for name, buffer in model.named_buffers():
        state[f"buffer '{name}'"] = (buffer.clone(), id(buffer))
    return state


def _attributes(module: nn.Module) -> dict[str, Any]:
    own = {key: value for key, value in vars(module).items() if not key.startswith("_") and key != "training"}
    return {
        key: copy.copy(value) if isinstance(value, list | dict | set | Tensor) else value for key, value in own.items()
    }


def compare(before: dict[str, Any], after: dict[str, Any]) -> None:
    """Name what a call has changed."""
    changed = [key for key in before.keys() | after.keys() if not _equal(before.get(key), after.get(key))]
    if changed:
        raise ChangedStateError(", ".join(sorted(changed)))


def _equal(one: Any, other: Any) -> bool:
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        return one.shape == other.shape and one.dtype == other.dtype and torch.equal(one, other)
    if isinstance(one, tuple | list) and isinstance(other, tuple | list):
        return len(one) == len(other) and all(_equal(a, b) for a, b in zip(one, other, strict=True))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_equal(one[key], other[key]) for key in one)
    return one is other or bool(one == other)
