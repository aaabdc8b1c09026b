"""Moments by class, and what gates are worth for two balanced classes (gdln, Eqs 16–18)."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from gatelab.dynamics import GatedMoments
from gatelab.dynamics.moments import Gates, explained, gated_inputs
from gatelab.errors import InputError


@dataclass(frozen=True)
class ClassMoments:
    """Means and second moments of the gated inputs within each class, y = 0 first.

    Attributes:
        means: ⟨x̃⟩ given y.
        seconds: ⟨x̃x̃ᵀ⟩ given y.
        units: K.
        share: share of the class y = 1.
    """

    means: Float[Tensor, "2 kd"]
    seconds: Float[Tensor, "2 kd kd"]
    units: int
    share: float = 0.5

    def pooled(self) -> GatedMoments:
        """Return A, b and ⟨y²⟩ over both classes."""
        A = self.share * self.seconds[1] + (1 - self.share) * self.seconds[0]
        return GatedMoments(A, self.share * self.means[1], self.units, self.share)


def class_moments_of(x: Float[Tensor, "n d"], y: Float[Tensor, " n"], gates: Gates) -> ClassMoments:
    """Return the moments of a fixed data set by class.

    Raises:
        InputError: there are labels other than 0 and 1, or only one of them.
    """
    if not ((y == 0) | (y == 1)).all() or y.min() == y.max():
        raise InputError("labels must be y = 0 and y = 1, and both must be there; use moments_of for other targets")
    features = gated_inputs(x, gates)
    parts = [features[y == label] for label in (0, 1)]
    means = torch.stack([part.mean(dim=0) for part in parts])
    seconds = torch.stack([part.T @ part / len(part) for part in parts])
    return ClassMoments(means, seconds, features.shape[1] // x.shape[1], y.mean().item())


def minimum_loss_balanced(moments: ClassMoments) -> float:
    r"""Return ½ − ½ ⟨x̃⟩₁ᵀ (⟨x̃x̃ᵀ⟩₁ + ⟨x̃x̃ᵀ⟩₀)⁺ ⟨x̃⟩₁ for balanced classes y ∈ {0, 1} (gdln, Eq. 16).

    Raises:
        InputError: the classes differ in size, for which Eq. 16 does not hold.
    """
    return 0.5 - 0.5 * gate_objective(moments)


def gate_objective(moments: ClassMoments) -> float:
    r"""Return Eq. 18 with second moments where the notes print outer products of means; larger is better.

    ⟨g̃⊗x⟩₁ᵀ (⟨(g̃⊗x)(g̃⊗x)ᵀ⟩₁ + ⟨(g̃⊗x)(g̃⊗x)ᵀ⟩₀)⁺ ⟨g̃⊗x⟩₁ = 1 − 2 𝓛_OLS.

    Raises:
        InputError: the classes differ in size.
    """
    if abs(moments.share - 0.5) > 1e-9:
        raise InputError(
            f"class y = 1 has a share of {moments.share:.4g}; Eq. 16 is for balanced classes: "
            "use minimum_loss, or draw as many of each"
        )
    return explained(moments.seconds.sum(dim=0), moments.means[1])


def printed_gate_objective(moments: ClassMoments) -> float:
    r"""Return Eq. 18 as the notes print it, ⟨g̃⊗x⟩₁ᵀ (⟨g̃⊗x⟩₁⟨g̃⊗x⟩₁ᵀ + ⟨g̃⊗x⟩₀⟨g̃⊗x⟩₀ᵀ)⁺ ⟨g̃⊗x⟩₁.

    It is 1 whenever the two class means are linearly independent, so it cannot rank gates.
    """
    zero, one = moments.means
    return explained(torch.outer(one, one) + torch.outer(zero, zero), one)
