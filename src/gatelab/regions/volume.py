"""The volume of a bounded polyhedron in many dimensions, estimated by random walks inside it.

A box around a thin polyhedron is almost empty, so counting hits in it fails in high dimensions. Here the polyhedron is
cut down by balls, each at most twice the volume of the one before; ratios between neighbours are shares of points that
walk inside the larger set (hit-and-run), and their product is the volume.
"""

from math import ceil, lgamma, log, log2, pi, sqrt

import torch
from jaxtyping import Float
from torch import Tensor

from gatelab.errors import InputError
from gatelab.regions.polyhedron import Estimate, Polyhedron

CHAINS = 128  # independent walks: their spread gives the error


def log_volume_estimate(
    polyhedron: Polyhedron, *, rounds: int = 8, generator: torch.Generator | None = None
) -> Estimate:
    """Estimate the natural logarithm of a bounded polyhedron's volume, with its standard error.

    Args:
        polyhedron: the polyhedron; it must be bounded, e.g. ``region.polyhedron.within(box)``.
        rounds: how many points each of the 128 walks contributes to each ratio.
        generator: source of randomness.

    Returns:
        The logarithm and its standard error; −∞ ± 0 for an empty or flat polyhedron.

    Raises:
        InputError: the polyhedron is not bounded.

    Example:
        >>> box = Polyhedron(torch.cat([torch.eye(4), -torch.eye(4)]), torch.ones(8))  # [−1, 1]⁴, volume 16
        >>> log_volume = log_volume_estimate(box, generator=torch.Generator().manual_seed(0))
        >>> abs(log_volume.value - log(16)) < 4 * log_volume.error < 0.5
        True
    """
    box, ball = polyhedron.bounding_box(), polyhedron.chebyshev_ball()
    if box is None or ball is None or ball.radius <= 0:
        return Estimate(float("-inf"), 0.0)
    if not bool(box.isfinite().all()):
        raise InputError("the polyhedron is not bounded; estimate the volume of a part, polyhedron.within(box)")
    normals, offsets = polyhedron.normals, polyhedron.offsets - polyhedron.normals @ ball.centre
    walk = _Walk(normals, offsets, generator)
    dimension = polyhedron.dimension
    points = torch.zeros(CHAINS, dimension).to(normals)
    for _ in range(4 * dimension):
        points = walk.step(points)
    # Round the body: in the coordinates of its own spread it is about as wide in all directions.
    least = 1e-12 * ball.radius**2 * torch.eye(dimension).to(normals)
    spread = torch.linalg.cholesky(torch.cov(points.T).reshape(dimension, dimension) + least)
    rounded = Polyhedron(normals @ spread, offsets)
    inner = rounded.chebyshev_ball()
    assert inner is not None
    walk = _Walk(rounded.normals, rounded.offsets - rounded.normals @ inner.centre, generator)
    outer = rounded.bounding_box()
    assert outer is not None
    reach = float(torch.maximum((outer[:, 0] - inner.centre).abs(), (outer[:, 1] - inner.centre).abs()).norm())
    value = log_unit_ball(dimension) + dimension * log(inner.radius) + float(spread.diagonal().log().sum())
    points, variance = torch.zeros(CHAINS, dimension).to(normals), 0.0
    phases = max(1, ceil(dimension * log2(max(1.0, reach / inner.radius))))
    for phase in range(1, phases + 1):
        small, large = (inner.radius * 2 ** (k / dimension) for k in (phase - 1, phase))
        hits = torch.zeros(CHAINS).to(normals)
        for turn in range(rounds + 2):
            for _ in range(dimension):
                points = walk.step(points, large)
            if turn >= 2:  # the walks start in the smaller ball, and need some steps to forget that
                hits += points.norm(dim=1) <= small
        share = float(hits.sum() + 1) / (CHAINS * rounds + 2)
        value -= log(share)
        spread_of_chains = float((hits / rounds).var()) / CHAINS
        variance += max(spread_of_chains, share * (1 - share) / (CHAINS * rounds)) / share**2
    return Estimate(value, sqrt(variance))


def log_unit_ball(dimension: int) -> float:
    """Return the logarithm of the volume of the unit ball."""
    return dimension / 2 * log(pi) - lgamma(dimension / 2 + 1)


class _Walk:
    """Steps of many independent walks: each goes to a random point of the chord in a random direction."""

    def __init__(
        self, normals: Float[Tensor, "faces d"], offsets: Float[Tensor, " faces"], generator: torch.Generator | None
    ):
        self._normals, self._offsets, self._generator = normals, offsets, generator

    def step(self, points: Float[Tensor, "chains d"], radius: float | None = None) -> Float[Tensor, "chains d"]:
        """Return the next points, inside the polyhedron and the ball of this radius around 0."""
        directions = torch.randn(points.shape, dtype=torch.float64, generator=self._generator).to(points)
        directions = directions / directions.norm(dim=1, keepdim=True)
        slack = (self._offsets - points @ self._normals.T).clamp(min=0)
        speed = directions @ self._normals.T
        times = slack / speed
        high = times.masked_fill(speed <= 0, torch.inf).amin(1)
        low = times.masked_fill(speed >= 0, -torch.inf).amax(1)
        if radius is not None:
            along = (points * directions).sum(1)
            half = (along**2 + (radius**2 - (points**2).sum(1)).clamp(min=0)).sqrt()
            low, high = torch.maximum(low, -along - half), torch.minimum(high, -along + half)
        share = torch.rand(high.shape, dtype=torch.float64, generator=self._generator).to(points)
        return points + (low + share * (high - low)).unsqueeze(1) * directions
