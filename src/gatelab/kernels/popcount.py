"""Co-active units of packed gates: AND + popcount, compiled by Numba."""

from typing import Any

import numba
import numpy as np
from numba.core import types
from numba.extending import intrinsic

from gatelab.kernels import nibbles


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
def _count_block(rows, columns, starts, scale, plain, row_offset, column_offset, out, pitch):
    """Like ``overlap_block`` on any CPU, without gaps; ``out`` is flat, its rows begin ``pitch`` apart.

    The inner loops run over the columns, so that LLVM turns count, conversion and product into vector code; counts are
    int32, which converts to floating point in vector registers where int64 does not.
    """
    layers, n = row_offset.shape
    m = columns.shape[1]
    real = out.dtype.type
    count = np.empty(m, np.int32)
    for i in range(n):
        to = np.uint64(i * pitch)
        for layer in range(layers):
            _count_common(rows[i], columns, starts[layer], starts[layer + 1], count)
            factor, offset = scale[layer], row_offset[layer, i]
            if layer == 0:
                for j in range(np.uint64(m)):
                    out[to + j] = real(count[j]) * factor + (offset + column_offset[layer, j])
            elif plain[layer]:
                for j in range(np.uint64(m)):
                    out[to + j] *= real(count[j]) * factor
            else:
                for j in range(np.uint64(m)):
                    out[to + j] *= real(count[j]) * factor + (offset + column_offset[layer, j])


def overlap_block(
    rows: np.ndarray,
    columns: np.ndarray,
    starts: np.ndarray,
    scale: np.ndarray,
    plain: np.ndarray,
    row_offset: np.ndarray,
    column_offset: np.ndarray,
    out: np.ndarray,
) -> None:
    """Product over layers of (scale · co-active units + offsets), for all pairs of two blocks of examples.

    By tables of nibbles where the CPU has the instruction and no layer is too wide for them, else by popcount. The
    threads that compute different blocks run at the same time: compiled code does not hold the GIL.

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
    if n == 0 or m == 0:
        return
    if out.strides[1] != out.itemsize or out.strides[0] < m * out.itemsize or out.strides[0] % out.itemsize:
        dense = np.empty((n, m), out.dtype)
        overlap_block(rows, columns, starts, scale, plain, row_offset, column_offset, dense)
        out[:] = dense
        return
    # Numba knows of an array without gaps that neighbours are neighbours, and of a part of a larger one it does not:
    # its loops over the latter are no vector code.
    rows, columns = np.ascontiguousarray(rows), np.ascontiguousarray(columns)
    row_offset, column_offset = np.ascontiguousarray(row_offset), np.ascontiguousarray(column_offset)
    pitch = out.strides[0] // out.itemsize
    flat = np.lib.stride_tricks.as_strided(out, ((n - 1) * pitch + m,), (out.itemsize,))
    by_tables = nibbles.supported() and np.diff(starts).max() <= nibbles.MOST_WORDS
    fill = nibbles.overlap_by_tables if by_tables else _count_block
    fill(rows, columns, starts, scale, plain, row_offset, column_offset, flat, pitch)
