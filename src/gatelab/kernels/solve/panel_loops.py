"""The product of a float32 block with vectors, summed in float64, compiled by Numba.

Import this module through :func:`gatelab.kernels.compiled.compiled`: it needs Numba.
"""

import numba
import numpy as np

CHUNK = 512  # columns widened at a time: four rows of them, and as much of a vector, fit in a core's first cache


# Sums may be taken in any order, as vector code requires; NaN and infinity are preserved.
@numba.njit(nogil=True, cache=True, boundscheck=False, fastmath={"reassoc", "contract", "nsz"})
def block_products(entries, stride, right, left, own, mirrored, twice):
    """Add a block times ``right`` to ``own`` and, with ``twice``, its transpose times ``left`` to ``mirrored``.

    Each entry is read and widened once for both products and all vectors. Rows are taken four at a time, so that a part
    of ``mirrored`` is loaded and stored once for all four.

    Args:
        entries: float32, the rows of the block one after the other, in one contiguous array.
        stride: the distance between the beginnings of two rows.
        right: (r, b) float64, the vectors at the block's columns.
        left: (r, a) float64, the vectors at its rows.
        own: (r, a) float64.
        mirrored: (r, b) float64; not used without ``twice``.
        twice: whether to multiply the transpose as well.
    """
    r, b = right.shape
    a = own.shape[1]
    wide = np.zeros((4, CHUNK))
    for first in range(0, a, 4):
        rows = min(4, a - first)
        for start in range(0, b, CHUNK):
            width = min(CHUNK, b - start)
            for k in range(rows):
                at = (first + k) * stride + start
                line, to = entries[at : at + width], wide[k]
                for j in range(width):
                    to[j] = line[j]
            wide[rows:] = 0.0
            w0, w1, w2, w3 = wide[0], wide[1], wide[2], wide[3]
            for v in range(r):
                f = right[v][start : start + width]
                s0 = s1 = s2 = s3 = 0.0
                if twice:
                    m = mirrored[v][start : start + width]
                    l0 = left[v, first]
                    l1 = left[v, first + 1] if rows > 1 else 0.0
                    l2 = left[v, first + 2] if rows > 2 else 0.0
                    l3 = left[v, first + 3] if rows > 3 else 0.0
                    for j in range(width):
                        s0 += f[j] * w0[j]
                        s1 += f[j] * w1[j]
                        s2 += f[j] * w2[j]
                        s3 += f[j] * w3[j]
                        m[j] += l0 * w0[j] + l1 * w1[j] + l2 * w2[j] + l3 * w3[j]
                else:
                    for j in range(width):
                        s0 += f[j] * w0[j]
                        s1 += f[j] * w1[j]
                        s2 += f[j] * w2[j]
                        s3 += f[j] * w3[j]
                own[v, first] += s0
                if rows > 1:
                    own[v, first + 1] += s1
                if rows > 2:
                    own[v, first + 2] += s2
                if rows > 3:
                    own[v, first + 3] += s3
