"""Before a kernel is computed: the size of its tiles, and the memory, disk and time that it will take."""

import shutil
import time
from dataclasses import dataclass, replace
from math import ceil, sqrt
from pathlib import Path
from typing import Any

from torch import Tensor

from gatelab.errors import StoreError
from gatelab.kernels.disk.layout import Layout
from gatelab.kernels.disk.memory import in_words, resident_bytes
from gatelab.kernels.disk.store import seconds_per_byte
from gatelab.kernels.tiles import TileFunction
from gatelab.work.executor import Executor
from gatelab.work.here import one_thread_each
from gatelab.work.progress import duration

# Larger tiles gain nothing, because a tile is computed in blocks that fit the cache; but they cost memory.
_LARGEST_TILE, _SMALLEST_TILE = 2048, 16
_LARGEST_TILE_BYTES = 2**26
# At least this many rows and columns of tiles, to show progress and to occupy several workers.
_LEAST_GRID = 8
# A tile that takes longer shows no progress, and an interruption loses much.
_LONGEST_TILE_SECONDS = 60.0
# Tiles that are written at the same time.
WRITERS = 2
# While rows are computed, memory holds their batches and the tensor that these are joined to.
_COPIES_OF_NEW_ROWS = 2
# A shorter trial is repeated with more examples.
_ENOUGH_SECONDS = 0.05


@dataclass(frozen=True)
class TilePlan:
    """What a computation will take.

    Attributes:
        layout: shape and tiles.
        kept: the number of blocks of rows whose :meth:`TileFunction.rows` stay in memory.
        blocks: the number of blocks of rows, and of columns if these are other examples.
        budget: bytes of memory that a process may use.
        memory: bytes that a process will use.
        free_disk: bytes that are free on the disk.
        row_seconds: time for :meth:`TileFunction.rows` of one example.
        pair_seconds: time for one entry, on one thread.
        write_seconds: time to write one byte.
        parallel: tiles at a time, in all processes.
        per_process: tiles at a time in one process.
    """

    layout: Layout
    kept: int
    blocks: int
    budget: int
    memory: int
    free_disk: int
    row_seconds: float
    pair_seconds: float
    write_seconds: float
    parallel: int
    per_process: int

    def seconds(self, tiles: int) -> float:
        """Estimate the time for so many tiles; arithmetic and writing overlap."""
        panels = ceil(self.layout.grid[0] / self.panel)
        rows = self.blocks * (1 + panels) / 2 if panels > 1 else self.blocks
        share = tiles / self.layout.count
        arithmetic = tiles * self.layout.size**2 * self.pair_seconds / self.parallel
        return max(
            rows * share * self.layout.size * self.row_seconds + arithmetic,
            tiles * self.layout.tile_bytes * self.write_seconds,
        )

    @property
    def panel(self) -> int:
        """Rows of tiles that are computed together: all of them if everything is kept."""
        return self.layout.grid[0] if self.kept >= self.blocks else max(1, self.kept - self.per_process - 1)

    def description(self, tiles: int) -> list[str]:
        """Return what computing so many tiles will take, in three lines."""
        layout = self.layout
        shape = " × ".join(map(str, (*layout.shape, *layout.outputs)))
        dtype = str(layout.dtype).removeprefix("torch.")
        count = f"{tiles} of {layout.count} tiles" if tiles < layout.count else f"{tiles} tiles"
        kept = f"rows kept for {min(self.kept, self.blocks)} of {self.blocks} blocks"
        disk, free = in_words(tiles * layout.tile_bytes), in_words(self.free_disk)
        return [
            f"{shape} {dtype}: {count}, of {layout.size} × {layout.size}, {self.parallel} at a time",
            f"memory {in_words(self.memory)} of {in_words(self.budget)} ({kept})",
            f"disk {disk} ({free} free); about {duration(self.seconds(tiles))}",
        ]

    def refuse_what_cannot_fit(self, tiles: int) -> None:
        """Raise StoreError if memory or disk is too small for so many more tiles."""
        if self.memory > self.budget:
            raise StoreError(
                f"tiles of {self.layout.size} × {self.layout.size} need {in_words(self.memory)} of memory, but only "
                f"{in_words(self.budget)} may be used; allow more, or use fewer threads"
            )
        if tiles * self.layout.tile_bytes > self.free_disk:
            raise StoreError(
                f"{tiles} tiles need {in_words(tiles * self.layout.tile_bytes)} of disk, but only "
                f"{in_words(self.free_disk)} are free; make room, choose another place, or take fewer examples"
            )


@dataclass(frozen=True)
class _Trial:
    """What the kernel of a few examples takes.

    Attributes:
        rows: what is kept of the examples.
        n: the number of examples.
        resident: bytes that the process held before.
    """

    function: TileFunction[Any]
    rows: Any
    n: int
    resident: int
    row_seconds: float
    pair_seconds: float

    @property
    def row_bytes(self) -> float:
        return self.function.bytes_kept(self.rows) / self.n

    def memory(self, layout: Layout, per_process: int, kept: int) -> int:
        """Return the memory of a process: present use, rows kept and in the making, tiles under way and waiting."""
        # Every thread may still use two blocks of rows that are no longer kept.
        rows = (kept + 2 * per_process + _COPIES_OF_NEW_ROWS) * layout.size * self.row_bytes
        working = per_process * self.function.bytes_working(self.rows, layout.size)
        return self.resident + int(rows) + working + (2 * per_process + 2 + WRITERS) * layout.tile_bytes


def make_plan(
    function: TileFunction[Any],
    x: Tensor,
    y: Tensor | None,
    folder: Path,
    budget: int,
    executor: Executor,
    size: int | None = None,
) -> TilePlan:
    """Choose the size of the tiles, and estimate what they take.

    The size depends on the number of examples, the kernel and the budget, not on who computes the tiles, except that a
    tile which would take longer than a minute is made smaller.

    Args:
        function: the kernel.
        x: the examples of the rows.
        y: the examples of the columns, if these are others.
        folder: a directory on the disk that will hold the result.
        budget: bytes of memory for a process.
        executor: where tiles will be computed.
        size: the size of the tiles; chosen if None.
    """
    parallel, per_process = executor.parallel, executor.per_process
    trial = _try(function, x, budget)
    shape = (x.shape[0], (x if y is None else y).shape[0])
    layout = Layout(shape, function.outputs, function.dtype, y is None, size or _first_size(shape, trial))
    least = 2 * per_process  # a row and a column for each tile under way

    def is_too_large(layout: Layout) -> bool:
        return layout.tile_bytes > _LARGEST_TILE_BYTES or trial.memory(layout, per_process, least) > budget

    while size is None and layout.size > _SMALLEST_TILE and is_too_large(layout):
        layout = replace(layout, size=layout.size // 2)
    blocks = layout.grid[0] if y is None else sum(layout.grid)
    room = budget - trial.memory(layout, per_process, 0)
    kept = max(least, min(blocks, int(room / max(1.0, trial.row_bytes * layout.size))))
    return TilePlan(
        layout,
        kept,
        blocks,
        budget,
        trial.memory(layout, per_process, min(kept, blocks)),
        shutil.disk_usage(folder).free,
        trial.row_seconds,
        trial.pair_seconds,
        seconds_per_byte(folder, layout.tile_bytes),
        parallel,
        per_process,
    )


def _first_size(shape: tuple[int, int], trial: _Trial) -> int:
    """Return the largest sensible size of a tile."""
    quick = sqrt(_LONGEST_TILE_SECONDS / max(trial.pair_seconds, 1e-12))
    size = _LARGEST_TILE
    while size > _SMALLEST_TILE and size > min(max(shape) / _LEAST_GRID, quick):
        size //= 2
    return min(size, max(shape))


def _try(function: TileFunction[Any], x: Tensor, budget: int) -> _Trial:
    """Time the kernel of a few examples; take more until the time is measurable or half of the budget is used."""
    resident, n = resident_bytes(), min(_SMALLEST_TILE, x.shape[0])
    with one_thread_each():
        rows = function.rows(x[:n])
        function.block(rows, rows)  # compiles Numba code, which must not be timed
        while True:
            start = time.perf_counter()
            other = function.rows(x[:n])
            between = time.perf_counter()
            function.block(rows, other)
            seconds = time.perf_counter() - between
            more = min(4 * n, _LARGEST_TILE, x.shape[0])
            needed = more / n * 2 * function.bytes_kept(rows) + function.bytes_working(rows, more)
            if seconds > _ENOUGH_SECONDS or more == n or resident + 2 * needed > budget:
                return _Trial(function, rows, n, resident, (between - start) / n, seconds / n**2)
            n = more
            rows = function.rows(x[:n])
