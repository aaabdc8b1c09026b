"""Common bits of packed gates by table look-up, for CPUs with AVX2.

Such a CPU counts the bits of a vector in about nine instructions, two of which look up nibbles in a table of sixteen
bytes. Here the AND is in the table as well: the nibble a of a row selects the table b ↦ |a & b|, in which the nibbles b
of 32 columns, one to a byte, are looked up at once. A byte has room for two counts of at most 15, so that one look-up
serves two rows: b ↦ |a & b| + 16 |a' & b|. Three look-ups are added (counts of at most 12) before the two are told
apart. Nine instructions then do for 12 units, 2 rows and 32 columns what AND and popcount do for 12 words.
"""

import functools
from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.core.registry import cpu_target
from numba.extending import intrinsic
from numba.np.arrayobj import make_array

COLUMNS, GROUP, PANEL = 64, 4, 64
MOST_WORDS = (2**16 - 1) // 64  # to a layer: its counts are kept in 16 bits
_TRIPLES = 21  # of nibbles, whose counts a byte holds: 21 · 3 · 4 = 252
_LANES = 32
_CODES = 2**21  # bytes of codes on either side
U = np.uint64

_BYTES = ir.VectorType(ir.IntType(8), _LANES)
_SHORTS = ir.VectorType(ir.IntType(16), _LANES // 2)
_WIDE = ir.VectorType(ir.IntType(16), _LANES)
_INDEX = ir.IntType(64)


@functools.cache
def supported() -> bool:
    """Whether Numba compiles for a CPU with AVX2; ``NUMBA_CPU_NAME`` may say otherwise than the machine."""
    context: Any = cpu_target.target_context
    triple, _, features = context.codegen().magic_tuple()
    return triple.startswith("x86_64") and "+avx2" in features.split(",")


def _tables() -> np.ndarray:
    """256 tables of 16 bytes: at (16 a' + a) · 16 + b stands |a & b| + 16 |a' & b|."""
    nibble = np.arange(16, dtype=np.uint8)
    common = np.bitwise_count(nibble[:, None] & nibble)
    return (common[None, :, :] + 16 * common[:, None, :]).astype(np.uint8).ravel()


class _Emitter:
    """Writes LLVM's instructions for the look-ups of a group of rows with a strip of columns."""

    def __init__(self, builder: ir.IRBuilder, left: Any, right: Any, counts: Any) -> None:
        self.builder, self.left, self.right, self.counts = builder, left, right, counts
        kind = ir.FunctionType(_BYTES, [_BYTES, _BYTES])
        self.look_up = cgutils.get_or_insert_function(builder.module, kind, "llvm.x86.avx2.pshuf.b")
        values = _tables()
        constant = ir.Constant(ir.ArrayType(ir.IntType(8), len(values)), bytearray(values))
        tables: Any = cgutils.global_constant(builder, "nibble_tables", constant)
        tables.align = 64
        self.tables = builder.bitcast(tables, ir.IntType(8).as_pointer())
        self.sums = [[cgutils.alloca_once(builder, _BYTES) for _ in "ab"] for _ in range(GROUP)]

    def load(self, pointer: Any, index: Any, kind: ir.Type) -> Any:
        address = self.builder.bitcast(self.builder.gep(pointer, [index]), kind.as_pointer())
        return self.builder.load(address, align=1)

    def shifted(self, shift: Any, vector: Any) -> Any:
        """Every byte by four bits, for lack of an instruction in pairs: the neighbour's bits must be masked."""
        pairs = self.builder.bitcast(vector, _SHORTS)
        return self.builder.bitcast(shift(pairs, ir.Constant(_SHORTS, [4] * 16)), _BYTES)

    def masked(self, vector: Any, mask: int) -> Any:
        return self.builder.and_(vector, ir.Constant(_BYTES, [mask] * _LANES))

    def table(self, row: Any) -> Any:
        """The table of a pair of rows, in both halves of a vector."""
        code = self.builder.zext(self.builder.load(self.builder.gep(self.left, [row])), _INDEX)
        half = self.load(self.tables, code, ir.VectorType(ir.IntType(8), 16))
        return self.builder.shuffle_vector(half, half, ir.Constant(ir.VectorType(ir.IntType(32), 32), [*range(16)] * 2))

    def triple(self, rows: list[Any], column: Any) -> None:
        """Three nibbles: 2 pairs of rows, 2 vectors of columns."""
        b = self.builder
        seen: list[Any] = [None] * GROUP
        for k in range(3):
            nibbles = [self.load(self.right, b.add(column, _INDEX(k * COLUMNS + c * _LANES)), _BYTES) for c in (0, 1)]
            tables = [self.table(b.add(row, _INDEX(k))) for row in rows]
            for s in range(GROUP):
                found = b.call(self.look_up, [tables[s // 2], nibbles[s % 2]])
                seen[s] = found if k == 0 else b.add(seen[s], found)
        for found, (both, second) in zip(seen, self.sums, strict=True):
            # The first row's count needs no mask: it is what the second's leaves of the sum modulo 256.
            b.store(b.add(b.load(both), found), both)
            b.store(b.add(b.load(second), self.masked(self.shifted(b.lshr, found), 0x0F)), second)

    def flush(self, fresh: Any) -> None:
        """Write the bytes to the counts, or add them."""
        b = self.builder
        values = []
        for s, (both, second) in enumerate(self.sums):
            high = b.load(second)
            low = b.sub(b.load(both), self.masked(self.shifted(b.shl, high), 0xF0))
            for row, value in enumerate((low, high)):
                at = _INDEX((s // 2 * 2 + row) * COLUMNS + s % 2 * _LANES)
                values.append((b.bitcast(b.gep(self.counts, [at]), _WIDE.as_pointer()), b.zext(value, _WIDE)))
        with b.if_else(fresh) as (write, add):
            with write:
                for address, value in values:
                    b.store(value, address, align=2)
            with add:
                for address, value in values:
                    b.store(b.add(b.load(address, align=2), value), address, align=2)

    def clear(self) -> None:
        for both, second in self.sums:
            self.builder.store(ir.Constant(_BYTES, None), both)
            self.builder.store(ir.Constant(_BYTES, None), second)


def _count_group(
    _typing_context: Any, left: Any, first: Any, second: Any, right: Any, at: Any, triples: Any, counts: Any
):
    """Write the common bits of two pairs of rows and ``COLUMNS`` columns to ``counts``, (GROUP · COLUMNS,) uint16."""

    def generate(context: Any, b: ir.IRBuilder, _signature: Any, args: Any) -> Any:
        arrays = [make_array(kind)(context, b, args[k]).data for kind, k in ((left, 0), (right, 3), (counts, 6))]
        emitter = _Emitter(b, *arrays)
        codes = [args[1], args[2]]
        most = _INDEX(_TRIPLES)
        with cgutils.for_range_slice(b, _INDEX(0), args[5], most, inc=True) as (start, _):
            emitter.clear()
            rest = b.sub(args[5], start)
            length = b.select(b.icmp_signed("<", rest, most), rest, most)
            with cgutils.for_range(b, length) as loop:
                nibble = b.mul(b.add(start, loop.index), _INDEX(3))
                column = b.add(args[4], b.mul(nibble, _INDEX(COLUMNS)))
                emitter.triple([b.add(code, nibble) for code in codes], column)
            emitter.flush(b.icmp_signed("==", start, _INDEX(0)))
        return context.get_dummy_value()

    return types.void(left, first, second, right, at, triples, counts), generate


_count_common: Any = intrinsic(_count_group)


@numba.njit(nogil=True, cache=True, boundscheck=False)
def _encode_rows(rows, starts, pitch, left):
    """The nibbles of each pair of rows as offsets of tables; four of 16 bits to a word.

    Every layer ends in four codes of nothing, since look-ups come in threes; rows that do not exist are nothing, too.
    """
    bytes_apart, nibbles_apart = U(0x000000FF000000FF), U(0x000F000F000F000F)
    n = rows.shape[0]
    for i in range(n):
        shift = U(8 if i % 2 else 4)
        for layer in range(starts.shape[0] - 1):
            to = U((i // 2 * pitch + layer * 4) // 4 + 4 * starts[layer])
            for k in range(starts[layer], starts[layer + 1]):
                word = rows[i, k]
                for quarter in range(U(4)):
                    part = (word >> (quarter * U(16))) & U(0xFFFF)
                    part = (part | (part << U(24))) & bytes_apart
                    part = (part | (part << U(12))) & nibbles_apart
                    left[to + quarter] |= part << shift
                to += U(4)


@numba.njit(nogil=True, cache=True, boundscheck=False)
def _encode_columns(columns, m, starts, pitch, right):
    """The nibbles of the columns, one to a byte: (strips, pitch, COLUMNS).

    Gaps between layers and beyond the last column stay as they are: the former meet codes of nothing.
    """
    for first in range(0, m, COLUMNS):
        width = U(min(COLUMNS, m - first))
        for layer in range(starts.shape[0] - 1):
            to = U((first // COLUMNS * pitch + 16 * starts[layer] + 4 * layer) * COLUMNS)
            for nibble in range(16 * starts[layer], 16 * starts[layer + 1]):
                source, shift = U(nibble // 16 * m + first), U(nibble % 16 * 4)
                for x in range(width):
                    right[to + x] = np.uint8((columns[source + x] >> shift) & U(15))
                to += U(COLUMNS)


@numba.njit(nogil=True, cache=True, boundscheck=False)
def _fill(left, right, starts, scale, plain, row_offset, column_offset, out, out_pitch):
    """Strip by strip of columns, panel by panel of rows, whose product over the layers stays in the cache."""
    layers, n = row_offset.shape
    m = column_offset.shape[1]
    pitch = 16 * starts[layers] + 4 * layers
    real = out.dtype.type
    counts = np.empty(GROUP * COLUMNS, np.uint16)
    product = np.empty(PANEL * COLUMNS, out.dtype)
    beside = np.zeros(COLUMNS, out.dtype)
    for j in range(0, m, COLUMNS):
        width = U(min(COLUMNS, m - j))
        for top in range(0, n, PANEL):
            bottom = min(n, top + PANEL)
            product[:] = 1
            for layer in range(layers):
                place = 16 * starts[layer] + 4 * layer
                triples = (16 * (starts[layer + 1] - starts[layer]) + 2) // 3
                strip = U((j // COLUMNS * pitch + place) * COLUMNS)
                factor = scale[layer]
                for x in range(width):
                    beside[x] = column_offset[layer, U(j) + x]
                for i in range(top, bottom, GROUP):
                    first, at = U(i // 2 * pitch + place), U((i - top) * COLUMNS)
                    _count_common(left, first, first + U(pitch), right, strip, triples, counts)
                    if plain[layer]:
                        for x in range(U(GROUP * COLUMNS)):
                            product[at + x] *= real(np.int32(counts[x])) * factor
                        continue
                    for row in range(min(GROUP, n - i)):
                        offset, base = row_offset[layer, i + row], U(row * COLUMNS)
                        for x in range(U(COLUMNS)):
                            product[at + base + x] *= real(np.int32(counts[base + x])) * factor + (offset + beside[x])
            for i in range(top, bottom):
                at, to = U((i - top) * COLUMNS), U(i * out_pitch + j)
                for x in range(width):
                    out[to + x] = product[at + x]


def overlap_by_tables(
    rows: np.ndarray,
    columns: np.ndarray,
    starts: np.ndarray,
    scale: np.ndarray,
    plain: np.ndarray,
    row_offset: np.ndarray,
    column_offset: np.ndarray,
    out: np.ndarray,
    pitch: int,
) -> None:
    """Fill a block as ``popcount.overlap_block`` does; ``out`` is flat, its rows begin ``pitch`` apart.

    Codes are made for as many examples at a time as fit a cache beside those of the other side.
    """
    n, m = len(rows), columns.shape[1]
    codes = 16 * int(starts[-1]) + 4 * len(scale)
    step = max(1, _CODES // codes // COLUMNS) * COLUMNS
    for i in range(0, n, step):
        some = rows[i : i + step]
        left = np.zeros(-(-len(some) // GROUP) * 2 * codes // 4, np.uint64)
        _encode_rows(some, starts, codes, left)
        beside = np.ascontiguousarray(row_offset[:, i : i + step])
        for j in range(0, m, step):
            others = np.ascontiguousarray(columns[:, j : j + step])
            right = np.empty(-(-others.shape[1] // COLUMNS) * codes * COLUMNS, np.uint8)
            _encode_columns(others.ravel(), others.shape[1], starts, codes, right)
            above = np.ascontiguousarray(column_offset[:, j : j + step])
            _fill(left.view(np.uint16), right, starts, scale, plain, beside, above, out[i * pitch + j :], pitch)
