"""The nonlinear Gaussian process, a Gaussian field on a ring or torus passed through erf; and its Gaussian clone."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, pi, sqrt
from numbers import Real

import torch
from jaxtyping import Float
from torch import Tensor

from gatelab.data.ring import TwoClasses, check_label, check_shape, gaussian_field, root_spectrum, squared_distances
from gatelab.errors import InputError


@dataclass(frozen=True)
class NLGP(TwoClasses):
    r"""The nonlinear Gaussian process of gdln, Section 1.

    .. math::
        z \sim N(0, C),\quad C_{ij} = e^{-d_{ij}^2/\xi^2},\qquad x = \mathrm{erf}(g z)/Z,\quad
        Z^2 = \tfrac{2}{\pi} \arcsin \tfrac{2 g^2}{1 + 2 g^2}

    d is the distance on the ring or torus, and Z makes ⟨x_i²⟩ = 1. A small gain g leaves the field Gaussian; a large
    one turns it into signs.

    Attributes:
        lengths: correlation lengths, ξ₁ of the class y = 1 and ξ₂ of the class y = 0.
        gain: the gain g.
        shape: (n,) or (height, width).

    Example:
        >>> source = NLGP(lengths=(3.0, 0.1), gain=3.0)
        >>> x, y = source.sample(1000, generator=torch.Generator().manual_seed(0))
        >>> x.shape, y[:4].tolist()
        (torch.Size([1000, 40]), [1.0, 0.0, 1.0, 0.0])
    """

    lengths: tuple[float, float]
    gain: float
    shape: tuple[int, ...] = (40,)

    def __post_init__(self) -> None:
        check_shape(self.shape)
        if not 0 < self.gain < inf:
            raise InputError(f"the gain is {self.gain}; it must be positive, e.g. 0.01 (Gaussian) or 3 (sharp)")
        if not isinstance(self.lengths, Sequence) or len(self.lengths) != 2:
            raise InputError(f"lengths are {self.lengths}; give two, ξ₁ of the class y = 1 and ξ₂ of the class y = 0")
        for name, length in zip(("ξ₁", "ξ₂"), self.lengths, strict=True):
            if not isinstance(length, Real) or not 0 < length < inf:
                raise InputError(f"{name} = {length}; correlation lengths must be positive")
        for label in (1, 0):
            self._root(label)  # refuse an impossible covariance here, not at the first draw

    def _root(self, label: int) -> Tensor:
        check_label(label)
        length, sites = self.lengths[1 - label], min(self.shape)
        what = (
            f"exp(−d²/ξ²) with ξ = {length:g}, too long for a ring of {sites} sites "
            f"(use ξ ≤ {sites / 8:g}, or more sites),"
        )
        return root_spectrum((-squared_distances(self.shape) / length**2).exp(), what)

    def field_covariance(self, label: int) -> Float[Tensor, "*shape"]:
        """Return C_0j of the Gaussian field, in float64."""
        return torch.fft.irfftn(self._root(label).square().to(torch.complex128), s=self.shape)

    def _draw(self, label: int, count: int, generator: torch.Generator | None, dtype: torch.dtype) -> Tensor:
        z = gaussian_field(self._root(label), self.shape, count, generator, dtype)
        return z.mul_(self.gain).erf_().div_(self.scale(label))

    def scale(self, label: int = 1) -> float:
        """Return Z, for which ⟨x_i²⟩ = 1."""
        return sqrt(_erf_correlation(self.gain, self.field_covariance(label)).flatten()[0].item())

    def mean(self, label: int) -> float:
        """Return 0: erf is odd."""
        check_label(label)
        return 0.0

    def correlation(self, label: int) -> Float[Tensor, "*shape"]:
        r"""Return ⟨x_0 x_j⟩ = (2/(πZ²)) arcsin(2g²/(1+2g²) · C_0j), in float64."""
        row = _erf_correlation(self.gain, self.field_covariance(label))
        return row / row.flatten()[0]


@dataclass(frozen=True)
class GaussianClone(TwoClasses):
    """Gaussians with the class means and covariances of another source."""

    source: TwoClasses

    def __post_init__(self) -> None:
        if not isinstance(self.source, TwoClasses):
            raise InputError(
                f"source is {type(self.source).__name__}; give one with class means and covariances, e.g. NLGP(…)"
            )

    @property
    def shape(self) -> tuple[int, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The source's shape."""
        return self.source.shape

    def _draw(self, label: int, count: int, generator: torch.Generator | None, dtype: torch.dtype) -> Tensor:
        mean = self.mean(label)
        root = root_spectrum(self.correlation(label) - mean**2, f"the covariance of class {label}")
        return gaussian_field(root, self.shape, count, generator, dtype).add_(mean)

    def mean(self, label: int) -> float:
        """Return the mean of the source."""
        return self.source.mean(label)

    def correlation(self, label: int) -> Float[Tensor, "*shape"]:
        """Return ⟨x_0 x_j⟩ of the source."""
        return self.source.correlation(label)


def _erf_correlation(gain: float, row: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """Return ⟨erf(g z_0) erf(g z_j)⟩ = (2/π) arcsin(2g² C_0j / (1 + 2g² C_00)) for jointly Gaussian z."""
    variance = row.flatten()[0].item()
    ratio = (row / variance).clamp(-1, 1) * (2 * gain**2 * variance / (1 + 2 * gain**2 * variance))
    return (2 / pi) * ratio.asin()
