"""Kernels block by block: the tiles of an n × m matrix, half of them if it is symmetric.

Every kernel is one function of two blocks of rows (:class:`TileFunction`). In memory it is called once; on disk and on
a cluster, once for each tile.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from math import prod
from typing import Any, Protocol, TypeVar, runtime_checkable

import torch
from jaxtyping import Shaped
from torch import Tensor

from gatelab.errors import InputError
from gatelab.kernels.disk.memory import available_bytes, in_words
from gatelab.work.here import one_thread_each

# 512² float32 entries fit a core's second-level cache together with the operands of one layer.
TILE = 512

Kept = TypeVar("Kept")


@runtime_checkable
class TileFunction(Protocol[Kept]):
    """A kernel on given examples: what it caches for a block of examples, and a pure function of two such caches."""

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the entries."""
        ...

    @property
    def outputs(self) -> tuple[int, ...]:
        """The axes after rows and columns: (k, k) for all pairs of outputs, or none."""
        ...

    def rows(self, x: Shaped[Tensor, "n ..."]) -> Kept:
        """Compute what is cached for some examples."""
        ...

    def bytes_kept(self, rows: Kept) -> int:
        """Return the bytes that the cache takes."""
        ...

    def bytes_working(self, rows: Kept, size: int) -> int:
        """Return the most bytes that a block of ``size`` × ``size`` takes besides its result and its rows."""
        ...

    def block(self, left: Kept, right: Kept) -> Shaped[Tensor, "n m *outputs"]:
        """Compute the kernel between two blocks; half the work if they are the same object."""
        ...


@runtime_checkable
class HasMethod(Protocol):
    """A tile function that describes its method."""

    def method(self, x: Shaped[Tensor, "n ..."]) -> list[str]:
        """Describe how entries will be computed, judging by a few examples."""
        ...


@runtime_checkable
class Kernel(Protocol):
    """A kernel without examples: a model and options."""

    def about(self) -> dict[str, Any]:
        """Return what distinguishes this kernel from others, as plain data: kind, options, a digest of the model."""
        ...

    def on(self, x: Shaped[Tensor, "n ..."], y: Shaped[Tensor, "m ..."] | None = None) -> TileFunction[Any]:
        """Check the examples, and return the kernel of x against y, or of x against itself if y is None."""
        ...


def evaluate(
    function: TileFunction[Any], x: Shaped[Tensor, "n ..."], y: Shaped[Tensor, "m ..."] | None
) -> Shaped[Tensor, "n m *outputs"]:
    """Compute the whole kernel in memory."""
    refuse_too_large(len(x), len(x if y is None else y), function.dtype, function.outputs)
    left = function.rows(x)
    return function.block(left, left if y is None else function.rows(y))


def refuse_too_large(n: int, m: int, dtype: torch.dtype, outputs: tuple[int, ...] = ()) -> None:
    """Refuse a kernel that is larger than the memory, before anything is computed."""
    needed, there = n * m * prod(outputs) * dtype.itemsize, available_bytes()
    if needed > there:
        shape = " × ".join(f"{size:,}" for size in (n, m, *outputs))
        raise InputError(
            f"a kernel of {shape} entries in {dtype} takes {in_words(needed)}, but there are only {in_words(there)} of "
            "memory; compute it on disk: gatelab.kernels.compute(PathKernel(model), x, store='K.zarr'), likewise "
            "OverlapKernel, TangentKernel and InfiniteWidthKernel, or the command gatelab kernel"
        )


def bytes_of(*tensors: Tensor | None) -> int:
    """Return the memory that tensors take."""
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors if tensor is not None)


def tiles(n: int, m: int, *, symmetric: bool, size: int | None = None) -> Iterator[tuple[slice, slice]]:
    """Yield row and column slices that cover n × m; with ``symmetric``, only blocks on and below the diagonal.

    Example:
        >>> [(r.start, c.start) for r, c in tiles(3, 3, symmetric=True, size=2)]
        [(0, 0), (2, 0), (2, 2)]
    """
    size = size or tile_size()
    for row in range(0, n, size):
        for column in range(0, row + 1 if symmetric else m, size):
            yield slice(row, min(n, row + size)), slice(column, min(m, column + size))


def tile_size(most: int = TILE) -> int:
    """Return the examples on each side of a block in memory: 512, or ``most`` if that is less, but at least one."""
    return max(1, min(TILE, most))


def mirrored(block: Shaped[Tensor, "n m *outputs"]) -> Shaped[Tensor, "m n *outputs"]:
    """Return the block above the diagonal that belongs to one below: its transpose, including the outputs."""
    block = block.transpose(0, 1)
    return block.transpose(2, 3) if block.ndim == 4 else block


def fill(
    kernel: Shaped[Tensor, "n m *outputs"],
    tile: Callable[[slice, slice], None],
    *,
    symmetric: bool,
    size: int | None = None,
) -> None:
    """Call ``tile(rows, columns)``, which writes a block of ``kernel``, for every block; mirror symmetric ones.

    As many blocks run at a time as torch has threads, each on one thread: small products gain little from a second
    thread, and wait long for it on a busy machine.

    Args:
        kernel: the result, written in place.
        tile: computes one block, independently of all other blocks.
        symmetric: whether to compute only half of the blocks.
        size: examples on each side of a block; :func:`tile_size` if None.
    """

    def one(block: tuple[slice, slice]) -> None:
        tile(*block)
        rows, columns = block
        if symmetric and rows != columns:
            kernel[columns, rows] = mirrored(kernel[rows, columns])

    blocks = list(tiles(kernel.shape[0], kernel.shape[1], symmetric=symmetric, size=size))
    threads = torch.get_num_threads()
    if threads == 1 or len(blocks) < threads or kernel.device.type != "cpu":
        for block in blocks:
            one(block)
        return
    with one_thread_each(), ThreadPoolExecutor(threads) as pool:
        for _ in pool.map(one, blocks):
            pass
