"""Kernels block by block: the tiles of an n × m matrix, half of them if it is symmetric."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import torch
from jaxtyping import Shaped
from torch import Tensor

# 512² float32 entries fit a core's second-level cache together with the operands of one layer.
TILE = 512


def tiles(n: int, m: int, *, symmetric: bool, size: int | None = None) -> Iterator[tuple[slice, slice]]:
    """Row and column slices that cover n × m; with ``symmetric`` only blocks on and below the diagonal.

    Example:
        >>> [(r.start, c.start) for r, c in tiles(3, 3, symmetric=True, size=2)]
        [(0, 0), (2, 0), (2, 2)]
    """
    size = size or TILE
    for row in range(0, n, size):
        for column in range(0, row + 1 if symmetric else m, size):
            yield slice(row, min(n, row + size)), slice(column, min(m, column + size))


def mirror(kernel: Shaped[Tensor, "n n *outputs"], rows: slice, columns: slice) -> None:
    """Copy a block below the diagonal to its place above, outputs transposed with the examples."""
    if rows != columns:
        block = kernel[rows, columns].transpose(0, 1)
        kernel[columns, rows] = block.transpose(2, 3) if kernel.ndim == 4 else block


def fill(
    kernel: Shaped[Tensor, "n m *outputs"],
    tile: Callable[[slice, slice], None],
    *,
    symmetric: bool,
    threads: int = 1,
    size: int | None = None,
) -> None:
    """Let ``tile(rows, columns)`` write every block of ``kernel``; mirror the blocks of a symmetric one.

    Args:
        kernel: the result, written in place.
        tile: computes one block; must not depend on any other block.
        symmetric: compute half of the blocks.
        threads: how many blocks at a time, for tiles that do not use several cores themselves.
        size: examples on each side of a block, if not the usual number.
    """

    def one(block: tuple[slice, slice]) -> None:
        tile(*block)
        if symmetric:
            mirror(kernel, *block)

    blocks = tiles(kernel.shape[0], kernel.shape[1], symmetric=symmetric, size=size)
    if threads == 1:
        for block in blocks:
            one(block)
        return
    with ThreadPoolExecutor(threads) as pool:
        for _ in pool.map(one, blocks):
            pass


def thread_count() -> int:
    """As many threads as torch uses, so that one setting rules both."""
    return torch.get_num_threads()
