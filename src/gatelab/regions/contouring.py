"""Loops that find where the highest of several affine functions changes, compiled by Numba. Importing this loads Numba.

Polygons are given by their corners, one polygon after another, counter-clockwise, and by where each begins. Functions
that differ by no more than their *noise* are equal; of equal functions the first one counts as the highest, as in
``argmax``. So a change lies either inside a polygon, where the difference of two functions has both signs, or on a side
along which they are equal (:func:`jumps`): rounding does not decide which of the two.
"""

import numba
import numpy as np

from gatelab.regions.splitting import opposite


@numba.njit(nogil=True, cache=True)
def _stacked(pieces, owners, classes):
    ends, regions = np.empty((len(pieces), 2, 2)), np.empty((len(pieces), 2), np.int64)
    sides = np.empty((len(pieces), 2), np.int64)
    for n in range(len(pieces)):
        ends[n], regions[n], sides[n] = pieces[n], owners[n], classes[n]
    return ends, regions, sides


@numba.njit(nogil=True, cache=True)
def contours(corners, starts, maps, noise):
    """Return where the highest of a polygon's affine functions changes, within each polygon.

    Args:
        corners: (corners, 2).
        starts: (polygons + 1,).
        maps: (polygons, functions, 3).
        noise: (polygons, functions).

    Returns:
        Both ends of each piece, its polygon (twice), the functions that are the highest on its left and right; and
        whether two functions are equal along a side of a polygon, so that the highest one may change there.
    """
    pieces, owners, classes = [np.empty((2, 2))][:0], [np.empty(2, np.int64)][:0], [np.empty(2, np.int64)][:0]
    functions, on_sides = maps.shape[1], False
    for polygon in range(starts.shape[0] - 1):
        start, stop = starts[polygon], starts[polygon + 1]
        if _one_is_highest(corners, start, stop, maps[polygon], noise[polygon]):
            continue
        heights = np.empty((stop - start, functions))
        for i in range(start, stop):
            for a in range(functions):
                heights[i - start, a] = _height(maps[polygon, a], corners[i])
        for a in range(functions):
            for b in range(a):
                _contour(
                    corners[start:stop], heights, maps[polygon], noise[polygon], a, b, polygon, pieces, owners, classes
                )
                on_sides = on_sides or _equal_on_a_side(heights, noise[polygon], a, b)
    return _stacked(pieces, owners, classes), on_sides


@numba.njit(nogil=True, cache=True)
def _height(function, point):
    return function[0] + function[1] * point[0] + function[2] * point[1]


@numba.njit(nogil=True, cache=True)
def _one_is_highest(corners, start, stop, functions, noise):
    """Whether the same function is the highest at all corners, by more than the noise."""
    least = 2 * noise.max()
    first = -1
    for i in range(start, stop):
        best, at, second = -1, -np.inf, -np.inf
        for a in range(functions.shape[0]):
            height = _height(functions[a], corners[i])
            if height > at:
                best, at, second = a, height, at
            elif height > second:
                second = height
        first = best if first < 0 else first
        if best != first or not at - second > least:
            return False
    return True


@numba.njit(nogil=True, cache=True)
def _settled(difference, noise):
    """A difference of two functions, 0 if it is noise."""
    return 0.0 if abs(difference) <= noise else difference


@numba.njit(nogil=True, cache=True)
def _equal_on_a_side(heights, noise, a, b):
    """Whether a and b are equal at both ends of a side, not in the whole polygon, and no other function hides them."""
    count, least, equal = len(heights), noise[a] + noise[b], 0
    for i in range(count):
        equal += abs(heights[i, a] - heights[i, b]) <= least
    if equal < 2 or equal == count:
        return False
    for i in range(count):
        j = (i + 1) % count
        if abs(heights[i, a] - heights[i, b]) > least or abs(heights[j, a] - heights[j, b]) > least:
            continue
        hidden = False
        for other in range(heights.shape[1]):
            above = noise[a] + noise[other]
            hidden |= heights[i, other] - heights[i, a] > above and heights[j, other] - heights[j, a] > above
        if not hidden:
            return True
    return False


@numba.njit(nogil=True, cache=True)
def _contour(corners, heights, functions, noise, a, b, polygon, pieces, owners, classes):
    """Append the piece of the line on which functions a and b are equal where no other function is higher."""
    differences = np.empty(len(corners))
    for i in range(len(corners)):
        differences[i] = _settled(heights[i, a] - heights[i, b], noise[a] + noise[b])
    if not differences.min() < 0 < differences.max():
        return
    points = _crossings(corners, differences)
    line, way = functions[a] - functions[b], points[1] - points[0]
    low, high = _visible(points, functions, noise, a, b)
    if high - low <= 0 or (way[0] == 0 and way[1] == 0):
        return
    piece = np.empty((2, 2))
    piece[0], piece[1] = points[0] + low * way, points[0] + high * way
    # The slope of a − b points to where a is higher; a is on the left if it points to the left of the way.
    leftward = way[0] * line[2] - way[1] * line[1]
    pieces.append(piece)
    owners.append(np.array([polygon, polygon]))
    classes.append(np.array([a, b]) if leftward > 0 else np.array([b, a]))


@numba.njit(nogil=True, cache=True)
def _crossings(corners, differences):
    """The two points of a polygon's border at which a function with both signs is zero."""
    points, found, count = np.empty((2, 2)), 0, len(corners)
    for i in range(count):
        j = i + 1 if i + 1 < count else 0
        here, there = differences[i], differences[j]
        if here != 0 and not opposite(here, there):
            continue
        point = corners[i] + here / (here - there) * (corners[j] - corners[i]) if here != 0 else corners[i]
        if found < 2:
            points[found] = point
            found += 1
        elif np.abs(point - points[0]).sum() > np.abs(points[1] - points[0]).sum():
            points[1] = point  # the line passes two corners that almost coincide
    return points


@numba.njit(nogil=True, cache=True)
def _visible(points, functions, noise, a, b):
    """The part of a piece, from 0 to 1, where no function is higher than a and b, which are equal on it."""
    low, high = 0.0, 1.0
    for other in range(functions.shape[0]):
        if other in (a, b):
            continue
        least = noise[a] + noise[other]
        here = _settled(_height(functions[a], points[0]) - _height(functions[other], points[0]), least)
        there = _settled(_height(functions[a], points[1]) - _height(functions[other], points[1]), least)
        if here == 0 and there == 0:
            if not _between(functions, a, b, other):
                return 0.0, 0.0
        elif here <= 0 and there <= 0:
            return 0.0, 0.0
        elif here < 0:
            low = max(low, here / (here - there))
        elif there < 0:
            high = min(high, here / (here - there))
    return low, high


@numba.njit(nogil=True, cache=True)
def _between(functions, a, b, other):
    """Whether, of three functions that are equal on a line, a is the highest on its side of it and b on the other."""
    across = functions[a] - functions[b]  # its slope points to a's side
    across[0] = 0.0
    across /= np.abs(across).max()  # products with small or large slopes would underflow or overflow
    own, opposite, rival = (
        (functions[a] * across).sum(),
        (functions[b] * across).sum(),
        (functions[other] * across).sum(),
    )
    least = 1e-9 * (own - opposite)
    wins = own - rival > least or (own - rival >= -least and a < other)
    return wins and (rival - opposite > least or (rival - opposite >= -least and b < other))


@numba.njit(nogil=True, cache=True)
def _breaks(low, high, noise, breaks):
    """Append to ``breaks`` the places along a segment, from 0 to 1, where two functions are equal."""
    for a in range(len(low)):
        for b in range(a):
            here = _settled(low[a] - low[b], noise[a] + noise[b])
            there = _settled(high[a] - high[b], noise[a] + noise[b])
            if opposite(here, there):
                breaks.append(here / (here - there))


@numba.njit(nogil=True, cache=True)
def _highest(heights, rises, noise):
    """The function that is the highest beside an edge: of those that are equal on it, the one that rises most."""
    top, best = heights.argmax(), -1
    for a in range(len(heights)):
        if heights[top] - heights[a] > noise[top] + noise[a]:
            continue
        if best < 0 or rises[a] - rises[best] > noise[a] + noise[best]:
            best = a
    return best


@numba.njit(nogil=True, cache=True)
def jumps(ends, pairs, heights, rises, noise):
    """Return the parts of edges on whose two sides different functions are the highest.

    Args:
        ends: (edges, 2, 2).
        pairs: (edges, 2), the polygons on the left and right.
        heights: (edges, sides, ends, functions), the functions of both polygons at the edge's ends.
        rises: (edges, sides, functions), how much they rise away from the edge, to either side.
        noise: (edges, sides, functions).

    Returns:
        The pieces, as :func:`contours`.
    """
    pieces, owners, classes = [np.empty((2, 2))][:0], [np.empty(2, np.int64)][:0], [np.empty(2, np.int64)][:0]
    for edge in range(ends.shape[0]):
        breaks = [0.0, 1.0]
        for side in range(2):
            _breaks(heights[edge, side, 0], heights[edge, side, 1], noise[edge, side], breaks)
        breaks.sort()
        for n in range(len(breaks) - 1):
            low, high = breaks[n], breaks[n + 1]
            if high - low <= 1e-9:
                continue
            best = np.empty(2, np.int64)
            for side in range(2):
                middle = heights[edge, side, 0] + (low + high) / 2 * (heights[edge, side, 1] - heights[edge, side, 0])
                best[side] = _highest(middle, rises[edge, side], noise[edge, side])
            if best[0] != best[1]:
                way = ends[edge, 1] - ends[edge, 0]
                piece = np.empty((2, 2))
                piece[0], piece[1] = ends[edge, 0] + low * way, ends[edge, 0] + high * way
                pieces.append(piece)
                owners.append(pairs[edge].copy())
                classes.append(best)
    return _stacked(pieces, owners, classes)
