"""Loops that carry affine functions from one layer of gates to the next, compiled by Numba. Importing this loads Numba.

Functions of all units are an array (regions, 1 + dimensions, units): constants, then slopes, the units side by side.
"""

import numba
import numpy as np


@numba.njit(nogil=True, cache=True)
def neighbours(above, parents):
    """Find, for each part of a region, an earlier part of the same region from which one gate differs.

    Args:
        above: (parts, units), which gates are open.
        parents: (parts,), the region of each part; parts of a region are next to each other.

    Returns:
        The earlier part, −1 where there is none, and the unit whose gate differs. The way back from neighbour to
        neighbour is no longer than there are units, which bounds the rounding errors of sums along it.
    """
    parts, units = above.shape
    words = np.zeros((parts, (units + 63) // 64), np.uint64)
    before, unit, depth = np.full(parts, -1), np.zeros(parts, np.int64), np.zeros(parts, np.int64)
    one = np.uint64(1)
    for part in range(parts):
        if not ((part > 0 and parents[part - 1] == parents[part])
                or (part + 1 < parts and parents[part + 1] == parents[part])):  # fmt: skip
            continue  # the only part of its region
        for k in range(units):
            words[part, k >> 6] |= np.uint64(above[part, k]) << np.uint64(k & 63)
        other = part - 1
        while other >= 0 and parents[other] == parents[part]:
            place, bits = -1, np.uint64(0)
            for w in range(words.shape[1]):
                differ = words[part, w] ^ words[other, w]
                if differ:
                    if place >= 0 or differ & (differ - one):
                        place = -2
                        break
                    place, bits = w, differ
            if place >= 0 and depth[other] < units:
                before[part], depth[part], unit[part] = other, depth[other] + 1, 64 * place
                while bits > one:
                    bits >>= one
                    unit[part] += 1
                break
            other -= 1
    return before, unit


@numba.njit(nogil=True, cache=True)
def gated(lines, parents, above, closed, chosen, columns, out):
    """Store what the gates of some parts pass of their region's functions, of some units only.

    Args:
        lines: (regions or 1, 1 + dimensions, units).
        parents: (parts,), the region of each part.
        above: (parts, units), which gates are open.
        closed: (units,), what closed gates multiply by.
        chosen: the parts.
        columns: the units.
        out: (chosen parts, 1 + dimensions, columns).
    """
    for j in range(len(chosen)):
        part = chosen[j]
        own = parents[part] if lines.shape[0] > 1 else 0
        for c in range(lines.shape[1]):
            for a in range(len(columns)):
                k = columns[a]
                out[j, c, a] = lines[own, c, k] * (1.0 if above[part, k] else closed[k])


@numba.njit(nogil=True, cache=True)
def follow(lines, parents, above, closed, weight, constant, before, unit, products, out):
    """Store the functions of all parts: a product, or those of an earlier neighbour with the one gate switched.

    Args:
        lines: (regions or 1, 1 + dimensions, source units), before the gates.
        parents: (parts,), the region of each part.
        above: (parts, source units), which gates are open.
        closed: (source units,), what closed gates multiply by.
        weight: (source units, units).
        constant: (units,).
        before: as from :func:`neighbours`.
        unit: as from :func:`neighbours`.
        products: (parts without a neighbour, 1 + dimensions, units), what the weights make of what their gates pass.
        out: (parts, 1 + dimensions, units), behind the gates and the weights.
    """
    taken = 0
    for part in range(len(before)):
        other = before[part]
        if other < 0:
            for u in range(out.shape[2]):
                out[part, 0, u] = products[taken, 0, u] + constant[u]
            out[part, 1:] = products[taken, 1:]
            taken += 1
            continue
        own, k = parents[part] if lines.shape[0] > 1 else 0, unit[part]
        switch = (1.0 - closed[k]) * (1.0 if above[part, k] else -1.0)
        for c in range(lines.shape[1]):
            factor = switch * lines[own, c, k]
            for u in range(out.shape[2]):
                out[part, c, u] = out[other, c, u] + factor * weight[k, u]


@numba.njit(nogil=True, cache=True)
def largest(lines, errors, parents, above, closed):
    """Return the largest size and error, over some parts, of what each unit's gate passes.

    The size of a function is the sum of its absolute coefficients, its bound where all coordinates are in [−1, 1].

    Args:
        lines: (regions or 1, 1 + dimensions, units).
        errors: (regions or 1, units).
        parents: (parts,), the region of each part.
        above: (parts, units), which gates are open.
        closed: (units,), what closed gates multiply by.

    Returns:
        Sizes and errors, (2, units).
    """
    units = lines.shape[2]
    found, opened, sums = np.zeros((2, units)), np.zeros(units, np.bool_), np.empty(units)
    last = -1
    for part in range(len(parents)):
        for k in range(units):
            opened[k] |= above[part, k]
        own = parents[part] if lines.shape[0] > 1 else 0
        if own == last:
            continue
        last = own
        sums[:] = np.abs(lines[own, 0])
        for c in range(1, lines.shape[1]):
            for k in range(units):
                sums[k] += abs(lines[own, c, k])
        row = own if errors.shape[0] > 1 else 0
        for k in range(units):
            found[0, k] = max(found[0, k], sums[k])
            found[1, k] = max(found[1, k], errors[row, k])
    for k in range(units):
        factor = max(1.0, abs(closed[k])) if opened[k] else abs(closed[k])
        found[0, k] *= factor
        found[1, k] *= factor
    return found
