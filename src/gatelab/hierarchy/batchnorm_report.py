"""How much of the gradient batch norm removes in a user's own network (hierarchy, Thm. 5)."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from gatelab.errors import InputError, UnsupportedModelError
from gatelab.hierarchy.batchnorm import Standardised, batch_norm_backward, constant_columns
from gatelab.observe import examples, stand_in, undisturbed


@dataclass(frozen=True)
class BatchNormProjection:
    """One use of a batch-norm layer, channel by channel; a batch is a vector over examples and positions.

    Attributes:
        layer: the module's name; #2, #3 … when it is used again.
        removed: share of ‖g_bn‖² that lies in the span of {f, 1} and does not come back.
        mean_share: the part of it along 1.
        activation_share: the part of it along the centred f; 0 if f does not vary over the batch.
        factor: c₁/σ, by which the rest is scaled.
        leak: share of the component along f that ε lets through, ε/(σ² + ε); 0 in theory.
        residual: largest deviation of autograd's gradient from Theorem 5 (with this ε), relative to the largest entry.
    """

    layer: str
    removed: Float[Tensor, " c"]
    mean_share: Float[Tensor, " c"]
    activation_share: Float[Tensor, " c"]
    factor: Float[Tensor, " c"]
    leak: Float[Tensor, " c"]
    residual: float


def batchnorm_projection_report(
    model: nn.Module, x: Float[Tensor, " n *shape"], loss: Callable[[Tensor], Tensor]
) -> list[BatchNormProjection]:
    """For each batch-norm layer, how much of the incoming gradient is removed on the batch x.

    Batch norm runs with the statistics of the batch, as in training, whatever the model's mode; dropout is off.
    Nothing of the model changes.

    Args:
        model: any module with ``nn.BatchNorm1d``, ``2d`` or ``3d`` layers.
        x: the batch.
        loss: from the model's output to a scalar.

    Raises:
        UnsupportedModelError: there is no batch-norm layer, or it does not act on the way from x to the loss.
        InputError: the loss is no scalar.
    """
    x = examples(x, model)
    copied = stand_in(model)
    modes = {module: module.training for module in copied.modules()}
    norms = {module: name for name, module in copied.named_modules() if isinstance(module, _BatchNorm)}
    if not norms:
        raise UnsupportedModelError(f"{type(model).__name__} has no batch-norm layer; there is nothing to report")
    uses: list[tuple[str, _BatchNorm, Tensor, Tensor]] = []

    def watch(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> Tensor:
        assert isinstance(module, _BatchNorm)
        uses.append((norms[module], module, inputs[0], output))
        return output.clone()  # an in-place ReLU behind the layer would overwrite what we keep

    hooks = [module.register_forward_hook(watch) for module in norms]
    try:
        copied.eval()
        for module in norms:
            module.train()
        with undisturbed(copied, x) as run, torch.enable_grad():
            value = loss(run(x))
            if value.ndim != 0:
                raise InputError(f"loss returned a tensor of shape {tuple(value.shape)}; it must return a scalar")
            wanted = [tensor for _, _, f, out in uses for tensor in (f, out) if tensor.requires_grad]
            found = torch.autograd.grad(value, wanted, allow_unused=True) if wanted else ()
        gradients = dict(zip(map(id, wanted), found, strict=True))
    finally:
        for hook in hooks:
            hook.remove()
        for module, training in modes.items():  # a model that cannot be copied stands in for itself
            module.training = training
    names: dict[str, int] = {}
    report = []
    for name, module, f, out in uses:
        names[name] = names.get(name, 0) + 1
        label = name if names[name] == 1 else f"{name}#{names[name]}"
        report.append(_projection(label, module, f.detach(), gradients.get(id(out)), gradients.get(id(f))))
    return report


def _projection(
    label: str, module: _BatchNorm, f: Tensor, outer: Tensor | None, inner: Tensor | None
) -> BatchNormProjection:
    if outer is None:
        raise UnsupportedModelError(
            f"layer '{label}': no gradient of the loss reaches it; remove it or change the loss"
        )
    batch, gradient = _columns(f), _columns(outer)
    mean = batch.mean(dim=0)
    centred = batch - mean
    variance = centred.square().mean(dim=0)
    eps = module.eps
    deviation = (variance + eps).sqrt()
    scale = torch.ones_like(mean) if module.weight is None else module.weight.detach()
    predicted, *_ = batch_norm_backward(Standardised(centred / deviation, mean, deviation), gradient, scale)
    energy = gradient.square().sum(dim=0).clamp(min=torch.finfo(f.dtype).tiny)
    along_one = gradient.sum(dim=0).square() / len(batch)
    along_f = (centred * gradient).sum(dim=0).square() / (variance * len(batch))
    along_f[constant_columns(batch, variance)] = 0  # there is no direction f to remove
    residual = 0.0
    if inner is not None:
        residual = ((_columns(inner) - predicted).abs().max() / predicted.abs().max()).item()
    return BatchNormProjection(
        label,
        (along_one + along_f) / energy,
        along_one / energy,
        along_f / energy,
        scale / deviation,
        eps / (variance + eps),
        residual,
    )


def _columns(values: Float[Tensor, "n c *positions"]) -> Float[Tensor, "v c"]:
    """(n, c, …) as one column for each channel."""
    return values.movedim(1, -1).reshape(-1, values.shape[1])
