"""The read interface of a kernel, kernels in memory, and parts of kernels."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from gatelab.errors import InputError
from gatelab.kernels.tiles import TILE, tiles


@runtime_checkable
class BlockedKernel(Protocol):
    """The read interface of a kernel: blocks, rows, diagonal. The whole kernel is never held in memory."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Rows and columns; solvers refuse kernels with further axes (pairs of outputs)."""
        ...

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the entries."""
        ...

    @property
    def symmetric(self) -> bool:
        """Whether only the blocks on and below the diagonal are kept."""
        ...

    def blocks(self, rows: slice | None = None, columns: slice | None = None) -> Iterator[tuple[slice, slice, Tensor]]:
        """Yield every kept block that meets the ranges, whole, with its rows and columns.

        A block of a symmetric kernel also stands for its mirror image, and meets a range if the mirror image does.
        """
        ...

    def rows(self, which: slice | Tensor | list[int], columns: slice | None = None) -> Float[Tensor, "r m"]:
        """Return some rows, whole or in a range of columns."""
        ...

    def diagonal(self) -> Float[Tensor, " n"]:
        """Return the kernel of every example with itself."""
        ...


@dataclass(frozen=True)
class DenseKernel:
    """A tensor with the interface of a kernel in blocks."""

    entries: Float[Tensor, "n m"]
    symmetric: bool
    size: int = TILE

    @property
    def shape(self) -> tuple[int, ...]:
        """Rows and columns."""
        return tuple(self.entries.shape)

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the entries."""
        return self.entries.dtype

    def blocks(self, rows: slice | None = None, columns: slice | None = None) -> Iterator[tuple[slice, slice, Tensor]]:
        """Yield every block, or those on and below the diagonal; with ranges, those that meet them."""
        region = Region.of(self, rows, columns)
        for i, j in tiles(*self.shape[:2], symmetric=self.symmetric, size=self.size):
            if region.meets(i, j):
                yield i, j, self.entries[i, j]

    def rows(self, which: slice | Tensor | list[int], columns: slice | None = None) -> Float[Tensor, "r m"]:
        """Return some rows, whole or in a range of columns."""
        return self.entries[which][:, columns or slice(None)]

    def diagonal(self) -> Float[Tensor, " n"]:
        """Return the kernel of every example with itself."""
        return self.entries.diagonal()


@dataclass(frozen=True)
class Region:
    """A range of rows and one of columns, in a kernel that may keep its lower half only."""

    rows: slice
    columns: slice
    symmetric: bool

    @classmethod
    def of(cls, kernel: BlockedKernel, rows: slice | None, columns: slice | None) -> "Region":
        """Return the ranges as numbers; None is everything.

        Raises:
            InputError: a range is empty or has a step.
        """
        n, m = kernel.shape[:2]
        return cls(_plain("rows", rows, n), _plain("columns", columns, m), kernel.symmetric)

    def meets(self, rows: slice, columns: slice) -> bool:
        """Whether a block, or its mirror image in a symmetric kernel, has an entry in this region."""
        direct = _common(rows, self.rows) and _common(columns, self.columns)
        mirrored = self.symmetric and _common(columns, self.rows) and _common(rows, self.columns)
        return bool(direct or mirrored)


def kernel_part(kernel: BlockedKernel, rows: slice, columns: slice) -> BlockedKernel:
    """Return the kernel between two ranges of examples, without a copy; symmetric if the ranges are equal.

    A part reads every block of the whole that it meets.

    Args:
        kernel: the whole.
        rows: a range of its rows.
        columns: a range of its columns.

    Example:
        >>> whole = DenseKernel(torch.tensor([[2.0, 1.0, 3.0], [1.0, 4.0, 5.0], [3.0, 5.0, 6.0]]), symmetric=True)
        >>> part = kernel_part(whole, slice(2, 3), slice(0, 2))
        >>> part.shape, part.symmetric, [block.tolist() for _, _, block in part.blocks()]
        ((1, 2), False, [[[3.0, 5.0]]])
    """
    matrix_shape(kernel, "a part of it")
    region = Region.of(kernel, rows, columns)
    return _Part(kernel, region.rows, region.columns)


@dataclass(frozen=True)
class _Part:
    whole: BlockedKernel
    row_range: slice
    column_range: slice

    @property
    def shape(self) -> tuple[int, int]:
        return self.row_range.stop - self.row_range.start, self.column_range.stop - self.column_range.start

    @property
    def dtype(self) -> torch.dtype:
        return self.whole.dtype

    @property
    def symmetric(self) -> bool:
        return self.whole.symmetric and self.row_range == self.column_range

    def blocks(self, rows: slice | None = None, columns: slice | None = None) -> Iterator[tuple[slice, slice, Tensor]]:
        region = Region.of(self, rows, columns)
        asked = _moved(region.rows, -self.row_range.start), _moved(region.columns, -self.column_range.start)
        for i, j, block in self.whole.blocks(*asked):
            pieces = [*self._cut(i, j, block)]
            # This part may need the mirror image of a block that a symmetric kernel keeps once.
            if self.whole.symmetric and not self.symmetric and i != j:
                pieces += self._cut(j, i, block.T)
            yield from (piece for piece in pieces if region.meets(*piece[:2]))

    def _cut(self, rows: slice, columns: slice, block: Tensor) -> Iterator[tuple[slice, slice, Tensor]]:
        i, j = _common(rows, self.row_range), _common(columns, self.column_range)
        if i is not None and j is not None:
            inside = block[_moved(i, rows.start), _moved(j, columns.start)]
            yield _moved(i, self.row_range.start), _moved(j, self.column_range.start), inside

    def rows(self, which: slice | Tensor | list[int], columns: slice | None = None) -> Float[Tensor, "r m"]:
        inside = torch.arange(self.row_range.start, self.row_range.stop)[which]
        return self.whole.rows(inside, _moved(Region.of(self, None, columns).columns, -self.column_range.start))

    def diagonal(self) -> Float[Tensor, " n"]:
        if self.row_range != self.column_range:
            raise InputError(f"a kernel between examples {self.row_range} and {self.column_range} has no diagonal")
        return self.whole.diagonal()[self.row_range]


def matrix_shape(kernel: BlockedKernel, purpose: str) -> tuple[int, int]:
    """Return rows and columns of a kernel; refuse one with further axes."""
    if len(kernel.shape) != 2:
        raise InputError(
            f"the kernel is {' × '.join(map(str, kernel.shape))}; {purpose} needs rows and columns only, one number "
            'for two examples, not one for each pair of outputs: give a kernel with outputs="trace", or of one output '
            "(outputs=0)"
        )
    n, m = kernel.shape
    return n, m


def _plain(name: str, part: slice | None, size: int) -> slice:
    start, stop, step = (part or slice(None)).indices(size)
    if step != 1 or (stop <= start and part is not None):
        raise InputError(f"{name} are {part} of {size}; give a non-empty range without a step")
    return slice(start, stop)


def _common(first: slice, second: slice) -> slice | None:
    start, stop = max(first.start, second.start), min(first.stop, second.stop)
    return slice(start, stop) if start < stop else None


def _moved(part: slice, origin: int) -> slice:
    return slice(part.start - origin, part.stop - origin)
