"""How a kernel is cut into tiles."""

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

import numpy as np
import torch

from gatelab.errors import StoreError

Tile = tuple[int, int]


@dataclass(frozen=True)
class Layout:
    """The shape of a kernel and its tiles: squares of one size, padded with NaN at the edges."""

    shape: tuple[int, int]
    outputs: tuple[int, ...]  # axes after rows and columns, (k, k) or none
    dtype: torch.dtype
    symmetric: bool  # only tiles on and below the diagonal are computed and stored
    size: int  # rows and columns of a tile

    @property
    def grid(self) -> tuple[int, int]:
        """The number of tiles along rows and along columns."""
        return -(-self.shape[0] // self.size), -(-self.shape[1] // self.size)

    @property
    def tile_bytes(self) -> int:
        """The memory of one tile."""
        return self.size**2 * prod(self.outputs) * self.dtype.itemsize

    @property
    def count(self) -> int:
        """The number of tiles."""
        down, across = self.grid
        return down * (down + 1) // 2 if self.symmetric else down * across

    @property
    def blocks(self) -> int:
        """The number of blocks of rows, and of columns if these are other examples."""
        return self.grid[0] if self.symmetric else sum(self.grid)

    def holds(self, tile: Tile) -> bool:
        """Return whether there is such a tile."""
        (row, column), (down, across) = tile, self.grid
        return 0 <= row < down and 0 <= column < across and (column <= row or not self.symmetric)

    def tiles(self, panel: int) -> Iterator[Tile]:
        """Yield all tiles, in panels of ``panel`` rows of tiles, column by column within a panel.

        This order reuses what is cached for a block of examples: a row serves all columns of its panel, and a column
        all rows of the panel.
        """
        down, across = self.grid
        for first in range(0, down, panel):
            rows = range(first, min(first + panel, down))
            for column in range(min(rows.stop, across) if self.symmetric else across):
                yield from ((row, column) for row in rows if not self.symmetric or column <= row)

    def span(self, axis: int, index: int) -> slice:
        """Return the examples of one row (axis 0) or one column (axis 1) of tiles."""
        return slice(index * self.size, min(self.shape[axis], (index + 1) * self.size))

    @property
    def numpy_dtype(self) -> np.dtype:
        """The dtype of the entries in files.

        Raises:
            StoreError: NumPy, and therefore the file format, has no such dtype.
        """
        try:
            return torch.empty(0, dtype=self.dtype).numpy().dtype.newbyteorder("<")
        except TypeError as error:
            raise StoreError(f"a kernel in {self.dtype} cannot be stored; use x.float() and model.float()") from error
