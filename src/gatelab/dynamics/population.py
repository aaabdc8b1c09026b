"""The population flow of one bias-free ReLU unit on symmetric, translation-invariant data, without any training.

The data are symmetric under x → −x, so every half-space through the origin has ⟨g x xᵀ⟩ = ½Σ: A is constant in time and
circulant, and only b(t) moves (gdln, Sections 2.3 and 5).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import pi, sqrt

import numpy as np
import torch
from jaxtyping import Float
from scipy.special import ndtr
from torch import Tensor

from gatelab.data import NLGP
from gatelab.data.power_field import PowerField
from gatelab.data.ring import TwoClasses, circulant
from gatelab.dynamics.exponential import Trajectory, exponential_flow
from gatelab.errors import InputError

FieldSource = NLGP | PowerField


@dataclass(frozen=True)
class FixedPoint:
    """Weights at which the flow rests, its remaining speed there, and the growth rates of small disturbances."""

    weights: Float[Tensor, " d"]
    speed: float
    growth: Float[Tensor, " d"]

    @property
    def stable(self) -> bool:
        """Whether every disturbance decays; the slowest of them, a shift of the field, may take very long."""
        return float(self.growth.max()) < 0


class PopulationFlow:
    r"""Gradient flow of ŷ = ReLU(wᵀx) on L = ½⟨(y − ŷ)²⟩ over the population (τ = 1).

    .. math:: \dot w = b(w) - \tfrac14 (\Sigma_1 + \Sigma_0)\, w, \qquad b(w) = \tfrac12 ⟨1(w^\top x > 0)\, x⟩_1

    b follows from ``nodes``, values of x_i with their probabilities, and ``means``, the conditional means of the other
    sites given each of these values. Given x_i, wᵀx is taken as Gaussian with its conditional mean and the mean
    conditional variance; for Gaussian data this is exact, b = ½Σ₁w/√(2π wᵀΣ₁w). ``population_centre`` has a finer flow.

    Args:
        source: two symmetric classes on a ring.
        nodes: positive values of x_i, one for each node of the quadrature; their negatives are implied.
        probabilities: weights of the nodes, with sum 1.
        means: ⟨x_j | x_0⟩ of the class y = 1, for every node and site j.

    Example:
        >>> flow = PopulationFlow.of_field(NLGP((3.0, 0.1), gain=3.0))
        >>> start = 0.01 * torch.randn(40, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
        >>> flow.solve(start, [100.0]).weights.shape
        torch.Size([1, 40])
    """

    def __init__(
        self,
        source: TwoClasses,
        nodes: Float[Tensor, " q"],
        probabilities: Float[Tensor, " q"],
        means: Float[Tensor, "q d"],
    ):
        _check_ring(source)
        if means.shape != (len(nodes), *source.shape) or probabilities.shape != nodes.shape:
            raise InputError(
                f"{len(nodes)} nodes, probabilities {tuple(probabilities.shape)}, means {tuple(means.shape)}; give one "
                f"probability and one row of {source.shape[0]} means for each node"
            )
        self.dim = source.shape[0]
        one, zero = (source.correlation(label) for label in (1, 0))
        self.rates = torch.fft.rfft(one + zero).real.clamp(min=0) / 4
        # NumPy, not torch: a drive is a dozen operations on a few hundred numbers, for which torch's calls cost more.
        self._nodes, self._probabilities = nodes.numpy(), probabilities.numpy()
        self._second = circulant(one).numpy()
        self._table = torch.stack([circulant(row) for row in means]).flatten(0, 1).numpy().T  # (d, q d)

    @classmethod
    def of_field(cls, source: FieldSource, nodes: int = 16) -> "PopulationFlow":
        """Return the flow on a transformed Gaussian field, whose conditional means ⟨x_j | z_0⟩ are known."""
        _check_ring(source)
        z, probabilities = half_normal_nodes(nodes)
        row = unit_covariance(source)
        means = smoothed(source, z[:, None] * row, (1 - row.square()).clamp(min=0).expand(nodes, -1))
        return cls(source, transformed(source, z), probabilities, means)

    @classmethod
    def of_marginal(cls, source: FieldSource, nodes: int = 16) -> "PopulationFlow":
        """Return the flow that uses only the covariance and the one-site distribution of the class y = 1.

        The conditional mean is the linear regression x_i Σ₁; for small w this is b = ½φ(Σ₁w/√(wᵀΣ₁w)), site by site,
        with φ(a) = ⟨x Φ(ax/√(1 − a²))⟩ = (a − κa³/6 + …)/√(2π): a negative excess kurtosis κ favours few sites.
        """
        _check_ring(source)
        z, probabilities = half_normal_nodes(nodes)
        x = transformed(source, z)
        return cls(source, x, probabilities, x[:, None] * source.correlation(1))

    def drive(self, weights: Float[Tensor, "*runs d"]) -> Float[Tensor, "*runs d"]:
        """Return b(w)."""
        return torch.from_numpy(self._drive(weights.detach().double().numpy()))

    def _variance(self, w: np.ndarray) -> np.ndarray:
        """Return wᵀΣ₁w."""
        return ((w @ self._second) * w).sum(axis=-1, keepdims=True)

    def _drive(self, w: np.ndarray) -> np.ndarray:
        means = (w @ self._table).reshape(*w.shape[:-1], len(self._nodes), self.dim)
        total = self._variance(w)
        left = np.maximum(total - self._probabilities @ means**2, 1e-12 * total + 1e-300)
        open_share = ndtr(means / np.sqrt(left)[..., None, :]) - 0.5
        return 0.5 * (self._probabilities * self._nodes) @ open_share

    def decay(self, weights: Float[Tensor, "*runs d"]) -> Float[Tensor, "*runs d"]:
        """Return Aw, with A = ¼(Σ₁ + Σ₀)."""
        return torch.fft.irfft(torch.fft.rfft(weights) * self.rates, n=self.dim)

    def velocity(self, weights: Float[Tensor, "*runs d"]) -> Float[Tensor, "*runs d"]:
        """Return ẇ."""
        return self.drive(weights) - self.decay(weights)

    def solve(
        self, initial: Float[Tensor, "*runs d"], times: Sequence[float], *, tolerance: float = 1e-3
    ) -> Trajectory:
        """Follow the flow from one or more starts.

        Args:
            initial: w(0), the runs on its first axes.
            times: rising times at which to record w.
            tolerance: largest error of a step, relative to w.

        Returns:
            The weights (times, *runs, d), and how often b was computed.
        """
        if initial.shape[-1:] != (self.dim,) or not bool(torch.isfinite(initial).all()):
            raise InputError(f"w(0) has shape {tuple(initial.shape)} or is not finite; give (*runs, {self.dim})")
        return exponential_flow(self._drive, self.rates.numpy(), initial.double().numpy(), times, tolerance=tolerance)

    def fixed_point(self, start: Float[Tensor, " d"], *, rounds: int = 60) -> FixedPoint:
        """Find weights at rest by w ← A⁺b(w) from a start, then by Newton's method; linearise the flow there."""
        w = start.double()
        inverse = torch.where(self.rates > 1e-9 * self.rates.max(), 1 / self.rates.clamp(min=1e-300), 0)
        for _ in range(rounds):
            w = 0.5 * w + 0.5 * torch.fft.irfft(torch.fft.rfft(self.drive(w)) * inverse, n=self.dim)
        for _ in range(5):
            step = torch.linalg.lstsq(self._jacobian(w), self.velocity(w)[:, None]).solution[:, 0]
            better = w - step
            if not float(self.velocity(better).norm()) < float(self.velocity(w).norm()):
                break
            w = better
        growth = torch.linalg.eigvals(self._jacobian(w)).real.sort(descending=True).values
        return FixedPoint(w, float(self.velocity(w).norm() / self.decay(w).norm()), growth)

    def _jacobian(self, w: Float[Tensor, " d"]) -> Float[Tensor, "d d"]:
        """Return ∂ẇ/∂w by central differences, all sites at once."""
        steps = 1e-5 * w.norm() * torch.eye(self.dim, dtype=w.dtype)
        return ((self.velocity(w + steps) - self.velocity(w - steps)) / (2e-5 * w.norm())).T


def _check_ring(source: TwoClasses) -> None:
    if len(source.shape) != 1:
        raise InputError(f"the data have shape {source.shape}; the population flow is for rings, shape (n,)")


def gaussian_drive(weights: Float[Tensor, "*runs d"], second: Float[Tensor, "d d"]) -> Float[Tensor, "*runs d"]:
    """Return b(w) = ½Σ₁w/√(2π wᵀΣ₁w), exact for a Gaussian class y = 1 with this second moment and mean zero."""
    image = weights @ second
    return image / (2 * sqrt(2 * pi) * (image * weights).sum(dim=-1, keepdim=True).sqrt())


@lru_cache
def half_normal_nodes(count: int) -> tuple[Float[Tensor, " q"], Float[Tensor, " q"]]:
    """Return the Gauss quadrature of |z| for a standard Gaussian z, which is exact for polynomials of degree 2q − 1.

    Fields of large gain jump at z = 0, so a quadrature over the whole line would lose its accuracy there.
    """
    places, weights = np.polynomial.legendre.leggauss(400)
    places = 6 * (places + 1)
    density = weights * np.exp(-(places**2) / 2)
    density /= density.sum()
    # Recurrence of the orthogonal polynomials by Stieltjes' procedure; nodes are the eigenvalues of its matrix.
    before, now = np.zeros_like(places), np.ones_like(places)
    diagonal, beside = np.zeros(count), np.zeros(count)
    for order in range(count):
        norm = (density * now**2).sum()
        diagonal[order] = (density * places * now**2).sum() / norm
        beside[order] = norm / (density * before**2).sum() if order else 0.0
        before, now = now, (places - diagonal[order]) * now - beside[order] * before
    root = np.sqrt(beside[1:])
    nodes, vectors = np.linalg.eigh(np.diag(diagonal) + np.diag(root, 1) + np.diag(root, -1))
    return torch.from_numpy(nodes), torch.from_numpy(vectors[0] ** 2)


def excess_kurtosis(source: FieldSource) -> float:
    """Return ⟨x⁴⟩/⟨x²⟩² − 3 of one site of the class y = 1."""
    if isinstance(source, PowerField):
        return source.excess_kurtosis
    z = torch.linspace(0, 9, 20_001, dtype=torch.float64)
    x, density = torch.erf(source.gain * z), (-z.square() / 2).exp()
    return float((density * x**4).sum() * density.sum() / (density * x.square()).sum() ** 2 - 3)


def unit_covariance(source: FieldSource) -> Float[Tensor, " d"]:
    """Return the correlations of the Gaussian field of the class y = 1 with site 0."""
    row = source.field_covariance(1)
    return (row / row[0]).clamp(-1, 1)


def transformed(source: FieldSource, z: Tensor) -> Tensor:
    """Return x for the Gaussian field z of the class y = 1."""
    if isinstance(source, PowerField):
        return source.transform(z)
    return torch.erf(source.gain * z) / source.scale(1)


def smoothed(source: FieldSource, mean: Tensor, variance: Tensor) -> Tensor:
    """Return ⟨x⟩ for a Gaussian z of given means and variances: in closed form for erf, else summed on a fine grid."""
    if isinstance(source, NLGP):
        return torch.erf(source.gain * mean / (1 + 2 * source.gain**2 * variance).sqrt()) / source.scale(1)
    grid = torch.linspace(-6, 6, 241, dtype=torch.float64)
    density = (-grid.square() / 2).exp()
    total = torch.zeros_like(mean)
    for place, share in zip(grid, density / density.sum(), strict=True):
        total += share * source.transform(mean + variance.sqrt() * place)
    return total
