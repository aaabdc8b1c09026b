"""Kernels of any size: tile by tile to the disk, in this process or on many machines, interrupted and taken up."""

import threading
from collections import OrderedDict
from contextlib import closing
from pathlib import Path
from typing import Any, overload

import numpy as np
from jaxtyping import Float
from torch import Tensor

from gatelab import __version__
from gatelab.errors import InputError, StoreError
from gatelab.kernels.disk.digest import data_digest
from gatelab.kernels.disk.layout import Layout, Tile
from gatelab.kernels.disk.memory import memory_budget
from gatelab.kernels.disk.plan import WRITERS, make_plan
from gatelab.kernels.disk.store import KernelStore
from gatelab.kernels.disk.stored import StoredKernel
from gatelab.kernels.tiles import Kernel, TileFunction, evaluate
from gatelab.work import Executor, Here
from gatelab.work.here import in_order
from gatelab.work.progress import Reporter, Silent

# Of a store that exists so many rows and columns are computed again, and must agree in the mean but for rounding.
FIRST_ENTRIES, SAME = 16, 1e-3
_PART = "tiles"  # the one part of the work that a reporter hears of


@overload
def compute(kernel: Kernel, x: Tensor, y: Tensor | None = None, *, store: None = None) -> Tensor: ...
@overload
def compute(
    kernel: Kernel,
    x: Tensor,
    y: Tensor | None = None,
    *,
    store: str | Path,
    memory: str | int | None = None,
    tile: int | None = None,
    executor: Executor | None = None,
    progress: Reporter | None = None,
) -> StoredKernel: ...
def compute(
    kernel: Kernel,
    x: Float[Tensor, "n ..."],
    y: Float[Tensor, "m ..."] | None = None,
    *,
    store: str | Path | None = None,
    memory: str | int | None = None,
    tile: int | None = None,
    executor: Executor | None = None,
    progress: Reporter | None = None,
) -> Tensor | StoredKernel:
    """A kernel on examples, in memory or, tile by tile, in a zarr store on disk.

    Interrupted anywhere, the same call goes on: tiles that are finished are read and checked, and only what is missing,
    damaged or foreign is computed. Every tile is computed by one thread from blocks of rows that are cut the same way,
    so that for tiles of one size no bit of the result depends on the number of threads, on interruptions, or on who
    computed which tile.

    Args:
        kernel: :class:`OverlapKernel`, :class:`PathKernel`, :class:`TangentKernel` or :class:`InfiniteWidthKernel`.
        x: examples, the rows.
        y: other examples, the columns; None means x, and half of the tiles.
        store: a directory for the result, new or of an earlier call with the same arguments; None computes in memory.
        memory: what a process may use, such as "4GB" (this one, and every worker elsewhere); half of the machine's if
            None. Tiles are made smaller until it is enough.
        tile: rows and columns of a tile; chosen if None.
        executor: where tiles are computed; threads of this process if None.
        progress: receives the progress; None reports nothing.

    Raises:
        StoreError: the store holds another kernel (the difference is named), the disk or the memory is too small, or
            nothing can be written there.
        RunError: another process is working on the store, or a write failed; what is finished is kept.
    """
    if store is None and not memory is tile is executor is progress is None:
        raise InputError("memory, tile, executor and progress are for kernels on disk; give store= as well")
    function = kernel.on(x, y)
    if store is None:
        return evaluate(function, x, y)
    path, executor, progress = Path(store), executor or Here(), progress or Silent()
    budget = memory_budget(memory)
    about = {**kernel.about(), "dtype": str(function.dtype).removeprefix("torch."), "gatelab": __version__}
    about |= {"rows": data_digest(x), "columns": None if y is None else data_digest(y)}
    existing = KernelStore.open(path) if path.exists() else None
    whole: set[Tile] = set()
    if existing is not None:
        existing.refuse_unless_made_from(about)
        whole = _whole_tiles(existing, progress)
        _refuse_other_entries(existing, whole, function, x, y)
        if len(whole) == existing.layout.count:
            return StoredKernel(existing)
    plan = make_plan(
        function,
        x,
        y,
        path if existing is not None else _existing_folder(path),
        budget=budget,
        parallel=executor.parallel,
        per_process=executor.per_process,
        size=tile if existing is None else existing.layout.size,
    )
    plan.refuse_what_cannot_fit(plan.layout.count - len(whole))
    kept = existing or KernelStore.create(path, plan.layout, about)
    with kept.locked():
        kept.read_ledger()  # another process may have worked until now
        whole |= {other for other in kept.noted - whole if kept.is_whole(other)}
        missing = [other for other in plan.layout.tiles(plan.panel) if other not in whole]
        for line in plan.description(len(missing)):
            progress.note(line)
        progress.start({_PART: 1.0}, ())
        progress.update(_PART, 0.0, f"0 of {len(missing)}")
        job = TileJob(function, x.detach(), None if y is None else y.detach(), plan.layout, plan.kept)
        with (
            closing(executor.run(compute_tile, job, missing)) as answers,
            # Each write waits for the disk, so that there are several at a time.
            closing(in_order(lambda answer: kept.write(*answer), answers, WRITERS)) as written,
        ):
            for done, ((place, _), checksum) in enumerate(written, start=1):
                kept.note(place, checksum)
                progress.update(_PART, done / len(missing), f"{done} of {len(missing)}")
        progress.finish(_PART)
    return StoredKernel(kept)


def _whole_tiles(store: KernelStore, progress: Reporter) -> set[Tile]:
    """Read every tile that the ledger notes."""
    if store.noted:
        progress.note(f"{len(store.noted)} tiles are finished; checking them")
    whole = {tile for tile in store.noted if store.is_whole(tile)}
    progress.note(f"{len(whole)} of {store.layout.count} tiles are whole")
    return whole


def _refuse_other_entries(
    store: KernelStore, whole: set[Tile], function: TileFunction[Any], x: Tensor, y: Tensor | None
) -> None:
    """What a digest cannot see, the code of the model's forward say, shows in the first entries of a tile."""
    if not whole:
        return
    tile = min(whole)
    mine, theirs = (
        part[store.layout.span(axis, tile[axis])][:FIRST_ENTRIES]
        for axis, part in enumerate((x, x if y is None else y))
    )
    left = function.rows(mine)
    right = left if y is None and tile[0] == tile[1] else function.rows(theirs)
    now = function.block(left, right)
    there = store.read(tile)[: now.shape[0], : now.shape[1]].to(now)
    if (now - there).abs().mean() > SAME * there.abs().mean():
        raise StoreError(
            f"{store.path} holds another kernel: the entries of tile {tile[0]}, {tile[1]} are not what the model gives "
            "now, though its weights are the same; its code may have changed. Choose another place, or remove it"
        )


def _existing_folder(path: Path) -> Path:
    """The directory that will hold the store, or the nearest above it that exists."""
    for folder in path.absolute().parents:
        if folder.is_dir():
            return folder
        if folder.exists():
            raise StoreError(f"{path} cannot be made: {folder} is no directory; choose another place")
    raise StoreError(f"{path} cannot be made: no directory above it exists; choose another place")


class TileJob:
    """All that is needed for any tile; keeps what was computed of the latest blocks of rows."""

    def __init__(self, function: TileFunction[Any], x: Tensor, y: Tensor | None, layout: Layout, kept: int):
        """Keep at most ``kept`` blocks."""
        self._function, self._x, self._y, self._layout, self._room = function, x, y, layout, kept
        self._forget()

    def __getstate__(self) -> dict[str, Any]:
        """Everything but what is kept: a worker computes that itself."""
        return {name: value for name, value in self.__dict__.items() if name not in ("_lock", "_kept")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._forget()

    def _forget(self) -> None:
        self._lock = threading.Lock()
        self._kept: OrderedDict[tuple[int, int], Any] = OrderedDict()

    def tile(self, tile: Tile) -> Tensor:
        """One tile of the kernel."""
        row, column = tile
        left = self._rows(0, row)
        same = self._y is None and row == column
        return self._function.block(left, left if same else self._rows(0 if self._y is None else 1, column))

    def _rows(self, axis: int, index: int) -> Any:
        # One thread at a time: a model that is being run, or differentiated, has a state.
        with self._lock:
            key = (axis, index)
            if key not in self._kept:
                while len(self._kept) >= self._room:
                    self._kept.popitem(last=False)
                examples = self._x if axis == 0 else self._y
                assert examples is not None
                self._kept[key] = self._function.rows(examples[self._layout.span(axis, index)])
            self._kept.move_to_end(key)
            return self._kept[key]


def compute_tile(job: TileJob, tile: Tile) -> np.ndarray:
    """One tile, ready to be sent or written."""
    return job.tile(tile).numpy(force=True)
