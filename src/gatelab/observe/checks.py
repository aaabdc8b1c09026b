"""What gatelab needs of a model and of examples before it runs them."""

import copy
import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd
from torch.nn.parameter import UninitializedParameter

from gatelab.errors import InputError, UnsupportedModelError

_SHORT = 4096  # entries of a vector that is cheaper to copy than to sum by itself


def observable(model: nn.Module, output: int | str | None = None) -> nn.Module:
    """Return the plain module behind ``model``; refuse a model whose outputs depend on chance or on the batch.

    Args:
        model: the user's model.
        output: the part of the model's output to use, if it returns a tuple or a dict; None uses all of it.

    Raises:
        UnsupportedModelError: ``model`` is not an ``nn.Module``, or part of it is scripted.
        InputError: batch-norm or dropout is active, or a lazy layer has no parameters yet.
    """
    if not isinstance(model, nn.Module):
        raise UnsupportedModelError(f"model is a {type(model).__name__}; give an nn.Module")
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
                f"{place} ({type(module).__name__}) has no running statistics: even in evaluation mode the output for "
                "one example depends on the others; create it with track_running_stats=True"
            )
        for parameter in module._parameters.values():
            if parameter is not None and parameter.is_meta:
                raise InputError(f"{place} ({type(module).__name__}) has no weights (device meta); load them first")
            if isinstance(parameter, UninitializedParameter):
                raise InputError(f"{place} ({type(module).__name__}) has no parameters yet; run the model once first")
        if module.training and _is_random_in_training(module):
            raise InputError(
                f"{place} ({type(module).__name__}) is in training mode: the output for one example depends on chance "
                "or on the other examples; call model.eval() first"
            )
    return model if output is None else _returning(model, output)


def _returning(model: nn.Module, output: int | str) -> nn.Module:
    """Return the same model, with the same parameters and names, that outputs only one part."""

    class Part(type(model)):
        def forward(self, *args: Any, **kwargs: Any) -> Any:
            answer = super().forward(*args, **kwargs)
            try:
                return answer[output]
            except (KeyError, IndexError, TypeError):
                known = list(answer) if isinstance(answer, dict) else type(answer).__name__
                raise InputError(f"output={output!r} is not a part of the model's output; it has {known}") from None

    Part.__name__ = Part.__qualname__ = type(model).__name__
    chosen = copy.copy(model)
    chosen.__class__ = Part
    return chosen


def _is_random_in_training(module: nn.Module) -> bool:
    return isinstance(module, _BatchNorm | nn.RReLU) or (isinstance(module, _DropoutNd) and module.p > 0)


def examples(x: Tensor, model: nn.Module | None = None, *, name: str = "x") -> Tensor:
    """Check that ``x`` is a usable set of examples (n, …) for ``model``, and return it detached."""
    if not isinstance(x, Tensor):
        raise InputError(f"{name} must be a torch.Tensor, got {type(x).__name__}; use torch.as_tensor({name})")
    if x.layout != torch.strided or x.is_nested:
        raise InputError(f"{name} has layout {x.layout}; gatelab takes dense tensors: use {name}.to_dense()")
    if x.is_meta or isinstance(x, FakeTensor):
        raise InputError(f"{name} holds shapes but no numbers (a meta or fake tensor); give the examples themselves")
    if x.ndim < 2:
        raise InputError(
            f"{name} has shape {tuple(x.shape)}; expected examples on the first axis, (n, …): "
            f"for one example use {name}.unsqueeze(0)"
        )
    if x.shape[0] == 0:
        raise InputError(f"{name} has shape {tuple(x.shape)}: there are no examples (n = 0)")
    if x.is_floating_point() and x.dtype.itemsize < 2:
        raise InputError(f"{name} has dtype {x.dtype}, in which torch does not compute; use {name}.float()")
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
    refuse_unless_finite(dict(model.named_parameters()))
    x = examples(x, model)
    other = None if y is None else examples(y, model, name="y")
    if other is not None and other.shape[1:] != x.shape[1:]:
        raise InputError(f"x has examples of shape {tuple(x.shape[1:])}, y of shape {tuple(other.shape[1:])}")
    return x, other


@torch.no_grad()
def refuse_unless_finite(weights: Mapping[str, Tensor]) -> None:
    """Refuse NaN and infinite weights: a NaN compares as a closed gate, which would be a wrong answer.

    A NaN or an infinity in a sum stays one, so a finite sum of all weights shows that each is finite.
    """
    weights = {name: tensor for name, tensor in weights.items() if tensor.is_floating_point()}
    if all(math.isfinite(total) for total in _totals(weights.values())):
        return
    for name, tensor in weights.items():  # the sum of finite weights may overflow
        if not bool(torch.isfinite(tensor).all()):
            raise InputError(
                f"'{name}' holds NaN or infinite values, which leave gates and regions undefined; check the training, "
                "or load weights that are finite"
            )


def _totals(weights: Iterable[Tensor]) -> Iterator[float]:
    """Yield the sum of all weights of each dtype and device; short vectors, which are many, are put together first."""
    groups: dict[tuple[torch.dtype, torch.device], tuple[list[Tensor], list[Tensor]]] = {}
    for tensor in weights:
        vectors, others = groups.setdefault((tensor.dtype, tensor.device), ([], []))
        short = tensor.ndim == 1 and tensor.layout == torch.strided and tensor.numel() <= _SHORT
        (vectors if short else others).append(tensor)
    for vectors, others in groups.values():
        sums = [tensor.sum() for tensor in ((torch.cat(vectors), *others) if vectors else others)]
        yield float(torch.stack(sums).sum())


def _check_fit(x: Tensor, model: nn.Module, name: str) -> None:
    if all(
        parameter is None
        or (parameter.device == x.device and (parameter.dtype == x.dtype or not parameter.is_floating_point()))
        for module in model.modules()
        for parameter in module._parameters.values()
    ):
        return
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


def batches(n: int, batch_size: int | None) -> Iterator[slice]:
    """Yield consecutive slices of at most ``batch_size`` examples that cover all n."""
    if batch_size is not None and (not isinstance(batch_size, int) or isinstance(batch_size, bool) or batch_size < 1):
        raise InputError(f"batch_size is {batch_size!r}; give a whole number, at least 1, or None for one batch")
    step = batch_size or n
    for start in range(0, n, step):
        yield slice(start, min(n, start + step))
