"""Powers of a Gaussian field, like the NLGP (nonlinear Gaussian process) translation-invariant, with any kurtosis."""

from dataclasses import dataclass
from functools import cached_property
from math import gamma, inf, pi, sqrt

import torch
from jaxtyping import Float
from torch import Tensor

from gatelab.data.nlgp import NLGP
from gatelab.data.ring import TwoClasses, gaussian_field
from gatelab.errors import InputError

_ANGLES = 20_000  # points of the integral over angles; its integrand has kinks, so the error falls as 1/points^(1+p)


@dataclass(frozen=True)
class PowerField(TwoClasses):
    r"""The field x = sign(z) |z|^p / Z of a Gaussian z with C_ij = exp(−d²/ξ²); Z makes ⟨x_i²⟩ = 1.

    Powers below 1 have lighter tails than a Gaussian (negative excess kurtosis, −2 as p → 0), powers above 1 heavier.

    Attributes:
        lengths: correlation lengths, ξ₁ of the class y = 1 and ξ₂ of the class y = 0.
        power: the power p.
        shape: (n,) or (height, width).

    Example:
        >>> abs(round(PowerField((3.0, 0.1), 1.0).excess_kurtosis, 6)), PowerField((3.0, 0.1), 0.2).excess_kurtosis < 0
        (0.0, True)
    """

    lengths: tuple[float, float]
    power: float
    shape: tuple[int, ...] = (40,)

    def __post_init__(self) -> None:
        if not 0 < self.power < inf:
            raise InputError(f"the power is {self.power}; it must be positive, 1 for a Gaussian field")
        self._field.field_covariance(1)

    @cached_property
    def _field(self) -> NLGP:
        return NLGP(self.lengths, 1.0, self.shape)

    @property
    def excess_kurtosis(self) -> float:
        """⟨x⁴⟩/⟨x²⟩² − 3 of one site."""
        return _absolute_moment(4 * self.power) / _absolute_moment(2 * self.power) ** 2 - 3

    def field_covariance(self, label: int) -> Float[Tensor, "*shape"]:
        """Return C_0j of the Gaussian field, in float64."""
        return self._field.field_covariance(label)

    def transform(self, z: Tensor) -> Tensor:
        """Return x for the Gaussian field z."""
        return z.sign() * z.abs() ** self.power / sqrt(_absolute_moment(2 * self.power))

    def _draw(self, label: int, count: int, generator: torch.Generator | None, dtype: torch.dtype) -> Tensor:
        return self.transform(gaussian_field(self._field._root(label), self.shape, count, generator, dtype))

    def mean(self, label: int) -> float:
        """Return 0: the power is odd."""
        return self._field.mean(label)

    def correlation(self, label: int) -> Float[Tensor, "*shape"]:
        """Return ⟨x_0 x_j⟩, in float64: in polar coordinates of (z_0, z_j) it is an integral over the angle alone."""
        row = self.field_covariance(label)
        turn = (row / row.flatten()[0]).clamp(-1, 1).acos().flatten()
        angles = (torch.arange(_ANGLES, dtype=torch.float64) + 0.5) * (2 * pi / _ANGLES)
        first = angles.cos()
        first = first.sign() * first.abs() ** self.power
        values = []
        for angle in turn:
            second = (angles - angle).cos()
            values.append((first * second.sign() * second.abs() ** self.power).mean())
        found = torch.stack(values).view(row.shape)
        return found / found.flatten()[0]


def _absolute_moment(power: float) -> float:
    """Return ⟨|z|^q⟩ of a standard Gaussian."""
    return 2 ** (power / 2) * gamma((power + 1) / 2) / sqrt(pi)
