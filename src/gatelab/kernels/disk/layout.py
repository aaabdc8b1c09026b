"""How a kernel is cut into tiles."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch

from gatelab.errors import StoreError

Tile = tuple[int, int]


@dataclass(frozen=True)
class Layout:
    """A kernel's shape and its tiles, square and all of one size; those at the edges are padded with NaN.

    Attributes:
        shape: rows and columns.
        outputs: axes behind them, (k, k) or none.
        dtype: of the entries.
        symmetric: only tiles on and below the diagonal are made and kept.
        size: rows and columns of a tile.
    """

    shape: tuple[int, int]
    outputs: tuple[int, ...]
    dtype: torch.dtype
    symmetric: bool
    size: int

    @property
    def grid(self) -> tuple[int, int]:
        """Tiles along rows and columns."""
        return -(-self.shape[0] // self.size), -(-self.shape[1] // self.size)

    @property
    def tile_bytes(self) -> int:
        """The memory of one tile."""
        entries = self.size**2
        for axis in self.outputs:
            entries *= axis
        return entries * self.dtype.itemsize

    @property
    def count(self) -> int:
        """Number of tiles."""
        down, across = self.grid
        return down * (down + 1) // 2 if self.symmetric else down * across

    def tiles(self, panel: int) -> Iterator[Tile]:
        """All tiles, ``panel`` rows of them at a time, column by column.

        What is kept of the rows of a panel serves all its columns, and what is kept of a column all rows of the panel.
        """
        down, across = self.grid
        for first in range(0, down, panel):
            rows = range(first, min(first + panel, down))
            for column in range(min(rows.stop, across) if self.symmetric else across):
                yield from ((row, column) for row in rows if not self.symmetric or column <= row)

    def span(self, axis: int, index: int) -> slice:
        """The examples of one row (axis 0) or column (axis 1) of tiles."""
        return slice(index * self.size, min(self.shape[axis], (index + 1) * self.size))

    @property
    def numpy_dtype(self) -> np.dtype:
        """The dtype as files have it.

        Raises:
            StoreError: files have no such dtype.
        """
        try:
            return torch.empty(0, dtype=self.dtype).numpy().dtype.newbyteorder("<")
        except TypeError as error:
            raise StoreError(f"a kernel in {self.dtype} cannot be stored; use x.float() and model.float()") from error
