"""Per-example gradients in factored form, and the tiles of the tangent kernel that they give.

The tangent kernel is Σ_θ ⟨∂_θ ŷ(s), ∂_θ ŷ(s')⟩. For a dense layer the inner product of the gradients is the product
of two Gram entries, that of the inputs and that of the signals, so that no gradient is ever formed. For a weight that
is shared over many positions it is cheaper to form the gradients.
"""

from dataclasses import dataclass
from typing import Protocol

import torch
from jaxtyping import Float
from torch import Tensor


class GradientFactor(Protocol):
    """The gradients of some parameters, for n examples and k outputs."""

    def trace_tile(self, other: "GradientFactor", i: slice, j: slice) -> Float[Tensor, "n m"]:
        """Σ over outputs of the inner products, for examples i of this and j of ``other``."""
        ...

    def full_tile(self, other: "GradientFactor", i: slice, j: slice) -> Float[Tensor, "n m k k"]:
        """The inner products for all pairs of outputs."""
        ...

    def tensors(self) -> tuple[Tensor | None, ...]:
        """All that is kept."""
        ...


@dataclass(frozen=True)
class DenseFactor:
    """A weight applied once per example: gradient δ aᵀ, of the bias δ.

    Attributes:
        inputs: a, or None if only the bias counts.
        signals: δ for each output.
        bias: whether the bias counts.
    """

    inputs: Float[Tensor, "n i"] | None
    signals: Float[Tensor, "n k o"]
    bias: bool

    def tensors(self) -> tuple[Tensor | None, ...]:
        """All that is kept."""
        return self.inputs, self.signals

    def trace_tile(self, other: "DenseFactor", i: slice, j: slice) -> Float[Tensor, "n m"]:
        """(a·a' + 1) (Σ_k δ_k·δ'_k)."""
        signal_gram = self.signals[i].flatten(1) @ other.signals[j].flatten(1).T
        return self._times_input_gram(signal_gram, other, i, j)

    def full_tile(self, other: "DenseFactor", i: slice, j: slice) -> Float[Tensor, "n m k k"]:
        """(a·a' + 1) (δ_k·δ'_l)."""
        signal_gram = torch.einsum("nko,mlo->klnm", self.signals[i], other.signals[j])
        return self._times_input_gram(signal_gram, other, i, j).permute(2, 3, 0, 1)

    def _times_input_gram(self, signal_gram: Tensor, other: "DenseFactor", i: slice, j: slice) -> Tensor:
        if self.inputs is None or other.inputs is None:
            return signal_gram
        input_gram = self.inputs[i] @ other.inputs[j].T
        return signal_gram.mul_(input_gram.add_(1) if self.bias else input_gram)


@dataclass(frozen=True)
class PositionFactor:
    """A weight applied at several positions of an example, gradient Σ_p δ(p) a(p)ᵀ in each group."""

    inputs: Float[Tensor, "n g p i"]
    signals: Float[Tensor, "n k g p o"]

    def tensors(self) -> tuple[Tensor | None, ...]:
        """All that is kept."""
        return self.inputs, self.signals

    def trace_tile(self, other: "PositionFactor", i: slice, j: slice) -> Float[Tensor, "n m"]:
        """Σ_{k,p,p'} (a(p)·a'(p')) (δ_k(p)·δ'_k(p'))."""
        signal_gram = torch.einsum("nkgpo,mkgqo->gnpmq", self.signals[i], other.signals[j])
        return (signal_gram * self._input_gram(other, i, j)).sum(dim=(0, 2, 4))

    def full_tile(self, other: "PositionFactor", i: slice, j: slice) -> Float[Tensor, "n m k k"]:
        """The same for each pair of outputs."""
        input_gram = self._input_gram(other, i, j)
        mine, theirs = self.signals[i], other.signals[j]
        rows = [
            [
                (torch.einsum("ngpo,mgqo->gnpmq", mine[:, k], theirs[:, other_k]) * input_gram).sum(dim=(0, 2, 4))
                for other_k in range(theirs.shape[1])
            ]
            for k in range(mine.shape[1])
        ]
        return torch.stack([torch.stack(row, dim=-1) for row in rows], dim=-2)

    def _input_gram(self, other: "PositionFactor", i: slice, j: slice) -> Tensor:
        return torch.einsum("ngpi,mgqi->gnpmq", self.inputs[i], other.inputs[j])


@dataclass(frozen=True)
class ExplicitFactor:
    """The gradients themselves."""

    gradients: Float[Tensor, "n k parameters"]

    def tensors(self) -> tuple[Tensor | None, ...]:
        """All that is kept."""
        return (self.gradients,)

    def trace_tile(self, other: "ExplicitFactor", i: slice, j: slice) -> Float[Tensor, "n m"]:
        """Σ_k ψ_k·ψ'_k."""
        return self.gradients[i].flatten(1) @ other.gradients[j].flatten(1).T

    def full_tile(self, other: "ExplicitFactor", i: slice, j: slice) -> Float[Tensor, "n m k k"]:
        """ψ_k·ψ'_l."""
        return torch.einsum("nkp,mlp->nmkl", self.gradients[i], other.gradients[j])


Factor = DenseFactor | PositionFactor | ExplicitFactor


def layer_factor(
    inputs: Float[Tensor, "n g p i"], signals: Float[Tensor, "n k g p o"], *, bias: bool, pairs_per_example: int
) -> Factor:
    """The cheaper of the exact forms of a layer's gradient.

    Per pair of examples, position Grams take g p² (i + k o) multiplications. Formed gradients take g k i o, and forming
    them g k p i o once for each example, which ``pairs_per_example`` pairs share.

    Args:
        inputs: what the weight saw; all uses of one weight side by side on the position axis.
        signals: the back-propagated signals there.
        bias: the bias counts too; only for weights with one group and position.
        pairs_per_example: the number of columns of the kernel.
    """
    _, groups, positions, fan_in = inputs.shape
    outputs, fan_out = signals.shape[1], signals.shape[4]
    if groups == positions == 1:
        return DenseFactor(inputs.flatten(1), signals.flatten(2), bias)
    by_positions = groups * positions**2 * (fan_in + outputs * fan_out)
    by_gradients = groups * outputs * fan_in * fan_out * (1 + positions / pairs_per_example)
    if by_positions < by_gradients:
        return PositionFactor(inputs, signals)
    return ExplicitFactor(torch.einsum("nkgpo,ngpi->nkgoi", signals, inputs).flatten(2))


def join(parts: list[Factor]) -> Factor:
    """The factor of several batches of examples together."""
    first = parts[0]
    if len(parts) == 1:
        return first
    if isinstance(first, DenseFactor):
        dense = [part for part in parts if isinstance(part, DenseFactor)]
        inputs = None if first.inputs is None else torch.cat([p.inputs for p in dense if p.inputs is not None])
        return DenseFactor(inputs, torch.cat([part.signals for part in dense]), first.bias)
    if isinstance(first, PositionFactor):
        shared = [part for part in parts if isinstance(part, PositionFactor)]
        return PositionFactor(torch.cat([p.inputs for p in shared]), torch.cat([p.signals for p in shared]))
    return ExplicitFactor(torch.cat([part.gradients for part in parts if isinstance(part, ExplicitFactor)]))
