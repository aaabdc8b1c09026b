"""Units open for both of two examples: AND and popcount of packed gates, compiled by Numba.

Import this module through :func:`gatelab.kernels.compiled.compiled`: it needs Numba.
"""

from typing import Any

import numba
import numpy as np
from numba.core import types
from numba.extending import intrinsic


def _population_count(_typing_context: Any, word: types.Type) -> Any:
    """LLVM's population count, which becomes one instruction or a few vector instructions."""

    def generate(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        return builder.ctpop(args[0])

    return word(word), generate


ctpop: Any = intrinsic(_population_count)


@numba.njit(nogil=True, cache=True, boundscheck=False)
def _count_common(row, columns, start, stop, count):
    """Count the units that one example shares with every column, in the words from start to stop.

    Two words at a time: each pass over the columns reads and writes the counts, which costs as much as a popcount.
    """
    m = count.shape[0]
    k = start + 2 - (stop - start) % 2
    if k == start + 1:
        first = row[start]
        for j in range(m):
            count[j] = np.int32(ctpop(first & columns[start, j]))
    else:
        first, second = row[start], row[start + 1]
        for j in range(m):
            count[j] = np.int32(ctpop(first & columns[start, j]) + ctpop(second & columns[start + 1, j]))
    while k < stop:
        first, second = row[k], row[k + 1]
        for j in range(m):
            count[j] += np.int32(ctpop(first & columns[k, j]) + ctpop(second & columns[k + 1, j]))
        k += 2


@numba.njit(nogil=True, cache=True, boundscheck=False)
def overlap_block(rows, columns, starts, scale, plain, row_offset, column_offset):
    """Return the product over layers of (scale · units in common + offsets), for all pairs of two blocks of examples.

    All arrays must be contiguous: only then does LLVM turn the inner loops, which run over the columns, into vector
    code. Counts are int32, which converts to floating point in vector registers where int64 does not. The code does
    not hold the GIL, so threads can compute different blocks at the same time.

    Args:
        rows: (n, words) uint64, the packed gates of all layers side by side.
        columns: (words, m) uint64, the other examples, transposed.
        starts: (layers + 1,) the first word of each layer.
        scale: (layers,) factor of the count; its dtype is the result's dtype.
        plain: (layers,) whether closed gates pass nothing, so that the offsets are zero.
        row_offset: (layers, n) added per row.
        column_offset: (layers, m) added per column.
    """
    layers, n = row_offset.shape
    m = columns.shape[1]
    real = scale.dtype.type
    count = np.empty(m, np.int32)
    out = np.empty((n, m), scale.dtype)
    for i in range(n):
        line = out[i]
        for layer in range(layers):
            _count_common(rows[i], columns, starts[layer], starts[layer + 1], count)
            factor, offset, above = scale[layer], row_offset[layer, i], column_offset[layer]
            if layer == 0:
                for j in range(m):
                    line[j] = real(count[j]) * factor + (offset + above[j])
            elif plain[layer]:
                for j in range(m):
                    line[j] *= real(count[j]) * factor
            else:
                for j in range(m):
                    line[j] *= real(count[j]) * factor + (offset + above[j])
    return out
