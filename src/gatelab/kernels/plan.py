"""Before a kernel is computed: how large its tiles are, and what it will take."""

import os
import re
import resource
import shutil
import sys
import time
from dataclasses import dataclass, replace
from math import sqrt
from pathlib import Path
from typing import Any

from torch import Tensor

from gatelab.errors import InputError, StoreError
from gatelab.executors.here import one_thread_each
from gatelab.kernels.layout import Layout
from gatelab.kernels.store import seconds_per_byte
from gatelab.kernels.tiles import TileFunction

# Larger tiles gain nothing (within one, work is done in blocks that fit the cache), and cost memory.
LARGEST_TILE, SMALLEST_TILE = 2048, 16
LARGEST_TILE_BYTES = 2**26
# A tile that takes longer shows no progress, and is much to lose.
LONGEST_TILE_SECONDS = 30.0
# While some rows are computed: their batches, and the whole that they are joined to.
ROWS_IN_THE_MAKING = 2
ENOUGH_SECONDS = 0.05


@dataclass(frozen=True)
class Plan:
    """What a computation will take.

    Attributes:
        layout: shape and tiles.
        kept: blocks of rows of which is kept what the tiles need.
        blocks: of rows (and columns, if they are others) in all.
        budget: bytes of memory that may be used.
        memory: bytes that will be.
        disk: bytes that finished tiles will take.
        free_disk: bytes that there are.
        pair_seconds: one entry takes, on one thread.
        write_seconds: one byte takes.
        parallel: tiles at a time.
    """

    layout: Layout
    kept: int
    blocks: int
    budget: int
    memory: int
    disk: int
    free_disk: int
    pair_seconds: float
    write_seconds: float
    parallel: int

    def seconds(self, tiles: int) -> float:
        """How long so many tiles will take; arithmetic and disk work at the same time."""
        arithmetic = tiles * self.layout.size**2 * self.pair_seconds / self.parallel
        return max(arithmetic, tiles * self.layout.tile_bytes * self.write_seconds)

    @property
    def panel(self) -> int:
        """Rows of tiles that are worked on together: all if everything is kept."""
        return self.layout.grid[0] if self.kept >= self.blocks else max(1, self.kept - self.parallel - 1)

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
class _Cost:
    """What a trial on some examples tells."""

    row_bytes: float
    pair_seconds: float


def make_plan(
    function: TileFunction[Any],
    x: Tensor,
    y: Tensor | None,
    folder: Path,
    *,
    budget: int,
    parallel: int,
    size: int | None = None,
) -> Plan:
    """Choose the tiles, and say what they take.

    Args:
        function: the kernel.
        x: the rows.
        y: the columns, if they are not the rows.
        folder: where the result will be.
        budget: bytes of memory for the whole process.
        parallel: tiles at a time.
        size: of the tiles of a store that exists already.
    """
    cost = _trial(function, x)
    shape = (x.shape[0], (x if y is None else y).shape[0])
    layout = Layout(shape, function.outputs, function.dtype, y is None, size or _first_size(shape, parallel, cost))
    while size is None and layout.size > SMALLEST_TILE and _is_too_large(layout, cost, parallel, budget):
        layout = replace(layout, size=layout.size // 2)
    blocks = layout.grid[0] if y is None else sum(layout.grid)
    row_bytes = max(1.0, cost.row_bytes * layout.size)
    room = budget - _memory(layout, cost, parallel, 0)
    kept = max(_least(parallel), min(blocks, int(room / row_bytes)))
    disk = shutil.disk_usage(folder)
    return Plan(
        layout,
        kept,
        blocks,
        budget,
        _memory(layout, cost, parallel, min(kept, blocks)),
        layout.count * layout.tile_bytes,
        disk.free,
        cost.pair_seconds,
        seconds_per_byte(folder, layout.tile_bytes),
        parallel,
    )


def _least(parallel: int) -> int:
    """Blocks that must be kept at the least: a row and a column for each tile under way."""
    return 2 * parallel


def _memory(layout: Layout, cost: _Cost, parallel: int, kept: int) -> int:
    """Of the whole process: what it holds now, rows, rows in the making, tiles under way and waiting for the disk."""
    rows = (kept + ROWS_IN_THE_MAKING) * layout.size * cost.row_bytes
    return resident_bytes() + int(rows) + (2 * parallel + 2) * layout.tile_bytes


def _is_too_large(layout: Layout, cost: _Cost, parallel: int, budget: int) -> bool:
    return layout.tile_bytes > LARGEST_TILE_BYTES or _memory(layout, cost, parallel, _least(parallel)) > budget


def _first_size(shape: tuple[int, int], parallel: int, cost: _Cost) -> int:
    """The largest sensible tile: all workers have several, and each is done before long."""
    share = max(shape) / (2 * parallel)
    quick = sqrt(LONGEST_TILE_SECONDS / max(cost.pair_seconds, 1e-12))
    size = LARGEST_TILE
    while size > SMALLEST_TILE and size > min(share, quick):
        size //= 2
    return min(size, max(shape))


def _trial(function: TileFunction[Any], x: Tensor) -> _Cost:
    """Compute the kernel of some examples, of more until the clock can tell."""
    n = min(SMALLEST_TILE, x.shape[0])
    with one_thread_each():
        rows = function.rows(x[:n])
        function.block(rows, rows)  # compiles what has to be compiled
        while True:
            other = function.rows(x[:n])
            start = time.perf_counter()
            function.block(rows, other)
            seconds = time.perf_counter() - start
            if seconds > ENOUGH_SECONDS or n == min(LARGEST_TILE, x.shape[0]):
                return _Cost(function.bytes_kept(rows) / n, seconds / n**2)
            n = min(4 * n, LARGEST_TILE, x.shape[0])
            rows = function.rows(x[:n])


def memory_budget(memory: str | int | None) -> int:
    """Bytes meant by "4GB", "800 MiB" or a number; None is half of what the machine has.

    Example:
        >>> memory_budget("4GB"), memory_budget("1.5 GiB")
        (4000000000, 1610612736)
    """
    if memory is None:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
    if isinstance(memory, int):
        return memory
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?)(i?)b?\s*", memory.lower())
    if match is None or float(match[1]) == 0:
        raise InputError(f"memory is {memory!r}; write a size such as 4GB, 800MB or 2GiB")
    return int(float(match[1]) * (1024 if match[3] else 1000) ** " kmgt".index(match[2] or " "))


def resident_bytes() -> int:
    """The memory that this process holds now."""
    status = Path("/proc/self/statm")
    if status.exists():
        return int(status.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def in_words(count: float) -> str:
    """A number of bytes as people say it.

    Example:
        >>> in_words(7_200_000_000), in_words(512)
        ('7.2 GB', '512 B')
    """
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if count >= 100 or unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"
