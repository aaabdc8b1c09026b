"""Reads a kernel from disk like an array; every read is checked."""

from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Shaped
from torch import Tensor

from gatelab.errors import InputError, OutOfRangeError, StoreError
from gatelab.kernels.disk.layout import Tile
from gatelab.kernels.disk.store import KernelStore
from gatelab.kernels.solve.blocks import Region
from gatelab.kernels.tiles import mirrored
from gatelab.printing import html_facts, in_brief

if TYPE_CHECKING:
    import dask.array


def open_kernel(path: str | Path) -> "StoredKernel":
    """Open a kernel that ``gatelab kernel`` or :func:`gatelab.kernels.compute` has written.

    Raises:
        StoreError: there is none, or it is not finished.
    """
    if not isinstance(path, str | Path):
        raise InputError(f"path is {path!r}; give the directory of a kernel")
    store = KernelStore.open(Path(path))
    missing = store.layout.count - len(store.finished)
    if missing:
        raise StoreError(
            f"{path} is not finished: {missing} of {store.layout.count} tiles are missing; run the command that made "
            "it again to continue"
        )
    return StoredKernel(store)


class StoredKernel:
    """A finished kernel on disk.

    ``kernel[i, j]`` with numbers, slices or lists returns a NumPy array, as scikit-learn expects. A list selects along
    its own axis, so two lists select a block. :meth:`rows`, :meth:`diagonal` and :meth:`blocks` return tensors. Half of
    the tiles of a symmetric kernel are on disk; entries above the diagonal are read from their mirror image. Every read
    is checked against the ledger.

    Attributes:
        path: the directory of the store.
        about: what the kernel was made from, as plain data.
        shape: rows and columns, and (k, k) after them if the kernel has all pairs of k outputs.
        ndim: the number of axes, two or four.
        outputs: the axes after rows and columns.
        dtype: the dtype of the entries.
        symmetric: whether only the blocks on and below the diagonal are stored.
    """

    def __init__(self, store: KernelStore):
        """Read from ``store``."""
        self._store, self._layout = store, store.layout
        self.path, self.about = store.path, store.about
        self.dtype, self.symmetric, self.outputs = store.layout.dtype, store.layout.symmetric, store.layout.outputs
        self.shape: tuple[int, ...] = (*store.layout.shape, *self.outputs)
        self.ndim = len(self.shape)

    def __len__(self) -> int:
        return self.shape[0]

    def __repr__(self) -> str:
        kind = "symmetric" if self.symmetric else "rectangular"
        shape = " × ".join(map(str, self.shape))
        return f"StoredKernel: {self.about.get('kind')}, {shape}, {self.about.get('dtype')}, {kind}, in {self.path}"

    def _repr_html_(self) -> str:
        return html_facts(repr(self), {name: in_brief(value) for name, value in self.about.items()})

    def blocks(self, rows: slice | None = None, columns: slice | None = None) -> Iterator[tuple[slice, slice, Tensor]]:
        """Yield each stored block with its rows and columns; with ranges, only blocks that meet them."""
        region = Region.of(self, rows, columns)
        for row, column in self._layout.tiles(self._layout.grid[0]):
            i, j = self._layout.span(0, row), self._layout.span(1, column)
            if region.meets(i, j):
                yield i, j, self._store.read((row, column))

    def rows(
        self, which: int | slice | Tensor | list[int], columns: slice | None = None
    ) -> Shaped[Tensor, "r m *outputs"]:
        """Return some rows, whole or in a range of columns; a single number returns one row on the first axis."""
        return self._part(self._indices(which, 0), self._indices(columns or slice(None), 1))

    def diagonal(self) -> Shaped[Tensor, " n *outputs"]:
        """Return the entries of the examples with themselves."""
        if not self.symmetric:
            raise InputError(f"{self.path} compares different examples ({self.shape}); it has no diagonal")
        parts = [self._store.read((k, k)) for k in range(self._layout.grid[0])]
        return torch.cat([part[range(len(part)), range(len(part))] for part in parts])

    def __getitem__(self, key: Any) -> Any:
        """Return a part of the kernel as a NumPy array; a number drops its axis, as in NumPy."""
        keys = self._keys(tuple(map(_axis_of_mesh, key)) if isinstance(key, tuple) else (key,))
        rows, columns, *outputs = (self._indices(which, axis) for axis, which in enumerate(keys))
        part = self._part(rows, columns).numpy()
        for axis, chosen in enumerate(outputs, start=2):
            part = part.take(chosen, axis)
        return part[tuple(slice(None) if isinstance(which, slice) or np.ndim(which) else 0 for which in keys)]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """Return the whole kernel in memory."""
        if copy is False:
            raise InputError(f"{self.path} is on disk, so an array is always a copy; leave out copy=False")
        return np.asarray(self[...], dtype=dtype)

    def to_dask(self) -> "dask.array.Array":
        """Return the kernel as a lazy Dask array with one chunk per tile."""
        try:
            import dask.array  # noqa: PLC0415  an extra
        except ImportError as error:
            raise InputError("to_dask needs Dask: pip install 'gatelab[cluster]'") from error
        chunks: Any = (*(self._layout.size,) * 2, *self.outputs)
        return dask.array.from_array(_View(self), chunks=chunks, asarray=False, name=False)

    def _part(self, rows: np.ndarray, columns: np.ndarray) -> Tensor:
        out = torch.empty((len(rows), len(columns), *self.outputs), dtype=self.dtype)
        by_row, by_column = self._by_tile(rows), self._by_tile(columns)
        # A tile of a symmetric kernel may be needed twice, at its own place and mirrored; it is read once.
        places: dict[Tile, list[Tile]] = {}
        for place in product(by_row, by_column):
            places.setdefault((max(place), min(place)) if self.symmetric else place, []).append(place)
        for tile in sorted(places):
            block = self._store.read(tile)
            for place in places[tile]:
                (out_rows, i), (out_columns, j) = by_row[place[0]], by_column[place[1]]
                out[np.ix_(out_rows, out_columns)] = (block if place == tile else mirrored(block))[np.ix_(i, j)]
        return out

    def _by_tile(self, which: np.ndarray) -> dict[int, tuple[np.ndarray, np.ndarray]]:
        """Return, for each tile along an axis that holds some indices, their places in ``which`` and in the tile."""
        tiles, within = np.divmod(which, self._layout.size)
        places = {int(tile): np.flatnonzero(tiles == tile) for tile in np.unique(tiles)}
        return {tile: (positions, within[positions]) for tile, positions in places.items()}

    def _keys(self, given: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return one index for each axis."""
        dots = [place for place, which in enumerate(given) if which is Ellipsis]
        if len(dots) > 1:
            raise InputError(f"an index of {self.path} has more than one ellipsis; give at most one")
        missing = self.ndim - (len(given) - len(dots))
        if missing < 0:
            raise InputError(f"{len(given) - len(dots)} indices for {self.path}, which has only {self.ndim} axes")
        place = dots[0] if dots else len(given)
        return *given[:place], *(slice(None),) * missing, *given[place + 1 :]

    def _indices(self, which: Any, axis: int) -> np.ndarray:
        """Return non-negative positions along an axis."""
        n = self.shape[axis]
        if isinstance(which, slice):
            return np.arange(n)[which]
        given = np.asarray(which)
        if given.dtype == bool and given.shape == (n,):
            return np.flatnonzero(given)
        if given.size and (given.dtype.kind not in "iu" or given.ndim > 1 or given.min() < -n or given.max() >= n):
            name = ("rows", "columns", "outputs", "outputs")[axis]
            raise OutOfRangeError(f"{_short(which)} does not name {name} of a kernel with {n}")
        return np.atleast_1d(given).astype(np.int64) % n


def _axis_of_mesh(which: Any) -> Any:
    """Flatten an index that np.ix_ has made, as scikit-learn does; here each index selects along its own axis."""
    if isinstance(which, np.ndarray) and which.ndim == 2 and 1 in which.shape and which.dtype != bool:
        return which.reshape(-1)
    return which


def _short(which: Any) -> str:
    text = repr(which)
    return text if len(text) <= 60 else f"{text[:60]}…"


class _View:
    """A kernel with a NumPy dtype, for Dask to read from."""

    def __init__(self, kernel: StoredKernel):
        self._kernel, self.shape, self.ndim = kernel, kernel.shape, kernel.ndim
        self.dtype = torch.empty(0, dtype=kernel.dtype).numpy().dtype

    def __getitem__(self, key: tuple[slice | int, ...]) -> Any:
        return self._kernel[key]
