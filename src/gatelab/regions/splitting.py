"""Loops that cut convex polygons along lines, compiled by Numba. Importing this module loads Numba.

One array holds the corners of all polygons, one polygon after another, counter-clockwise; ``starts`` says where each
begins. The coordinates are scaled so that all polygons lie in [−1, 1]²; a line is c₀ + c₁ s + c₂ t = 0. A corner has a
third number: the *cut* on which the side from this corner to the next one lies. A cut is the straight segment along
which one polygon was divided; the parts on its two sides, and all that is made of them later, keep its number.
"""

import numba
import numpy as np

from gatelab.regions.plane import TOUCH


@numba.njit(nogil=True, cache=True)
def _grown(array, length):
    """Return the array with room for more rows."""
    larger = np.empty((length, array.shape[1]), array.dtype)
    larger[: array.shape[0]] = array
    return larger


@numba.njit(nogil=True, cache=True)
def _sides(corners, start, stop, line, touch, side):
    """Store each corner's signed height over the line (0 on it) in ``side``; return whether the line cuts."""
    below = above = False
    for i in range(start, stop):
        height = line[0] + line[1] * corners[i, 0] + line[2] * corners[i, 1]
        if height > touch:
            above = True
        elif height < -touch:
            below = True
        else:
            height = 0.0
        side[i - start] = height
    return below and above


@numba.njit(nogil=True, cache=True)
def _keep(corners, start, stop, side, sign, cut, out, end):
    """Append the part of a polygon on one side of a line, which is cut number ``cut``; return the new end."""
    count = stop - start
    for k in range(count):
        after = k + 1 if k + 1 < count else 0
        here, there = sign * side[k], sign * side[after]
        if here >= 0:
            out[end, 0], out[end, 1] = corners[start + k, 0], corners[start + k, 1]
            out[end, 2] = cut if here == 0 and there < 0 else corners[start + k, 2]
            end += 1
        if here * there < 0:
            # Both sides start from the same end, so that both parts get the same corner, to the last bit.
            first, second = (k, after) if side[k] > 0 else (after, k)
            share = side[first] / (side[first] - side[second])
            for axis in range(2):
                a, b = corners[start + first, axis], corners[start + second, axis]
                out[end, axis] = a + share * (b - a)
            out[end, 2] = cut if here > 0 else corners[start + k, 2]
            end += 1
    return end


@numba.njit(nogil=True, cache=True)
def _halve(here, here_starts, count, line, touch, first_cut, there, there_starts, side):
    """Cut the parts of one polygon along one line, from ``here`` into ``there``; return their new number."""
    parts = end = 0
    cut = first_cut
    for part in range(count):
        first, last = here_starts[part, 0], here_starts[part + 1, 0]
        if _sides(here, first, last, line, touch, side):
            for sign in (1, -1):
                end = _keep(here, first, last, side, sign, cut, there, end)
                parts += 1
                there_starts[parts, 0] = end
            cut += 1
        else:
            there[end : end + last - first] = here[first:last]
            end += last - first
            parts += 1
            there_starts[parts, 0] = end
    return parts


@numba.njit(nogil=True, cache=True)
def _cut(polygon, lines, errors, first_cut):
    """Return the corners of one polygon's parts, one part after another, where each begins, and each cut's line."""
    here, here_starts = polygon.copy(), np.zeros((3, 1), np.int64)
    there, there_starts, side = np.empty((0, 3)), np.zeros((1, 1), np.int64), np.empty(len(polygon))
    count, here_starts[1, 0] = 1, len(polygon)
    made = np.empty((0, 1), np.int64)
    for k in range(lines.shape[0]):
        touch = TOUCH * (abs(lines[k, 1]) + abs(lines[k, 2])) + errors[k]
        if not _sides(polygon, 0, len(polygon), lines[k], touch, side):
            continue
        total = here_starts[count, 0]
        if there.shape[0] < total + 4 * count:  # a cut part gains two corners on either side
            there = _grown(there, 2 * (total + 4 * count))
        if there_starts.shape[0] < 2 * count + 1:
            there_starts = _grown(there_starts, 4 * count + 2)
        if side.shape[0] < total:
            side = np.empty(2 * total)
        before = count  # every cut makes one part more
        count = _halve(here, here_starts, before, lines[k], touch, first_cut + before - 1, there, there_starts, side)
        here, there, here_starts, there_starts = there, here, there_starts, here_starts
        if made.shape[0] < count:
            made = _grown(made, 2 * count)
        made[before - 1 : count - 1, 0] = k
    return here[: here_starts[count, 0]], here_starts[: count + 1, 0], made[: count - 1, 0]


@numba.njit(nogil=True, cache=True)
def split(corners, starts, lines, errors, first_cut):
    """Cut every polygon along its own lines.

    Args:
        corners: (corners, 3), with the cuts on which their sides lie.
        starts: (polygons + 1,).
        lines: (polygons or 1, lines, 3); a single set of lines cuts all polygons.
        errors: (polygons or 1, lines): a height below this is zero.
        first_cut: the number of the first new cut.

    Returns:
        Corners and starts of the parts, the polygon that each part belongs to (parts of a polygon are neighbours), and
        the line of each cut.
    """
    polygons = starts.shape[0] - 1
    out, ends = np.empty((4 * corners.shape[0], 3)), np.zeros((2 * polygons + 1, 1), np.int64)
    parents, made = np.empty((2 * polygons + 1, 1), np.int64), np.empty((polygons, 1), np.int64)
    parts = end = 0
    for polygon in range(polygons):
        own = polygon if lines.shape[0] > 1 else 0
        cuts = parts - polygon  # so far
        cut, cut_starts, by = _cut(
            corners[starts[polygon] : starts[polygon + 1]], lines[own], errors[own], first_cut + cuts
        )
        total, count = len(cut), len(cut_starts) - 1
        if out.shape[0] < end + total:
            out = _grown(out, 2 * (end + total))
        if parents.shape[0] < parts + count + 1:
            parents = _grown(parents, 2 * (parts + count + 1))
            ends = _grown(ends, 2 * (parts + count + 1))
        if made.shape[0] < cuts + count:
            made = _grown(made, 2 * (cuts + count))
        out[end : end + total] = cut
        made[cuts : cuts + count - 1, 0] = by
        for part in range(count):
            parents[parts + part, 0] = polygon
            ends[parts + part + 1, 0] = end + cut_starts[part + 1]
        parts += count
        end += total
    return (
        out[:end].copy(), ends[: parts + 1, 0].copy(), parents[:parts, 0].copy(), made[: parts - polygons, 0].copy()
    )  # fmt: skip


@numba.njit(nogil=True, cache=True)
def locate(corners, starts, boxes, points, found):
    """Store in ``found`` the first polygon that holds each point, its border included; −1 if there is none."""
    for n in range(points.shape[0]):
        x, y = points[n, 0], points[n, 1]
        found[n] = -1
        for polygon in range(starts.shape[0] - 1):
            if x < boxes[polygon, 0] or x > boxes[polygon, 1] or y < boxes[polygon, 2] or y > boxes[polygon, 3]:
                continue
            start, stop = starts[polygon], starts[polygon + 1]
            inside = True
            for i in range(start, stop):
                j = i + 1 if i + 1 < stop else start
                across = (corners[j, 0] - corners[i, 0]) * (y - corners[i, 1])
                across -= (corners[j, 1] - corners[i, 1]) * (x - corners[i, 0])
                if across < -1e-15:
                    inside = False
                    break
            if inside:
                found[n] = polygon
                break
