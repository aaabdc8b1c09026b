"""The part of a plane that is cut into regions: a rectangle or a polygon, taken in convex parts."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from gatelab.errors import InputError
from gatelab.regions.plane import Bounds, checked_bounds

STRAIGHT = 1e-9  # a turn of less than this, in radians, is none

Box = tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class Domain:
    """A polygon without crossings, in convex parts.

    Attributes:
        box: its bounding box.
        corners: its corners in coordinates in which the box is [−1, 1]², counter-clockwise.
        parts: for each convex part the numbers of its corners, counter-clockwise. Sides that two parts share are
            *seams*; they bound nothing.
    """

    box: Box
    corners: NDArray[np.float64]
    parts: tuple[tuple[int, ...], ...]

    def seams(self) -> list[tuple[int, int]]:
        """Return the ends of the sides that two parts share, the smaller number first."""
        sides = {tuple(sorted(side)) for part in self.parts for side in _sides(part)}
        return sorted((a, b) for a, b in sides if b - a != 1 and (a, b) != (0, len(self.corners) - 1))

    def polygons(self) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Return the parts' corners, each with the number of the side to the next, and where each part begins.

        Sides of the domain come first, side k from corner k; then the seams.
        """
        count, seams = len(self.corners), {seam: place for place, seam in enumerate(self.seams())}
        rows = [
            (*self.corners[a], a if (a + 1) % count == b else count + seams[min(a, b), max(a, b)])
            for part in self.parts
            for a, b in _sides(part)
        ]
        return np.array(rows, dtype=np.float64), np.cumsum([0, *map(len, self.parts)])


def domain_of(bounds: Bounds | Float[Tensor, "corners 2"]) -> Domain:
    """Return a rectangle, given by two intervals, or a polygon, given by three or more corners.

    Raises:
        InputError: the corners are no polygon without crossings, or three in a row are on a line.
    """
    given: Any = bounds
    try:
        corners = np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError):  # no numbers, or no pairs
        corners = np.empty((0, 0))
    if corners.ndim != 2 or corners.shape[-1] != 2 or len(corners) < 3:
        box = checked_bounds(given, 2)
        return Domain(box, np.array([[-1.0, -1.0], [1.0, -1.0], [1.0, 1.0], [-1.0, 1.0]]), ((0, 1, 2, 3),))
    box = checked_bounds(np.c_[corners.min(0), corners.max(0)].tolist(), 2)
    low, high = np.array(box).T
    scaled = (corners - (low + high) / 2) / ((high - low) / 2)
    turns = _turns(scaled)
    scaled, turns = (scaled[::-1].copy(), -turns[::-1]) if turns.sum() < 0 else (scaled, turns)
    if (np.abs(turns) <= STRAIGHT).any() or abs(turns.sum() - 2 * np.pi) > 1e-6 or _crosses_itself(scaled):
        raise InputError(
            "the corners of the domain are no polygon; give three or more in order around it, no three in a row on a "
            "line, so that no side meets another but its neighbours"
        )
    if (turns > 0).all():
        return Domain(box, scaled, (tuple(range(len(scaled))),))
    return Domain(box, scaled, _joined(scaled, _triangles(scaled)))


def _sides(part: tuple[int, ...]) -> list[tuple[int, int]]:
    return list(zip(part, (*part[1:], part[0]), strict=True))


def _turns(corners: NDArray[np.float64]) -> NDArray[np.float64]:
    """The angle by which the way around a polygon turns at each corner, to the left positive."""
    before, after = corners - np.roll(corners, 1, 0), np.roll(corners, -1, 0) - corners
    return np.arctan2(before[:, 0] * after[:, 1] - before[:, 1] * after[:, 0], (before * after).sum(1))


def _left(a: NDArray[np.float64], b: NDArray[np.float64], c: NDArray[np.float64]) -> float:
    """Twice the area of a triangle, positive if it is counter-clockwise."""
    return float((b[0] - a[0]) * (c[1] - a[1]) - (b[1] - a[1]) * (c[0] - a[0]))


def _crosses_itself(corners: NDArray[np.float64]) -> bool:
    """Whether a side meets one that is not its neighbour."""
    count = len(corners)
    for i in range(count):
        for j in range(i + 2, count - (i == 0)):
            a, b, c, d = (corners[k % count] for k in (i, i + 1, j, j + 1))
            here, there = (_left(a, b, c), _left(a, b, d)), (_left(c, d, a), _left(c, d, b))
            apart = (np.maximum(a, b) < np.minimum(c, d)).any() or (np.maximum(c, d) < np.minimum(a, b)).any()
            if min(here) <= 0 <= max(here) and min(there) <= 0 <= max(there) and not apart:
                return True
    return False


def _triangles(corners: NDArray[np.float64]) -> list[tuple[int, ...]]:
    """Cut off one ear after the other: a corner whose triangle with its neighbours holds no other corner."""
    left, found = list(range(len(corners))), []
    while len(left) > 3:
        ears = [place for place in range(len(left)) if _is_ear(corners, left, place)]
        if not ears:
            raise InputError("the domain is too thin to be cut into convex parts; move its corners apart")
        # The fattest first, so that slivers are rare.
        place = max(ears, key=lambda k: _left(*(corners[left[(k + turn) % len(left)]] for turn in (-1, 0, 1))))
        found.append((left[place - 1], left[place], left[(place + 1) % len(left)]))
        del left[place]
    return [*found, tuple(left)]


def _is_ear(corners: NDArray[np.float64], left: list[int], place: int) -> bool:
    own = left[place - 1], left[place], left[(place + 1) % len(left)]
    a, b, c = (corners[k] for k in own)
    if _left(a, b, c) <= STRAIGHT**2:
        return False
    others = (corners[k] for k in left if k not in own)
    return not any(min(_left(a, b, p), _left(b, c, p), _left(c, a, p)) >= 0 for p in others)


def _joined(corners: NDArray[np.float64], parts: list[tuple[int, ...]]) -> tuple[tuple[int, ...], ...]:
    """Join parts along a common side as long as the result is convex."""
    for place, part in enumerate(parts):
        for other in range(place):
            whole = _join(parts[other], part)
            if whole is not None and (_turns(corners[list(whole)]) > STRAIGHT).all():
                rest = [own for k, own in enumerate(parts) if k not in (place, other)]
                return _joined(corners, [*rest, whole])
    return tuple(parts)


def _join(one: tuple[int, ...], other: tuple[int, ...]) -> tuple[int, ...] | None:
    """The polygon of two parts with a common side; None if they have none."""
    for a, b in _sides(one):
        if (b, a) in _sides(other):
            first, second = one.index(b), other.index(a)
            inner = (*other[second:], *other[:second])[1:-1]  # from a to b, without both
            return (*one[first:], *one[:first], *inner)
    return None
