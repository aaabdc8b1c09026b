"""Kernels block by block: the tiles of an n × m matrix, half of them if it is symmetric.

Every kernel is one function of two blocks of rows (:class:`TileFunction`): in memory it is called once, on disk and on
a cluster once for each tile.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol, TypeVar, runtime_checkable

import torch
from jaxtyping import Shaped
from torch import Tensor

from gatelab.work.here import one_thread_each

# 512² float32 entries fit a core's second-level cache together with the operands of one layer.
TILE = 512


Kept = TypeVar("Kept")


@runtime_checkable
class TileFunction(Protocol[Kept]):
    """A kernel on given examples: what it keeps of a block of rows, and a pure function of two such blocks."""

    @property
    def dtype(self) -> torch.dtype:
        """Of the entries."""
        ...

    @property
    def outputs(self) -> tuple[int, ...]:
        """Axes behind rows and columns: (k, k) if all pairs of outputs are wanted."""
        ...

    def rows(self, x: Shaped[Tensor, "n ..."]) -> Kept:
        """What is kept of some examples, computed once for each."""
        ...

    def bytes_kept(self, rows: Kept) -> int:
        """How much memory that takes."""
        ...

    def bytes_working(self, rows: Kept, size: int) -> int:
        """How much a block of ``size`` × ``size`` takes beside its result, at most; ``rows`` are some like its own."""
        ...

    def block(self, left: Kept, right: Kept) -> Shaped[Tensor, "n m *outputs"]:
        """The kernel between two blocks; half the work if they are one and the same."""
        ...


@runtime_checkable
class Kernel(Protocol):
    """A kernel as a person asks for it: a model and options, no examples yet."""

    def about(self) -> dict[str, Any]:
        """What tells this kernel from others, as plain data: kind, options, a digest of the model."""
        ...

    def on(self, x: Shaped[Tensor, "n ..."], y: Shaped[Tensor, "m ..."] | None = None) -> TileFunction[Any]:
        """The kernel on examples of x against y (None: against x), which are checked."""
        ...


def evaluate(
    function: TileFunction[Any], x: Shaped[Tensor, "n ..."], y: Shaped[Tensor, "m ..."] | None
) -> Shaped[Tensor, "n m *outputs"]:
    """The whole kernel, in memory."""
    left = function.rows(x)
    return function.block(left, left if y is None else function.rows(y))


def bytes_of(*tensors: Tensor | None) -> int:
    """The memory that tensors take."""
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors if tensor is not None)


def tiles(n: int, m: int, *, symmetric: bool, size: int | None = None) -> Iterator[tuple[slice, slice]]:
    """Row and column slices that cover n × m; with ``symmetric`` only blocks on and below the diagonal.

    Example:
        >>> [(r.start, c.start) for r, c in tiles(3, 3, symmetric=True, size=2)]
        [(0, 0), (2, 0), (2, 2)]
    """
    size = size or tile_size()
    for row in range(0, n, size):
        for column in range(0, row + 1 if symmetric else m, size):
            yield slice(row, min(n, row + size)), slice(column, min(m, column + size))


def tile_size(most: int = TILE) -> int:
    """Examples on each side of a block in memory: the usual number, or ``most`` if that is less, but one at least."""
    return max(1, min(TILE, most))


def mirrored(block: Shaped[Tensor, "n m *outputs"]) -> Shaped[Tensor, "m n *outputs"]:
    """What a block below the diagonal says about the one above: its transpose, outputs with it."""
    block = block.transpose(0, 1)
    return block.transpose(2, 3) if block.ndim == 4 else block


def fill(
    kernel: Shaped[Tensor, "n m *outputs"],
    tile: Callable[[slice, slice], None],
    *,
    symmetric: bool,
    size: int | None = None,
) -> None:
    """Let ``tile(rows, columns)`` write every block of ``kernel``; mirror the blocks of a symmetric one.

    As many blocks at a time as torch has threads, each with one thread of its own: small products gain little from a
    second thread, and wait long for it on a busy machine.

    Args:
        kernel: the result, written in place.
        tile: computes one block; must not depend on any other block.
        symmetric: compute half of the blocks.
        size: examples on each side of a block, if not :func:`tile_size`.
    """

    def one(block: tuple[slice, slice]) -> None:
        tile(*block)
        rows, columns = block
        if symmetric and rows != columns:
            kernel[columns, rows] = mirrored(kernel[rows, columns])

    blocks = list(tiles(kernel.shape[0], kernel.shape[1], symmetric=symmetric, size=size))
    threads = thread_count()
    if threads == 1 or len(blocks) < threads or kernel.device.type != "cpu":
        for block in blocks:
            one(block)
        return
    with one_thread_each(), ThreadPoolExecutor(threads) as pool:
        for _ in pool.map(one, blocks):
            pass


def thread_count() -> int:
    """As many threads as torch uses, so that one setting rules both."""
    return torch.get_num_threads()
