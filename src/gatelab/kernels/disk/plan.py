"""Before a kernel is computed: how large its tiles are, and what it will take."""

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
from gatelab.work.here import one_thread_each
from gatelab.work.progress import duration

# Larger tiles gain nothing (within one, work is done in blocks that fit the cache), and cost memory.
LARGEST_TILE, SMALLEST_TILE = 2048, 16
LARGEST_TILE_BYTES = 2**26
# Rows and columns of tiles at least, so that there is progress to see, and work for several.
LEAST_GRID = 8
# A tile that takes longer shows no progress, and is much to lose.
LONGEST_TILE_SECONDS = 60.0
# Tiles that are written at a time.
WRITERS = 2
# While some rows are computed: their batches, and the whole that they are joined to.
ROWS_IN_THE_MAKING = 2
# Until a trial takes so long it is repeated with more examples.
ENOUGH_SECONDS = 0.05


@dataclass(frozen=True)
class TilePlan:
    """What a computation will take.

    Attributes:
        layout: shape and tiles.
        kept: blocks of rows of which is kept what the tiles need.
        blocks: of rows (and columns, if they are others) in all.
        budget: bytes of memory that a process may use.
        memory: bytes that one will.
        free_disk: bytes that there are.
        row_seconds: what is kept of one example takes.
        pair_seconds: one entry takes, on one thread.
        write_seconds: one byte takes.
        parallel: tiles at a time, by all processes.
        per_process: those of them in one process.
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
        """How long so many tiles will take; arithmetic and disk work at the same time."""
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
        """Rows of tiles that are worked on together: all if everything is kept."""
        return self.layout.grid[0] if self.kept >= self.blocks else max(1, self.kept - self.per_process - 1)

    def description(self, tiles: int) -> list[str]:
        """Return what computing so many tiles will take, in three lines."""
        layout = self.layout
        shape = " × ".join(map(str, (*layout.shape, *layout.outputs)))
        dtype = str(layout.dtype).removeprefix("torch.")
        what = f"{tiles} of {layout.count} tiles" if tiles < layout.count else f"{tiles} tiles"
        kept = f"rows kept for {min(self.kept, self.blocks)} of {self.blocks} blocks"
        disk, free = in_words(tiles * layout.tile_bytes), in_words(self.free_disk)
        return [
            f"{shape} {dtype}: {what}, of {layout.size} × {layout.size}, {self.parallel} at a time",
            f"memory {in_words(self.memory)} of {in_words(self.budget)} ({kept})",
            f"disk {disk} ({free} free); about {duration(self.seconds(tiles))}",
        ]

    def refuse_what_cannot_fit(self, tiles: int) -> None:
        """Raise StoreError if memory or disk is not enough for so many more tiles."""
        if self.memory > self.budget:
            raise StoreError(
                f"tiles of {self.layout.size} × {self.layout.size} need {in_words(self.memory)} of memory, and "
                f"{in_words(self.budget)} may be used; allow more, or use fewer threads"
            )
        if tiles * self.layout.tile_bytes > self.free_disk:
            raise StoreError(
                f"{tiles} tiles need {in_words(tiles * self.layout.tile_bytes)} of disk, and "
                f"{in_words(self.free_disk)} are free; make room, choose another place, or take fewer examples"
            )


@dataclass(frozen=True)
class _Trial:
    """What some examples tell.

    Attributes:
        rows: what is kept of them.
        n: how many they are.
        resident: what the process held before.
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
        """Of a process: what it holds now, rows, those in the making, blocks under way, tiles under way and waiting.

        A block of rows that has to go may still be in use by every thread.
        """
        rows = (kept + 2 * per_process + ROWS_IN_THE_MAKING) * layout.size * self.row_bytes
        working = per_process * self.function.bytes_working(self.rows, layout.size)
        return self.resident + int(rows) + working + (2 * per_process + 2 + WRITERS) * layout.tile_bytes


def make_plan(
    function: TileFunction[Any],
    x: Tensor,
    y: Tensor | None,
    folder: Path,
    *,
    budget: int,
    parallel: int,
    per_process: int,
    size: int | None = None,
) -> TilePlan:
    """Choose the tiles, and say what they take.

    The size of tiles follows from the number of examples, the kernel and the budget, not from who computes them; but
    one that would take longer than a minute is made smaller.

    Args:
        function: the kernel.
        x: the rows.
        y: the columns, if they are not the rows.
        folder: where the result will be.
        budget: bytes of memory for a process.
        parallel: tiles at a time.
        per_process: those of them in one process.
        size: of the tiles of a store that exists already.
    """
    trial = _try(function, x, budget)
    shape = (x.shape[0], (x if y is None else y).shape[0])
    layout = Layout(shape, function.outputs, function.dtype, y is None, size or _first_size(shape, trial))
    least = 2 * per_process  # a row and a column for each tile under way

    def is_too_large(layout: Layout) -> bool:
        return layout.tile_bytes > LARGEST_TILE_BYTES or trial.memory(layout, per_process, least) > budget

    while size is None and layout.size > SMALLEST_TILE and is_too_large(layout):
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
    """The largest sensible tile."""
    quick = sqrt(LONGEST_TILE_SECONDS / max(trial.pair_seconds, 1e-12))
    size = LARGEST_TILE
    while size > SMALLEST_TILE and size > min(max(shape) / LEAST_GRID, quick):
        size //= 2
    return min(size, max(shape))


def _try(function: TileFunction[Any], x: Tensor, budget: int) -> _Trial:
    """Compute the kernel of some examples, of more until the clock can tell or half of the room is used."""
    resident, n = resident_bytes(), min(SMALLEST_TILE, x.shape[0])
    with one_thread_each():
        rows = function.rows(x[:n])
        function.block(rows, rows)  # compiles what has to be compiled
        while True:
            start = time.perf_counter()
            other = function.rows(x[:n])
            between = time.perf_counter()
            function.block(rows, other)
            seconds = time.perf_counter() - between
            more = min(4 * n, LARGEST_TILE, x.shape[0])
            needed = more / n * 2 * function.bytes_kept(rows) + function.bytes_working(rows, more)
            if seconds > ENOUGH_SECONDS or more == n or resident + 2 * needed > budget:
                return _Trial(function, rows, n, resident, (between - start) / n, seconds / n**2)
            n = more
            rows = function.rows(x[:n])
