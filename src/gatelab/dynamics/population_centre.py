"""A finer population flow: wᵀx is taken as Gaussian only given x_i and the value at one chosen site, the centre."""

from dataclasses import dataclass
from math import pi, sqrt

import numpy as np
import torch
from jaxtyping import Float
from scipy.special import ndtr
from torch import Tensor

from gatelab.dynamics.localisation import inverse_participation_ratio, peak
from gatelab.dynamics.population import (
    FieldSource,
    PopulationFlow,
    half_normal_nodes,
    smoothed,
    transformed,
    unit_covariance,
)


class CentredFlow(PopulationFlow):
    """The population flow of a unit that weighs one site, its centre, most.

    A local field is far from a sum of many terms, so wᵀx is not Gaussian; most of the deviation comes from the largest
    weight. Here z at the centre and at site i are both integrated (a two-dimensional quadrature), and only the rest of
    wᵀx is taken as Gaussian. The choice of the centre affects accuracy, not validity.

    Args:
        source: a transformed Gaussian field.
        centre: the site, or one for each run.
        nodes: nodes for z at the centre.
        others: nodes for z at site i, given the centre, on each side of 0, where sharp fields jump.

    Example:
        >>> from gatelab.data import NLGP
        >>> CentredFlow(NLGP((3.0, 0.1), gain=3.0), 7).drive(torch.ones(40, dtype=torch.float64)).shape
        torch.Size([40])
    """

    def __init__(self, source: FieldSource, centre: int | Tensor, nodes: int = 12, others: int = 5):
        row = unit_covariance(source)
        z, probabilities = half_normal_nodes(nodes)
        super().__init__(source, transformed(source, z), probabilities, z.new_zeros(nodes, len(row)))
        n, places = len(row), torch.arange(len(row))
        # Indices that shift the centre to site 0, and their inverse.
        self._to_origin, self._from_origin = (
            ((places + sign * torch.as_tensor(centre)[..., None]) % n).numpy() for sign in (1, -1)
        )
        # z_i = c_i z_0 + s_i e; the mean of z_j given z_0 and e is c_j z_0 + slope_ij e.
        s = (1 - row.square()).clamp(min=0).sqrt()
        between = row[(places[:, None] - places) % n]
        slope = torch.where(s[:, None] > 1e-6, (between - row[:, None] * row) / s.clamp(min=1e-6)[:, None], 0)
        rest = (1 - row.square() - slope.square()).clamp(min=0)
        e, shares = _split_nodes(-row[:, None] * z / s.clamp(min=1e-6)[:, None], others)  # (i, q, e)
        self._shares = (probabilities[:, None] * shares).flatten(1).numpy()
        mean = row * z[:, None, None] + slope[:, None, None] * e[..., None]  # (i, q, e, j)
        self._table = smoothed(source, mean, rest[:, None, None].expand_as(mean)).reshape(-1, n).numpy().T.copy()
        values = transformed(source, row[:, None, None] * z[:, None] + s[:, None, None] * e).flatten(1).numpy()
        self._values = values * self._shares

    def _drive(self, w: np.ndarray) -> np.ndarray:
        w = np.take_along_axis(w, np.broadcast_to(self._to_origin, w.shape), axis=-1)
        means = (w @ self._table).reshape(*w.shape, -1)
        total = self._variance(w)
        left = np.maximum(total - (means**2 * self._shares).sum(axis=-1), 1e-9 * total + 1e-300)
        open_share = ndtr(means / np.sqrt(left)[..., None]) - 0.5
        b = 0.5 * (self._values * open_share).sum(axis=-1)
        return np.take_along_axis(b, np.broadcast_to(self._from_origin, b.shape), axis=-1)


def _split_nodes(split: Float[Tensor, "i q"], count: int) -> tuple[Float[Tensor, "i q e"], Float[Tensor, "i q e"]]:
    """Return nodes and weights for a standard Gaussian, by Gauss-Legendre in Φ on either side of given points."""
    places, weights = (torch.from_numpy(part) / 2 for part in np.polynomial.legendre.leggauss(count))
    split = split.clamp(-6, 6)[..., None]
    density = (-split.square() / 2).exp() / sqrt(2 * pi)
    nodes, shares = [], []
    for side in (-1, 1):
        mass = torch.special.ndtr(-side * split)
        e = side * -torch.special.ndtri(mass * (0.5 + places))
        # Few nodes reach into a tail, so each side's nodes are stretched to its exact mean and variance.
        centre, square = side * density / mass, 1 + side * split * density / mass
        found = (e * weights).sum(dim=-1, keepdim=True)
        spread = ((e - found).square() * weights).sum(dim=-1, keepdim=True)
        nodes.append(centre + (e - found) * ((square - centre.square()).clamp(min=0) / spread).sqrt())
        shares.append(mass * weights)
    return torch.cat(nodes, dim=-1), torch.cat(shares, dim=-1)


@dataclass(frozen=True)
class Prediction:
    """Fields that the population flow predicts at a time, one for each start, and their localisation."""

    weights: Float[Tensor, "runs d"]
    ipr: Float[Tensor, " runs"]
    passes: int


def predict_fields(
    source: FieldSource, initial: Float[Tensor, "runs d"], time: float, *, tolerance: float = 3e-3, passes: int = 3
) -> Prediction:
    """Predict the fields that ReLU units will have at a time, with no training.

    The first pass takes wᵀx as Gaussian given x_i and finds the centres; each further pass conditions on them, until
    they no longer move.

    Args:
        source: a transformed Gaussian field on a ring.
        initial: w(0) of every unit.
        time: the time, in units of τ.
        tolerance: of the integrator.
        passes: the largest number of passes after the first.

    Returns:
        The fields and their inverse participation ratios.

    Example:
        >>> from gatelab.data import NLGP
        >>> start = 0.01 * torch.randn(2, 40, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        >>> predict_fields(NLGP((3.0, 0.1), gain=0.01), start, 50.0).ipr.max().item() < 0.15
        True
    """
    found = PopulationFlow.of_field(source).solve(initial, [time], tolerance=tolerance).weights[0]
    number = 0
    while number < passes:
        number += 1
        centres = peak(found)
        found = CentredFlow(source, centres).solve(initial, [time], tolerance=tolerance).weights[0]
        if bool((peak(found) == centres).all()):
            break
    return Prediction(found, inverse_participation_ratio(found), number)
