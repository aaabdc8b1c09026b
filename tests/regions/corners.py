"""Corners of polyhedra in exact arithmetic: the points in which faces meet, with float64 entries taken as they are."""

from fractions import Fraction
from itertools import combinations

import numpy as np
from scipy.spatial import ConvexHull

from gatelab.regions import Polyhedron

Point = tuple[Fraction, ...]


def corners(polyhedron: Polyhedron) -> list[Point]:
    normals = [[Fraction(entry) for entry in row] for row in polyhedron.normals.tolist()]
    offsets = [Fraction(offset) for offset in polyhedron.offsets.tolist()]
    found: dict[Point, None] = {}
    for some in combinations(range(len(normals)), polyhedron.dimension):
        point = _meeting([[*normals[face], offsets[face]] for face in some])
        if point is not None and all(
            sum(entry * place for entry, place in zip(row, point, strict=True)) <= offset
            for row, offset in zip(normals, offsets, strict=True)
        ):
            found[point] = None
    return list(found)


def exact_box(points: list[Point]) -> np.ndarray:
    """The range of each coordinate, (d, 2)."""
    return np.array([[float(min(places)), float(max(places))] for places in zip(*points, strict=True)])


def exact_volume(points: list[Point]) -> float:
    """The volume of a bounded polyhedron, from corners that were mapped to the unit cube exactly."""
    low, high = ([end(places) for places in zip(*points, strict=True)] for end in (min, max))
    sides = [top - bottom for bottom, top in zip(low, high, strict=True)]
    unit = [[float((x - bottom) / side) for x, bottom, side in zip(point, low, sides, strict=True)] for point in points]
    return ConvexHull(np.array(unit)).volume * float(np.prod([float(side) for side in sides]))


def _meeting(rows: list[list[Fraction]]) -> Point | None:
    """The solution of a square system, which stands beside its right-hand side; None if there is not just one."""
    size = len(rows)
    for column in range(size):
        pivot = next((row for row in range(column, size) if rows[row][column] != 0), None)
        if pivot is None:
            return None
        rows[column], rows[pivot] = rows[pivot], rows[column]
        rows[column] = [entry / rows[column][column] for entry in rows[column]]
        for row in range(size):
            factor = rows[row][column]
            if row != column and factor != 0:
                rows[row] = [a - factor * b for a, b in zip(rows[row], rows[column], strict=True)]
    return tuple(row[-1] for row in rows)
