"""Convex polyhedra in three dimensions that are cut by planes.

A polyhedron is its vertices and, for each of them, the set of facets on which it lies. Two vertices are joined by an
edge if and only if they share two facets, so a cut needs no more than that.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gatelab.regions.plane import TOUCH


@dataclass(frozen=True)
class Solid:
    """A convex polyhedron.

    Attributes:
        vertices: (vertices, 3).
        facets: for each vertex the facets on which it lies, as bits.
        cuts: for each facet the number of the cut that made it.
    """

    vertices: NDArray[np.float64]
    facets: tuple[int, ...]
    cuts: tuple[int, ...]

    def heights(self, planes: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the height of each vertex over each plane c₀ + c₁ x + c₂ y + c₃ z = 0, (vertices, planes)."""
        return planes[:, 0] + self.vertices @ planes[:, 1:].T

    def of_facet(self, facet: int) -> NDArray[np.float64]:
        """Return the vertices of a facet."""
        return self.vertices[[bool(own >> facet & 1) for own in self.facets]]

    def part(self, height: NDArray[np.float64], cut: int) -> "Solid":
        """Return the part where ``height``, given at the vertices and 0 on the plane, is not negative."""
        new = len(self.cuts)
        above, below = np.flatnonzero(height > 0).tolist(), np.flatnonzero(height < 0).tolist()
        kept = np.flatnonzero(height >= 0)
        facets = [self.facets[i] | (int(height[i] == 0) << new) for i in kept.tolist()]
        ends, shared = [], []
        for i in above:
            for j in below:
                common = self.facets[i] & self.facets[j]
                if common.bit_count() >= 2:
                    ends.append((i, j))
                    shared.append(common | 1 << new)
        if ends:
            i, j = np.array(ends).T
            # From the end with the lower number, so that both parts get the same point, to the last bit.
            first, second = np.minimum(i, j), np.maximum(i, j)
            share = (height[first] / (height[first] - height[second]))[:, None]
            points = self.vertices[first] + share * (self.vertices[second] - self.vertices[first])
            vertices = np.concatenate([self.vertices[kept], points])
        else:
            vertices = self.vertices[kept]
        return _tidied(vertices, facets + shared, (*self.cuts, cut))


def _tidied(vertices: NDArray[np.float64], facets: list[int], cuts: tuple[int, ...]) -> Solid:
    """Drop the facets on which fewer than three vertices are left."""
    kept = [k for k in range(len(cuts)) if sum(own >> k & 1 for own in facets) >= 3]
    if len(kept) < len(cuts):
        facets = [sum((own >> k & 1) << place for place, k in enumerate(kept)) for own in facets]
    return Solid(vertices, tuple(facets), tuple(cuts[k] for k in kept))


def cube() -> Solid:
    """Return [−1, 1]³; its facets are cuts 0 to 5: low and high of each axis in turn."""
    signs = np.array([[x, y, z] for x in (-1.0, 1.0) for y in (-1.0, 1.0) for z in (-1.0, 1.0)])
    facets = tuple(
        sum(1 << (2 * axis + int(sign > 0)) for axis, sign in enumerate(corner)) for corner in signs.tolist()
    )
    return Solid(signs, facets, tuple(range(6)))


def sides(heights: NDArray[np.float64], plane: NDArray[np.float64], error: float) -> NDArray[np.float64]:
    """Return the heights of vertices over a plane, with 0 for those that lie on it."""
    touch = TOUCH * np.abs(plane[1:]).sum() + error
    return np.where(np.abs(heights) > touch, heights, 0.0)
