"""Loops that cut convex polygons along lines, compiled by Numba. Importing this module loads Numba.

One array holds the corners of all polygons, one polygon after another, counter-clockwise; ``starts`` says where each
begins. The coordinates are scaled so that all polygons lie in [−1, 1]²; a line is c₀ + c₁ s + c₂ t = 0. A corner has a
third number: the *cut* on which the side from this corner to the next one lies. A cut is the straight segment along
which one polygon was divided; the parts on its two sides, and all that is made of them later, keep its number.

The lines of one polygon, or of all of them, are an array (3, lines): their constants, then their slopes.

A height over a line is known to ± error. If that is worse than TOUCH and the height may be zero, the polygon is in
doubt: the caller finds better lines for it.
"""

import numba
import numpy as np

from gatelab.regions.plane import TOUCH

IN_DOUBT = 2  # added to the answer of sides


@numba.njit(nogil=True, cache=True)
def grown(array, length):
    """Return the array with room for more rows."""
    larger = np.empty((length, array.shape[1]), array.dtype)
    larger[: array.shape[0]] = array
    return larger


@numba.njit(nogil=True, cache=True)
def opposite(here, there):
    """Whether one number is positive and the other negative; their product may underflow."""
    return (here < 0 and there > 0) or (here > 0 and there < 0)


@numba.njit(nogil=True, cache=True)
def sides(corners, start, stop, line, error, side):
    """Store each corner's signed height over the line (0 on it) in ``side``.

    Returns:
        1 if the line cuts, 0 if not; plus IN_DOUBT if a height that was taken for zero may be another one.
    """
    near = TOUCH * (abs(line[1]) + abs(line[2]))
    touch = near + error
    below = above = touched = False
    for i in range(start, stop):
        height = line[0] + line[1] * corners[i, 0] + line[2] * corners[i, 1]
        if height > touch:
            above = True
        elif height < -touch:
            below = True
        else:
            touched = True
            height = 0.0
        side[i - start] = height
    return (1 if below and above else 0) + (IN_DOUBT if touched and error > near else 0)


@numba.njit(nogil=True, cache=True)
def keep(corners, start, stop, side, sign, cut, out, end):
    """Append the part of a polygon on one side of a line, which is cut number ``cut``; return the new end."""
    count = stop - start
    for k in range(count):
        after = k + 1 if k + 1 < count else 0
        here, there = sign * side[k], sign * side[after]
        if here >= 0:
            out[end, 0], out[end, 1] = corners[start + k, 0], corners[start + k, 1]
            out[end, 2] = cut if here == 0 and there < 0 else corners[start + k, 2]
            end += 1
        if opposite(here, there):
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
def _halve(here, here_starts, count, line, error, first_cut, there, there_starts, side):
    """Cut the parts of one polygon along one line, from ``here`` into ``there``.

    Returns:
        Their new number, and whether a part is in doubt.
    """
    parts = end = 0
    cut, doubt = first_cut, False
    for part in range(count):
        first, last = here_starts[part, 0], here_starts[part + 1, 0]
        answer = sides(here, first, last, line, error, side)
        doubt = doubt or answer >= IN_DOUBT
        if answer % IN_DOUBT:
            for sign in (1, -1):
                end = keep(here, first, last, side, sign, cut, there, end)
                parts += 1
                there_starts[parts, 0] = end
            cut += 1
        else:
            there[end : end + last - first] = here[first:last]
            end += last - first
            parts += 1
            there_starts[parts, 0] = end
    return parts, doubt


@numba.njit(nogil=True, cache=True)
def _survey(corners, start, stop, lines, errors, low, high, above):
    """Return the lines that do not clearly pass a polygon by.

    Args:
        corners: (corners, 3).
        start: where the polygon's corners begin.
        stop: where they end.
        lines: (3, lines).
        errors: (lines,).
        low: (lines,), receives each line's lowest height over the polygon's corners; to be used before the next call.
        high: (lines,), the same for the highest.
        above: (lines,), receives whether the polygon lies above each line that passes it by.
    """
    units = lines.shape[1]
    constant, first, second = lines[0], lines[1], lines[2]
    for k in range(units):
        low[k], high[k] = np.inf, -np.inf
    for i in range(start, stop):
        x, y = corners[i, 0], corners[i, 1]
        for k in range(units):
            height = constant[k] + first[k] * x + second[k] * y
            low[k] = min(low[k], height)
            high[k] = max(high[k], height)
    close = 0
    for k in range(units):
        touch = TOUCH * (abs(first[k]) + abs(second[k])) + errors[k]
        low[k] -= touch
        high[k] += touch
        above[k] = low[k] > 0
        close += low[k] <= 0 <= high[k]
    found = np.empty(close, np.int64)
    close = 0
    for k in range(units if len(found) else 0):
        if low[k] <= 0 <= high[k]:
            found[close] = k
            close += 1
    return found


@numba.njit(nogil=True, cache=True)
def _crossing(corners, start, stop, lines, errors, close, above, side):
    """Return which of some lines cut a polygon, and whether it is in doubt; decide on which side it is of the others.

    A polygon that touches a line from above counts as above it. If all its corners are on the line, its middle decides.
    """
    found, count, doubt, line = np.empty(len(close), np.int64), 0, False, np.empty(3)
    for k in close:
        line[:] = lines[:, k]
        answer = sides(corners, start, stop, line, errors[k], side)
        doubt = doubt or answer >= IN_DOUBT
        if answer % IN_DOUBT:
            found[count] = k
            count += 1
            continue
        highest, lowest = side[: stop - start].max(), side[: stop - start].min()
        x, y = middle(corners, start, stop)
        on_it = lowest == 0 and highest == 0
        above[k] = line[0] + line[1] * x + line[2] * y > errors[k] if on_it else highest > 0
    return found[:count], doubt


@numba.njit(nogil=True, cache=True)
def _cut(polygon, lines, errors, crossing, first_cut):
    """Return the corners of one polygon's parts, where each begins, each cut's line, and whether there is doubt."""
    here, here_starts = polygon.copy(), np.zeros((3, 1), np.int64)
    there, there_starts, side = np.empty((0, 3)), np.zeros((1, 1), np.int64), np.empty(len(polygon))
    count, here_starts[1, 0] = 1, len(polygon)
    made, doubt, line = np.empty((len(crossing), 1), np.int64), False, np.empty(3)
    for k in crossing:
        line[:] = lines[:, k]
        total = here_starts[count, 0]
        if there.shape[0] < total + 4 * count:  # a cut part gains two corners on either side
            there = grown(there, 2 * (total + 4 * count))
        if there_starts.shape[0] < 2 * count + 1:
            there_starts = grown(there_starts, 4 * count + 2)
        if side.shape[0] < total:
            side = np.empty(2 * total)
        before, cut = count, first_cut + count - 1  # every cut makes one part more
        count, unsure = _halve(here, here_starts, before, line, errors[k], cut, there, there_starts, side)
        doubt = doubt or unsure
        here, there, here_starts, there_starts = there, here, there_starts, here_starts
        if made.shape[0] < count:
            made = grown(made, 2 * count)
        made[before - 1 : count - 1, 0] = k
    return here[: here_starts[count, 0]], here_starts[: count + 1, 0], made[: count - 1, 0], doubt


@numba.njit(nogil=True, cache=True)
def split(corners, starts, lines, errors, first_cut):
    """Cut every polygon along its own lines.

    Args:
        corners: (corners, 3), with the cuts on which their sides lie.
        starts: (polygons + 1,).
        lines: (polygons or 1, 3, lines); a single set of lines cuts all polygons.
        errors: (polygons or 1, lines): the heights are known to this much.
        first_cut: the number of the first new cut.

    Returns:
        Corners and starts of the parts, the polygon that each part belongs to (parts of a polygon are neighbours), the
        line of each cut, whether each polygon is in doubt, and (parts, lines) whether each part lies above each line.
    """
    polygons, units = starts.shape[0] - 1, lines.shape[2]
    out, ends = np.empty((4 * corners.shape[0], 3)), np.zeros((2 * polygons + 1, 1), np.int64)
    parents, made = np.empty((2 * polygons + 1, 1), np.int64), np.empty((polygons, 1), np.int64)
    above, doubts = np.empty((2 * polygons, units), np.bool_), np.zeros(polygons, np.bool_)
    low, high, row = np.empty(units), np.empty(units), np.empty(units, np.bool_)
    side = np.empty(np.diff(starts).max())
    parts = end = cuts = 0
    for polygon in range(polygons):
        own, error = lines[polygon if lines.shape[0] > 1 else 0], errors[polygon if errors.shape[0] > 1 else 0]
        start, stop = starts[polygon], starts[polygon + 1]
        close = _survey(corners, start, stop, own, error, low, high, row)
        crossing, doubt = _crossing(corners, start, stop, own, error, close, row, side)
        total, count = stop - start, 1
        cut, cut_starts = corners[start:stop], starts[:2]
        if len(crossing):
            cut, cut_starts, by, unsure = _cut(corners[start:stop], own, error, crossing, first_cut + cuts)
            doubt, total, count = doubt or unsure, len(cut), len(cut_starts) - 1
            if made.shape[0] < cuts + len(by):
                made = grown(made, 2 * (cuts + len(by)))
            made[cuts : cuts + len(by), 0] = by
            cuts += len(by)
        doubts[polygon] = doubt
        if out.shape[0] < end + total:
            out = grown(out, 2 * (end + total))
        if above.shape[0] < parts + count:
            above = grown(above, 2 * (parts + count))
            parents = grown(parents, 2 * (parts + count) + 1)
            ends = grown(ends, 2 * (parts + count) + 1)
        out[end : end + total] = cut
        for part in range(count):
            parents[parts + part, 0] = polygon
            ends[parts + part + 1, 0] = end + (cut_starts[part + 1] if len(crossing) else total)
            above[parts + part] = row
            x, y = middle(out, ends[parts + part, 0], ends[parts + part + 1, 0])
            for k in crossing:
                above[parts + part, k] = own[0, k] + own[1, k] * x + own[2, k] * y > error[k]
        parts += count
        end += total
    return (
        out[:end].copy(), ends[: parts + 1, 0].copy(), parents[:parts, 0].copy(), made[:cuts, 0].copy(), doubts,
        above[:parts].copy(),
    )  # fmt: skip


@numba.njit(nogil=True, cache=True)
def middle(corners, start, stop):
    """Return the mean of a polygon's corners."""
    x = y = 0.0
    for i in range(start, stop):
        x += corners[i, 0]
        y += corners[i, 1]
    return x / (stop - start), y / (stop - start)


@numba.njit(nogil=True, cache=True)
def _depth(corners, start, stop, x, y, least):
    """How far inside a polygon a point lies: its distance from the nearest side; any smaller number if below least."""
    depth = np.inf
    for i in range(start, stop):
        j = i + 1 if i + 1 < stop else start
        right, up = corners[j, 0] - corners[i, 0], corners[j, 1] - corners[i, 1]
        length = np.sqrt(right * right + up * up)
        if length > 0:
            depth = min(depth, (right * (y - corners[i, 1]) - up * (x - corners[i, 0])) / length)
        if depth < least:
            break
    return depth


@numba.njit(nogil=True, cache=True)
def locate(corners, starts, boxes, points, rounding, found):
    """Store in ``found`` the polygon in which each point lies deepest; −1 if there is none.

    Args:
        corners: (corners, 2).
        starts: (polygons + 1,).
        boxes: (polygons, 4), low and high of each polygon's coordinates, with room for the rounding.
        points: (points, 2).
        rounding: how far off a corner may be. A point this far outside all polygons counts as inside, and polygons
            overlap by no more, so that a point deeper inside one than that is in no other.
        found: (points,).
    """
    for n in range(points.shape[0]):
        x, y = points[n, 0], points[n, 1]
        found[n], deepest = -1, -rounding
        for polygon in range(starts.shape[0] - 1):
            own = boxes[polygon]
            if not (own[0] <= x <= own[1] and own[2] <= y <= own[3]):  # NaN is in none
                continue
            depth = _depth(corners, starts[polygon], starts[polygon + 1], x, y, deepest)
            if depth > deepest:
                found[n], deepest = polygon, depth
            if depth > rounding:
                break
