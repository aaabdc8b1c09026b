"""The value of gates for two balanced classes (gdln, Eqs 16–18), given the gated inputs x̃ of each class."""

import torch
from jaxtyping import Float
from torch import Tensor

from gatelab.dynamics.moments import explained
from gatelab.errors import InputError


def minimum_loss_balanced(zero: Float[Tensor, "n kd"], one: Float[Tensor, "n1 kd"]) -> float:
    r"""Return ½ − ½ ⟨x̃⟩₁ᵀ (⟨x̃x̃ᵀ⟩₁ + ⟨x̃x̃ᵀ⟩₀)⁺ ⟨x̃⟩₁ for the classes y = 0 and y = 1 (gdln, Eq. 16)."""
    return 0.5 - 0.5 * objective(zero, one)


def objective(zero: Float[Tensor, "n kd"], one: Float[Tensor, "n1 kd"]) -> float:
    r"""Return Eq. 18 with second moments where the notes print outer products of means; larger is better.

    ⟨g̃⊗x⟩₁ᵀ (⟨(g̃⊗x)(g̃⊗x)ᵀ⟩₁ + ⟨(g̃⊗x)(g̃⊗x)ᵀ⟩₀)⁺ ⟨g̃⊗x⟩₁ = 1 − 2 𝓛_OLS.

    Raises:
        InputError: the classes differ in size, for which Eqs 16 and 18 do not hold.
    """
    if len(zero) != len(one):
        raise InputError(
            f"{len(zero)} examples have y = 0, {len(one)} y = 1; Eqs 16 and 18 are for balanced classes: "
            "use minimum_loss, or draw as many of each"
        )
    return explained(zero.T @ zero / len(zero) + one.T @ one / len(one), one.mean(dim=0))


def printed_objective(zero: Float[Tensor, "n kd"], one: Float[Tensor, "n1 kd"]) -> float:
    r"""Return Eq. 18 as the notes print it, ⟨g̃⊗x⟩₁ᵀ (⟨g̃⊗x⟩₁⟨g̃⊗x⟩₁ᵀ + ⟨g̃⊗x⟩₀⟨g̃⊗x⟩₀ᵀ)⁺ ⟨g̃⊗x⟩₁.

    It is 1 whenever the two class means are linearly independent, so it cannot rank gates.
    """
    means = torch.stack([zero.mean(dim=0), one.mean(dim=0)])
    return explained(means.T @ means, means[1])
