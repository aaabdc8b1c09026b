r"""Weights of several parents that make a back-propagated gradient disentangled (hierarchy, Section 8.7.3, Eq. 109).

The factors S of a child β are read by parents α, each with one factor of its own. With centred gradients
g̃_α = γ_α (−1, 1) node i of β receives

.. math:: \tilde G_{\beta,i} = \sum_\alpha P_{\alpha,S}^T \tilde g_\alpha w_{\alpha i}
          = \sum_\alpha c_{\alpha i} (v^+_\alpha - v^-_\alpha), \qquad c_{\alpha i} = \gamma_\alpha w_{\alpha i}.

The differences v⁺ − v⁻ sum to zero, so 2^|S| − 1 of them can span every zero-sum vector, including the disentangled one
of Definition 4, p ⊗ … ⊗ (−1, 1) ⊗ … ⊗ p. Fewer parents reach only its nearest approximation.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from gatelab.errors import InputError
from gatelab.hierarchy.codes import n_factors
from gatelab.hierarchy.disentangle import kron


@dataclass(frozen=True)
class ParentWeights:
    """Weights for which the gradient that several parents send down is disentangled, or nearest to it.

    Attributes:
        weights: (parents, k): w_αi, from node i of β to the one node of parent α.
        gradient: (2^k, k): what arrives at β, a column for each factor.
        residual: distance of the gradient from the disentangled one, relative to it; rounding if the parents span it.
        rank: dimension that the parents' differences v⁺ − v⁻ span; 2^k − 1 is all.
    """

    weights: Float[Tensor, "a k"]
    gradient: Float[Tensor, "m k"]
    residual: float
    rank: int


def disentangling_weights(
    matrices: Sequence[Float[Tensor, "2 m"]], gradients: Float[Tensor, " a"], marginals: Float[Tensor, "k 2"]
) -> ParentWeights:
    """Solve Eq. 109 for the weights, by least squares.

    Args:
        matrices: for each parent P(z_β | z_α), rows z_α = 0 and 1, a column for each of 2^k values of z_β.
        gradients: γ_α of each parent, g̃_α = (−γ_α, γ_α); none may be 0.
        marginals: [P(factor = 0), P(factor = 1)] of each factor of β.

    Returns:
        The weights, the gradient that they make, and how far it is from disentangled.

    Example:
        >>> generator = torch.Generator().manual_seed(0)
        >>> draws = torch.rand(3, 2, 4, generator=generator, dtype=torch.float64)
        >>> parents = [p / p.sum(dim=1, keepdim=True) for p in draws]
        >>> half = torch.full((2, 2), 0.5, dtype=torch.float64)
        >>> disentangling_weights(parents, torch.ones(3, dtype=torch.float64), half).residual < 1e-12
        True
        >>> disentangling_weights(parents[:1], torch.ones(1, dtype=torch.float64), half).residual > 0.1
        True
    """
    if not len(matrices) or len(matrices) != len(gradients) or bool((gradients == 0).any()):
        raise InputError(
            f"{len(matrices)} parents, {len(gradients)} gradients; give one for each of one or more parents, none of "
            "them 0"
        )
    k = n_factors(matrices[0].shape[1], "z_β")
    if marginals.shape != (k, 2) or any(matrix.shape != (2, 2**k) for matrix in matrices):
        shapes = ", ".join(str(tuple(matrix.shape)) for matrix in matrices)
        raise InputError(f"matrices are {shapes}, marginals {tuple(marginals.shape)}; give (2, 2^k) each, and (k, 2)")
    differences = torch.stack([matrix[1] - matrix[0] for matrix in matrices], dim=1).to(marginals)
    step = torch.tensor([-1.0, 1.0]).to(marginals)
    wanted = torch.stack([kron([step if i == j else marginals[i] for i in range(k)]) for j in range(k)], dim=1)
    # The pseudo-inverse also handles redundant parents: of all solutions it takes the smallest weights.
    c = torch.linalg.pinv(differences, rtol=1e-12) @ wanted
    found = differences @ c
    residual = ((found - wanted).norm() / wanted.norm()).item()
    return ParentWeights(
        c / gradients.to(marginals).unsqueeze(1), found, residual, int(torch.linalg.matrix_rank(differences))
    )
