"""AND + popcount over packed gates, compiled by Numba."""

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
    """Co-active units of one example with every column, words start … stop.

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
def overlap_block(rows, columns, starts, scale, plain, row_offset, column_offset, out):
    """Product over layers of (scale · co-active units + offsets), for all pairs of two blocks of examples.

    The inner loops run over the columns, so that LLVM turns count, conversion and product into vector code; counts are
    int32, which converts to floating point in vector registers where int64 does not.

    Args:
        rows: (n, words) uint64, packed gates of all layers side by side.
        columns: (words, m) uint64, the other examples, transposed.
        starts: (layers + 1,) first word of each layer.
        scale: (layers,) factor of the co-activation.
        plain: (layers,) whether closed gates let nothing through, so that the offsets are zero.
        row_offset: (layers, n) added per row.
        column_offset: (layers, m) added per column.
        out: (n, m), written.
    """
    n, m = out.shape
    count = np.empty(m, np.int32)
    for i in range(n):
        for layer in range(scale.shape[0]):
            _count_common(rows[i], columns, starts[layer], starts[layer + 1], count)
            factor = scale[layer]
            offset = row_offset[layer, i]
            if layer == 0:
                for j in range(m):
                    out[i, j] = count[j] * factor + (offset + column_offset[layer, j])
            elif plain[layer]:
                for j in range(m):
                    out[i, j] *= count[j] * factor
            else:
                for j in range(m):
                    out[i, j] *= count[j] * factor + (offset + column_offset[layer, j])
