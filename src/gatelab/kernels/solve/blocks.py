"""A kernel as those see it who use it: a matrix in blocks, wherever it is kept."""

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
    """A kernel that is read block by block and never held as a whole."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Rows and columns; solvers refuse kernels with further axes, those of pairs of outputs."""
        ...

    @property
    def dtype(self) -> torch.dtype:
        """Of the entries."""
        ...

    @property
    def symmetric(self) -> bool:
        """Whether only the blocks on and below the diagonal are kept."""
        ...

    def blocks(self, rows: slice | None = None, columns: slice | None = None) -> Iterator[tuple[slice, slice, Tensor]]:
        """Every block that is kept, whole, with its rows and columns; only those are read that meet the ranges.

        A block of a symmetric kernel stands for its mirror image as well, and meets a range if that does.
        """
        ...

    def rows(self, which: slice | Tensor | list[int], columns: slice | None = None) -> Float[Tensor, "r m"]:
        """Some rows, whole or in a range of columns."""
        ...

    def diagonal(self) -> Float[Tensor, " n"]:
        """The entries of examples with themselves."""
        ...


@dataclass(frozen=True)
class DenseKernel:
    """A kernel in memory, in blocks."""

    entries: Float[Tensor, "n m"]
    symmetric: bool
    size: int = TILE

    @property
    def shape(self) -> tuple[int, ...]:
        """Rows and columns."""
        return tuple(self.entries.shape)

    @property
    def dtype(self) -> torch.dtype:
        """Of the entries."""
        return self.entries.dtype

    def blocks(self, rows: slice | None = None, columns: slice | None = None) -> Iterator[tuple[slice, slice, Tensor]]:
        """Every block, or those on and below the diagonal; with ranges, those that meet them."""
        region = Region.of(self, rows, columns)
        for i, j in tiles(*self.shape[:2], symmetric=self.symmetric, size=self.size):
            if region.meets(i, j):
                yield i, j, self.entries[i, j]

    def rows(self, which: slice | Tensor | list[int], columns: slice | None = None) -> Float[Tensor, "r m"]:
        """Some rows, whole or in a range of columns."""
        return self.entries[which][:, columns or slice(None)]

    def diagonal(self) -> Float[Tensor, " n"]:
        """The entries of examples with themselves."""
        return self.entries.diagonal()


@dataclass(frozen=True)
class Region:
    """A range of rows and one of columns, of a kernel that may keep the lower half only."""

    rows: slice
    columns: slice
    symmetric: bool

    @classmethod
    def of(cls, kernel: BlockedKernel, rows: slice | None, columns: slice | None) -> "Region":
        """The ranges in plain numbers; None is all.

        Raises:
            InputError: a range is empty or in steps.
        """
        n, m = kernel.shape[:2]
        return cls(_plain("rows", rows, n), _plain("columns", columns, m), kernel.symmetric)

    def meets(self, rows: slice, columns: slice) -> bool:
        """Whether a block, or what it stands for, has an entry here."""
        direct = common(rows, self.rows) and common(columns, self.columns)
        mirrored = self.symmetric and common(columns, self.rows) and common(rows, self.columns)
        return bool(direct or mirrored)


def _plain(name: str, part: slice | None, size: int) -> slice:
    start, stop, step = (part or slice(None)).indices(size)
    if step != 1 or (stop <= start and part is not None):
        raise InputError(f"{name} are {part} of {size}; give a range of at least one, in steps of one")
    return slice(start, stop)


def common(first: slice, second: slice) -> slice | None:
    """What two ranges share."""
    start, stop = max(first.start, second.start), min(first.stop, second.stop)
    return slice(start, stop) if start < stop else None


def matrix_shape(kernel: BlockedKernel, purpose: str) -> tuple[int, int]:
    """Rows and columns of a kernel that has no other axes; one that has is refused."""
    if len(kernel.shape) != 2:
        raise InputError(
            f"the kernel is {' × '.join(map(str, kernel.shape))}; {purpose} needs rows and columns only, one number "
            'for two examples, not one for each pair of outputs: give a kernel with outputs="trace", or of one output '
            "(outputs=0)"
        )
    n, m = kernel.shape
    return n, m
