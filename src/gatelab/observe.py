"""Run a user's model without leaving a trace.

Code that inspects a model uses :func:`examples` to check the input, :func:`observable` to check the state of the
model, :func:`stand_in` to get a copy that it may change, and :func:`undisturbed` to run that copy.
"""

import copy
import math
import random
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.func import functional_call
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd
from torch.nn.parameter import UninitializedParameter
from torch.overrides import TorchFunctionMode, _get_current_function_mode, _pop_mode, _push_mode
from torch.utils._python_dispatch import TorchDispatchMode

from gatelab.errors import InputError, UnsupportedModelError

# Functions that draw random numbers and take a generator.
RANDOM = frozenset(
    """
    rand randn randint randperm rand_like randn_like randint_like bernoulli multinomial normal poisson uniform
    exponential random cauchy geometric log_normal kaiming_uniform
    """.split()
)
# Functions that may draw random numbers internally, from torch's global generator.
MAY_DRAW = frozenset(
    """
    dropout dropout1d dropout2d dropout3d alpha_dropout feature_dropout feature_alpha_dropout native_dropout rrelu
    gumbel_softmax fractional_max_pool2d fractional_max_pool2d_with_indices fractional_max_pool3d
    fractional_max_pool3d_with_indices multi_head_attention_forward scaled_dot_product_attention standard_gamma
    sample_dirichlet binomial lstm gru rnn_tanh rnn_relu pca_lowrank svd_lowrank lobpcg
    """.split()
)


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
_SHORT = 4096  # entries of a vector that is cheaper to copy than to sum by itself
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


@contextmanager
def undisturbed(
    model: nn.Module, x: Tensor, parameters: dict[str, Tensor] | None = None
) -> Iterator[Callable[[Tensor], Any]]:
    """Yield a function that runs ``model`` on a batch, with random numbers of its own.

    Args:
        model: a :func:`stand_in` of the user's model.
        x: a batch on the model's device.
        parameters: tensors to use in place of the parameters with these names.
    """
    substitutes = {name: buffer.clone() for name, buffer in model.named_buffers()} | (parameters or {})
    with plain_surroundings(x):
        # The clone protects the caller's x from a model that starts with an in-place operation.
        yield lambda batch: functional_call(model, substitutes, (batch.detach().clone(),))


@contextmanager
def plain_surroundings(x: Tensor) -> Iterator[None]:
    """Switch off the caller's inference mode and autocast, and give models random numbers of their own."""
    plain = torch.autocast(x.device.type, enabled=False)
    with torch.inference_mode(False), plain, OwnChance(), _random_states_kept():
        yield


@contextmanager
def _random_states_kept() -> Iterator[None]:
    """Refuse a forward that changes a random state other than through torch's functions, and restore that state.

    The check runs only if this is the only thread: others may draw in the meantime, and a restored state would give
    them the same numbers again. Python's own random state is not checked where beartype is loaded, which changes it in
    any function that it checks.

    Raises:
        InputError: the forward changed the random state of NumPy, of Python or of torch.
    """
    before = _random_states()
    try:
        yield
    finally:
        after = _random_states() if threading.active_count() == 1 else before
        moved = [name for name, state in before.items() if not _same_state(state, after[name])]
        for name in moved:
            _SET_STATE[name](before[name])
    if moved:
        raise InputError(
            f"the model's forward changes the random state of {' and '.join(moved)}, so its output may depend on "
            "chance; draw random numbers outside forward"
        )


def _random_states() -> dict[str, Any]:
    states: dict[str, Any] = {"NumPy": np.random.get_state(), "torch": torch.get_rng_state()}  # noqa: NPY002
    return states if "beartype" in sys.modules else states | {"Python": random.getstate()}


def _same_state(one: Any, other: Any) -> bool:
    if isinstance(one, Tensor):
        return torch.equal(one, other)
    return one == other if isinstance(one[1], tuple) else all(map(np.array_equal, one, other))


_SET_STATE: dict[str, Callable[[Any], Any]] = {
    "NumPy": np.random.set_state,
    "Python": random.setstate,
    "torch": torch.set_rng_state,
}


class OwnChance(TorchFunctionMode):
    """Draws random numbers from its own generators, so that the caller's random state stays unchanged.

    Inside another one it takes the other's place: every call of a function would pass both.
    """

    def __init__(self) -> None:
        super().__init__()
        self._generators: dict[torch.device, torch.Generator] = {}
        self._outer: OwnChance | None = None

    def __enter__(self) -> "OwnChance":
        if isinstance(_get_current_function_mode(), OwnChance):
            self._outer = _pop_mode()
        return super().__enter__()

    def __exit__(self, *raised: object) -> None:
        super().__exit__(*raised)
        if self._outer is not None:
            _push_mode(self._outer)
            self._outer = None

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run an operation."""
        del types
        return self.run_by_chance(func, args, kwargs or {})

    def run_by_chance(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run an operation; if it draws random numbers, from these generators."""
        name = getattr(func, "__name__", "").strip("_")
        if name in RANDOM and kwargs.get("generator") is None:
            given = (*args, *kwargs.values())
            like = next((argument for argument in given if isinstance(argument, Tensor)), torch.empty(0))
            device = torch.device(kwargs.get("device") or like.device)
            if device not in self._generators:
                self._generators[device] = torch.Generator(device).manual_seed(0)
            return func(*args, **{**kwargs, "generator": self._generators[device]})
        if name in MAY_DRAW:
            with _NoOtherChance():
                return func(*args, **kwargs)
        return func(*args, **kwargs)


class _NoOtherChance(TorchDispatchMode):
    """Refuses operations that can draw only from torch's global generator, such as dropout."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run an operation."""
        del types
        kwargs = kwargs or {}
        if torch.Tag.nondeterministic_seeded in func.tags and _draws(func, args, kwargs):
            raise InputError(
                f"the model draws random numbers ({func.overloadpacket.__name__}), so its output depends on "
                "chance; call model.eval(), and pass training=self.training to functions"
            )
        return func(*args, **kwargs)


def _draws(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Return whether this call of an operation draws from the global generator."""
    schema = func._schema.arguments
    given = {argument.name: argument.default_value for argument in schema}
    given |= dict(zip(given, args, strict=False)) | kwargs
    idle = 0 in (given.get("p"), given.get("dropout_p")) or given.get("train", given.get("training")) is False
    return given.get("generator") is None and not idle


def refuse_generator(generator: object) -> None:
    """Raise InputError unless ``generator`` is a torch.Generator or None; a seed is neither."""
    if generator is not None and not isinstance(generator, torch.Generator):
        raise InputError(
            f"generator is {generator!r}; give a torch.Generator, such as torch.Generator().manual_seed(0), or None"
        )


def batches(n: int, batch_size: int | None) -> Iterator[slice]:
    """Yield consecutive slices of at most ``batch_size`` examples that cover all n."""
    if batch_size is not None and (not isinstance(batch_size, int) or isinstance(batch_size, bool) or batch_size < 1):
        raise InputError(f"batch_size is {batch_size!r}; give a whole number, at least 1, or None for one batch")
    step = batch_size or n
    for start in range(0, n, step):
        yield slice(start, min(n, start + step))
