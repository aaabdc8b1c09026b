"""Convex polyhedra as intersections of half-spaces.

A gate is open where q > 0 and closed where q ≤ 0. A face that belongs to an open gate is therefore *strict*:
⟨a_i, x⟩ < b_i for strict faces, ≤ for the others. Only :meth:`Polyhedron.contains` and :meth:`Polyhedron.is_empty`
distinguish the two; balls, vertices and volumes are those of the closure.

All geometry is in float64, on the caller's device; linear programmes (HiGHS) and hulls (Qhull) run on the CPU.
"""

from dataclasses import dataclass
from math import inf, prod, sqrt

import numpy as np
import torch
from jaxtyping import Bool, Float
from scipy.spatial import ConvexHull, KDTree
from torch import Tensor

from gatelab.errors import InputError
from gatelab.printing import Brief
from gatelab.regions.plane import Bounds, Plane, checked_bounds, refuse_unless_tensors
from gatelab.regions.programmes import balanced, largest

# HiGHS satisfies constraints to about this much. A thinner set counts as empty, and closer faces count as one.
TOLERANCE = 1e-9
_ALIKE = 1024.0  # coordinates whose sizes differ by no more than this factor share one scale


@dataclass(frozen=True)
class Ball:
    """A ball. If balls of every size fit, the radius is infinite and the centre is that of one of them."""

    centre: Float[Tensor, " d"]
    radius: float


@dataclass(frozen=True)
class Estimate:
    """A number with its standard error."""

    value: float
    error: float


@dataclass(frozen=True, init=False, repr=False)
class Polyhedron(Brief):
    """The set {x : normals · x ≤ offsets}, with < for strict faces.

    Args:
        normals: a normal for each face.
        offsets: an offset for each face.
        strict: whether each face is strict; None makes all of them strict.

    Raises:
        InputError: the shapes do not match, or a number is not finite.

    Example:
        >>> quadrant = Polyhedron(-torch.eye(2, dtype=torch.float64), torch.zeros(2, dtype=torch.float64))
        >>> quadrant.contains(torch.tensor([[1.0, 2.0], [1.0, -2.0]], dtype=torch.float64)).tolist()
        [True, False]
        >>> quadrant.polygon(((-1, 1), (-1, 1))).tolist()
        [[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0]]
    """

    normals: Float[Tensor, "faces d"]
    offsets: Float[Tensor, " faces"]
    strict: Bool[Tensor, " faces"]

    def __init__(
        self,
        normals: Float[Tensor, "faces d"],
        offsets: Float[Tensor, " faces"],
        strict: Bool[Tensor, " faces"] | None = None,
    ):
        refuse_unless_tensors(normals=normals, offsets=offsets)
        if normals.ndim != 2 or offsets.shape != normals.shape[:1]:
            raise InputError(
                f"normals are {tuple(normals.shape)}, offsets {tuple(offsets.shape)}; give (faces, d) and (faces,)"
            )
        if not bool(torch.isfinite(normals).all() and torch.isfinite(offsets).all()):
            raise InputError("a face has NaN or infinite entries; check the weights it was made from")
        strict = torch.ones_like(offsets, dtype=torch.bool) if strict is None else strict
        refuse_unless_tensors(strict=strict)
        if strict.shape != offsets.shape or strict.dtype != torch.bool:
            raise InputError(
                f"strict is {tuple(strict.shape)} of {strict.dtype}; give one truth value for each of the "
                f"{len(offsets)} faces"
            )
        for name, value in (("normals", normals.double()), ("offsets", offsets.double()), ("strict", strict)):
            object.__setattr__(self, name, value.detach())

    @property
    def dimension(self) -> int:
        """Dimension of the space that the polyhedron lies in."""
        return self.normals.shape[1]

    @property
    def faces(self) -> int:
        """Number of half-spaces."""
        return self.normals.shape[0]

    def contains(self, x: Float[Tensor, "n ..."]) -> Bool[Tensor, " n"]:
        """Whether each point lies inside, exactly and with the faces' own strictness."""
        if x.ndim < 2:
            raise InputError(f"points have shape {tuple(x.shape)}; give (n, …), for one point x.unsqueeze(0)")
        points = x.to(self.normals).flatten(1)
        if points.shape[1] != self.dimension:
            raise InputError(f"points have {points.shape[1]} coordinates, the polyhedron {self.dimension}")
        values = points @ self.normals.T
        return torch.where(self.strict, values < self.offsets, values <= self.offsets).all(dim=1)

    def is_empty(self) -> bool:
        """Whether no point lies inside.

        A set thinner than 1e-9 of the faces' typical distance from the origin counts as empty. A face without a normal,
        0 < b or 0 ≤ b, is true or false everywhere.
        """
        own, _ = self.in_own_scales()
        if own is not self:
            return own.is_empty()
        faces, normals, offsets, _ = self.scaled()
        without = np.setdiff1d(np.arange(self.faces), faces)
        if bool(torch.where(self.strict, self.offsets <= 0, self.offsets < 0)[without].any()):
            return True
        strict = self.strict.cpu().numpy()[faces].astype(float)
        best = largest(np.zeros(self.dimension), 1.0, np.c_[normals, strict], offsets, high=1.0)
        return best is None or bool(strict.any() and best[0] <= TOLERANCE)

    def chebyshev_ball(self) -> Ball | None:
        """Return the largest ball inside the closure; None if the polyhedron is empty."""
        if self.is_empty():
            return None
        _, normals, offsets, scale = self.scaled()
        rows = np.c_[normals, np.ones(len(normals))]
        nowhere = np.zeros(self.dimension)
        best = largest(nowhere, 1.0, rows, offsets, low=0.0)
        radius = max(0.0, best[0] * scale) if best else 0.0
        if best is None or radius == inf:
            best = largest(nowhere, 1.0, rows, offsets, low=0.0, high=1.0)
        centre = nowhere if best is None else best[1]
        return Ball(self._back(centre * scale), radius)

    def bounding_box(self) -> Float[Tensor, "d 2"] | None:
        """Return the range of each coordinate, infinite where there is no bound; None if the polyhedron is empty."""
        own, sizes = self.in_own_scales()
        if own is not self:
            box = own.bounding_box()
            return None if box is None else box * sizes.unsqueeze(1)
        if self.is_empty():
            return None
        _, normals, offsets, scale = self.scaled()
        rows, box = np.c_[normals, np.zeros(len(normals))], np.empty((self.dimension, 2))
        for axis, direction in enumerate(np.eye(self.dimension)):
            for side, sign in enumerate((-1.0, 1.0)):
                best = largest(sign * direction, 0.0, rows, offsets)
                box[axis, side] = sign * scale * (inf if best is None else best[0])
        return self._back(box)

    def irredundant(self) -> "Polyhedron":
        """Return the same set without the faces that others imply; of coincident faces a strict one stays.

        An empty polyhedron stays as it is. Solves one linear programme per face, none if the normals are independent.
        """
        stay = self.in_own_scales()[0].needed_faces()
        if len(stay) == self.faces:
            return self
        return Polyhedron(self.normals[stay], self.offsets[stay], self.strict[stay])

    def needed_faces(self) -> np.ndarray:
        """The numbers of the faces that :meth:`irredundant` keeps, from coordinates of similar sizes."""
        faces, normals, offsets, _ = self.scaled()
        if self.faces <= self.dimension and np.linalg.matrix_rank(normals) == self.faces:
            return np.arange(self.faces)
        if self.is_empty():
            return np.arange(self.faces)
        kept = list(range(len(faces)))
        for face in torch.argsort(self.strict[faces], stable=True).tolist():
            others = [other for other in kept if other != face]
            bound = np.r_[offsets[others], offsets[face] + 1]
            rows = np.c_[normals[[*others, face]], np.zeros(len(others) + 1)]
            best = largest(normals[face], 0.0, rows, bound)
            if best is not None and best[0] <= offsets[face] + TOLERANCE:
                kept = others
        return faces[kept]

    def vertices(self) -> Float[Tensor, "k d"]:
        """Return the corners of the closure: none if it is empty, flat, or contains a whole line.

        Seen from an inner point, faces become points of the polar dual, and the facets of their hull (Qhull) are the
        corners.
        """
        own, sizes = self.in_own_scales()
        if own is not self:
            return own.vertices() * sizes
        ball = self.inner_ball()
        _, normals, offsets, scale = self.scaled()
        none = self.normals.new_empty(0, self.dimension)
        if ball is None or np.linalg.matrix_rank(normals) < self.dimension:
            return none
        centre = ball.centre.cpu().numpy() / scale
        dual = normals / (offsets - normals @ centre)[:, None]
        size = np.abs(dual).max()
        if self.dimension == 1:
            ends = [min(dual.min(), 0.0), max(dual.max(), 0.0)]  # 0: unbounded on this side
            corners = np.array([[1 / end] for end in ends if end])
        else:
            facets = ConvexHull(np.r_[np.zeros((1, self.dimension)), dual / size]).equations
            away = facets[facets[:, -1] < -TOLERANCE]  # a facet through 0 is no corner: the polyhedron is unbounded
            corners = away[:, :-1] / -away[:, -1:] / size
        return self._back((centre + _distinct(corners)) * scale)

    def polygon(self, bounds: Bounds) -> Float[Tensor, "k 2"]:
        """Return the corners of the part inside ``bounds``, counter-clockwise; none if that part has no area.

        Raises:
            InputError: the polyhedron is not two-dimensional.
        """
        if self.dimension != 2:
            raise InputError(
                f"a polygon needs two dimensions, the polyhedron has {self.dimension}; cut it with on_plane(plane)"
            )
        corners = self.within(bounds).vertices()
        if len(corners) == 0:
            return corners
        around = corners - corners.mean(dim=0)
        ordered = corners[torch.atan2(around[:, 1], around[:, 0]).argsort()]
        return ordered.roll(-int((ordered[:, 0] + ordered[:, 1]).argmin()), 0)

    def within(self, bounds: Bounds) -> "Polyhedron":
        """Return the part of the polyhedron inside a box; the box's sides are not strict."""
        box = checked_bounds(bounds, self.dimension)
        eye = torch.eye(self.dimension).to(self.normals)
        low, high = self.normals.new_tensor(box).T
        return Polyhedron(
            torch.cat([self.normals, eye, -eye]),
            torch.cat([self.offsets, high, -low]),
            torch.cat([self.strict, torch.zeros(2 * self.dimension).to(self.strict)]),
        )

    def on_plane(self, plane: Plane) -> "Polyhedron":
        """Return the polyhedron's intersection with a plane, in the plane's coordinates (s, t)."""
        origin, directions = plane.flat(self.normals)
        if len(origin) != self.dimension:
            raise InputError(f"the plane lies in {len(origin)} dimensions, the polyhedron in {self.dimension}")
        return Polyhedron(self.normals @ directions.T, self.offsets - self.normals @ origin, self.strict)

    def volume_estimate(
        self, bounds: Bounds | None = None, *, samples: int = 10_000, generator: torch.Generator | None = None
    ) -> Estimate:
        """Estimate the volume inside a box (None: the bounding box) from random points, with its standard error.

        An unbounded polyhedron has volume ∞ ± 0, or 0 ± 0 if it is flat: thinner than 1e-9 of the faces' typical
        distance from the origin. The error is that of a share of (hits + 1) / (samples + 2), which is not zero even if
        no point, or every point, lies inside.
        """
        if samples < 1:
            raise InputError(f"samples is {samples}; draw at least one point")
        box = self.bounding_box() if bounds is None else self.normals.new_tensor(checked_bounds(bounds, self.dimension))
        if box is None or self.is_empty():
            return Estimate(0.0, 0.0)
        if not bool(torch.isfinite(box).all()):
            return Estimate(0.0 if self.in_own_scales()[0].inner_ball() is None else inf, 0.0)
        low, width = box[:, 0], box[:, 1] - box[:, 0]
        draws = torch.rand(samples, self.dimension, dtype=torch.float64, generator=generator).to(self.normals)
        hits = int(self.contains(low + draws * width).sum())
        whole, share = prod(width.tolist()), (hits + 1) / (samples + 2)
        return Estimate(whole * hits / samples, whole * sqrt(share * (1 - share) / samples))

    def inner_ball(self) -> Ball | None:
        """The largest ball inside the closure; None if the polyhedron is empty or flat."""
        ball = self.chebyshev_ball()
        return None if ball is None or ball.radius <= TOLERANCE * self.scaled()[-1] else ball

    def in_own_scales(self) -> "tuple[Polyhedron, Float[Tensor, ' d']]":
        """The polyhedron with each coordinate divided by a size of its own, and these sizes.

        It is the polyhedron itself unless its coordinates have very different sizes, such as 1e6 and 1e-6.
        """
        sizes = balanced(self.scaled()[1])[1] if self.dimension > 1 else np.ones(self.dimension)
        if sizes.max(initial=1.0) <= _ALIKE * sizes.min(initial=1.0):
            return self, torch.ones(self.dimension).to(self.normals)
        factors = self._back(sizes)
        return Polyhedron(self.normals * factors, self.offsets, self.strict), factors

    def scaled(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
        """The faces that have a normal, scaled by their typical distance from the origin.

        Returns:
            The faces' numbers, unit normals and scaled offsets, and the typical distance. A face whose distance
            overflows float64 counts as one without a normal: it is true or false wherever a point can be.
        """
        normals, offsets = self.normals.cpu().numpy(), self.offsets.cpu().numpy()
        with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
            largest = np.abs(normals).max(axis=1, initial=0.0)  # squares of small entries would underflow
            units = normals / largest[:, None]
            length = np.linalg.norm(units, axis=1)
            distance = offsets / largest / length
        faces = np.flatnonzero(np.isfinite(distance))
        distance = distance[faces]
        reach = np.abs(distance[distance != 0])
        scale = float(np.sort(reach)[(len(reach) - 1) // 2]) if reach.size else 1.0
        return faces, units[faces] / length[faces, None], distance / scale, scale

    def _back(self, values: np.ndarray) -> Tensor:
        return torch.as_tensor(values).to(self.normals)


def _distinct(points: np.ndarray) -> np.ndarray:
    """Points without those that lie on another."""
    if len(points) < 2:
        return points
    extent = np.ptp(points, axis=0).max()
    twins = {max(pair) for pair in KDTree(points).query_pairs(TOLERANCE * extent)}
    return points[[i for i in range(len(points)) if i not in twins]]
