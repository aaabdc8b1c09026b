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


_ctpop: Any = intrinsic(_population_count)


@numba.njit(nogil=True, cache=True, boundscheck=False)
def overlap_block(rows, columns, starts, scale, row_offset, column_offset, out):
    """Product over layers of (scale · co-active units + offsets), for all pairs of two blocks of examples.

    The inner loops run over the columns, so that LLVM turns count, conversion and product into vector code; counts are
    int32, which converts to floating point in vector registers where int64 does not.

    Args:
        rows: (n, words) uint64, packed gates of all layers side by side.
        columns: (words, m) uint64, the other examples, transposed.
        starts: (layers + 1,) first word of each layer.
        scale: (layers,) factor of the co-activation.
        row_offset: (layers, n) added per row; zero for plain ReLU gates.
        column_offset: (layers, m) added per column.
        out: (n, m), written.
    """
    n, m = out.shape
    count = np.empty(m, np.int32)
    for i in range(n):
        for layer in range(scale.shape[0]):
            word = rows[i, starts[layer]]
            for j in range(m):
                count[j] = np.int32(_ctpop(word & columns[starts[layer], j]))
            for k in range(starts[layer] + 1, starts[layer + 1]):
                word = rows[i, k]
                for j in range(m):
                    count[j] += np.int32(_ctpop(word & columns[k, j]))
            factor = scale[layer]
            offset = row_offset[layer, i]
            if layer == 0:
                for j in range(m):
                    out[i, j] = count[j] * factor + (offset + column_offset[layer, j])
            else:
                for j in range(m):
                    out[i, j] *= count[j] * factor + (offset + column_offset[layer, j])
