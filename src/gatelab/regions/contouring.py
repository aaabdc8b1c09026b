"""Loops that find where the highest of several affine functions changes, compiled by Numba. Importing this loads Numba.

Polygons are given by their corners, one polygon after another, counter-clockwise, and by where each begins.
"""

import numba
import numpy as np


@numba.njit(nogil=True, cache=True)
def _stacked(pieces, owners, classes):
    ends, regions = np.empty((len(pieces), 2, 2)), np.empty((len(pieces), 2), np.int64)
    sides = np.empty((len(pieces), 2), np.int64)
    for n in range(len(pieces)):
        ends[n], regions[n], sides[n] = pieces[n], owners[n], classes[n]
    return ends, regions, sides


@numba.njit(nogil=True, cache=True)
def _ranges(low, high, breaks):
    """Append to ``breaks`` the places along a segment, from 0 to 1, where two functions are equal."""
    for a in range(len(low)):
        for b in range(a):
            here, there = low[a] - low[b], high[a] - high[b]
            if here * there < 0:
                breaks.append(here / (here - there))


@numba.njit(nogil=True, cache=True)
def contours(corners, starts, maps):
    """Return where the highest of a polygon's affine functions changes, within each polygon.

    Args:
        corners: (corners, 2).
        starts: (polygons + 1,).
        maps: (polygons, functions, 3).

    Returns:
        Both ends of each piece, its polygon (twice), and the functions that are the highest on its left and right.
    """
    pieces, owners, classes = [np.empty((2, 2))][:0], [np.empty(2, np.int64)][:0], [np.empty(2, np.int64)][:0]
    functions = maps.shape[1]
    for polygon in range(starts.shape[0] - 1):
        start, stop = starts[polygon], starts[polygon + 1]
        same, first = True, -1
        for i in range(start, stop):
            best, at = -1, -np.inf
            for a in range(functions):
                height = maps[polygon, a, 0] + maps[polygon, a, 1] * corners[i, 0] + maps[polygon, a, 2] * corners[i, 1]
                if height > at:
                    best, at = a, height
            first = best if first < 0 else first
            same = same and best == first
        if same:
            continue
        for a in range(functions):
            for b in range(a):
                _contour(corners, start, stop, maps[polygon], a, b, polygon, pieces, owners, classes)
    return _stacked(pieces, owners, classes)


@numba.njit(nogil=True, cache=True)
def _contour(corners, start, stop, functions, a, b, polygon, pieces, owners, classes):
    """Append the piece of the line on which functions a and b are equal where no other function is higher."""
    line = functions[a] - functions[b]
    points, found = np.empty((2, 2)), 0
    for i in range(start, stop):
        j = i + 1 if i + 1 < stop else start
        here = line[0] + line[1] * corners[i, 0] + line[2] * corners[i, 1]
        there = line[0] + line[1] * corners[j, 0] + line[2] * corners[j, 1]
        if (here > 0) != (there > 0) and found < 2:
            share = here / (here - there)
            points[found, 0] = corners[i, 0] + share * (corners[j, 0] - corners[i, 0])
            points[found, 1] = corners[i, 1] + share * (corners[j, 1] - corners[i, 1])
            found += 1
    if found < 2:
        return
    low, high = 0.0, 1.0  # the part of the piece where no other function is higher
    for other in range(functions.shape[0]):
        if other in (a, b):
            continue
        rest = functions[a] - functions[other]
        here = rest[0] + rest[1] * points[0, 0] + rest[2] * points[0, 1]
        there = rest[0] + rest[1] * points[1, 0] + rest[2] * points[1, 1]
        if here < 0 and there < 0:
            return
        if here < 0:
            low = max(low, here / (here - there))
        elif there < 0:
            high = min(high, here / (here - there))
    if high - low <= 0:
        return
    piece, way = np.empty((2, 2)), points[1] - points[0]
    if way[0] == 0 and way[1] == 0:  # the functions are equal at one corner only
        return
    piece[0], piece[1] = points[0] + low * way, points[0] + high * way
    # The slope of a − b points to where a is higher; a is on the left if it points to the left of the way.
    leftward = way[0] * line[2] - way[1] * line[1]
    pieces.append(piece)
    owners.append(np.array([polygon, polygon]))
    classes.append(np.array([a, b]) if leftward > 0 else np.array([b, a]))


@numba.njit(nogil=True, cache=True)
def jumps(ends, pairs, heights):
    """Return the parts of edges on whose two sides different functions are the highest.

    Args:
        ends: (edges, 2, 2).
        pairs: (edges, 2), the polygons on the left and right.
        heights: (edges, sides, ends, functions), the functions of both polygons at the edge's ends.

    Returns:
        As :func:`contours`.
    """
    pieces, owners, classes = [np.empty((2, 2))][:0], [np.empty(2, np.int64)][:0], [np.empty(2, np.int64)][:0]
    for edge in range(ends.shape[0]):
        breaks = [0.0, 1.0]
        for side in range(2):
            _ranges(heights[edge, side, 0], heights[edge, side, 1], breaks)
        breaks.sort()
        for n in range(len(breaks) - 1):
            low, high = breaks[n], breaks[n + 1]
            if high - low <= 1e-9:
                continue
            best = np.empty(2, np.int64)
            for side in range(2):
                middle = heights[edge, side, 0] + (low + high) / 2 * (heights[edge, side, 1] - heights[edge, side, 0])
                best[side] = middle.argmax()
            if best[0] != best[1]:
                way = ends[edge, 1] - ends[edge, 0]
                piece = np.empty((2, 2))
                piece[0], piece[1] = ends[edge, 0] + low * way, ends[edge, 0] + high * way
                pieces.append(piece)
                owners.append(pairs[edge].copy())
                classes.append(best)
    return _stacked(pieces, owners, classes)
