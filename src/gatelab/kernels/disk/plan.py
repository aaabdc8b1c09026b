"""Before a kernel is computed: the size of its tiles, and the memory, disk and time that it will take."""

import shutil
import time
from dataclasses import dataclass
from math import ceil
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

# Larger tiles gain nothing, because a tile is computed in blocks that fit the cache, and they cost memory.
_LARGEST_TILE, _SMALLEST_TILE = 2048, 16
_LARGEST_TILE_BYTES = 2**26
# The least number of rows and columns of tiles, to show progress and to occupy several workers.
_LEAST_GRID = 8
# The longest a tile may take, in seconds: no progress is shown within a tile, and an interruption loses it.
_LONGEST_TILE_SECONDS = 60.0
# Tiles that are written at the same time.
WRITERS = 2
# While rows are computed, memory holds both their batches and the joined tensor.
_COPIES_OF_NEW_ROWS = 2
# The least duration of a trial, in seconds; a shorter one is repeated with more examples.
_ENOUGH_SECONDS = 0.05


@dataclass(frozen=True)
class TilePlan:
    """What a computation will take. Memory (per process) and disk are in bytes."""

    layout: Layout
    kept: int  # blocks of rows whose TileFunction.rows stay in memory
    budget: int  # memory that may be used
    memory: int  # memory that will be used
    free_disk: int
    row_seconds: float  # for TileFunction.rows of one example
    pair_seconds: float  # for one entry, on one thread
    write_seconds: float  # for one byte
    parallel: int  # tiles at a time, in all processes
    per_process: int  # tiles at a time in one process

    def seconds(self, tiles: int) -> float:
        """Estimate the seconds for this many tiles; arithmetic and writing overlap."""
        panels = ceil(self.layout.grid[0] / self.panel)
        rows = self.layout.blocks * (1 + panels) / 2 if panels > 1 else self.layout.blocks
        share = tiles / self.layout.count
        arithmetic = tiles * self.layout.size**2 * self.pair_seconds / self.parallel
        return max(
            rows * share * self.layout.size * self.row_seconds + arithmetic,
            tiles * self.layout.tile_bytes * self.write_seconds,
        )

    @property
    def panel(self) -> int:
        """Rows of tiles that are computed together: all of them if everything is kept."""
        return self.layout.grid[0] if self.kept >= self.layout.blocks else max(1, self.kept - self.per_process - 1)

    def description(self, tiles: int) -> list[str]:
        """Describe in three lines what computing this many tiles will take."""
        layout = self.layout
        shape = " × ".join(map(str, (*layout.shape, *layout.outputs)))
        dtype = str(layout.dtype).removeprefix("torch.")
        count = f"{tiles} of {layout.count} tiles" if tiles < layout.count else f"{tiles} tiles"
        kept = f"rows kept for {min(self.kept, self.layout.blocks)} of {self.layout.blocks} blocks"
        disk, free = in_words(tiles * layout.tile_bytes), in_words(self.free_disk)
        return [
            f"{shape} {dtype}: {count}, of {layout.size} × {layout.size}, {self.parallel} at a time",
            f"memory {in_words(self.memory)} of {in_words(self.budget)} ({kept})",
            f"disk {disk} ({free} free); about {duration(self.seconds(tiles))}",
        ]

    def refuse_what_cannot_fit(self, tiles: int) -> None:
        """Raise StoreError if memory or disk is too small for this many more tiles."""
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
    """Measurements on the kernel of ``n`` examples; the process held ``resident`` bytes before."""

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
        """Return the memory of a process: current use, rows cached and being computed, tiles running and waiting."""
        # Every thread may still use two blocks of rows that have left the cache.
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
    """Choose the size of the tiles unless it is given, and estimate what they take on the disk of ``folder``.

    The size depends on the number of examples, the kernel and the budget, not on the workers, except that a tile that
    would take longer than a minute is made smaller.
    """
    parallel, per_process = executor.parallel, executor.per_process
    trial = _try(function, x, budget)
    shape = (x.shape[0], (x if y is None else y).shape[0])
    least = 2 * per_process  # a row and a column for each tile under way

    def layout_of(size: int) -> Layout:
        return Layout(shape, function.outputs, function.dtype, y is None, size)

    def is_too_large(size: int) -> bool:
        return (
            size > max(shape) / _LEAST_GRID
            or size**2 * trial.pair_seconds > _LONGEST_TILE_SECONDS
            or layout_of(size).tile_bytes > _LARGEST_TILE_BYTES
            or trial.memory(layout_of(size), per_process, least) > budget
        )

    if size is None:
        size = _LARGEST_TILE
        while size > _SMALLEST_TILE and is_too_large(size):
            size //= 2
        size = min(size, max(shape))
    layout = layout_of(size)
    room = budget - trial.memory(layout, per_process, 0)
    kept = max(least, min(layout.blocks, int(room / max(1.0, trial.row_bytes * size))))
    return TilePlan(
        layout,
        kept,
        budget,
        trial.memory(layout, per_process, min(kept, layout.blocks)),
        shutil.disk_usage(folder).free,
        trial.row_seconds,
        trial.pair_seconds,
        seconds_per_byte(folder, layout.tile_bytes),
        parallel,
        per_process,
    )


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
