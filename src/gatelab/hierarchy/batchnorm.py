r"""Batch norm as a projection (hierarchy, Section 4 and Thm. 5).

Write the batch as a vector f, with :math:`\tilde f = (f - \mu 1)/\sigma`, :math:`f_{bn} = c_1 \tilde f + c_0 1` and
:math:`S(f) = [\tilde f, 1]`. The gradient that leaves the layer is

.. math:: g = J^{BN}(f)\, g_{bn} = \frac{c_1}{\sigma} P^\perp_{f,1} g_{bn}, \qquad g_c = S(f)^T g_{bn}.

Under the reformulation the entries of f are values of z with probabilities Λ (Eq. 83): means are weighted, and the
projection is orthogonal in the inner product ⟨f, g⟩ = fᵀ Λ g. A batch of N examples is the case Λ = 1/N.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from gatelab.errors import InputError


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
                "so its variance is zero and cannot be normalised; choose other initial weights, or use eps > 0"
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

    This also holds for ε > 0; f̃ is then shorter than a unit vector, and I − ΛSSᵀ is not a projection.
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

    A node with a bias has the sum Σ_k w_jk f_k + b_j, so E[g_j f_j] = 0 conserves ½(‖w_j‖² + b_j²); the paper's
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
