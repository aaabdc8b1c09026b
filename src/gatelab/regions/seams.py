"""Regions of a domain with dents: what the seams between its convex parts have divided is put together again.

A seam is no gate's line, so that the gates are the same on both of its sides, and every line that reaches it goes on
behind it. A region of such a domain is a polygon without holes, not always convex.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from gatelab.regions.graph import BORDER, SEAM, Cuts


@dataclass(frozen=True)
class ConvexParts:
    """The convex polygons of which regions consist.

    Attributes:
        corners: their corners, one polygon after another, in the coordinates in which they were cut.
        starts: where each polygon's corners begin, and where the last one's end.
        region: the region of each.
        seams: both ends of each edge between two parts of a region, (edges, 2, 2).
        seam_regions: the region of each such edge.
    """

    corners: NDArray[np.float64]
    starts: NDArray[np.int64]
    region: NDArray[np.int64]
    seams: NDArray[np.float64]
    seam_regions: NDArray[np.int64]


@dataclass(frozen=True)
class Mended:
    """Regions that no seam divides.

    Attributes:
        corners: their corners, one region after another, counter-clockwise.
        starts: where each region's corners begin, and where the last one's end.
        cuts: where their sides come from.
        first: for each region the number of one of its convex parts.
        parts: the convex parts.
    """

    corners: NDArray[np.float64]
    starts: NDArray[np.int64]
    cuts: Cuts
    first: NDArray[np.int64]
    parts: ConvexParts


@dataclass(frozen=True)
class _Edges:
    """Edges between convex parts: the parts on the left and right (−1: none), the cut, the vertices at both ends."""

    left: NDArray[np.int64]
    right: NDArray[np.int64]
    cut: NDArray[np.int64]
    begin: NDArray[np.int64]
    end: NDArray[np.int64]


def mended(
    corners: NDArray[np.float64],
    starts: NDArray[np.int64],
    states: Sequence[NDArray[Any]],
    cuts: Cuts,
    *,
    one_to_one: bool,
) -> Mended:
    """Put convex polygons together along seams.

    Args:
        corners: the polygons' corners.
        starts: where each polygon's corners begin.
        states: for each layer of gates the states of each polygon, one row for each.
        cuts: the cuts on which the polygons' sides lie.
        one_to_one: whether each line that reaches a cut continues behind it.
    """
    loops: Any = import_module("gatelab.regions.joining")
    borders = int((cuts.layer == BORDER).sum())
    found, vertex = loops.neighbours(np.c_[corners, cuts.sides], starts, len(cuts.layer), borders, one_to_one)
    edges = _Edges(*found[:, :3].T, *vertex[found[:, 3:]].T)
    on_seam = (cuts.layer[edges.cut] == SEAM) & (edges.right >= 0)
    inner = on_seam & _alike(states, edges)
    number = len(starts) - 1
    links = coo_array(
        (np.ones(int(inner.sum()), bool), (edges.left[inner], edges.right[inner])), shape=(number, number)
    )
    region = connected_components(links, directed=False)[1].astype(np.int64)
    cut, layer, unit = _labels(states, edges, cuts, on_seam & ~inner)
    kept = _Edges(edges.left[~inner], edges.right[~inner], cut[~inner], edges.begin[~inner], edges.end[~inner])
    passed = _passed(kept, np.unique(np.r_[edges.begin[inner], edges.end[inner]]), layer, unit)
    same = _continued(kept, passed, len(layer))
    outline, sides, ends = _outlines(kept, region, passed)
    seams = corners[np.stack([edges.begin[inner], edges.end[inner]], 1)]
    return Mended(
        corners[outline],
        ends,
        Cuts(same[sides], layer, unit),
        np.unique(region, return_index=True)[1],
        ConvexParts(corners, starts, region, seams, region[edges.left[inner]]),
    )


def _components(pairs: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """The component of each of some things, of which pairs are linked."""
    links = coo_array((np.ones(len(pairs), bool), (pairs[:, 0], pairs[:, 1])), shape=(count, count))
    return connected_components(links, directed=False)[1].astype(np.int64)


def _alike(states: Sequence[NDArray[Any]], edges: _Edges) -> NDArray[np.bool_]:
    """Whether the gates on both sides of each edge are the same."""
    alike = np.ones(len(edges.left), bool)
    for state in states:
        alike &= (state[edges.left] == state[edges.right]).all(1)
    return alike


def _labels(
    states: Sequence[NDArray[Any]], edges: _Edges, cuts: Cuts, chosen: NDArray[np.bool_]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Each edge's cut, and each cut's layer and unit; where lines run along a seam, those of the first gate there."""
    cut, made = edges.cut.copy(), dict[tuple[int, int, int], int]()
    for edge in np.flatnonzero(chosen).tolist():
        for level, state in enumerate(states):
            differ = np.flatnonzero(state[edges.left[edge]] != state[edges.right[edge]])
            if len(differ):
                key = int(edges.cut[edge]), level, int(differ[0])
                cut[edge] = made.setdefault(key, len(cuts.layer) + len(made))
                break
    more = np.array([(level, unit) for _, level, unit in made], np.int64).reshape(-1, 2)
    return cut, np.r_[cuts.layer, more[:, 0]], np.r_[cuts.unit, more[:, 1]]


def _passed(
    edges: _Edges, vertices: NDArray[np.int64], layer: NDArray[np.int64], unit: NDArray[np.int64]
) -> dict[int, tuple[int, int]]:
    """The vertices on seams that only one line passes, with the two edges that meet there."""
    around: dict[int, list[int]] = {int(vertex): [] for vertex in vertices}
    for ends in (edges.begin, edges.end):
        for edge in np.flatnonzero(np.isin(ends, vertices)).tolist():
            around[int(ends[edge])].append(edge)
    found = {}
    for vertex, own in around.items():
        made = {(int(layer[edges.cut[edge]]), int(unit[edges.cut[edge]])) for edge in own}
        if len(own) == 2 and len(made) == 1 and next(iter(made))[0] >= 0:
            found[vertex] = (own[0], own[1])
    return found


def _continued(edges: _Edges, passed: dict[int, tuple[int, int]], cuts: int) -> NDArray[np.int64]:
    """For each cut the first of those that continue each other across a seam."""
    pairs = np.array([edges.cut[list(two)] for two in passed.values()], np.int64).reshape(-1, 2)
    label = _components(pairs, cuts)
    return np.unique(label, return_index=True)[1][label]


def _outlines(
    edges: _Edges, region: NDArray[np.int64], passed: dict[int, tuple[int, int]]
) -> tuple[list[int], NDArray[np.int64], NDArray[np.int64]]:
    """The vertices around each region, the cut of the side from each vertex to the next, and where regions begin."""
    after: list[dict[int, tuple[int, int]]] = [{} for _ in range(int(region.max()) + 1)]
    ways = ((edges.left, edges.begin, edges.end), (edges.right, edges.end, edges.begin))
    for parts, begin, end in ways:
        for part, here, there, cut in zip(*(own.tolist() for own in (parts, begin, end, edges.cut)), strict=True):
            if part >= 0:
                after[region[part]][here] = (there, cut)
    outline, sides, ends = [], [], [0]
    for way in after:
        first = here = next(iter(way))
        while True:
            there, cut = way[here]
            if here not in passed:
                outline.append(here)
                sides.append(cut)
            here = there
            if here == first:
                break
        ends.append(len(outline))
    return outline, np.array(sides, np.int64), np.array(ends, np.int64)
