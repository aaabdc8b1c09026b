"""Loops over pairs of positions, compiled by Numba: reading a field after selections, and counting open channels."""

import numba
import numpy as np

from gatelab.kernels.popcount import ctpop


@numba.njit(nogil=True, cache=True, boundscheck=False)
def add_all_pairs(left, left_at, right, right_at, fields, field_of, group_of, out):
    """out[g, r, r'] += Σ_k left[k, r] right[k, r'] fields[f, at_k(r), at'_k(r')] for one pair of examples."""
    channels, rows = left.shape
    columns = right.shape[1]
    for k in range(channels):
        f, g = field_of[k], group_of[k]
        for r in range(rows):
            a = left[k, r]
            if a == 0:
                continue
            row = fields[f, left_at[k, r]]
            for c in range(columns):
                out[g, r, c] += a * right[k, c] * row[right_at[k, c]]


@numba.njit(nogil=True, cache=True, boundscheck=False)
def add_offsets(left, left_at, right, right_at, fields, field_of, group_of, partners, taps, codes, numbers, base, out):
    """The same at pairs of node positions (p, p + δ), from a field that is kept by offsets; entries are (δ, p).

    Positions of ``left`` and ``right`` are (node position, tap). ``codes[q'] - codes[q] + base`` is the place in
    ``numbers`` of the offset from q to q'.
    """
    channels = left.shape[0]
    offsets, positions = partners.shape
    for k in range(channels):
        f, g = field_of[k], group_of[k]
        for d in range(offsets):
            for p in range(positions):
                partner = partners[d, p]
                if partner < 0:
                    continue
                total = out[g, d, p]
                for t in range(taps):
                    a = left[k, p * taps + t]
                    if a == 0:
                        continue
                    q = left_at[k, p * taps + t]
                    for u in range(taps):
                        b = right[k, partner * taps + u]
                        if b != 0:
                            other = right_at[k, partner * taps + u]
                            total += a * b * fields[f, numbers[codes[other] - codes[q] + base], q]
                out[g, d, p] = total


@numba.njit(nogil=True, cache=True, boundscheck=False)
def count_common(left, right, partners, out):
    """out[d, p] = number of channels open at p on the left and at p + δ on the right; channels are bits."""
    offsets, positions = partners.shape
    words = left.shape[0]
    for d in range(offsets):
        for p in range(positions):
            partner = partners[d, p]
            count = np.int64(0)
            if partner >= 0:
                for w in range(words):
                    count += np.int64(ctpop(left[w, p] & right[w, partner]))
            out[d, p] = count
