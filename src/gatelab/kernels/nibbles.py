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
TRIPLES = 21  # of nibbles, whose counts a byte holds: 21 · 3 · 4 = 252
_LANES = 32
_CODES = 2**21  # bytes of codes on either side
U = np.uint64
BLOCK = U(GROUP * COLUMNS)

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

    def write(self) -> None:
        """Write the counts, a byte each."""
        b = self.builder
        for s, (both, second) in enumerate(self.sums):
            high = b.load(second)
            low = b.sub(b.load(both), self.masked(self.shifted(b.shl, high), 0xF0))
            for row, value in enumerate((low, high)):
                place = _INDEX((s // 2 * 2 + row) * COLUMNS + s % 2 * _LANES)
                b.store(value, b.bitcast(b.gep(self.counts, [place]), _BYTES.as_pointer()), align=1)

    def clear(self) -> None:
        for both, second in self.sums:
            self.builder.store(ir.Constant(_BYTES, None), both)
            self.builder.store(ir.Constant(_BYTES, None), second)


def _count_group(
    _typing_context: Any, left: Any, first: Any, second: Any, right: Any, at: Any, triples: Any, counts: Any
):
    """Write the common bits of two pairs of rows and ``COLUMNS`` columns, in at most ``TRIPLES`` triples of nibbles."""

    def generate(context: Any, b: ir.IRBuilder, _signature: Any, args: Any) -> Any:
        arrays = [make_array(kind)(context, b, args[k]).data for kind, k in ((left, 0), (right, 3), (counts, 6))]
        emitter = _Emitter(b, *arrays)
        emitter.clear()
        with cgutils.for_range(b, args[5]) as loop:
            nibble = b.mul(loop.index, _INDEX(3))
            emitter.triple([b.add(code, nibble) for code in args[1:3]], b.add(args[4], b.mul(nibble, _INDEX(COLUMNS))))
        emitter.write()
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
def _panel(left, right, starts, scale, plain, row_offset, column_offset, top, first, work):
    """The product over the layers for ``PANEL`` rows and a strip of columns, which stays in the cache.

    One function, though long: a call within would count references to every array, which takes as long as a group.
    """
    octets, counts, above, product = work
    real = product.dtype.type
    layers, n = row_offset.shape
    pitch = 16 * starts[layers] + 4 * layers
    for layer in range(layers):
        place = 16 * starts[layer] + 4 * layer
        triples = (16 * (starts[layer + 1] - starts[layer]) + 2) // 3
        strip = (first // COLUMNS * pitch + place) * COLUMNS
        factor = scale[layer]
        for x in range(U(min(COLUMNS, column_offset.shape[1] - first))):
            above[x] = column_offset[layer, U(first) + x]
        for i in range(top, min(n, top + PANEL), GROUP):
            for done in range(0, triples, TRIPLES):
                code, some = U(i // 2 * pitch + place + 3 * done), min(TRIPLES, triples - done)
                _count_common(left, code, code + U(pitch), right, U(strip + 3 * done * COLUMNS), some, octets)
                if done == 0:
                    for x in range(BLOCK):
                        counts[x] = octets[x]
                else:
                    for x in range(BLOCK):
                        counts[x] += octets[x]
            at = U((i - top) * COLUMNS)
            if plain[layer]:
                for x in range(BLOCK):
                    product[at + x] *= real(np.int32(counts[x])) * factor
                continue
            for row in range(min(GROUP, n - i)):
                offset, base = row_offset[layer, i + row], U(row * COLUMNS)
                for x in range(U(COLUMNS)):
                    product[at + base + x] *= real(np.int32(counts[base + x])) * factor + (offset + above[x])


@numba.njit(nogil=True, cache=True, boundscheck=False)
def _fill(left, right, starts, scale, plain, row_offset, column_offset, out, pitch):
    """Strip by strip of columns, panel by panel of rows."""
    n, m = row_offset.shape[1], column_offset.shape[1]
    product = np.empty(PANEL * COLUMNS, out.dtype)
    work = np.empty(BLOCK, np.uint8), np.empty(BLOCK, np.uint16), np.zeros(COLUMNS, out.dtype), product
    for j in range(0, m, COLUMNS):
        for top in range(0, n, PANEL):
            product[:] = 1
            _panel(left, right, starts, scale, plain, row_offset, column_offset, top, j, work)
            for i in range(top, min(n, top + PANEL)):
                at, to = U((i - top) * COLUMNS), U(i * pitch + j)
                for x in range(U(min(COLUMNS, m - j))):
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
