"""A part of a kernel, seen through the same blocks: for a held-out fifth, say."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from gatelab.errors import InputError
from gatelab.kernels.solve.blocks import BlockedKernel, Region, common, matrix_shape


def kernel_part(kernel: BlockedKernel, rows: slice, columns: slice) -> BlockedKernel:
    """The kernel between a range of examples and another, without a copy; symmetric if the ranges are the same one.

    Example:
        >>> from gatelab.kernels import DenseKernel
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
        return _length(self.row_range), _length(self.column_range)

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
            # What a symmetric kernel does not keep may be what this part wants.
            if self.whole.symmetric and not self.symmetric and i != j:
                pieces += self._cut(j, i, block.T)
            yield from (piece for piece in pieces if region.meets(*piece[:2]))

    def _cut(self, rows: slice, columns: slice, block: Tensor) -> Iterator[tuple[slice, slice, Tensor]]:
        i, j = common(rows, self.row_range), common(columns, self.column_range)
        if i is not None and j is not None:
            yield (
                _moved(i, self.row_range.start),
                _moved(j, self.column_range.start),
                block[_moved(i, rows.start), _moved(j, columns.start)],
            )

    def rows(self, which: slice | Tensor | list[int], columns: slice | None = None) -> Float[Tensor, "r m"]:
        inside = torch.arange(self.row_range.start, self.row_range.stop)[which]
        return self.whole.rows(inside, _moved(Region.of(self, None, columns).columns, -self.column_range.start))

    def diagonal(self) -> Float[Tensor, " n"]:
        if self.row_range != self.column_range:
            raise InputError(f"a kernel between examples {self.row_range} and {self.column_range} has no diagonal")
        return self.whole.diagonal()[self.row_range]


def _length(part: slice) -> int:
    return part.stop - part.start


def _moved(part: slice, origin: int) -> slice:
    return slice(part.start - origin, part.stop - origin)
