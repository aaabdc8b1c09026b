"""The faces of a polyhedron in coordinates of its own.

A body may be a million wide in one coordinate and a millionth in another. Linear programmes, which know one tolerance
for all coordinates, then lose it, or take its coefficients for 0. Here each coordinate is measured by the body itself:
by the chord that a line along its axis cuts out of the body, through a point inside. The size of a coefficient alone
tells nothing, since it may be a rounding error in the place of a 0.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import frexp, inf

import numpy as np

from gatelab.regions.programmes import largest, solved

# HiGHS satisfies constraints to about this much. A thinner set counts as empty, and closer faces count as one.
TOLERANCE = 1e-9
_ALIKE = 1024.0  # coordinates whose sizes differ by no more than this factor are seen as they are
_SMALL = 1e-7  # HiGHS takes coefficients up to 1e-9 for 0; so much smaller than others they may matter
_NOISE = 1e-15  # beside the other coefficients of a face, in coordinates of similar sizes: a rounding error
_LEVELS = 8  # of distances from faces that are maximised one after another
_NEVER = 2**20  # as the power of two of a number that does not exist
_RANGE = 500  # in powers of two: the squares of numbers no further apart are in float64, too
_ROUNDS = 5  # of finding a point inside and measuring the chords through it


@dataclass(frozen=True)
class View:
    """The faces of a polyhedron that have a normal, in coordinates y with x = centre + sizes · y.

    A face whose distance overflows float64 counts as one without a normal: it is true or false wherever a point can be.

    Attributes:
        faces: the faces' numbers.
        normals: their normals, of length 1.
        offsets: their offsets, the distances of the faces from the centre.
        centre: the point y = 0.
        sizes: the units of the coordinates.
    """

    faces: np.ndarray
    normals: np.ndarray
    offsets: np.ndarray
    centre: np.ndarray
    sizes: np.ndarray

    @property
    def dimension(self) -> int:
        """Dimension of the space."""
        return len(self.sizes)

    def outside(self, points: np.ndarray) -> np.ndarray:
        """Points y in the polyhedron's coordinates x."""
        return self.centre + self.sizes * points

    def deepest(self) -> np.ndarray | None:
        """The centre of the largest ball inside, or of one of radius 1 if larger ones fit; None if the set is empty."""
        rows = np.c_[self.normals, np.ones(len(self.normals))]
        best = largest(np.zeros(self.dimension), 1.0, rows, self.offsets, low=0.0, high=1.0)
        return None if best is None else best[1]

    def inner_point(self) -> np.ndarray | None:
        """A point deep inside; None if the polyhedron is empty or flat."""
        point = self.deepest()
        return None if point is None or self._slack(point).min(initial=inf) <= TOLERANCE else point

    def middle(self) -> np.ndarray | None:
        """A point inside that is far from all faces, as measured by how far from each a point can be; None as above.

        Of the points farthest from all faces a programme takes one at an end of the body, such as a tip of a long thin
        wedge. So faces that limit the distance are let half as near, and the distance from the others is maximised.
        """
        point = self.inner_point()
        free, least = np.ones(len(self.normals)), np.zeros(len(self.normals))
        cost = np.r_[np.zeros(self.dimension), -1.0]
        everywhere: list[tuple[float | None, float | None]] = [(None, None)] * self.dimension
        for _ in range(_LEVELS):
            if point is None or not free.any():
                break
            best = solved(cost, np.c_[self.normals, free], self.offsets - least, bounds=[*everywhere, (0.0, None)])
            if best.status != 0 or self._slack(best.x[:-1]).min() <= TOLERANCE:
                break
            point, limiting = best.x[:-1], (best.ineqlin.marginals != 0) & (free > 0)
            if not limiting.any():
                break
            least[limiting], free[limiting] = best.x[-1] / 2, 0.0
        return point

    def chords(self, point: np.ndarray) -> np.ndarray:
        """The lengths of lines along the axes through a point inside; NaN for one that does not end on both sides."""
        lengths = self._ends(point).sum(axis=0)
        return np.where(np.isfinite(lengths), lengths, np.nan)

    def units(self, point: np.ndarray) -> np.ndarray:
        """The body's chords through a point inside; where one has no end, what makes the faces' entries alike.

        The point may be anywhere along such a line, so its distance from the faces tells nothing; :meth:`near` says
        where else it may be.
        """
        chords = self.chords(point)
        open_ended = np.isnan(chords)
        known = np.where(open_ended, 1.0, chords)
        return known * np.where(open_ended, _balanced(self.normals * known, open_ended), 1.0)

    def near(self, point: np.ndarray, units: np.ndarray) -> np.ndarray:
        """A point inside that is at most a unit from the end of each line along an axis that ends on one side alone."""
        for axis, unit in enumerate(units):
            ahead, behind = self._ends(point)[:, axis]
            end, step = (ahead, 1.0) if ahead < behind else (behind, -1.0)
            if unit < end < inf == max(ahead, behind):
                point = point + step * (end - unit) * np.eye(self.dimension)[axis]
        return point

    def _ends(self, point: np.ndarray) -> np.ndarray:
        """How far lines along the axes go from a point inside, (2, d): forward and backward; infinite without end."""
        slack, sides = self._slack(point)[:, None], np.stack([self.normals, -self.normals])
        return np.divide(slack, sides, where=sides > 0, out=np.full_like(sides, inf)).min(axis=1, initial=inf)

    def seen(self, centre: np.ndarray, sizes: np.ndarray) -> "View":
        """The same faces in other coordinates, given in these ones."""
        view = _unit_faces(self.normals * sizes, self.offsets - self.normals @ centre)
        faces, middle = self.faces[view.faces], self.outside(centre)
        return replace(view, faces=faces, centre=middle, sizes=self.sizes * sizes)

    def from_typical_distance(self) -> "View":
        """The same with the typical distance of the faces as the unit, their lower median."""
        reach = np.abs(self.offsets[self.offsets != 0])
        unit = float(np.sort(reach)[(len(reach) - 1) // 2]) if reach.size else 1.0
        return replace(self, offsets=self.offsets / unit, sizes=self.sizes * unit)

    def _slack(self, point: np.ndarray) -> np.ndarray:
        return self.offsets - self.normals @ point


def own_view(normals: np.ndarray, offsets: np.ndarray) -> View:
    """Return the faces in coordinates in which the body's chords along all axes are about as long as the unit.

    Where a chord has no end, :meth:`View.units` says what the unit is. If they are so within a factor of 1024 in the
    given coordinates, these are kept, in one unit: the faces' typical distance. The search for a point inside, through
    which chords can be measured, is repeated in several units.
    """
    given = _in_a_common_range(normals, offsets).from_typical_distance()
    sizes = _intercepts(given)
    apart = _spread(sizes) > _ALIKE
    used = given.normals != 0
    small = bool(used.any()) and np.abs(given.normals[used]).min() < _SMALL
    far = np.abs(given.offsets).max(initial=0.0) > _ALIKE  # the body may be much larger than the unit
    if given.dimension == 1 or not (apart or small or far):
        return given
    terms = np.abs(given.normals) * sizes
    clear = np.where(terms > _NOISE * terms.max(axis=1, keepdims=True), given.normals, 0.0)
    noiseless = replace(given, normals=clear)
    middle = np.zeros(given.dimension)
    for start in _starts(noiseless, sizes):
        view = noiseless.seen(middle, start).from_typical_distance()
        for _ in range(_ROUNDS):
            point = view.middle()
            if point is None:
                break
            units = view.units(point)
            if _spread(np.r_[1.0, units]) <= _ALIKE:
                return view
            view = view.seen(view.near(point, units), _powers_of_two(units))
    return noiseless.seen(middle, sizes).from_typical_distance() if apart else given


def _in_a_common_range(normals: np.ndarray, offsets: np.ndarray) -> View:
    """The faces as given; if their numbers are too far apart, in units of their own in which they are not.

    The unit of a coordinate is then where the nearest face crosses its axis, as a power of two, so nothing is rounded.
    """
    given = _unit_faces(normals, offsets)
    if not _out_of_range(normals, offsets):
        return given
    crossing = (normals != 0) & (offsets != 0)[:, None]
    places = np.where(crossing, np.frexp(offsets)[1][:, None] - np.frexp(normals)[1], _NEVER)
    nearest = places.min(axis=0, initial=_NEVER)
    units = np.where(nearest == _NEVER, 0, nearest.clip(-1000, 1000))
    largest_entries = np.where(normals != 0, np.frexp(normals)[1] + units, -_NEVER).max(axis=1)
    shift = np.where(largest_entries == -_NEVER, 0, largest_entries)
    with np.errstate(over="ignore"):
        rows, bound = np.ldexp(normals, units - shift[:, None]), np.ldexp(offsets, -shift)
    view = _unit_faces(rows, bound)
    if len(view.faces) < len(given.faces) or _out_of_range(rows, bound):
        return given
    return replace(view, sizes=np.ldexp(1.0, units))


def _out_of_range(normals: np.ndarray, offsets: np.ndarray) -> bool:
    """Whether the entries of a face, or the distances of the faces, are so far apart that computing with them fails."""
    powers, used = np.frexp(normals)[1], normals != 0
    most = np.where(used, powers, -_NEVER).max(axis=1)
    least = np.where(used, powers, _NEVER).min(axis=1)
    reach = (np.frexp(offsets)[1] - most)[used.any(axis=1) & (offsets != 0)]
    return bool((most - least).max(initial=0) > _RANGE or (reach.size and np.ptp(reach) > _RANGE))


def _starts(view: View, sizes: np.ndarray) -> Iterator[np.ndarray]:
    """Units of coordinates in which there may be a point well inside."""
    yield np.ones(view.dimension)
    yield sizes
    yield _balanced(view.normals, np.ones(view.dimension, dtype=bool))


def _intercepts(view: View) -> np.ndarray:
    """Where the nearest face crosses each axis, as a power of two; 1 if none does outside of 0."""
    crossing = (view.normals != 0) & (view.offsets != 0)[:, None]
    far = np.full_like(view.normals, inf)
    with np.errstate(over="ignore"):
        places = np.divide(np.abs(view.offsets)[:, None], np.abs(view.normals), where=crossing, out=far)
    nearest = places.min(axis=0, initial=inf)
    return _powers_of_two(np.where(np.isfinite(nearest), nearest, 1.0))


def _balanced(rows: np.ndarray, free: np.ndarray) -> np.ndarray:
    """Powers of two for free columns, by which with others for rows a matrix's entries become as equal as they can.

    The geometric means of all rows and of all free columns become about 1 (Curtis and Reid 1972).
    """
    used = rows != 0
    logs = np.log2(np.abs(rows), where=used, out=np.zeros_like(rows))
    powers = [np.zeros((len(rows), 1)), np.zeros((1, rows.shape[1]))]
    for _ in range(20):
        for axis in (1, 0):
            total = np.where(used, logs + powers[axis], 0).sum(axis=axis, keepdims=True)
            powers[1 - axis] = -total / np.maximum(1, used.sum(axis=axis, keepdims=True))
            powers[1] = np.where(free, powers[1], 0.0)
    return np.exp2(np.clip(powers[1].round(), -500, 500)).ravel()


def _unit_faces(normals: np.ndarray, offsets: np.ndarray) -> View:
    """The faces that have a normal, which gets length 1."""
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        most = np.abs(normals).max(axis=1, initial=0.0)  # squares of small entries would underflow
        units = normals / most[:, None]
        length = np.linalg.norm(units, axis=1)
        distance = offsets / most / length
    faces = np.flatnonzero(np.isfinite(distance))
    nowhere = np.zeros(normals.shape[1])
    return View(faces, units[faces] / length[faces, None], distance[faces], nowhere, np.ones_like(nowhere))


def _spread(sizes: np.ndarray) -> float:
    """The ratio of the largest size to the smallest."""
    return float(sizes.max() / sizes.min())


def _powers_of_two(values: np.ndarray) -> np.ndarray:
    return np.array([2.0 ** (frexp(value)[1] - 1) for value in values.tolist()])
