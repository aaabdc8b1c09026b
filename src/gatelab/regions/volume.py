"""The volume of a bounded polyhedron in many dimensions, estimated by random walks inside it.

A box around a thin polyhedron is almost empty, so counting hits in it fails in high dimensions. Here the polyhedron is
cut down by balls, each of at most twice the volume of the one before. Ratios between neighbours are shares of points
that walk inside the larger set (hit-and-run), and their product is the volume.

Walks mix only in a body that is about as wide in all directions, so the polyhedron is first seen in other coordinates,
in two steps. Both maps are affine, so the volume changes by a known factor. In the coordinates of the Dikin ellipsoid
at its analytic centre, which are the same however thin or sheared the body is, a polyhedron of m faces contains the
unit ball and lies in that of radius m. There walks find its spread, in whose coordinates it is isotropic.
"""

from dataclasses import dataclass
from math import ceil, lgamma, log, log2, pi, sqrt

import torch
from jaxtyping import Float
from torch import Tensor

from gatelab.errors import InputError
from gatelab.observe import refuse_generator
from gatelab.regions.plane import refuse_unless_counts
from gatelab.regions.polyhedron import Estimate, Polyhedron
from gatelab.regions.view import View

CHAINS = 128  # independent walks: their spread gives the error
NEWTON_STEPS = 200  # at most, to the analytic centre
NEAR = 1e-6  # of the analytic centre, in radii of the Dikin ellipsoid
ROUND = 4.0  # a body whose widest variance is at most this many times its narrowest is round enough
ROUNDINGS = 20  # at most
FORGET = 2  # turns until walks from one ball fill the next; a turn is as many steps as there are dimensions
FORGET_LAST = 32  # turns until they fill the body's corners


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
        InputError: the polyhedron is not bounded, ``rounds`` is no positive whole number, or ``generator`` is a seed.

    Example:
        >>> box = Polyhedron(torch.cat([torch.eye(4), -torch.eye(4)]), torch.ones(8))  # [−1, 1]⁴, volume 16
        >>> log_volume = log_volume_estimate(box, generator=torch.Generator().manual_seed(0))
        >>> abs(log_volume.value - log(16)) < 4 * log_volume.error < 0.5
        True
    """
    if not isinstance(polyhedron, Polyhedron):
        raise InputError(
            f"polyhedron is {type(polyhedron).__name__}; give a gatelab.regions.Polyhedron, e.g. region.polyhedron"
        )
    refuse_unless_counts(rounds=rounds)
    refuse_generator(generator)
    box, point = polyhedron.bounding_box(), polyhedron.view.inner_point()
    if box is None or point is None:
        return Estimate(float("-inf"), 0.0)
    if not bool(box.isfinite().all()):
        raise InputError("the polyhedron is not bounded; estimate the volume of a part, polyhedron.within(box)")
    body = _around_analytic_centre(polyhedron.view, torch.as_tensor(point).to(polyhedron.normals))
    return _log_volume(_isotropic(body, generator), int(rounds), generator)


def log_unit_ball(dimension: int) -> float:
    """Return the logarithm of the volume of the unit ball."""
    return dimension / 2 * log(pi) - lgamma(dimension / 2 + 1)


@dataclass(frozen=True)
class _Body:
    """The points y with ⟨row, y⟩ ≤ offset for all faces; 0 is one of them.

    Attributes:
        rows: a normal for each face, of any length.
        offsets: an offset for each face.
        log_factor: the logarithm of the volume that a unit of volume here has in the polyhedron's own coordinates.
    """

    rows: Float[Tensor, "faces d"]
    offsets: Float[Tensor, " faces"]
    log_factor: float

    @property
    def dimension(self) -> int:
        return self.rows.shape[1]

    @property
    def radius(self) -> float:
        """The radius of the largest ball around 0 inside the body."""
        return float((self.offsets / self.rows.norm(dim=1)).min())


def _around_analytic_centre(view: View, inside: Float[Tensor, " d"]) -> _Body:
    """Return a polyhedron in the coordinates of the Dikin ellipsoid at its analytic centre, from a point inside.

    The analytic centre maximises Σ log(slack). With faces ⟨a_i, x⟩ ≤ 1 around the current point, the ellipsoid there is
    Σ ⟨a_i, x⟩² ≤ 1. So if the rows a_i are the columns of Q in QR, it is the unit ball, and −Σ a_i is Newton's step.
    Nothing is squared: a body of thickness 1e-9 loses 9 of 16 digits, not 18.
    """
    rows = torch.as_tensor(view.normals).to(inside)
    slack = torch.as_tensor(view.offsets).to(inside) - rows @ inside
    log_factor = sum(map(log, view.sizes.tolist()))
    for _ in range(NEWTON_STEPS):
        rows, triangle = torch.linalg.qr(rows / slack.unsqueeze(1))
        log_factor -= float(triangle.diagonal().abs().log().sum())
        step = -rows.sum(0)
        length = float(step.norm())
        if length < NEAR:
            break
        slack = 1 - rows @ (step / (1 + length))  # a step shorter than 1 stays inside
    return _Body(rows, torch.ones_like(slack), log_factor)


def _isotropic(body: _Body, generator: torch.Generator | None) -> _Body:
    """Return the body in coordinates in which walks inside it have about the same spread in all directions."""
    for _ in range(ROUNDINGS):
        points = _spread(body, generator)
        mean = points.mean(0)
        covariance = (points - mean).T @ (points - mean) / (len(points) - 1)
        widths = torch.linalg.eigvalsh(covariance)
        root, failed = torch.linalg.cholesky_ex(covariance)
        if bool(failed):
            raise InputError(
                f"the {body.dimension}-dimensional polyhedron is too thin in one direction, beside the others, for "
                "float64; give the coordinates in other units, or estimate a part, polyhedron.within(box)"
            )
        log_factor = body.log_factor + float(root.diagonal().log().sum())
        body = _Body(body.rows @ root, body.offsets - body.rows @ mean, log_factor)
        if widths[-1] <= ROUND * widths[0]:
            break
    return body


def _spread(body: _Body, generator: torch.Generator | None) -> Float[Tensor, "points d"]:
    """Points of walks inside a body, many more than dimensions."""
    walk, points = _Walk(body, generator), body.rows.new_zeros(CHAINS, body.dimension)
    points = walk.steps(points, 2 * body.dimension)
    found = []
    for _ in range(max(8, body.dimension // 16)):
        points = walk.steps(points, body.dimension)
        found.append(points)
    return torch.cat(found)


def _log_volume(body: _Body, rounds: int, generator: torch.Generator | None) -> Estimate:
    """Estimate the logarithm of the volume of an isotropic body, whose mean is 0 and whose variances are 1."""
    dimension, radii = body.dimension, _radii(body)
    walk, points = _Walk(body, generator), body.rows.new_zeros(CHAINS, body.dimension)
    value = body.log_factor + log_unit_ball(dimension) + dimension * log(radii[0])
    sums = body.rows.new_zeros(CHAINS)
    for small, large in zip(radii, (*radii[1:], None), strict=True):
        points = walk.steps(points, (FORGET_LAST if large is None else FORGET) * dimension, large)
        hits = torch.zeros_like(sums)
        for _ in range(rounds):
            points = walk.steps(points, dimension, large)
            hits += points.norm(dim=1) <= small
        share = float(hits.mean()) / rounds
        value -= log(share)
        sums += hits / rounds / share
    # A walk's shares of neighbouring balls depend on each other, those of different walks do not. If all points of a
    # ratio hit, its share may still be less than 1 by one point.
    return Estimate(value, sqrt(float(sums.var()) / CHAINS + len(radii) / (CHAINS * rounds) ** 2))


def _radii(body: _Body) -> list[float]:
    """The radii of balls around 0: from inside an isotropic body until they hold about half of it, twice as large each.

    The mean square of a point's distance from 0 is the dimension.
    """
    phases = max(0, ceil(body.dimension * log2(sqrt(body.dimension) / body.radius)))
    return [body.radius * 2 ** (phase / body.dimension) for phase in range(phases + 1)]


class _Walk:
    """Steps of many independent walks: each goes to a random point of the chord in a random direction."""

    def __init__(self, body: _Body, generator: torch.Generator | None):
        self._rows, self._offsets, self._generator = body.rows, body.offsets, generator

    def steps(
        self, points: Float[Tensor, "chains d"], count: int, radius: float | None = None
    ) -> Float[Tensor, "chains d"]:
        """Return the points after some steps, inside the body and the ball of this radius around 0."""
        for _ in range(count):
            directions = torch.randn(points.shape, dtype=torch.float64, generator=self._generator).to(points)
            directions = directions / directions.norm(dim=1, keepdim=True)
            slack = (self._offsets - points @ self._rows.T).clamp(min=0)
            speed = directions @ self._rows.T
            times = slack / speed
            high = times.masked_fill(speed <= 0, torch.inf).amin(1)
            low = times.masked_fill(speed >= 0, -torch.inf).amax(1)
            if radius is not None:
                along = (points * directions).sum(1)
                half = (along**2 + (radius**2 - (points**2).sum(1)).clamp(min=0)).sqrt()
                low, high = torch.maximum(low, -along - half), torch.minimum(high, -along + half)
            share = torch.rand(high.shape, dtype=torch.float64, generator=self._generator).to(points)
            points = points + (low + share * (high - low)).unsqueeze(1) * directions
        return points
