"""Per-example gradients in factored form, and tiles of the tangent kernel made from them.

The tangent kernel is Σ_θ ⟨∂_θ ŷ(s), ∂_θ ŷ(s')⟩. For a dense layer the inner product of two gradients is the product of
two Gram entries, one of the inputs and one of the signals, so no gradient is formed. For a weight that is shared over
many positions it is cheaper to form the gradients. Before a global pooling one product serves all outputs.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from gatelab.kernels.tangent.sums import BLOCK, inner_products, widest

# Entries of a temporary array: the Gram matrices of several units at a time.
_CHUNK = 2**22


class GradientFactor:
    """The gradients of some parameters, for n examples and k outputs.

    ``add_trace(tile, other, i, j)`` adds Σ over outputs of the inner products of examples i here and j of the other
    factor to a tile; ``add_full`` adds the inner products of all pairs of outputs.
    """

    def tensors(self) -> tuple[Tensor, ...]:
        """Return every tensor that is kept."""
        return tuple(value for value in vars(self).values() if isinstance(value, Tensor))

    def pair_entries(self) -> int:
        """Return the entries of the largest array that a tile makes, for each pair of examples (and of outputs)."""
        return 1

    def long(self) -> bool:
        """Whether an entry of a tile has so many terms that it must be added up in float64."""
        return True


@dataclass(frozen=True)
class DenseFactor(GradientFactor):
    """A weight applied once per example, with the gradient δ aᵀ; the bias has the gradient δ.

    Attributes:
        inputs: a, or None if only the bias counts.
        signals: δ for each output.
        bias: whether the bias counts.
    """

    inputs: Float[Tensor, "n i"] | None
    signals: Float[Tensor, "n k o"]
    bias: bool

    def part(self, rows: slice, outputs: list[int]) -> "DenseFactor":
        """Return the factor of some examples and outputs."""
        return DenseFactor(None if self.inputs is None else self.inputs[rows], self.signals[rows, outputs], self.bias)

    def long(self) -> bool:
        """Whether one of the two products is long."""
        return max(0 if self.inputs is None else self.inputs.shape[1], self.signals[0].numel()) > BLOCK

    def add_trace(self, tile: Float[Tensor, "n m"], other: "DenseFactor", i: slice, j: slice) -> None:
        """(a·a' + 1) (Σ_k δ_k·δ'_k)."""
        self._add(tile, inner_products(self.signals[i].flatten(1), other.signals[j].flatten(1)), other, i, j)

    def add_full(self, tile: Float[Tensor, "n m k l"], other: "DenseFactor", i: slice, j: slice) -> None:
        """(a·a' + 1) (δ_k·δ'_l)."""
        left, right = self.signals[i], other.signals[j]
        signal_gram = inner_products(left.flatten(0, 1), right.flatten(0, 1))
        signal_gram = signal_gram.unflatten(1, right.shape[:2]).unflatten(0, left.shape[:2])
        self._add(tile.permute(2, 3, 0, 1), signal_gram.permute(1, 3, 0, 2), other, i, j)

    def _add(self, tile: Tensor, signal_gram: Tensor, other: "DenseFactor", i: slice, j: slice) -> None:
        if self.inputs is None or other.inputs is None:
            tile += signal_gram
            return
        input_gram = inner_products(self.inputs[i], other.inputs[j])
        tile.addcmul_(signal_gram, input_gram.add_(1) if self.bias else input_gram)


@dataclass(frozen=True)
class PositionFactor(GradientFactor):
    """A weight applied at several positions of an example, with the gradient Σ_p δ(p) a(p)ᵀ in each group."""

    inputs: Float[Tensor, "n g p i"]
    signals: Float[Tensor, "n k g p o"]

    def pair_entries(self) -> int:
        """Return the number of pairs of positions, in all groups."""
        return self.inputs.shape[1] * self.inputs.shape[2] ** 2

    def part(self, rows: slice, outputs: list[int]) -> "PositionFactor":
        """Return the factor of some examples and outputs."""
        return PositionFactor(self.inputs[rows], self.signals[rows, outputs])

    def add_trace(self, tile: Float[Tensor, "n m"], other: "PositionFactor", i: slice, j: slice) -> None:
        """Σ_{k,p,p'} (a(p)·a'(p')) (δ_k(p)·δ'_k(p')), a few outputs at a time."""
        left, right = self.signals[i], other.signals[j]
        input_gram = self._input_gram(other, i, j)
        for some, units in _blocks(left.shape[1], left.shape[4]):
            signal_gram = torch.einsum("nkgpo,mkgqo->gnpmq", left[:, some, ..., units], right[:, some, ..., units])
            by_position = signal_gram.mul_(input_gram).sum(dim=4)
            tile += by_position.sum(dim=(0, 2), dtype=widest(tile.device))

    def add_full(self, tile: Float[Tensor, "n m k l"], other: "PositionFactor", i: slice, j: slice) -> None:
        """The same for each pair of outputs: first Σ_p' (a(p)·a'(p')) δ'_l(p'), then the product with δ_k(p)."""
        input_gram = self._input_gram(other, i, j)
        left, right = self.signals[i].flatten(2), other.signals[j].permute(0, 2, 3, 1, 4)
        for column, signals in enumerate(right):
            weights = input_gram[:, :, :, column]
            mixed = weights.flatten(1, 2) @ signals.flatten(2)
            mixed = mixed.unflatten(2, signals.shape[2:]).unflatten(1, weights.shape[1:3])
            tile[:, column] += inner_products(left, mixed.permute(1, 3, 0, 2, 4).flatten(2))

    def _input_gram(self, other: "PositionFactor", i: slice, j: slice) -> Tensor:
        left, right = self.inputs[i].transpose(0, 1), other.inputs[j].transpose(0, 1)
        gram = inner_products(left.flatten(1, 2), right.flatten(1, 2)).to(left.dtype)
        return gram.unflatten(2, right.shape[1:3]).unflatten(1, left.shape[1:3])


@dataclass(frozen=True)
class ExplicitFactor(GradientFactor):
    """The gradients themselves."""

    gradients: Float[Tensor, "n k parameters"]

    def add_trace(self, tile: Float[Tensor, "n m"], other: "ExplicitFactor | UnitFactor", i: slice, j: slice) -> None:
        """Σ_k ψ_k·ψ'_k."""
        tile += inner_products(self.gradients[i].flatten(1), other.explicit(j).gradients.flatten(1))

    def add_full(
        self, tile: Float[Tensor, "n m k l"], other: "ExplicitFactor | UnitFactor", i: slice, j: slice
    ) -> None:
        """ψ_k·ψ'_l."""
        left, right = self.gradients[i], other.explicit(j).gradients
        products = inner_products(left.flatten(0, 1), right.flatten(0, 1))
        tile += products.unflatten(1, right.shape[:2]).unflatten(0, left.shape[:2]).transpose(1, 2)

    def part(self, rows: slice, outputs: list[int]) -> "ExplicitFactor":
        """Return the gradients of some examples and outputs."""
        return ExplicitFactor(self.gradients[rows, outputs])

    def explicit(self, rows: slice) -> "ExplicitFactor":
        """Return the gradients of some examples."""
        return ExplicitFactor(self.gradients[rows])


@dataclass(frozen=True)
class UnitFactor(GradientFactor):
    """Gradients that differ between outputs by one factor for each unit u: s_k(u) ψ(u).

    This is the form of a convolution whose channels are gated and then pooled over all positions: every position of a
    channel gets the same signal from one output.

    The form is recognised from signals, not from shapes, and may hold for a few examples by chance. A unit factor must
    therefore go together with the explicit gradients of the same weight for other examples.

    Attributes:
        gradients: ψ(u), the weights of one unit.
        scales: s_k(u).
    """

    gradients: Float[Tensor, "n u i"]
    scales: Float[Tensor, "n k u"]

    def add_trace(self, tile: Float[Tensor, "n m"], other: "UnitFactor | ExplicitFactor", i: slice, j: slice) -> None:
        """Σ_u (ψ(u)·ψ'(u)) (Σ_k s_k(u) s'_k(u))."""
        if isinstance(other, ExplicitFactor):
            self.explicit(i).add_trace(tile, other, slice(None), j)
            return
        left, right = self.scales[i].permute(2, 0, 1), other.scales[j].permute(2, 1, 0)
        for units, gram in self._grams(other, i, j, outputs=1):
            tile += gram.mul_(left[units] @ right[units]).sum(dim=0)

    def add_full(
        self, tile: Float[Tensor, "n m k l"], other: "UnitFactor | ExplicitFactor", i: slice, j: slice
    ) -> None:
        """Σ_u (ψ(u)·ψ'(u)) s_k(u) s'_l(u)."""
        if isinstance(other, ExplicitFactor):
            self.explicit(i).add_full(tile, other, slice(None), j)
            return
        left, right = self.scales[i], other.scales[j]
        n, m, k = left.shape[0], right.shape[0], left.shape[1]
        total = left.new_zeros(m, n * k, right.shape[1])
        for units, gram in self._grams(other, i, j, outputs=k):
            weighted = gram.to(left.dtype).permute(2, 1, 0)[:, :, None] * left[None, :, :, units]
            total += weighted.flatten(1, 2) @ right[:, :, units].mT
        tile += total.unflatten(1, (n, k)).transpose(0, 1)

    def part(self, rows: slice, outputs: list[int]) -> "UnitFactor":
        """Return the factor of some examples and outputs."""
        return UnitFactor(self.gradients[rows], self.scales[rows, outputs])

    def explicit(self, rows: slice) -> ExplicitFactor:
        """Form the gradients of some examples."""
        return ExplicitFactor((self.scales[rows][..., None] * self.gradients[rows][:, None]).flatten(2))

    def _grams(
        self, other: "UnitFactor", i: slice, j: slice, outputs: int
    ) -> Iterator[tuple[slice, Float[Tensor, "u n m"]]]:
        """Yield ψ(u)·ψ'(u) for some units at a time, each to be weighted with ``outputs`` numbers."""
        left, right = self.gradients[i].permute(1, 0, 2), other.gradients[j].permute(1, 0, 2)
        step = max(1, _CHUNK // (left.shape[1] * right.shape[1] * outputs))
        for start in range(0, left.shape[0], step):
            units = slice(start, start + step)
            yield units, inner_products(left[units], right[units])


Factor = DenseFactor | PositionFactor | ExplicitFactor | UnitFactor


def layer_factor(
    inputs: Float[Tensor, "n g p i"], signals: Float[Tensor, "n k g p o"], *, bias: bool, pairs_per_example: int
) -> Factor:
    """Return the cheapest exact form of a layer's gradient.

    Per pair of examples, position Grams take g p² (i + k o) multiplications. Formed gradients take g k i o, and forming
    them takes g k p i o once for each example, shared by ``pairs_per_example`` pairs. If the signals of all outputs
    have one pattern over positions, gradients need to be formed for one output only.

    Args:
        inputs: the inputs of the weight; all uses of one weight side by side on the position axis.
        signals: the back-propagated signals at its outputs.
        bias: include the bias; only for weights with one group and position.
        pairs_per_example: the number of columns of the kernel.
    """
    _, groups, positions, fan_in = inputs.shape
    outputs, fan_out = signals.shape[1], signals.shape[4]
    if groups == positions == 1:
        return DenseFactor(inputs.flatten(1), signals.flatten(2), bias)
    if fan_in == fan_out == 1:  # the scale of a batch norm: its gradients are smaller than its signals
        return ExplicitFactor(form(inputs, signals).flatten(2))
    by_positions = groups * positions**2 * (fan_in + outputs * fan_out)
    by_gradients = groups * outputs * fan_in * fan_out * (1 + positions / pairs_per_example)
    if by_positions < by_gradients:
        return PositionFactor(inputs, signals)
    pattern = _common_pattern(signals) if outputs > 1 else None
    if pattern is not None:
        mask, scales = pattern
        return UnitFactor(form(inputs, mask.unsqueeze(1)).squeeze(1).flatten(1, 2), scales.flatten(2))
    return ExplicitFactor(form(inputs, signals).flatten(2))


def _blocks(outputs: int, units: int) -> Iterator[tuple[slice, slice]]:
    """Yield slices of outputs and of units with at most 2^9 pairs each.

    Fewer than ``BLOCK``: products of a few positions are added up one term after another on some processors.
    """
    most = BLOCK // 8
    some, few = max(1, most // units), min(units, most)
    for start in range(0, outputs, some):
        for unit in range(0, units, few):
            yield slice(start, start + some), slice(unit, unit + few)


def form(inputs: Float[Tensor, "n g p i"], signals: Float[Tensor, "n k g p o"]) -> Float[Tensor, "n k g o i"]:
    """Form Σ_p δ_k(p) a(p)ᵀ by one product for each example and group, all outputs together."""
    fan_out = signals.shape[4]
    together = signals.permute(0, 2, 1, 4, 3).flatten(2, 3)  # a view of signals that lie as n k g o p
    return (together @ inputs).unflatten(2, (-1, fan_out)).transpose(1, 2)


def _common_pattern(
    signals: Float[Tensor, "n k g p o"],
) -> tuple[Float[Tensor, "n g p o"], Float[Tensor, "n k g o"]] | None:
    """A 0-1 pattern m and scales s with exactly δ_k(p, o) = m(p, o) s_k(o); None if there are none."""
    if signals.shape[0] > 1 and _common_pattern(signals[:1]) is None:  # one example almost always decides
        return None
    lying = signals.mT  # in the memory order of convolutions: positions last
    mask = (lying != 0).any(dim=1)
    somewhere = mask.byte().argmax(dim=3, keepdim=True)  # a position where the unit has a signal, if there is one
    scales = lying.gather(4, somewhere.unsqueeze(1).expand(*lying.shape[:4], 1))
    for output in range(lying.shape[1]):
        if not torch.equal(lying[:, output], mask * scales[:, output]):
            return None
    return mask.to(signals.dtype).mT, scales.squeeze(4)


def join(parts: list[Factor]) -> Factor:
    """Concatenate the factors of several batches of examples."""
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
    if all(isinstance(part, UnitFactor) for part in parts):
        units = [part for part in parts if isinstance(part, UnitFactor)]
        return UnitFactor(torch.cat([p.gradients for p in units]), torch.cat([p.scales for p in units]))
    formed = [part.explicit(slice(None)) for part in parts if isinstance(part, ExplicitFactor | UnitFactor)]
    return ExplicitFactor(torch.cat([part.gradients for part in formed]))
