"""The least mean squared error that gates allow (gdln, Eqs 13–18)."""

import torch
from torch import Tensor

from gatelab.dynamics.moments import ClassMoments, GatedMoments
from gatelab.errors import InputError


def minimum_loss(moments: GatedMoments | ClassMoments) -> float:
    r"""The least ⟨(y − ŷ)²⟩ over all weights, ⟨y²⟩ − bᵀA⁺b (gdln, Eqs 13–15, for any targets).

    This is the notes' 𝓛_OLS; the flow's L = ½⟨(y − ŷ)²⟩ ends at half of it.
    """
    if isinstance(moments, ClassMoments):
        moments = moments.pooled()
    return moments.power - explained(moments.A, moments.b)


def minimum_loss_balanced(moments: ClassMoments) -> float:
    r"""½ − ½ ⟨x̃⟩₁ᵀ (⟨x̃x̃ᵀ⟩₁ + ⟨x̃x̃ᵀ⟩₀)⁺ ⟨x̃⟩₁ for balanced classes y ∈ {0, 1} (gdln, Eq. 16).

    Raises:
        InputError: classes of different size, for which Eq. 16 does not hold.
    """
    return 0.5 - 0.5 * gate_objective(moments)


def printed_gate_objective(moments: ClassMoments) -> float:
    r"""Eq. 18 as the notes print it, outer products of means where second moments belong.

    ⟨g̃⊗x⟩₁ᵀ (⟨g̃⊗x⟩₁⟨g̃⊗x⟩₁ᵀ + ⟨g̃⊗x⟩₀⟨g̃⊗x⟩₀ᵀ)⁺ ⟨g̃⊗x⟩₁. It is 1 whenever the two class means are linearly
    independent, so that it cannot rank gates; it stands here to be measured. Maximise :func:`gate_objective` instead.
    """
    zero, one = moments.means
    return explained(torch.outer(one, one) + torch.outer(zero, zero), one)


def gate_objective(moments: ClassMoments) -> float:
    r"""What Eq. 18 should be: ⟨g̃⊗x⟩₁ᵀ (⟨(g̃⊗x)(g̃⊗x)ᵀ⟩₁ + ⟨(g̃⊗x)(g̃⊗x)ᵀ⟩₀)⁺ ⟨g̃⊗x⟩₁ = 1 − 2 𝓛_OLS."""
    if abs(moments.share - 0.5) > 1e-9:
        raise InputError(
            f"class y = 1 has a share of {moments.share:.4g}; Eq. 16 is for balanced classes: "
            "use minimum_loss, or draw as many of each"
        )
    return explained(moments.seconds.sum(dim=0), moments.means[1])


def explained(A: Tensor, b: Tensor) -> float:
    """bᵀA⁺b, eigenvalues that are zero but for rounding left out."""
    rates, vectors = torch.linalg.eigh(A)
    kept = rates > 10 * len(b) * torch.finfo(b.dtype).eps * rates.abs().max()
    return float(((vectors.T @ b).square()[kept] / rates[kept]).sum())
