r"""Batch norm as a projection (hierarchy, Section 4 and Thm. 5).

Write the batch as a vector f, with :math:`\tilde f = (f - \mu 1)/\sigma`, :math:`f_{bn} = c_1 \tilde f + c_0 1` and
:math:`S(f) = [\tilde f, 1]`. The gradient that leaves the layer is

.. math:: g = J^{BN}(f)\, g_{bn} = \frac{c_1}{\sigma} P^\perp_{f,1} g_{bn}, \qquad g_c = S(f)^T g_{bn}.

Under the reformulation the entries of f are values of z with probabilities Λ (Eq. 83): means are weighted, and the
projection is orthogonal in the inner product ⟨f, g⟩ = fᵀ Λ g. A batch of N examples is the case Λ = 1/N.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from gatelab.errors import InputError, UnsupportedModelError
from gatelab.observe import examples, stand_in, undisturbed


@dataclass(frozen=True)
class Standardised:
    """f̃ for each node (column), with μ and σ; with ε > 0, σ² = variance + ε."""

    values: Float[Tensor, "n w"]
    mean: Float[Tensor, " w"]
    deviation: Float[Tensor, " w"]


def standardise(
    f: Float[Tensor, "n w"], weights: Float[Tensor, " n"] | None = None, eps: float = 0.0, place: str = "f"
) -> Standardised:
    """Shift and scale columns to mean 0 and variance 1 under ``weights``, which sum to one (uniform by default)."""
    weights = _uniform(f) if weights is None else weights
    mean = weights @ f
    centred = f - mean
    variance = weights @ centred.square()
    if eps == 0.0:
        constant = constant_columns(f.detach(), variance.detach())
        if len(constant):
            raise InputError(
                f"{place}, node {int(constant[0])}: the activation is {mean[constant[0]].item():g} for every input, "
                "and zero variance cannot be normalised; choose other initial weights, or use eps > 0"
            )
    deviation = (variance + eps).sqrt()
    return Standardised(centred / deviation, mean, deviation)


def batch_norm_backward(
    forward: Standardised,
    gradient: Float[Tensor, "n w"],
    scale: Float[Tensor, " w"],
    weights: Float[Tensor, " n"] | None = None,
) -> tuple[Float[Tensor, "n w"], Float[Tensor, " w"], Float[Tensor, " w"]]:
    r"""Turn ∂L/∂f_bn into ∂L/∂f, ∂L/∂c₁ and ∂L/∂c₀ without an n × n matrix (hierarchy, Thm. 5).

    .. math:: \frac{\partial L}{\partial f} = \frac{c_1}{\sigma} (I - \Lambda S S^T) \frac{\partial L}{\partial f_{bn}}

    This also holds for ε > 0, where f̃ is shorter than a unit vector and I − ΛSSᵀ is not a projection.
    """
    weights = _uniform(gradient) if weights is None else weights
    to_scale = (forward.values * gradient).sum(dim=0)
    to_shift = gradient.sum(dim=0)
    removed = weights.unsqueeze(1) * (forward.values * to_scale + to_shift)
    return scale / forward.deviation * (gradient - removed), to_scale, to_shift


def projection(f: Float[Tensor, " n"], weights: Float[Tensor, " n"] | None = None) -> Float[Tensor, "n n"]:
    r"""Return the matrix :math:`P^\perp_{f,1} = I - S S^T \Lambda`; it is symmetric for uniform weights."""
    weights = _uniform(f) if weights is None else weights
    basis = torch.stack([standardise(f.unsqueeze(1), weights).values[:, 0], torch.ones_like(f)], dim=1)
    return torch.eye(len(f), dtype=f.dtype, device=f.device) - basis @ (basis.T * weights)


def batch_norm_jacobian(
    f: Float[Tensor, " n"], scale: float = 1.0, weights: Float[Tensor, " n"] | None = None
) -> Float[Tensor, "n n"]:
    r"""Return the matrix :math:`J^{BN}(f) = (c_1/\sigma)\, P^\perp_{f,1}` (Eqs 10 and 83) for ε = 0."""
    deviation = standardise(f.unsqueeze(1), weights).deviation
    return scale / deviation * projection(f, weights)


def row_energy(weight: Float[Tensor, "k w"], bias: Float[Tensor, " w"] | None = None) -> Float[Tensor, " w"]:
    r"""Return the energy of each node j that gradient flow conserves if batch norm follows the node (Eq. 85).

    .. math:: E_j = \frac12 \Bigl(\sum_k w_{jk}^2 + b_j^2\Bigr)

    A node with a bias has the sum Σ_k w_jk f_k + b_j, so that E[g_j f_j] = 0 conserves ½(‖w_j‖² + b_j²); the paper's
    ½‖w_j‖² alone drifts at any step. One step of gradient descent of size η raises the energy by exactly
    ½ η² (‖Δw_j‖² + Δb_j²).
    """
    energy = weight.square().sum(dim=0) / 2
    return energy if bias is None else energy + bias.square() / 2


def constant_columns(f: Float[Tensor, "n w"], variance: Float[Tensor, " w"]) -> Int[Tensor, " k"]:
    """Return the columns that do not vary, up to rounding."""
    rounding = 8 * torch.finfo(f.dtype).eps * f.abs().amax(dim=0)
    return (variance.sqrt() <= rounding).nonzero().flatten()


def _uniform(f: Float[Tensor, " n *rest"]) -> Float[Tensor, " n"]:
    return torch.full((len(f),), 1 / len(f), dtype=f.dtype, device=f.device)


@dataclass(frozen=True)
class BatchNormProjection:
    """One use of a batch-norm layer, channel by channel; a batch is a vector over examples and positions.

    Attributes:
        layer: the module's name; "#2", "#3", … for further uses.
        removed: share of ‖g_bn‖² in the span of {f, 1}, which does not come back.
        mean_share: the part of ``removed`` along 1.
        activation_share: the part of ``removed`` along the centred f; 0 if f does not vary over the batch.
        factor: c₁/σ, the scale of the remainder.
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
    """Measure, for each batch-norm layer, how much of the incoming gradient it removes on the batch x.

    Batch norm runs with the statistics of the batch, as in training, whatever the model's mode; dropout is off.
    Nothing of the model changes.

    Args:
        model: any module with ``nn.BatchNorm1d``, ``2d`` or ``3d`` layers.
        x: the batch.
        loss: maps the model's output to a scalar.

    Returns:
        One entry for each use of a batch-norm layer, in the order of the forward pass.

    Raises:
        UnsupportedModelError: there is no batch-norm layer, or it does not act on the way from x to the loss.
        InputError: the loss is not a scalar, or a batch-norm layer sees only one value for each channel.

    Example:
        >>> net, x = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1)), torch.randn(8, 3)
        >>> [layer.layer for layer in batchnorm_projection_report(net, x, lambda out: out.square().mean())]
        ['1']
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
        number = 1 + sum(used is module for _, used, _, _ in uses)
        label = norms[module] if number == 1 else f"{norms[module]}#{number}"
        uses.append((label, module, inputs[0], output))
        return output.clone()  # an in-place ReLU behind the layer would overwrite the recorded output

    def check(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        assert isinstance(module, _BatchNorm)
        if inputs[0].ndim > 1 and inputs[0].numel() == inputs[0].shape[1]:
            raise InputError(
                f"layer '{norms[module]}': its input of shape {tuple(inputs[0].shape)} has one value for each channel, "
                "which has no variance; give a batch of two or more examples"
            )

    hooks = [module.register_forward_pre_hook(check) for module in norms]
    hooks += [module.register_forward_hook(watch) for module in norms]
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
    return [
        _projection(label, module, f.detach(), gradients.get(id(out)), gradients.get(id(f)))
        for label, module, f, out in uses
    ]


def _projection(
    label: str, module: _BatchNorm, f: Tensor, outer: Tensor | None, inner: Tensor | None
) -> BatchNormProjection:
    """Compare the gradient at the layer's output (outer) with the one at its input (inner)."""
    if outer is None:
        raise UnsupportedModelError(
            f"layer '{label}': no gradient of the loss reaches it; remove it or change the loss"
        )
    batch, gradient = _columns(f), _columns(outer)
    forward = standardise(batch, eps=module.eps)
    centred, total = batch - forward.mean, forward.deviation.square()
    variance = centred.square().mean(dim=0)
    scale = torch.ones_like(variance) if module.weight is None else module.weight.detach()
    predicted, *_ = batch_norm_backward(forward, gradient, scale)
    energy = gradient.square().sum(dim=0).clamp(min=torch.finfo(f.dtype).tiny)
    along_one = gradient.sum(dim=0).square() / len(batch)
    along_f = (centred * gradient).sum(dim=0).square() / (variance * len(batch))
    along_f[constant_columns(batch, variance)] = 0  # a constant f has no direction of its own
    residual = 0.0
    if inner is not None:
        residual = ((_columns(inner) - predicted).abs().max() / predicted.abs().max()).item()
    return BatchNormProjection(
        label,
        (along_one + along_f) / energy,
        along_one / energy,
        along_f / energy,
        scale / forward.deviation,
        module.eps / total,
        residual,
    )


def _columns(values: Float[Tensor, "n c *positions"]) -> Float[Tensor, "v c"]:
    """Reshape (n, c, …) to one column for each channel."""
    return values.movedim(1, -1).reshape(-1, values.shape[1])
