"""How much of the gradient each normalisation of a network removes (hierarchy, Thm. 5)."""

import inspect
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from gatelab.errors import InputError, UnsupportedModelError
from gatelab.hierarchy.batchnorm import batch_norm_backward, constant_columns, standardise
from gatelab.network.calls import bound
from gatelab.network.operations import Kind, operation_name
from gatelab.network.operations import operation as row_of
from gatelab.network.running import is_of_torch
from gatelab.observe import examples, stand_in, undisturbed

_NORMS = frozenset(f"{kind}_norm" for kind in ("batch", "instance", "group", "layer"))


@dataclass(frozen=True)
class BatchNormProjection:
    """One use of a normalisation, channel by channel; what is normalised together is a vector f.

    Batch norm: a vector for each channel, over examples and positions. Group, layer and instance norm: one for each
    example and group; shares are then of all examples' energy together, factor and leak are means over examples, and
    "channel" means group.

    Attributes:
        layer: the module's name, or the name of the module around a function, with "batch_norm" and the like; "#2",
            "#3", … for further uses.
        kind: "batch_norm", "group_norm", "layer_norm" or "instance_norm".
        frozen: whether the layer uses stored statistics in training; it then projects nothing.
        removed: share of the gradient's energy in the span of {f, 1}, which the layer removes.
        mean_share: the part of ``removed`` along 1.
        activation_share: the part of ``removed`` along the centred f; 0 if f does not vary over the batch.
        factor: c₁/σ, the scale of the remainder; 1/σ where channels of one group have different c₁.
        leak: share of the component along f that ε lets through, ε/(σ² + ε); 0 in theory.
        residual: largest deviation of autograd's gradient from Theorem 5 (with this ε), relative to the largest entry.
    """

    layer: str
    kind: str
    frozen: bool
    removed: Float[Tensor, " c"]
    mean_share: Float[Tensor, " c"]
    activation_share: Float[Tensor, " c"]
    factor: Float[Tensor, " c"]
    leak: Float[Tensor, " c"]
    residual: float

    @property
    def share(self) -> float:
        """Mean of ``removed`` over channels."""
        return self.removed.mean().item()


@dataclass(frozen=True)
class _Use:
    """One call of a normalisation: its input and output, isolated in the graph so that nothing else contributes."""

    layer: str
    kind: str
    frozen: bool
    arguments: dict[str, Any]
    f: Tensor
    output: Tensor


def batchnorm_projection_report(
    model: nn.Module, x: Float[Tensor, " n *shape"], loss: Callable[[Tensor], Tensor]
) -> list[BatchNormProjection]:
    """Measure, for each normalisation layer, how much of the incoming gradient it removes on the batch x.

    Batch norm, group norm, layer norm and instance norm are found anywhere in the model, as modules or as functions. A
    model in evaluation mode is treated as in training, with the statistics of the batch; in a model in training mode, a
    layer in evaluation mode is frozen and projects nothing. Dropout is off. The model is left unchanged.

    Args:
        model: any module with normalisation layers.
        x: the batch.
        loss: maps the model's output to a scalar.

    Returns:
        One entry for each use of a layer, in the order of the forward pass.

    Raises:
        UnsupportedModelError: there is no normalisation, or no gradient of the loss reaches one.
        InputError: the loss is not a scalar, or batch norm sees only one value for each channel.

    Example:
        >>> net, x = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1)), torch.randn(8, 3)
        >>> [layer.layer for layer in batchnorm_projection_report(net, x, lambda out: out.square().mean())]
        ['1']
    """
    x = examples(x, model)
    copied = stand_in(model)
    modes = {module: module.training for module in copied.modules()}
    try:
        if not model.training:
            copied.train()
        with undisturbed(copied, x) as run, _named(copied) as place, torch.enable_grad():
            with _Watch(place) as watch:
                value = loss(run(x))
            if not watch.uses:
                raise UnsupportedModelError(
                    f"{type(model).__name__} has no normalisation layer; there is nothing to report"
                )
            if value.ndim != 0:
                raise InputError(f"loss returned a tensor of shape {tuple(value.shape)}; it must return a scalar")
            wanted = [tensor for use in watch.uses for tensor in (use.f, use.output)]
            found = torch.autograd.grad(value, wanted, allow_unused=True)
    finally:
        for module, training in modes.items():  # a model that cannot be copied was run itself
            module.training = training
    return [
        _projection(use, outer, inner) for use, inner, outer in zip(watch.uses, found[::2], found[1::2], strict=True)
    ]


@contextmanager
def _named(model: nn.Module) -> Iterator[Callable[[str], str]]:
    """Yield a function that names an operation: by its layer's path, or by the path of the module around it."""
    stack: list[tuple[str, nn.Module]] = [("", model)]
    hooks = []
    for name, module in model.named_modules():
        hooks.append(module.register_forward_pre_hook(lambda m, _, n=name: stack.append((n, m))))
        hooks.append(module.register_forward_hook(lambda *_: stack.pop() and None, always_call=True))

    def place(operation: str) -> str:
        path, module = stack[-1]
        is_layer = path and is_of_torch(module) and not any(True for _ in module.children())
        return path if is_layer else ".".join(filter(None, (path, operation)))

    try:
        yield place
    finally:
        for hook in hooks:
            hook.remove()


class _Watch(TorchFunctionMode):
    """Intercepts every normalisation, module or function, and isolates its input and output to get their gradients."""

    def __init__(self, place: Callable[[str], str]):
        super().__init__()
        self.uses: list[_Use] = []
        self._place, self._counts = place, Counter[str]()

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run an operation."""
        del types
        kwargs, name = kwargs or {}, operation_name(func)
        if row_of(name).kind is Kind.DROPOUT:
            return args[0] if args else kwargs["input"]
        if name not in _NORMS:
            return func(*args, **kwargs)
        given = _arguments(func, name, args, kwargs)
        f = given["input"]
        # A copy: the gradient at f itself also includes what bypasses this layer.
        own = f.clone() if f.requires_grad else f.detach().clone().requires_grad_()
        frozen = not given.get("training", given.get("use_input_stats", True)) and given["running_mean"] is not None
        label = self._place(name)
        self._counts[label] += 1
        label += f"#{self._counts[label]}" if self._counts[label] > 1 else ""
        if name == "batch_norm" and not frozen:
            _refuse_single_values(label, f)
            given |= {"running_mean": None, "running_var": None, "training": True}
        output = getattr(nn.functional, name)(**{**given, "input": own})
        self.uses.append(_Use(label, name, frozen, given, own, output))
        return output.clone()  # an in-place ReLU after the layer would overwrite the output


def _arguments(func: Callable[..., Any], name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of a normalisation by the names that torch.nn.functional has for them."""
    known = inspect.signature(getattr(nn.functional, name))
    if name == "batch_norm":
        given = bound(func, args, kwargs).arguments
        return {key: given[key] for key in known.parameters if key in given}
    call = known.bind(*args[: len(known.parameters)], **{key: kwargs[key] for key in kwargs if key in known.parameters})
    call.apply_defaults()
    return dict(call.arguments)


def _refuse_single_values(label: str, f: Tensor) -> None:
    if f.ndim > 1 and f.numel() == f.shape[1]:
        raise InputError(
            f"layer '{label}': its input of shape {tuple(f.shape)} has one value for each channel, which has no "
            "variance; give a batch of two or more examples"
        )


def _projection(use: _Use, outer: Tensor | None, inner: Tensor | None) -> BatchNormProjection:
    """Compare the gradient at the layer's output (outer) with the one at its input (inner)."""
    if outer is None or inner is None:
        raise UnsupportedModelError(
            f"layer '{use.layer}': no gradient of the loss reaches it; remove it, run it outside torch.no_grad, or "
            "change the loss"
        )
    f, weight = use.f.detach(), use.arguments.get("weight")
    scale = torch.ones(()).to(f) if weight is None else weight.detach()
    if use.frozen:
        return _frozen(use, outer, inner, scale)
    eps, incoming = use.arguments["eps"], outer
    if use.kind != "batch_norm":  # channels that share one σ have different c₁, so c₁ belongs to the gradient
        per_entry = scale if use.kind == "layer_norm" or scale.ndim == 0 else scale.view(-1, *(1,) * (f.ndim - 2))
        incoming, scale = outer * per_entry, torch.ones(()).to(f)
    batch, gradient, found = _columns(use, f), _columns(use, incoming), _columns(use, inner)
    channels = _channels(use, f)
    forward = standardise(batch, eps=eps)
    centred = batch - forward.mean
    variance = centred.square().mean(dim=0)
    predicted, *_ = batch_norm_backward(forward, gradient, scale.expand(batch.shape[1]))
    along_one = gradient.sum(dim=0).square() / len(batch)
    along_f = (centred * gradient).sum(dim=0).square() / (variance * len(batch))
    along_f[constant_columns(batch, variance)] = 0  # a constant f has no direction of its own

    def together(values: Tensor) -> Tensor:
        return values.view(-1, channels).sum(dim=0)

    energy = together(gradient.square().sum(dim=0)).clamp(min=torch.finfo(f.dtype).tiny)
    along_one, along_f = together(along_one), together(along_f)
    count = batch.shape[1] // channels
    largest = predicted.abs().max().clamp(min=torch.finfo(f.dtype).tiny)
    return BatchNormProjection(
        *(use.layer, use.kind, use.frozen),
        *((along_one + along_f) / energy, along_one / energy, along_f / energy),
        together((scale / forward.deviation).expand(batch.shape[1]).contiguous()) / count,
        together(eps / forward.deviation.square()) / count,
        ((found - predicted).abs().max() / largest).item(),
    )


def _frozen(use: _Use, outer: Tensor, inner: Tensor, scale: Tensor) -> BatchNormProjection:
    """Report a layer that uses stored statistics: all of the gradient passes."""
    variance, eps = use.arguments["running_var"].detach(), use.arguments["eps"]
    factor = (scale / (variance + eps).sqrt()).expand_as(variance)
    predicted = outer * factor.view(-1, *(1,) * (outer.ndim - 2))
    zero = torch.zeros_like(variance)
    largest = predicted.abs().max().clamp(min=torch.finfo(predicted.dtype).tiny)
    residual = ((inner - predicted).abs().max() / largest).item()
    return BatchNormProjection(use.layer, use.kind, True, zero, zero, zero, factor, zero, residual)


def _columns(use: _Use, values: Tensor) -> Float[Tensor, "v k"]:
    """Return one column for each vector that is normalised; vectors of one example stand together."""
    if use.kind == "batch_norm":
        return values.movedim(1, -1).reshape(-1, values.shape[1])
    if use.kind == "layer_norm":
        return values.reshape(-1, prod(use.arguments["normalized_shape"])).T
    return values.reshape(len(values) * _channels(use, values), -1).T


def _channels(use: _Use, values: Tensor) -> int:
    """Return the number of channels or groups."""
    if use.kind == "group_norm":
        return use.arguments["num_groups"]
    return 1 if use.kind == "layer_norm" else values.shape[1]
