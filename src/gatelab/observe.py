"""Run a user's model without leaving a trace.

Code that looks inside a model uses :func:`examples` to check the input, :func:`observable` to check the state of the
model, :func:`stand_in` to get a copy that it may change, and :func:`undisturbed` to run that copy.
"""

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd
from torch.nn.parameter import UninitializedParameter

from gatelab.errors import InputError, UnsupportedModelError


def observable(model: nn.Module) -> nn.Module:
    """Return the plain module behind ``model``; refuse a model whose answers depend on chance or on the batch.

    Raises:
        UnsupportedModelError: ``model`` is not an ``nn.Module``, or part of it is scripted.
        InputError: batch-norm or dropout is active, or a lazy layer has no parameters yet.
    """
    if not isinstance(model, nn.Module):
        raise UnsupportedModelError(f"expected an nn.Module, got {type(model).__name__}")
    model = getattr(model, "_orig_mod", model)  # torch.compile and DataParallel wrap the user's module
    model = model.module if isinstance(model, nn.DataParallel) else model
    for name, module in model.named_modules():
        place = f"module '{name}'" if name else "the model"
        if isinstance(module, torch.jit.ScriptModule):
            raise UnsupportedModelError(
                f"{place} is a TorchScript module, which hides its operations; pass the nn.Module it was made from"
            )
        if isinstance(module, _BatchNorm) and module.running_mean is None:
            raise InputError(
                f"{place} ({type(module).__name__}) has no running statistics: even in evaluation mode the answer for "
                "one example depends on the others; create it with track_running_stats=True"
            )
        if any(isinstance(parameter, UninitializedParameter) for parameter in module.parameters(recurse=False)):
            raise InputError(f"{place} ({type(module).__name__}) has no parameters yet; run the model once first")
        if module.training and _is_random_in_training(module):
            raise InputError(
                f"{place} ({type(module).__name__}) is in training mode: the answer for one example depends on chance "
                "or on the other examples; call model.eval() first"
            )
    return model


def _is_random_in_training(module: nn.Module) -> bool:
    return isinstance(module, _BatchNorm) or (isinstance(module, _DropoutNd) and module.p > 0)


def examples(x: Tensor, model: nn.Module | None = None, *, name: str = "x") -> Tensor:
    """Check that ``x`` is a usable set of examples (n, …) for ``model``, and return it detached."""
    if not isinstance(x, Tensor):
        raise InputError(f"{name} must be a torch.Tensor, got {type(x).__name__}; use torch.as_tensor({name})")
    if x.ndim < 2:
        raise InputError(
            f"{name} has shape {tuple(x.shape)}; expected examples on the first axis, (n, …): "
            f"for one example use {name}.unsqueeze(0)"
        )
    if x.shape[0] == 0:
        raise InputError(f"{name} has shape {tuple(x.shape)}: there are no examples (n = 0)")
    if not x.is_floating_point():
        raise InputError(f"{name} has dtype {x.dtype}; convert it to the model's floating dtype, e.g. {name}.float()")
    if not bool(torch.isfinite(x.sum())):  # cheap first test; a sum of finite values may overflow, so look again
        broken = (~torch.isfinite(x)).flatten(1).any(dim=1).nonzero()
        if len(broken):
            first = int(broken[0])
            raise InputError(f"{name} holds NaN or infinite values, first in example {first}; clean the data")
    if model is not None:
        _check_fit(x, model, name)
    return x.detach()


def examples_for(model: nn.Module, x: Tensor, y: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """Check the row and column examples of a kernel, and that the model's weights are finite."""
    for name, parameter in model.named_parameters():
        refuse_unless_finite(name, parameter)
    x = examples(x, model)
    other = None if y is None else examples(y, model, name="y")
    if other is not None and other.shape[1:] != x.shape[1:]:
        raise InputError(f"x has examples of shape {tuple(x.shape[1:])}, y of shape {tuple(other.shape[1:])}")
    return x, other


def refuse_unless_finite(name: str, weights: Tensor) -> None:
    """Refuse NaN and infinite weights: a NaN compares as a closed gate, which would be a wrong answer."""
    if not bool(torch.isfinite(weights).all()):
        raise InputError(
            f"'{name}' holds NaN or infinite values, which leave gates and regions undefined; check the training, or "
            "load weights that are finite"
        )


def _check_fit(x: Tensor, model: nn.Module, name: str) -> None:
    for parameter_name, parameter in model.named_parameters():
        if parameter.device != x.device:
            raise InputError(
                f"{name} is on {x.device}, parameter '{parameter_name}' is on {parameter.device}; move one of them"
            )
        if parameter.is_floating_point() and parameter.dtype != x.dtype:
            raise InputError(
                f"{name} is {x.dtype}, parameter '{parameter_name}' is {parameter.dtype}; "
                f"use {name}.to({parameter.dtype}) or model.to({x.dtype})"
            )


def stand_in(model: nn.Module) -> nn.Module:
    """Copy ``model``: parameters are shared, buffers and attributes are not, backward hooks are dropped.

    A model that cannot be copied is returned itself.
    """
    try:
        copied = copy.deepcopy(model, {id(parameter): parameter for parameter in model.parameters()})
    except Exception:  # a user's module may hold anything: locks, open files, tensors with a gradient history
        return model
    for module in copied.modules():
        module._backward_hooks.clear()
        module._backward_pre_hooks.clear()
    return copied


@contextmanager
def undisturbed(
    model: nn.Module, x: Tensor, parameters: dict[str, Tensor] | None = None
) -> Iterator[Callable[[Tensor], Any]]:
    """Yield a function that runs ``model`` on a batch, and restore the random state on exit.

    Args:
        model: a :func:`stand_in` of the user's model.
        x: a batch on the device whose random state is to be restored.
        parameters: tensors to use in place of the parameters with these names.
    """
    substitutes = {name: buffer.clone() for name, buffer in model.named_buffers()} | (parameters or {})
    devices = [x.device] if x.device.type != "cpu" else []
    with torch.inference_mode(False), torch.random.fork_rng(devices, device_type=x.device.type):
        # The clone protects the caller's x from a model that starts with an in-place operation.
        yield lambda batch: functional_call(model, substitutes, (batch.detach().clone(),))


def batches(n: int, batch_size: int | None) -> Iterator[slice]:
    """Yield consecutive slices of at most ``batch_size`` examples that cover all n."""
    if batch_size is not None and batch_size < 1:
        raise InputError(f"batch_size is {batch_size}; it must be at least 1, or None for one batch")
    step = batch_size or n
    for start in range(0, n, step):
        yield slice(start, min(n, start + step))
