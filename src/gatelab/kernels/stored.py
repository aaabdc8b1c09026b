"""Reading a kernel from disk: like an array, checked at every read."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Shaped
from torch import Tensor

from gatelab.errors import InputError, StoreError
from gatelab.kernels.layout import Tile
from gatelab.kernels.store import KernelStore

if TYPE_CHECKING:
    import dask.array


def open_kernel(path: str | Path) -> "StoredKernel":
    """A kernel that ``gatelab kernel`` or :func:`gatelab.kernels.compute` has written.

    Raises:
        StoreError: there is none, or it is not finished.
    """
    store = KernelStore.open(Path(path))
    missing = store.layout.count - len(store.noted)
    if missing:
        raise StoreError(
            f"{path} is not finished: {missing} of {store.layout.count} tiles are missing; run the command that made "
            "it again to go on"
        )
    return StoredKernel(store)


class StoredKernel:
    """A finished kernel on disk.

    ``kernel[i, j]`` with numbers, slices or lists gives a NumPy array, as scikit-learn takes it; :meth:`rows`,
    :meth:`diagonal` and :meth:`blocks` give tensors. Of a symmetric kernel half of the tiles are on disk: any entry can
    be asked for, and comes from where it is. What is read is checked against the ledger.
    """

    ndim = 2

    def __init__(self, store: KernelStore):
        """Read from ``store``."""
        self._store, self._layout = store, store.layout

    @property
    def path(self) -> Path:
        """The directory."""
        return self._store.path

    @property
    def about(self) -> dict[str, Any]:
        """What the kernel was made from."""
        return dict(self._store.about)

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return self._layout.shape

    @property
    def outputs(self) -> tuple[int, ...]:
        """Axes behind rows and columns."""
        return self._layout.outputs

    @property
    def dtype(self) -> torch.dtype:
        """Of the entries."""
        return self._layout.dtype

    @property
    def symmetric(self) -> bool:
        """Whether only the blocks on and below the diagonal are kept."""
        return self._layout.symmetric

    def __len__(self) -> int:
        return self.shape[0]

    def __repr__(self) -> str:
        kind = "symmetric" if self.symmetric else "rectangular"
        shape = " × ".join(map(str, (*self.shape, *self.outputs)))
        return f"StoredKernel: {self.about.get('kind')}, {shape}, {self.about.get('dtype')}, {kind}, in {self.path}"

    def blocks(self) -> Iterator[tuple[slice, slice, Tensor]]:
        """Every block that is on disk, with its rows and columns."""
        for row, column in self._layout.tiles(self._layout.grid[0]):
            yield self._layout.span(0, row), self._layout.span(1, column), self._store.read((row, column))

    def rows(self, which: int | slice | Tensor | list[int]) -> Shaped[Tensor, "r m *outputs"]:
        """Some rows, whole; for one row give its number, and get an array of one row."""
        return self._part(self._indices(which, 0), None)

    def diagonal(self) -> Shaped[Tensor, " n *outputs"]:
        """The entries of examples with themselves."""
        if not self.symmetric:
            raise InputError(f"{self.path} compares different examples ({self.shape}); it has no diagonal")
        parts = [self._store.read((k, k)) for k in range(self._layout.grid[0])]
        return torch.cat([part[range(len(part)), range(len(part))] for part in parts])

    def __getitem__(self, key: Any) -> Any:
        """Part of the kernel as NumPy array; a number drops its axis, two give an entry."""
        row, column = key if isinstance(key, tuple) else (key, slice(None))
        part = self._part(self._indices(row, 0), self._indices(column, 1)).numpy()
        part = part[:, 0] if isinstance(column, int | np.integer) else part
        return part[0] if isinstance(row, int | np.integer) else part

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """The whole kernel in memory."""
        del copy
        return np.asarray(self[:, :], dtype=dtype)

    def to_dask(self) -> "dask.array.Array":
        """The kernel as a lazy Dask array with one chunk per tile."""
        try:
            import dask.array  # noqa: PLC0415  an extra
        except ImportError as error:
            raise InputError("to_dask needs Dask: pip install 'gatelab[cluster]'") from error
        size = (self._layout.size,) * 2
        chunks: Any = (*size, *self.outputs)
        return dask.array.from_array(_View(self), chunks=chunks, asarray=False, name=False)

    def _part(self, rows: np.ndarray, columns: np.ndarray | None) -> Tensor:
        columns = np.arange(self.shape[1]) if columns is None else columns
        out = torch.empty((len(rows), len(columns), *self.outputs), dtype=self.dtype)
        size = self._layout.size
        for a in np.unique(rows // size):
            mine = np.flatnonzero(rows // size == a)
            for b in np.unique(columns // size):
                theirs = np.flatnonzero(columns // size == b)
                block = self._block((int(a), int(b)))
                inner = np.ix_(rows[mine] - a * size, columns[theirs] - b * size)
                out[np.ix_(mine, theirs)] = block[inner]
        return out

    def _block(self, tile: Tile) -> Tensor:
        """Any tile; one above the diagonal is the transpose of the one below, outputs with it."""
        row, column = tile
        if not self.symmetric or column <= row:
            return self._store.read(tile)
        block = self._store.read((column, row)).transpose(0, 1)
        return block.transpose(2, 3) if self.outputs else block

    def _indices(self, which: Any, axis: int) -> np.ndarray:
        """Positions along an axis, none negative."""
        n = self.shape[axis]
        if isinstance(which, slice):
            return np.arange(n)[which]
        found = np.atleast_1d(np.asarray(which))
        if found.dtype == bool and found.shape == (n,):
            return np.flatnonzero(found)
        if found.size and (found.dtype.kind not in "iu" or found.ndim != 1 or found.min() < -n or found.max() >= n):
            raise InputError(f"{which!r} does not name {'rows' if axis == 0 else 'columns'} of a kernel with {n}")
        return found.astype(np.int64) % n


class _View:
    """What Dask reads from: shape and NumPy dtype of all axes."""

    def __init__(self, kernel: StoredKernel):
        self._kernel = kernel
        self.shape = (*kernel.shape, *kernel.outputs)
        self.ndim = len(self.shape)
        self.dtype = torch.empty(0, dtype=kernel.dtype).numpy().dtype

    def __getitem__(self, key: tuple[slice, ...]) -> np.ndarray:
        return self._kernel[key[0], key[1]][(slice(None), slice(None), *key[2:])]
