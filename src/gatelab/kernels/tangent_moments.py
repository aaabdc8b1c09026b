r"""Exact mean and variance of the tangent kernel over ±σ weights with fixed gates: the law behind npk, Theorem D.1.

K = Σ_l K_l over weight layers, and K_l(s, s') is the mean of f(s) f(s') over an independent draw of signs in place of
W_l. So E[K_l K_m] is a mean of α α' β β', where layer l of the strand α = f(s), α' = f(s') is redrawn, and layer m of
the strand β, β'. Layer by layer only four sums matter,

.. math::
    U = E[(α·α')(β·β')], \quad V = E[(α·β)(α'·β')], \quad X = E[(α·β')(α'·β)], \quad R = E \sum_k α_k α'_k β_k β'_k

because signs leave only indices that pair up. With gates g and g' of s and s', c = Σ g g', e = Σ g² g'², a = Σ g² Σ g'²
and T = U + V + X − 2R, a layer that both strands share gives

.. math::
    U' = σ^4 [(c^2 - e) U + eT], \; V' = σ^4 [(a - e) V + eT], \; X' = σ^4 [(c^2 - e) X + eT], \; R' = σ^4 eT

and a layer that is redrawn for one of them gives U' = c²U, V' = X' = R' = eU, times σ² for the strand that keeps it.
Gates that are bits have c = e, the number of gates open for both. The printed proof of Theorem D.1 counts paths that
share weights; the term eT counts paths that share only a node.
"""

from dataclasses import dataclass
from math import inf

import torch
from jaxtyping import Float
from torch import Tensor

from gatelab.errors import InputError
from gatelab.gates import GatePattern
from gatelab.kernels.overflow import refuse_overflow
from gatelab.kernels.overlap_tiles import refuse_positions
from gatelab.observe import examples


@dataclass(frozen=True)
class TangentMoments:
    """Mean and variance of K(s, s') over random signs of the weights, for every pair of examples."""

    mean: Float[Tensor, "n n"]
    variance: Float[Tensor, "n n"]


@dataclass(frozen=True)
class _Strands:
    """The four sums of two strands, for every pair of examples."""

    U: Tensor
    V: Tensor
    X: Tensor
    R: Tensor

    def plus(self, other: "_Strands") -> "_Strands":
        """Add the sums of other pairs of layers."""
        return _Strands(self.U + other.U, self.V + other.V, self.X + other.X, self.R + other.R)

    def scaled(self, factor: float) -> "_Strands":
        """Multiply all sums."""
        return _Strands(factor * self.U, factor * self.V, factor * self.X, factor * self.R)

    def through_shared(self, layer: "_GateSums", sigma: float) -> "_Strands":
        """Both strands pass the same weights."""
        s, meeting = sigma**4, layer.squares * (self.U + self.V + self.X - 2 * self.R)
        apart = layer.both.square() - layer.squares
        return _Strands(
            s * (apart * self.U + meeting),
            s * ((layer.each - layer.squares) * self.V + meeting),
            s * (apart * self.X + meeting),
            s * meeting,
        )

    def through_renewed(self, layer: "_GateSums", scale: float) -> "_Strands":
        """The strands pass independent weights, of variances whose product is ``scale``."""
        once = scale * layer.squares * self.U
        return _Strands(scale * layer.both.square() * self.U, once, once, once)


@dataclass(frozen=True)
class _GateSums:
    """Sums over the gates g and g' of a layer, for every pair of examples: Σgg', Σg²g'², Σg² Σg'²."""

    both: Tensor
    squares: Tensor
    each: Tensor

    @classmethod
    def of(cls, gates: Float[Tensor, "n units"]) -> "_GateSums":
        """Sum over units."""
        squares = gates.square()
        own = squares.sum(dim=1)
        return cls(gates @ gates.T, squares @ squares.T, own[:, None] * own)


def tangent_moments(x: Float[Tensor, "n ..."], gates: GatePattern, sigma: float) -> TangentMoments:
    r"""Compute E[K] and Var[K] of a bias-free chain of dense layers with one output, fixed gates and weights ±σ.

    .. math:: E[K] = d\,σ^{2(d-1)} Σ ⊙ Λ, \qquad \mathrm{Var}[K] = \sum_{l,m} E[K_l K_m] - E[K]^2

    O(n² d); nothing is sampled. Gates may be bits, numbers (soft gates), or bits with a slope (LeakyReLU).

    Args:
        x: examples.
        gates: their gates, layer by layer; one chain.
        sigma: the size of every weight.

    Returns:
        Both moments in float64, as ``.mean`` and ``.variance``.

    Raises:
        InputError: x or sigma do not fit, or the moments are larger than float64 holds.
        UnsupportedModelError: a layer has position axes, or the layers do not form a chain.

    Example:
        >>> ones = GatePattern({"1": torch.ones(1, 1, dtype=torch.bool)})
        >>> tangent_moments(torch.ones(1, 1), ones, 1.0).mean.item()   # two weights, each with a gradient of ±1
        2.0
    """
    rows = examples(x).detach().flatten(1).double()
    if isinstance(sigma, bool) or not isinstance(sigma, int | float) or not 0 <= sigma < inf:
        raise InputError(f"sigma is {sigma!r}; give the size of the weights, a finite number")
    if gates.n != len(rows):
        raise InputError(f"gates have n={gates.n}, x has n={len(rows)}; capture at the same inputs")
    refuse_positions(gates)
    hidden = [gates.layer(name).factors(rows.dtype) for name in gates.layers]
    layers = [_GateSums.of(factors) for factors in (*hidden, rows.new_ones(len(rows), 1))]  # one open output
    gram, squares = rows @ rows.T, rows.square()
    norms = squares.sum(dim=1)
    start = _Strands(gram.square(), norms[:, None] * norms, gram.square(), squares @ squares.T)
    depth = len(layers)
    # The sums over all pairs of layers, by how many strands have had a layer redrawn. For l < m, K_l K_m and K_m K_l
    # have the same mean.
    none, one, two = start, start.scaled(0.0), start.scaled(0.0)
    for layer in layers:
        anew = none.through_renewed(layer, 1.0).plus(one.through_renewed(layer, 2 * sigma**2))
        two = two.through_shared(layer, sigma).plus(anew)
        one = one.through_shared(layer, sigma).plus(none.through_renewed(layer, sigma**2))
        none = none.through_shared(layer, sigma)
    mean = depth * sigma ** (2 * (depth - 1)) * gram * torch.stack([layer.both for layer in layers]).prod(dim=0)
    variance = two.U - mean.square()
    refuse_overflow(variance, "the variance of the tangent kernel")
    return TangentMoments(mean, variance)
