"""Convex polyhedra as intersections of half-spaces.

A gate is open where q > 0 and closed where q ≤ 0. A face that belongs to an open gate is therefore *strict*:
⟨a_i, x⟩ < b_i for strict faces, ≤ for the others. Only :meth:`Polyhedron.contains` and :meth:`Polyhedron.is_empty`
distinguish the two; balls, vertices and volumes are those of the closure.

All geometry is in float64, on the caller's device; linear programmes (HiGHS) and hulls (Qhull) run on the CPU.
"""

from dataclasses import dataclass
from functools import cached_property
from math import inf, prod, sqrt

import numpy as np
import torch
from jaxtyping import Bool, Float
from scipy.spatial import ConvexHull, KDTree
from torch import Tensor

from gatelab.errors import InputError
from gatelab.observe import refuse_generator
from gatelab.printing import Brief
from gatelab.regions.plane import (
    Bounds,
    ByValue,
    Plane,
    checked_bounds,
    refuse_unless_counts,
    refuse_unless_tensors,
)
from gatelab.regions.programmes import largest
from gatelab.regions.view import TOLERANCE, View, own_view


@dataclass(frozen=True, eq=False)
class Ball(ByValue):
    """A ball. If balls of every size fit, the radius is infinite and the centre is that of one of them."""

    centre: Float[Tensor, " d"]
    radius: float


@dataclass(frozen=True)
class Estimate:
    """A number with its standard error."""

    value: float
    error: float


@dataclass(frozen=True, init=False, repr=False, eq=False)
class Polyhedron(ByValue, Brief):
    """The set {x : normals · x ≤ offsets}, with < for strict faces.

    Two polyhedra are equal if they have the same faces in the same order; other faces may describe the same set.

    Args:
        normals: a normal for each face.
        offsets: an offset for each face.
        strict: whether each face is strict; None makes all of them strict.

    Raises:
        InputError: the shapes do not match, a number is not finite, or, at the first question about the set, the sizes
            of the numbers are too far apart for float64.

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
        if normals.ndim != 2 or offsets.shape != normals.shape[:1] or normals.shape[1] == 0:
            shapes = f"normals are {tuple(normals.shape)}, offsets {tuple(offsets.shape)}"
            raise InputError(f"{shapes}; give (faces, d) and (faces,), d ≥ 1")
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
        refuse_unless_tensors(x=x)
        if x.ndim < 2:
            raise InputError(f"points have shape {tuple(x.shape)}; give (n, …), for one point x.unsqueeze(0)")
        points = x.to(self.normals).flatten(1)
        if points.shape[1] != self.dimension:
            raise InputError(f"points have {points.shape[1]} coordinates, the polyhedron {self.dimension}")
        values = points @ self.normals.T
        return torch.where(self.strict, values < self.offsets, values <= self.offsets).all(dim=1)

    @cached_property
    def view(self) -> View:
        """The faces in coordinates in which the polyhedron is about as wide along all axes."""
        try:
            with np.errstate(over="raise", invalid="raise", divide="raise"):
                return own_view(self.normals.cpu().numpy(), self.offsets.cpu().numpy())
        except ArithmeticError:
            raise InputError(
                f"the polyhedron of {self.faces} faces has sizes too far apart for float64: {self._sizes()}; give its "
                "coordinates in other units"
            ) from None

    def is_empty(self) -> bool:
        """Whether no point lies inside.

        A set thinner than 1e-9 of the faces' typical distance from the origin counts as empty; from a point inside, and
        with each coordinate in its own unit, if their sizes are far apart. A face without a normal, 0 < b or 0 ≤ b, is
        true or false everywhere.
        """
        view = self.view
        without = np.setdiff1d(np.arange(self.faces), view.faces)
        if bool(torch.where(self.strict, self.offsets <= 0, self.offsets < 0)[without].any()):
            return True
        strict = self.strict.cpu().numpy()[view.faces].astype(float)
        best = largest(np.zeros(self.dimension), 1.0, np.c_[view.normals, strict], view.offsets, high=1.0)
        return best is None or bool(strict.any() and best[0] <= TOLERANCE)

    def chebyshev_ball(self) -> Ball | None:
        """Return the largest ball inside the closure; None if the polyhedron is empty."""
        if self.is_empty():
            return None
        view, nowhere = self.view, np.zeros(self.dimension)
        least = view.sizes.min(initial=inf)
        # A ball of the given coordinates is longish here; squares of small sizes would underflow.
        lengths = np.linalg.norm(view.normals * (least / view.sizes), axis=1)
        longest = lengths.max(initial=0.0) or 1.0
        rows = np.c_[view.normals, lengths / longest]
        best = largest(nowhere, 1.0, rows, view.offsets, low=0.0)
        radius = max(0.0, best[0] / longest * least) if best else 0.0
        if best is None or radius == inf:
            best = largest(nowhere, 1.0, rows, view.offsets, low=0.0, high=1.0)
        centre = nowhere if best is None else best[1]
        middle = view.inner_point() if np.ptp(view.sizes) > 0 else None
        if middle is not None:  # where others are short, the tolerance along a long axis is longer than the radius
            centre = centre + TOLERANCE * (middle - centre)
        return Ball(self._back(view.outside(centre)), float(radius))

    def bounding_box(self) -> Float[Tensor, "d 2"] | None:
        """Return the range of each coordinate, infinite where there is no bound; None if the polyhedron is empty."""
        if self.is_empty():
            return None
        view, box = self.view, np.empty((self.dimension, 2))
        rows = np.c_[view.normals, np.zeros(len(view.normals))]
        for axis, direction in enumerate(np.eye(self.dimension)):
            for side, sign in enumerate((-1.0, 1.0)):
                best = largest(sign * direction, 0.0, rows, view.offsets)
                box[axis, side] = sign * (inf if best is None else best[0])
        return self._back(view.outside(box.T).T)

    def irredundant(self) -> "Polyhedron":
        """Return the same set without the faces that others imply; of coincident faces a strict one stays.

        An empty polyhedron stays as it is. Solves one linear programme per face, none if the normals are independent.
        """
        stay = self._needed_faces()
        if len(stay) == self.faces:
            return self
        return Polyhedron(self.normals[stay], self.offsets[stay], self.strict[stay])

    def _needed_faces(self) -> np.ndarray:
        """The numbers of the faces that :meth:`irredundant` keeps."""
        faces, normals, offsets = self.view.faces, self.view.normals, self.view.offsets
        if self.faces <= self.dimension and np.linalg.matrix_rank(normals) == self.faces:
            return np.arange(self.faces)
        if self.is_empty():
            return np.arange(self.faces)
        kept = list(range(len(faces)))
        for face in torch.argsort(self.strict[faces], stable=True).tolist():
            others = [other for other in kept if other != face]
            bound = np.r_[offsets[others], offsets[face] + max(1.0, abs(offsets[face]))]
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
        view, none = self.view, self.normals.new_empty(0, self.dimension)
        point = None if self.is_empty() else view.inner_point()
        if point is None or np.linalg.matrix_rank(view.normals) < self.dimension:
            return none
        dual = view.normals / (view.offsets - view.normals @ point)[:, None]
        size = np.abs(dual).max()
        if self.dimension == 1:
            ends = [min(dual.min(), 0.0), max(dual.max(), 0.0)]  # 0: unbounded on this side
            corners = np.array([[1 / end] for end in ends if end])
        else:
            facets = ConvexHull(np.r_[np.zeros((1, self.dimension)), dual / size]).equations
            away = facets[facets[:, -1] < -TOLERANCE]  # a facet through 0 is no corner: the polyhedron is unbounded
            corners = away[:, :-1] / -away[:, -1:] / size
        return self._back(view.outside(point + _distinct(corners)))

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
        around = around / around.abs().amax(dim=0)  # angles of coordinates of similar sizes
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
        if not isinstance(plane, Plane):
            raise InputError(
                f"plane is {type(plane).__name__}; give a gatelab.regions.Plane, e.g. Plane.through(a, b, c)"
            )
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

        Raises:
            InputError: float64 does not hold the volume of the box.
        """
        refuse_unless_counts(samples=samples)
        refuse_generator(generator)
        box = self.bounding_box() if bounds is None else self.normals.new_tensor(checked_bounds(bounds, self.dimension))
        if box is None or self.is_empty():
            return Estimate(0.0, 0.0)
        if not bool(torch.isfinite(box).all()):
            return Estimate(0.0 if self.view.inner_point() is None else inf, 0.0)
        low, width = box[:, 0], box[:, 1] - box[:, 0]
        if not bool(width.all()):
            return Estimate(0.0, 0.0)
        whole = prod(width.tolist())
        if not 0 < whole < inf:
            raise InputError(
                f"the {self.dimension}-dimensional box has sides from {float(width.min()):.3g} to "
                f"{float(width.max()):.3g}, and float64 rounds its volume to {whole:g}; estimate the logarithm with "
                "gatelab.regions.volume.log_volume_estimate(polyhedron.within(bounds))"
            )
        samples = int(samples)
        draws = torch.rand(samples, self.dimension, dtype=torch.float64, generator=generator).to(self.normals)
        hits = int(self.contains(low + draws * width).sum())
        share = (hits + 1) / (samples + 2)
        return Estimate(whole * (hits / samples), whole * sqrt(share * (1 - share) / samples))

    def _sizes(self) -> str:
        """The smallest and the largest of the faces' numbers, but for zeros."""
        parts = (("normals", self.normals), ("offsets", self.offsets))
        held = ((name, part[part != 0].abs()) for name, part in parts if bool(part.any()))
        return ", ".join(f"{name} from {float(some.min()):.3g} to {float(some.max()):.3g}" for name, some in held)

    def _back(self, values: np.ndarray) -> Tensor:
        return torch.as_tensor(values).to(self.normals)


def _distinct(points: np.ndarray) -> np.ndarray:
    """Points without those that lie on another."""
    if len(points) < 2:
        return points
    extent = np.ptp(points, axis=0).max()
    twins = {max(pair) for pair in KDTree(points).query_pairs(TOLERANCE * extent)}
    return points[[i for i in range(len(points)) if i not in twins]]
