"""Computes kernels of any size tile by tile and writes them to disk, in this process or on many machines."""

import threading
from collections import OrderedDict
from contextlib import closing
from pathlib import Path
from typing import Any, overload

import numpy as np
from jaxtyping import Float
from torch import Tensor

from gatelab.errors import InputError, StoreError
from gatelab.kernels.disk.digest import data_digest
from gatelab.kernels.disk.layout import Layout, Tile
from gatelab.kernels.disk.memory import memory_budget
from gatelab.kernels.disk.plan import WRITERS, make_plan
from gatelab.kernels.disk.store import KERNEL_FORMAT, KernelStore
from gatelab.kernels.disk.stored import StoredKernel
from gatelab.kernels.tiles import HasMethod, Kernel, TileFunction, evaluate
from gatelab.work import Here
from gatelab.work.checksums import Condition
from gatelab.work.executor import Executor
from gatelab.work.files import locked, refuse_links
from gatelab.work.here import in_order
from gatelab.work.progress import Reporter, Silent

# The first version of gatelab that computes the same tiles as this one. A store records it; a store with another
# arithmetic is refused, because its tiles would not match new ones. Raise it when a kernel's rounding changes.
ARITHMETIC = "0.1.0"
# This many rows and columns of an existing store are recomputed; their mean difference may be this large.
_TRIAL_ROWS, _TRIAL_TOLERANCE = 16, 1e-3
_PART = "tiles"  # the one part of the work that a reporter shows


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
    redo_damaged: bool = False,
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
    redo_damaged: bool = False,
) -> Tensor | StoredKernel:
    """Compute a kernel in memory or, tile by tile, in a zarr store on disk.

    After an interruption, the same call continues: it reads and checks the finished tiles, and computes only those that
    are missing, damaged or from another kernel. One thread computes a tile, from blocks of rows that are always cut the
    same way. For tiles of a given size, the result is therefore bit-identical, whatever the number of threads, the
    interruptions, or the worker that computed each tile.

    Args:
        kernel: :class:`OverlapKernel`, :class:`PathKernel`, :class:`TangentKernel` or :class:`InfiniteWidthKernel`.
        x: the examples of the rows.
        y: the examples of the columns; None means x, and then only half of the tiles are computed.
        store: a directory for the result, new or from an earlier call with the same arguments; None computes in memory.
        memory: the memory that this process and each remote worker may use, such as "4GB"; None means half of the
            machine's. Tiles are made smaller until they fit.
        tile: rows and columns of a tile; chosen if None.
        executor: where tiles are computed; None means threads of this process.
        progress: receives the progress; None reports nothing.
        redo_damaged: if the metadata of the store are damaged, set the store aside and start again instead of raising.

    Returns:
        The kernel: a tensor without ``store``, otherwise a :class:`StoredKernel`.

    Raises:
        StoreError: the store holds another kernel, and the message names the difference; or the disk or the memory is
            too small; or nothing can be written there.
        RunError: another process is working on the store, or a write failed. Finished tiles are kept.

    Example:
        >>> from gatelab.kernels import InfiniteWidthKernel
        >>> import torch
        >>> compute(InfiniteWidthKernel(depth=2), torch.eye(2, 3)).shape
        torch.Size([2, 2])
    """
    if store is None and not memory is tile is executor is progress is None:
        raise InputError("memory, tile, executor and progress are for kernels on disk; give store= as well")
    function = _on(kernel, x, y)
    if store is None:
        return evaluate(function, x, y)
    path, executor, progress = Path(store), executor or Here(), progress or Silent()
    budget = memory_budget(memory)
    about = {**kernel.about(), "dtype": str(function.dtype).removeprefix("torch."), "gatelab": ARITHMETIC}
    about |= {"rows": data_digest(x), "columns": None if y is None else data_digest(y)}
    existing = _existing_store(path, progress, redo_damaged)
    whole: set[Tile] = set()
    if existing is not None:
        KERNEL_FORMAT.refuse_changes(path, existing.about, about)
        whole = _whole_tiles(existing, progress)
        _refuse_other_entries(existing, whole, function, x, y)
        if len(whole) == existing.layout.count:
            return StoredKernel(existing)
    size = tile if existing is None else existing.layout.size
    plan = make_plan(function, x, y, _existing_folder(path), budget, executor, size)
    plan.refuse_what_cannot_fit(plan.layout.count - len(whole))
    opened = existing or KernelStore.create(path, plan.layout, about)
    with locked(path):
        opened.read_ledger()  # another process may have added tiles until now
        whole |= {other for other in opened.finished - whole if opened.is_whole(other)}
        missing = [other for other in plan.layout.tiles(plan.panel) if other not in whole]
        for line in plan.description(len(missing)):
            progress.note(line)
        progress.start({_PART: 1.0}, ())
        progress.update(_PART, 0.0, f"0 of {len(missing)}")
        job = TileJob(function, x.detach(), None if y is None else y.detach(), plan.layout, plan.kept)
        with (
            closing(executor.run(compute_tile, job, missing)) as answers,
            # A write waits for the disk, so several run at a time.
            closing(in_order(lambda answer: opened.write(*answer), answers, WRITERS)) as written,
        ):
            for done, ((place, _), checksum) in enumerate(written, start=1):
                opened.add_to_ledger(place, checksum)
                progress.update(_PART, done / len(missing), f"{done} of {len(missing)}")
        progress.finish(_PART)
    return StoredKernel(opened)


def planned(
    kernel: Kernel,
    x: Tensor,
    y: Tensor | None = None,
    *,
    store: str | Path,
    memory: str | int | None = None,
    executor: Executor | None = None,
) -> list[str]:
    """Describe in a few lines what :func:`compute` would do: method, memory, disk and time.

    A few examples are tried; nothing is written.
    """
    function = _on(kernel, x, y)
    folder = next(place for place in Path(store).absolute().parents if place.is_dir())
    plan = make_plan(function, x, y, folder, memory_budget(memory), executor or Here())
    method = function.method(x[:1]) if isinstance(function, HasMethod) else []
    return [*method, *plan.description(plan.layout.count)]


def _on(kernel: Kernel, x: Tensor, y: Tensor | None) -> TileFunction[Any]:
    if not isinstance(kernel, Kernel):
        raise InputError(
            f"the kernel is a {type(kernel).__name__}; give an OverlapKernel, PathKernel, TangentKernel or "
            "InfiniteWidthKernel"
        )
    return kernel.on(x, y)


def _existing_store(path: Path, progress: Reporter, redo_damaged: bool) -> KernelStore | None:
    if not KERNEL_FORMAT.exists(path):
        return None
    refuse_links(path)
    if redo_damaged and KERNEL_FORMAT.record_condition(path) is Condition.DAMAGED:
        progress.note(f"the metadata are damaged; the store is now {KERNEL_FORMAT.set_aside(path)}")
        return None
    return KernelStore.open(path)


def _whole_tiles(store: KernelStore, progress: Reporter) -> set[Tile]:
    """Read every tile that the ledger lists; return those that are whole, and report the others."""
    if store.finished:
        progress.note(f"{len(store.finished)} tiles are finished; checking them")
    whole = {tile for tile in store.finished if store.is_whole(tile)}
    for row, column in sorted(store.finished - whole):
        progress.note(f"tile {row}, {column} is damaged; it will be recomputed")
    progress.note(f"{len(whole)} of {store.layout.count} tiles are whole")
    return whole


def _refuse_other_entries(
    store: KernelStore, whole: set[Tile], function: TileFunction[Any], x: Tensor, y: Tensor | None
) -> None:
    """Recompute the first entries of a tile: a digest does not detect a change in the code of the model's forward."""
    if not whole:
        return
    tile = min(whole)
    rows, columns = (
        part[store.layout.span(axis, tile[axis])][:_TRIAL_ROWS] for axis, part in enumerate((x, x if y is None else y))
    )
    left = function.rows(rows)
    right = left if y is None and tile[0] == tile[1] else function.rows(columns)
    now = function.block(left, right)
    stored = store.read(tile)[: now.shape[0], : now.shape[1]].to(now)
    if (now - stored).abs().mean() > _TRIAL_TOLERANCE * stored.abs().mean():
        raise StoreError(
            f"{store.path} holds another kernel: the entries of tile {tile[0]}, {tile[1]} are not what the model gives "
            "now, though its weights are the same; its code may have changed. Choose another directory, or remove this "
            "one"
        )


def _existing_folder(path: Path) -> Path:
    """Return the directory of the store, or the nearest one above it that exists."""
    path = path.absolute()
    folder = next((folder for folder in (path, *path.parents) if folder.exists()), path)
    if not folder.is_dir():
        raise StoreError(f"{path} cannot be created: {folder} is not a directory; choose another place")
    return folder


class TileJob:
    """Everything that a tile needs; caches what it computed for the latest blocks of rows."""

    def __init__(self, function: TileFunction[Any], x: Tensor, y: Tensor | None, layout: Layout, kept: int):
        """Keep at most ``kept`` blocks."""
        self._function, self._x, self._y, self._layout, self._room = function, x, y, layout, kept
        self._lock = threading.Lock()
        self._kept: OrderedDict[tuple[int, int], Any] = OrderedDict()

    def __reduce__(self) -> tuple[Any, ...]:
        """Leave out the cached blocks: a worker computes its own."""
        return TileJob, (self._function, self._x, self._y, self._layout, self._room)

    def tile(self, tile: Tile) -> Tensor:
        """Compute one tile."""
        row, column = tile
        left = self._rows(0, row)
        same = self._y is None and row == column
        return self._function.block(left, left if same else self._rows(0 if self._y is None else 1, column))

    def _rows(self, axis: int, index: int) -> Any:
        # One thread at a time: a model changes state while it runs or is differentiated.
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
    """Compute one tile, ready to be sent or written."""
    return job.tile(tile).numpy(force=True)
