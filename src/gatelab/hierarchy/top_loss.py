"""The loss at the top of a student, and the gradient with which back-propagation starts."""

from enum import StrEnum

import torch
from jaxtyping import Float
from torch import Tensor


class TopLoss(StrEnum):
    r"""The loss at the top's nodes.

    SQUARED is the paper's: L = ½ E‖T − F_ω‖², G_ω = T − F_ω. CROSS_ENTROPY puts a softmax on top (hierarchy, Section 3:
    "top level nodes, just below the softmax layer"): L = −E Σ T log softmax(F_ω), G_ω = T − softmax(F_ω) for targets T
    that sum to one.

    Example:
        >>> TopLoss.CROSS_ENTROPY.gradient(torch.zeros(1, 2), torch.tensor([[1.0, 0.0]])).tolist()
        [[0.5, -0.5]]
    """

    SQUARED = "squared"
    CROSS_ENTROPY = "cross-entropy"

    def mean(
        self, output: Float[Tensor, "n k"], target: Float[Tensor, "n k"], weights: Float[Tensor, " n"]
    ) -> Float[Tensor, ""]:
        """Return the loss, averaged with these weights."""
        if self is TopLoss.SQUARED:
            return weights @ (target - output).square().sum(dim=1) / 2
        return -(weights @ (target * torch.log_softmax(output, dim=1)).sum(dim=1))

    def gradient(self, output: Float[Tensor, "n k"], target: Float[Tensor, "n k"]) -> Float[Tensor, "n k"]:
        """Return G_ω = −∂L/∂F_ω, row by row."""
        if self is TopLoss.SQUARED:
            return target - output
        return target - target.sum(dim=1, keepdim=True) * torch.softmax(output, dim=1)
