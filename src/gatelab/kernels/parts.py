"""A part of a kernel, seen through the same blocks: for a held-out fifth, say."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from gatelab.errors import InputError
from gatelab.kernels.blocks import BlockedKernel


def kernel_part(kernel: BlockedKernel, rows: slice, columns: slice) -> BlockedKernel:
    """The kernel between a range of examples and another, without a copy; symmetric if the ranges are the same one.

    Example:
        >>> from gatelab.kernels import DenseKernel
        >>> whole = DenseKernel(torch.tensor([[2.0, 1.0, 3.0], [1.0, 4.0, 5.0], [3.0, 5.0, 6.0]]), symmetric=True)
        >>> part = kernel_part(whole, slice(2, 3), slice(0, 2))
        >>> part.shape, part.symmetric, [block.tolist() for _, _, block in part.blocks()]
        ((1, 2), False, [[[3.0, 5.0]]])
    """
    for name, part, size in zip(("rows", "columns"), (rows, columns), kernel.shape, strict=True):
        start, stop, step = part.indices(size)
        if step != 1 or stop <= start:
            raise InputError(f"{name} are {part} of {size}; give a range of at least one, in steps of one")
    n, m = kernel.shape
    return _Part(kernel, slice(*rows.indices(n)[:2]), slice(*columns.indices(m)[:2]))


@dataclass(frozen=True)
class _Part:
    whole: BlockedKernel
    row_range: slice
    column_range: slice

    @property
    def shape(self) -> tuple[int, int]:
        return _length(self.row_range), _length(self.column_range)

    @property
    def dtype(self) -> torch.dtype:
        return self.whole.dtype

    @property
    def symmetric(self) -> bool:
        return self.whole.symmetric and self.row_range == self.column_range

    def blocks(self) -> Iterator[tuple[slice, slice, Tensor]]:
        for rows, columns, block in self.whole.blocks():
            yield from self._cut(rows, columns, block)
            # What a symmetric kernel does not keep may be what this part wants.
            if self.whole.symmetric and not self.symmetric and rows != columns:
                yield from self._cut(columns, rows, block.T)

    def _cut(self, rows: slice, columns: slice, block: Tensor) -> Iterator[tuple[slice, slice, Tensor]]:
        i, j = _common(rows, self.row_range), _common(columns, self.column_range)
        if i is not None and j is not None:
            yield (
                _moved(i, self.row_range.start),
                _moved(j, self.column_range.start),
                block[_moved(i, rows.start), _moved(j, columns.start)],
            )

    def rows(self, which: slice | Tensor | list[int]) -> Float[Tensor, "r m"]:
        inside = torch.arange(self.row_range.start, self.row_range.stop)[which]
        return self.whole.rows(inside)[:, self.column_range]

    def diagonal(self) -> Float[Tensor, " n"]:
        if self.row_range != self.column_range:
            raise InputError(f"a kernel between examples {self.row_range} and {self.column_range} has no diagonal")
        return self.whole.diagonal()[self.row_range]


def _length(part: slice) -> int:
    return part.stop - part.start


def _common(first: slice, second: slice) -> slice | None:
    start, stop = max(first.start, second.start), min(first.stop, second.stop)
    return slice(start, stop) if start < stop else None


def _moved(part: slice, origin: int) -> slice:
    return slice(part.start - origin, part.stop - origin)
