"""Loops that cut convex polygons along lines, compiled by Numba. Importing this module loads Numba.

One array holds the corners of all polygons, one polygon after another, counter-clockwise; ``starts`` says where each
begins. The coordinates are scaled so that all polygons lie in [−1, 1]²; a line is c₀ + c₁ s + c₂ t = 0. A corner has a
third number: the *cut* on which the side from this corner to the next one lies. A cut is the straight segment along
which one polygon was divided; the parts on its two sides, and all that is made of them later, keep its number.

A height over a line is known to ± error. If that is worse than TOUCH and the height may be zero, the polygon is in
doubt: the caller finds better lines for it.
"""

import numba
import numpy as np

from gatelab.regions.plane import TOUCH

IN_DOUBT = 2  # added to the answer of _sides


@numba.njit(nogil=True, cache=True)
def _grown(array, length):
    """Return the array with room for more rows."""
    larger = np.empty((length, array.shape[1]), array.dtype)
    larger[: array.shape[0]] = array
    return larger


@numba.njit(nogil=True, cache=True)
def _sides(corners, start, stop, line, error, side):
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
def _halve(here, here_starts, count, line, error, first_cut, there, there_starts, side):
    """Cut the parts of one polygon along one line, from ``here`` into ``there``.

    Returns:
        Their new number, and whether a part is in doubt.
    """
    parts = end = 0
    cut, doubt = first_cut, False
    for part in range(count):
        first, last = here_starts[part, 0], here_starts[part + 1, 0]
        answer = _sides(here, first, last, line, error, side)
        doubt = doubt or answer >= IN_DOUBT
        if answer % IN_DOUBT:
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
    return parts, doubt


@numba.njit(nogil=True, cache=True)
def _cut(polygon, lines, errors, first_cut):
    """Return the corners of one polygon's parts, where each begins, each cut's line, and whether there is doubt."""
    here, here_starts = polygon.copy(), np.zeros((3, 1), np.int64)
    there, there_starts, side = np.empty((0, 3)), np.zeros((1, 1), np.int64), np.empty(len(polygon))
    count, here_starts[1, 0] = 1, len(polygon)
    made, doubt = np.empty((0, 1), np.int64), False
    for k in range(lines.shape[0]):
        answer = _sides(polygon, 0, len(polygon), lines[k], errors[k], side)
        doubt = doubt or answer >= IN_DOUBT
        if answer % IN_DOUBT == 0:
            continue
        total = here_starts[count, 0]
        if there.shape[0] < total + 4 * count:  # a cut part gains two corners on either side
            there = _grown(there, 2 * (total + 4 * count))
        if there_starts.shape[0] < 2 * count + 1:
            there_starts = _grown(there_starts, 4 * count + 2)
        if side.shape[0] < total:
            side = np.empty(2 * total)
        before, cut = count, first_cut + count - 1  # every cut makes one part more
        count, unsure = _halve(here, here_starts, before, lines[k], errors[k], cut, there, there_starts, side)
        doubt = doubt or unsure
        here, there, here_starts, there_starts = there, here, there_starts, here_starts
        if made.shape[0] < count:
            made = _grown(made, 2 * count)
        made[before - 1 : count - 1, 0] = k
    return here[: here_starts[count, 0]], here_starts[: count + 1, 0], made[: count - 1, 0], doubt


@numba.njit(nogil=True, cache=True)
def split(corners, starts, lines, errors, windows, first_cut):
    """Cut every polygon along its own lines, or where the winner of a window changes.

    Args:
        corners: (corners, 3), with the cuts on which their sides lie.
        starts: (polygons + 1,).
        lines: (polygons or 1, lines, 3); a single set of lines cuts all polygons.
        errors: (polygons or 1, lines): the heights are known to this much.
        windows: (windows, taps), the lines that compete in each window, −1 where there is none; without windows every
            line cuts for itself.
        first_cut: the number of the first new cut.

    Returns:
        Corners and starts of the parts, the polygon that each part belongs to (parts of a polygon are neighbours), the
        line or window of each cut, and whether each polygon is in doubt.
    """
    polygons = starts.shape[0] - 1
    out, ends = np.empty((4 * corners.shape[0], 3)), np.zeros((2 * polygons + 1, 1), np.int64)
    parents, made = np.empty((2 * polygons + 1, 1), np.int64), np.empty((polygons, 1), np.int64)
    doubts = np.zeros(polygons, np.bool_)
    parts = end = cuts = 0
    for polygon in range(polygons):
        own = polygon if lines.shape[0] > 1 else 0
        whole = corners[starts[polygon] : starts[polygon + 1]]
        if windows.shape[0]:
            cut, cut_starts, by, doubt = _divide(whole, lines[own], errors[own], windows, first_cut + cuts)
        else:
            cut, cut_starts, by, doubt = _cut(whole, lines[own], errors[own], first_cut + cuts)
        doubts[polygon] = doubt
        total, count = len(cut), len(cut_starts) - 1
        if out.shape[0] < end + total:
            out = _grown(out, 2 * (end + total))
        if parents.shape[0] < parts + count + 1:
            parents = _grown(parents, 2 * (parts + count + 1))
            ends = _grown(ends, 2 * (parts + count + 1))
        if made.shape[0] < cuts + len(by):
            made = _grown(made, 2 * (cuts + len(by)))
        out[end : end + total] = cut
        made[cuts : cuts + len(by), 0] = by
        for part in range(count):
            parents[parts + part, 0] = polygon
            ends[parts + part + 1, 0] = end + cut_starts[part + 1]
        parts += count
        end += total
        cuts += len(by)
    return (
        out[:end].copy(), ends[: parts + 1, 0].copy(), parents[:parts, 0].copy(), made[:cuts, 0].copy(), doubts
    )  # fmt: skip


@numba.njit(nogil=True, cache=True)
def _winning_part(polygon, lines, errors, window, tap, pair_cuts, next_cut):
    """Return the part of a polygon where one line of a window is the highest, the next free cut, and whether in doubt.

    Of lines that are equal on all of the polygon the first is the highest.
    """
    here, there = polygon.copy(), np.empty((len(polygon) + len(window), 3))
    side, line, doubt = np.empty(len(polygon) + len(window)), np.empty(3), False
    for other in range(len(window)):
        if other == tap or window[other] < 0:
            continue
        line[:] = lines[window[tap]] - lines[window[other]]
        error = errors[window[tap]] + errors[window[other]]
        answer = _sides(here, 0, len(here), line, error, side)
        doubt = doubt or answer >= IN_DOUBT
        if answer % IN_DOUBT:
            low, high = min(tap, other), max(tap, other)
            if pair_cuts[low, high] < 0:
                pair_cuts[low, high] = next_cut
                next_cut += 1
            end = _keep(here, 0, len(here), side, 1, pair_cuts[low, high], there, 0)
            here = there[:end].copy()
        else:
            lowest, highest = side[: len(here)].min(), side[: len(here)].max()
            if lowest < 0 or (highest == 0 and other < tap):
                return here[:0], next_cut, doubt
    return here, next_cut, doubt


@numba.njit(nogil=True, cache=True)
def _divide(polygon, lines, errors, windows, first_cut):
    """Return the parts of one polygon on which every window has one winner, as :func:`_cut` does."""
    here, here_starts, count = polygon.copy(), np.zeros((2, 1), np.int64), 1
    here_starts[1, 0] = len(polygon)
    taps, next_cut, doubt = windows.shape[1], first_cut, False
    made = np.empty((0, 1), np.int64)
    pair_cuts = np.empty((taps, taps), np.int64)
    for window in range(windows.shape[0]):
        there, there_starts = np.empty((2 * len(here), 3)), np.zeros((2 * count + 1, 1), np.int64)
        parts = end = 0
        before = next_cut
        for part in range(count):
            whole = here[here_starts[part, 0] : here_starts[part + 1, 0]]
            pair_cuts[:] = -1
            for tap in range(taps):
                if windows[window, tap] < 0:
                    continue
                cell, next_cut, unsure = _winning_part(
                    whole, lines, errors, windows[window], tap, pair_cuts, next_cut
                )  # fmt: skip
                doubt = doubt or unsure
                if len(cell) < 3:
                    continue
                if there.shape[0] < end + len(cell):
                    there = _grown(there, 2 * (end + len(cell)))
                if there_starts.shape[0] < parts + 2:
                    there_starts = _grown(there_starts, 2 * parts + 2)
                there[end : end + len(cell)] = cell
                end += len(cell)
                parts += 1
                there_starts[parts, 0] = end
        here, here_starts, count = there[:end], there_starts[: parts + 1], parts
        if made.shape[0] < next_cut - first_cut:
            made = _grown(made, 2 * (next_cut - first_cut))
        made[before - first_cut : next_cut - first_cut, 0] = window
    return here, here_starts[:, 0], made[: next_cut - first_cut, 0], doubt


@numba.njit(nogil=True, cache=True)
def above(corners, starts, parents, lines, errors):
    """Return (parts, lines): whether the middle of each part lies above each line of its polygon."""
    answers = np.empty((starts.shape[0] - 1, lines.shape[1]), np.bool_)
    for part in range(starts.shape[0] - 1):
        x, y = _middle(corners, starts[part], starts[part + 1])
        own = parents[part] if lines.shape[0] > 1 else 0
        for k in range(lines.shape[1]):
            answers[part, k] = lines[own, k, 0] + lines[own, k, 1] * x + lines[own, k, 2] * y > errors[own, k]
    return answers


@numba.njit(nogil=True, cache=True)
def winners(corners, starts, parents, lines, errors, windows):
    """Return (parts, windows): the first tap of each window whose line is the highest in the middle of each part."""
    answers = np.empty((starts.shape[0] - 1, windows.shape[0]), np.int64)
    for part in range(starts.shape[0] - 1):
        x, y = _middle(corners, starts[part], starts[part + 1])
        own = parents[part] if lines.shape[0] > 1 else 0
        for window in range(windows.shape[0]):
            best, winner = -np.inf, -1
            for tap in range(windows.shape[1]):
                k = windows[window, tap]
                if k < 0:
                    continue
                height = lines[own, k, 0] + lines[own, k, 1] * x + lines[own, k, 2] * y
                if winner < 0 or height > best + errors[own, k]:
                    best, winner = height, tap
            answers[part, window] = winner
    return answers


@numba.njit(nogil=True, cache=True)
def _middle(corners, start, stop):
    x = y = 0.0
    for i in range(start, stop):
        x += corners[i, 0]
        y += corners[i, 1]
    return x / (stop - start), y / (stop - start)


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
