"""A kernel as those see it who use it: a matrix in blocks, wherever it is kept."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from gatelab.kernels.tiles import TILE, tiles


@runtime_checkable
class BlockedKernel(Protocol):
    """A kernel that is read block by block and never held as a whole."""

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        ...

    @property
    def dtype(self) -> torch.dtype:
        """Of the entries."""
        ...

    @property
    def symmetric(self) -> bool:
        """Whether only the blocks on and below the diagonal are kept."""
        ...

    def blocks(self) -> Iterator[tuple[slice, slice, Tensor]]:
        """Every block that is kept, with its rows and columns."""
        ...

    def rows(self, which: slice | Tensor | list[int]) -> Float[Tensor, "r m"]:
        """Some rows, whole."""
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
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return self.entries.shape[0], self.entries.shape[1]

    @property
    def dtype(self) -> torch.dtype:
        """Of the entries."""
        return self.entries.dtype

    def blocks(self) -> Iterator[tuple[slice, slice, Tensor]]:
        """Every block, or those on and below the diagonal."""
        for i, j in tiles(*self.shape, symmetric=self.symmetric, size=self.size):
            yield i, j, self.entries[i, j]

    def rows(self, which: slice | Tensor | list[int]) -> Float[Tensor, "r m"]:
        """Some rows, whole."""
        return self.entries[which]

    def diagonal(self) -> Float[Tensor, " n"]:
        """The entries of examples with themselves."""
        return self.entries.diagonal()
