r"""Exact mean and variance of the tangent kernel over ±σ weights with fixed gates: the law behind npk, Theorem D.1.

K = Σ_l K_l over weight layers, and K_l(s, s') is the mean of f(s) f(s') over an independent draw of signs in place of
W_l. So E[K_l K_m] is a mean of α α' β β', where layer l of the strand α = f(s), α' = f(s') is redrawn, and layer m of
the strand β, β'. Layer by layer only four sums matter,

.. math::
    U = E[(α·α')(β·β')], \quad V = E[(α·β)(α'·β')], \quad X = E[(α·β')(α'·β)], \quad R = E \sum_k α_k α'_k β_k β'_k

because signs leave only indices that pair up. With c open gates in common, a and a' open for s and for s',
T = U + V + X − 2R, a layer that both strands share gives

.. math::
    U' = σ^4 [c(c-1) U + cT], \; V' = σ^4 [(aa' - c) V + cT], \; X' = σ^4 [c(c-1) X + cT], \; R' = σ^4 cT

and a layer that is redrawn for one of them gives U' = c²U, V' = X' = R' = cU, times σ² for the strand that keeps it.
The printed proof of Theorem D.1 counts paths that share weights; the term cT counts paths that share only a node.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from gatelab.errors import InputError
from gatelab.gates import GatePattern
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

    def through_shared(self, both: Tensor, each: Tensor, sigma: float) -> "_Strands":
        """Both strands pass the same weights; ``both`` = c, ``each`` = aa'."""
        s, meeting = sigma**4, both * (self.U + self.V + self.X - 2 * self.R)
        apart = both * (both - 1)
        return _Strands(
            s * (apart * self.U + meeting),
            s * ((each - both) * self.V + meeting),
            s * (apart * self.X + meeting),
            s * meeting,
        )

    def through_renewed(self, both: Tensor, scale: float) -> "_Strands":
        """The strands pass independent weights, of variances whose product is ``scale``."""
        once = scale * both * self.U
        return _Strands(both * once, once, once, once)


def tangent_moments(x: Float[Tensor, "n d"], gates: GatePattern, sigma: float) -> TangentMoments:
    r"""Compute E[K] and Var[K] of a bias-free chain with one output, fixed gates and weights ±σ.

    .. math:: E[K] = d\,σ^{2(d-1)} Σ ⊙ Λ, \qquad \mathrm{Var}[K] = \sum_{l,m} E[K_l K_m] - E[K]^2

    O(n² d); nothing is sampled.

    Args:
        x: examples.
        gates: their gates, layer by layer; one chain.
        sigma: the size of every weight.

    Returns:
        Both moments, as ``.mean`` and ``.variance``.

    Example:
        >>> ones = GatePattern({"1": torch.ones(1, 1, dtype=torch.bool)})
        >>> tangent_moments(torch.ones(1, 1), ones, 1.0).mean.item()   # two weights, each with a gradient of ±1
        2.0
    """
    rows = examples(x).detach().flatten(1).double()
    if gates.n != len(rows):
        raise InputError(f"gates have n={gates.n}, x has n={len(rows)}; capture at the same inputs")
    both, each = _open_counts(gates)
    gram, squares = rows @ rows.T, rows.square()
    norms = squares.sum(dim=1)
    start = _Strands(gram.square(), norms[:, None] * norms, gram.square(), squares @ squares.T)
    depth = len(both)
    # The sums over all pairs of layers, by how many strands have had a layer redrawn. For l < m, K_l K_m and K_m K_l
    # have the same mean.
    none, one, two = start, start.scaled(0.0), start.scaled(0.0)
    for common, separate in zip(both, each, strict=True):
        anew = none.through_renewed(common, 1.0).plus(one.through_renewed(common, 2 * sigma**2))
        two = two.through_shared(common, separate, sigma).plus(anew)
        one = one.through_shared(common, separate, sigma).plus(none.through_renewed(common, sigma**2))
        none = none.through_shared(common, separate, sigma)
    mean = depth * sigma ** (2 * (depth - 1)) * gram * torch.stack(both).prod(dim=0)
    return TangentMoments(mean, two.U - mean.square())


def _open_counts(gates: GatePattern) -> tuple[list[Tensor], list[Tensor]]:
    """For each weight layer the open gates in common, and the product of those open for either; one for the output."""
    both, each = [], []
    for name in gates.layers:
        bits = gates[name].flatten(1).double()
        both.append(bits @ bits.T)
        each.append(bits.sum(dim=1)[:, None] * bits.sum(dim=1))
    one = torch.ones_like(both[0])
    return [*both, one], [*each, one]
