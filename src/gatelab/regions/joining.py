"""Loops that find the neighbours of polygons, compiled by Numba. Importing this module loads Numba.

Corners are as in ``splitting``: the third number of a corner is the cut on which the side to the next corner lies. All
sides on one cut lie on a straight segment, those of the parts on one of its banks run one way, those of the other bank
the other way. So two sorted lists of intervals are merged for each cut, and nothing is searched in the plane.
"""

import numba
import numpy as np

APART = 1e-10  # intervals of a cut that overlap by less only touch


@numba.njit(nogil=True, cache=True)
def _root(parents, i):
    while parents[i] != i:
        parents[i] = parents[parents[i]]
        i = parents[i]
    return i


@numba.njit(nogil=True, cache=True)
def _join(parents, i, j):
    a, b = _root(parents, i), _root(parents, j)
    if a != b:
        parents[max(a, b)] = min(a, b)


@numba.njit(nogil=True, cache=True)
def _sides_by_cut(corners, cuts):
    """Return the sides' numbers, those of one cut together, and where each cut's begin."""
    begins = np.zeros(cuts + 1, np.int64)
    for i in range(corners.shape[0]):
        begins[np.int64(corners[i, 2]) + 1] += 1
    for cut in range(cuts):
        begins[cut + 1] += begins[cut]
    place, order = begins.copy(), np.empty(corners.shape[0], np.int64)
    for i in range(corners.shape[0]):
        cut = np.int64(corners[i, 2])
        order[place[cut]] = i
        place[cut] += 1
    return order, begins


@numba.njit(nogil=True, cache=True)
def _banks(corners, following, sides):
    """Return the sides of a cut's two banks, each in order along the cut, and the axis of that order."""
    axis, longest = 0, -1.0
    for i in sides:
        for a in range(2):
            extent = abs(corners[following[i], a] - corners[i, a])
            if extent > longest:
                axis, longest = a, extent
    place = np.empty(len(sides))
    for n in range(len(sides)):
        i = sides[n]
        place[n] = corners[i, axis] + corners[following[i], axis]
    ordered = sides[np.argsort(place)]
    rising = corners[following[ordered], axis] > corners[ordered, axis]
    return ordered[rising], ordered[~rising], axis


@numba.njit(nogil=True, cache=True)
def _border(following, owner, sides, cut, edges, found):
    """Append edges with nothing behind them."""
    for i in sides:
        edges[found] = (owner[i], -1, cut, i, following[i])
        found += 1
    return found


@numba.njit(nogil=True, cache=True)
def _match(corners, following, owner, same, lone, edges, found):
    """Append the edges of sides that are alone on their cut, each with the one that runs the other way.

    Where three inputs of a max-pooling are equal on one line, the two sides may be numbered after different pairs.
    """
    middle = np.empty((len(lone), 2))
    for n in range(len(lone)):
        i = lone[n]
        middle[n] = (corners[i, :2] + corners[following[i], :2]) / 2
    order, matched = np.argsort(middle[:, 0]), np.zeros(len(lone), np.bool_)
    for a in range(len(order)):
        i = lone[order[a]]
        for b in range(a + 1, len(order)):
            if matched[order[a]] or middle[order[b], 0] - middle[order[a], 0] > APART:
                break
            j = lone[order[b]]
            apart = np.abs(corners[i, :2] - corners[following[j], :2]).max()
            if not matched[order[b]] and max(apart, np.abs(corners[j, :2] - corners[following[i], :2]).max()) <= APART:
                matched[order[a]] = matched[order[b]] = True
                _join(same, i, following[j])
                _join(same, following[i], j)
                edges[found] = (owner[i], owner[j], np.int64(corners[i, 2]), i, following[i])
                found += 1
        if not matched[order[a]]:
            edges[found] = (owner[i], -1, np.int64(corners[i, 2]), i, following[i])
            found += 1
    return found


@numba.njit(nogil=True, cache=True)
def neighbours(corners, starts, cuts, borders, one_to_one):
    """Find which polygons share a side, and which corners are the same point.

    Args:
        corners: (corners, 3).
        starts: (polygons + 1,).
        cuts: the number of cuts, those that bound the domain included.
        borders: the number of cuts that bound the domain, which come first.
        one_to_one: whether the sides on both banks of a cut meet in pairs, as they do if each line that reaches a cut
            continues behind it.

    Returns:
        For each edge the polygons on its left and right (−1: none), its cut, and the corners where it begins and ends;
        for each corner the first corner that is the same point.
    """
    count = corners.shape[0]
    following, owner, same = np.arange(1, count + 1), np.empty(count, np.int64), np.arange(count)
    for polygon in range(starts.shape[0] - 1):
        following[starts[polygon + 1] - 1] = starts[polygon]
        owner[starts[polygon] : starts[polygon + 1]] = polygon
    order, begins = _sides_by_cut(corners, cuts)
    edges, found = np.empty((count, 5), np.int64), 0
    lone, singles = np.empty(count, np.int64), 0
    for cut in range(cuts):
        rising, falling, axis = _banks(corners, following, order[begins[cut] : begins[cut + 1]])
        if len(rising) == 0 or len(falling) == 0:
            alone = np.concatenate((rising, falling))
            if cut < borders:  # the domain ends here
                found = _border(following, owner, alone, cut, edges, found)
            else:
                lone[singles : singles + len(alone)] = alone
                singles += len(alone)
            continue
        in_pairs = one_to_one and len(rising) == len(falling)
        a = b = 0
        while a < len(rising) and b < len(falling):
            i, j = rising[a], falling[b]
            i_end, j_end = following[i], following[j]  # j runs from its end along the axis back to its start
            low, high = corners[i, axis] - corners[j_end, axis], corners[i_end, axis] - corners[j, axis]
            overlap = min(corners[i_end, axis], corners[j, axis]) - max(corners[i, axis], corners[j_end, axis])
            if in_pairs or abs(low) <= APART:
                _join(same, i, j_end)
            if in_pairs or abs(high) <= APART:
                _join(same, i_end, j)
            if in_pairs or overlap > APART:
                edges[found] = (owner[i], owner[j], cut, i if low > 0 else j_end, i_end if high < 0 else j)
                found += 1
            if in_pairs or high <= APART:
                a += 1
            if in_pairs or high >= -APART:
                b += 1
    found = _match(corners, following, owner, same, lone[:singles], edges, found)
    for i in range(count):
        same[i] = _root(same, i)
    return edges[:found].copy(), same


@numba.njit(nogil=True, cache=True)
def count_components(pairs, chosen):
    """Return how many connected components the chosen polygons have, for each row of ``chosen``.

    Args:
        pairs: (pairs, 2), the polygons that are neighbours.
        chosen: (rows, polygons).
    """
    counts = np.zeros(chosen.shape[0], np.int64)
    parents = np.empty(chosen.shape[1], np.int64)
    for row in range(chosen.shape[0]):
        for i in range(chosen.shape[1]):
            parents[i] = i
            counts[row] += chosen[row, i]
        for k in range(pairs.shape[0]):
            i, j = pairs[k]
            if chosen[row, i] and chosen[row, j]:
                a, b = _root(parents, i), _root(parents, j)
                if a != b:
                    parents[max(a, b)] = min(a, b)
                    counts[row] -= 1
    return counts
