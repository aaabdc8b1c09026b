"""Loops that cut convex polygons where the winner of a max-pooling's window changes, compiled by Numba.

Importing this module loads Numba. Polygons and lines are as in ``splitting``.
"""

import numba
import numpy as np

from gatelab.regions.plane import TOUCH
from gatelab.regions.splitting import IN_DOUBT, grown, keep, middle, sides

TIED = -1  # in doubt only because lines are equal to the last bit


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
        line[:] = lines[:, window[tap]] - lines[:, window[other]]
        error = errors[window[tap]] + errors[window[other]]
        answer = sides(here, 0, len(here), line, error, side)
        doubt = doubt or answer >= IN_DOUBT
        if answer % IN_DOUBT:
            low, high = min(tap, other), max(tap, other)
            if pair_cuts[low, high] < 0:
                pair_cuts[low, high] = next_cut
                next_cut += 1
            end = keep(here, 0, len(here), side, 1, pair_cuts[low, high], there, 0)
            here = there[:end].copy()
        else:
            lowest, highest = side[: len(here)].min(), side[: len(here)].max()
            if lowest < 0 or (highest == 0 and other < tap):
                return here[:0], next_cut, doubt
    return here, next_cut, doubt


@numba.njit(nogil=True, cache=True)
def _earlier_twin(lines, window, tap):
    """Return the line of an earlier tap that is equal to the last bit; −1 if there is none."""
    k = window[tap]
    for earlier in range(tap):
        j = window[earlier]
        if j >= 0 and lines[0, j] == lines[0, k] and lines[1, j] == lines[1, k] and lines[2, j] == lines[2, k]:
            return j
    return -1


@numba.njit(nogil=True, cache=True)
def _rivals(polygon, lines, errors, windows):
    """Return the windows that have no clear winner all over a polygon.

    The highest line in the polygon's middle is compared with the others. Those that are clearly below it on the whole
    polygon win nowhere, nor do those that are equal to an earlier one to the last bit: of equal lines the first wins.

    Returns:
        The numbers of these windows; the lines that may win in each, −1 at the other taps; whether two lines are equal
        to the last bit although their errors allow a difference.
    """
    numbers, tied = np.empty(windows.shape[0], np.int64), False
    rivals = np.full(windows.shape, -1, np.int64)
    x, y = middle(polygon, 0, len(polygon))
    count = 0
    for window in range(windows.shape[0]):
        best, leader = -np.inf, -1
        for tap in range(windows.shape[1]):
            k = windows[window, tap]
            if k >= 0:
                height = lines[0, k] + lines[1, k] * x + lines[2, k] * y
                if leader < 0 or height > best:
                    best, leader = height, tap
        contested, first = False, windows[window, leader]
        for tap in range(windows.shape[1]):
            k = windows[window, tap]
            if k < 0 or tap == leader:
                continue
            constant, right, up = (
                lines[0, first] - lines[0, k],
                lines[1, first] - lines[1, k],
                lines[2, first] - lines[2, k],
            )
            error = errors[first] + errors[k]
            lowest = np.inf
            for i in range(len(polygon)):
                lowest = min(lowest, constant + right * polygon[i, 0] + up * polygon[i, 1])
            if lowest > TOUCH * (abs(right) + abs(up)) + error:
                continue
            twin = _earlier_twin(lines, windows[window], tap)
            if twin >= 0:
                tied = tied or errors[twin] + errors[k] > 0
            else:
                rivals[count, tap] = k
                contested = True
        if contested:
            rivals[count, leader] = first
            numbers[count] = window
            count += 1
    return numbers[:count], rivals[:count], tied


@numba.njit(nogil=True, cache=True)
def _divide(polygon, lines, errors, windows, first_cut):
    """Return the parts of one polygon on which every window has one winner, as ``splitting._cut`` does."""
    here, here_starts, count = polygon.copy(), np.zeros((2, 1), np.int64), 1
    here_starts[1, 0] = len(polygon)
    numbers, rivals, tied = _rivals(polygon, lines, errors, windows)
    taps, next_cut, doubt = windows.shape[1], first_cut, False
    made = np.empty((0, 1), np.int64)
    pair_cuts = np.empty((taps, taps), np.int64)
    for contested in range(len(numbers)):
        there, there_starts = np.empty((2 * len(here), 3)), np.zeros((2 * count + 1, 1), np.int64)
        parts = end = 0
        before = next_cut
        for part in range(count):
            whole = here[here_starts[part, 0] : here_starts[part + 1, 0]]
            pair_cuts[:] = -1
            for tap in range(taps):
                if rivals[contested, tap] < 0:
                    continue
                cell, next_cut, unsure = _winning_part(
                    whole, lines, errors, rivals[contested], tap, pair_cuts, next_cut
                )  # fmt: skip
                doubt = doubt or unsure
                if len(cell) < 3:
                    continue
                if there.shape[0] < end + len(cell):
                    there = grown(there, 2 * (end + len(cell)))
                if there_starts.shape[0] < parts + 2:
                    there_starts = grown(there_starts, 2 * parts + 2)
                there[end : end + len(cell)] = cell
                end += len(cell)
                parts += 1
                there_starts[parts, 0] = end
        here, here_starts, count = there[:end], there_starts[: parts + 1], parts
        if made.shape[0] < next_cut - first_cut:
            made = grown(made, 2 * (next_cut - first_cut))
        made[before - first_cut : next_cut - first_cut, 0] = numbers[contested]
    return here, here_starts[:, 0], made[: next_cut - first_cut, 0], 1 if doubt else TIED if tied else 0


@numba.njit(nogil=True, cache=True)
def divide(corners, starts, lines, errors, windows, first_cut):
    """Cut every polygon where the winner of a window changes.

    Args:
        corners: (corners, 3), with the cuts on which their sides lie.
        starts: (polygons + 1,).
        lines: (polygons or 1, 3, lines); a single set of lines cuts all polygons.
        errors: (polygons or 1, lines): the heights are known to this much.
        windows: (windows, taps), the lines that compete in each window, −1 where there is none.
        first_cut: the number of the first new cut.

    Returns:
        As ``splitting.split``: corners, starts, parents, the window of each cut, doubts (TIED where lines are equal to
        the last bit and nothing else is in doubt); and (parts, windows) the first tap of each window whose line is the
        highest in the middle of each part.
    """
    polygons = starts.shape[0] - 1
    out, ends = np.empty((4 * corners.shape[0], 3)), np.zeros((2 * polygons + 1, 1), np.int64)
    parents, made = np.empty((2 * polygons + 1, 1), np.int64), np.empty((polygons, 1), np.int64)
    doubts = np.zeros(polygons, np.int8)
    parts = end = cuts = 0
    for polygon in range(polygons):
        own, error = lines[polygon if lines.shape[0] > 1 else 0], errors[polygon if errors.shape[0] > 1 else 0]
        whole = corners[starts[polygon] : starts[polygon + 1]]
        cut, cut_starts, by, doubts[polygon] = _divide(whole, own, error, windows, first_cut + cuts)
        total, count = len(cut), len(cut_starts) - 1
        if out.shape[0] < end + total:
            out = grown(out, 2 * (end + total))
        if parents.shape[0] < parts + count + 1:
            parents = grown(parents, 2 * (parts + count + 1))
            ends = grown(ends, 2 * (parts + count + 1))
        if made.shape[0] < cuts + len(by):
            made = grown(made, 2 * (cuts + len(by)))
        out[end : end + total] = cut
        made[cuts : cuts + len(by), 0] = by
        for part in range(count):
            parents[parts + part, 0] = polygon
            ends[parts + part + 1, 0] = end + cut_starts[part + 1]
        parts += count
        end += total
        cuts += len(by)
    winners = _winners(out, ends[: parts + 1, 0], parents[:parts, 0], lines, errors, windows)
    return (
        out[:end].copy(), ends[: parts + 1, 0].copy(), parents[:parts, 0].copy(), made[:cuts, 0].copy(), doubts, winners
    )  # fmt: skip


@numba.njit(nogil=True, cache=True)
def _winners(corners, starts, parents, lines, errors, windows):
    """Return (parts, windows): the first tap of each window whose line is the highest in the middle of each part."""
    answers = np.empty((starts.shape[0] - 1, windows.shape[0]), np.int64)
    for part in range(starts.shape[0] - 1):
        x, y = middle(corners, starts[part], starts[part + 1])
        own = lines[parents[part] if lines.shape[0] > 1 else 0]
        error = errors[parents[part] if errors.shape[0] > 1 else 0]
        for window in range(windows.shape[0]):
            best, winner = -np.inf, -1
            for tap in range(windows.shape[1]):
                k = windows[window, tap]
                if k < 0:
                    continue
                height = own[0, k] + own[1, k] * x + own[2, k] * y
                if winner < 0 or height > best + error[k]:
                    best, winner = height, tap
            answers[part, window] = winner
    return answers
