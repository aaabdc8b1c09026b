"""A kernel on disk: a zarr array with one chunk per tile, and a ledger of the tiles that are finished.

The array's metadata are written by zarr, and any zarr reader opens the result. Tiles are written by hand, in the plain
form that the metadata promise (little-endian entries, then their CRC-32C), because a tile must be on the disk, whole,
before the ledger says so, and because the ledger notes the same checksum: it tells a tile from one of another kernel.
"""

import os
import shutil
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np
import torch
import zarr
from torch import Tensor
from zarr.codecs import Crc32cCodec

from gatelab.errors import RunError, StoreError
from gatelab.kernels.disk.layout import Layout, Tile
from gatelab.work.files import JsonLines, locked, sync_folder, write_durably

FORMAT = "gatelab.kernel/1"
CHECKSUM_BYTES = 4


class KernelStore:
    """A directory with a kernel, finished or not.

    Attributes:
        path: the directory.
        layout: shape and tiles.
        about: what the kernel was made from, as plain data.
    """

    def __init__(self, path: Path, layout: Layout, about: dict[str, Any]):
        """A store that exists; see :meth:`create` and :meth:`open`."""
        self.path, self.layout, self.about = path, layout, about
        self._ledger = JsonLines(path / "ledger.jsonl")
        self._checksums: dict[Tile, int] = {}
        self.read_ledger()

    @classmethod
    def create(cls, path: Path, layout: Layout, about: dict[str, Any]) -> "KernelStore":
        """Make an empty store, all NaN; it appears whole or not at all."""
        partial = path.with_name(path.name + ".partial")
        try:
            shutil.rmtree(partial, ignore_errors=True)
            path.parent.mkdir(parents=True, exist_ok=True)
            zarr.create_array(
                partial,
                shape=(*layout.shape, *layout.outputs),
                chunks=(layout.size, layout.size, *layout.outputs),
                dtype=layout.numpy_dtype,
                fill_value=float("nan"),
                compressors=[Crc32cCodec()],
                attributes={"gatelab": {"format": FORMAT, "symmetric": layout.symmetric, "about": about}},
            )
            with (partial / "zarr.json").open("rb") as metadata:
                os.fsync(metadata.fileno())
            sync_folder(partial)
            partial.replace(path)
            sync_folder(path.parent)
        except OSError as error:
            if path.exists():
                raise StoreError(f"{path} exists by now: another process may have made it; wait for it") from error
            raise StoreError(f"{path} cannot be made: {error.strerror or error}; choose another place") from error
        return cls(path, layout, about)

    @classmethod
    def open(cls, path: Path) -> "KernelStore":
        """The store in a directory.

        Raises:
            StoreError: there is none, or one that this version does not read.
        """
        if not path.exists():
            raise StoreError(f"there is no {path}; 'gatelab kernel … -o {path}' makes it")
        try:
            array = zarr.open_array(path, mode="r")
            facts: Any = array.attrs["gatelab"]
            if facts["format"] != FORMAT:
                raise StoreError(
                    f"{path} is a kernel in another format ({facts['format']}); this version reads {FORMAT}"
                )
            n, m, *outputs = array.shape
            dtype = torch.from_numpy(np.empty(0, array.dtype.newbyteorder("="))).dtype
            layout = Layout((n, m), tuple(outputs), dtype, bool(facts["symmetric"]), array.chunks[0])
            return cls(path, layout, dict(facts["about"]))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise StoreError(f"{path} is not a kernel of gatelab: {error}; choose another place") from error

    def refuse_unless_made_from(self, about: dict[str, Any]) -> None:
        """Raise StoreError, naming what differs, unless the store was made from the same."""
        differing = [key for key in sorted({*self.about, *about}) if self.about.get(key) != about.get(key)]
        if differing:
            told = "; ".join(f"{key}: {self.about.get(key)!r} there, {about.get(key)!r} now" for key in differing)
            raise StoreError(f"{self.path} holds another kernel ({told}); choose another place, or remove it")

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Have the store alone."""
        with locked(self.path):
            yield

    def read_ledger(self) -> None:
        """Learn what is finished; entries that are none of this kernel's are passed over."""
        own = set(self.layout.tiles(self.layout.grid[0]))
        self._checksums = {}
        for entry in self._ledger.read():
            with suppress(KeyError, TypeError, ValueError, OverflowError):
                tile = (int(entry["tile"][0]), int(entry["tile"][1]))
                if tile in own:
                    self._checksums[tile] = int(entry["crc32c"])

    @property
    def noted(self) -> frozenset[Tile]:
        """Tiles that the ledger calls finished."""
        return frozenset(self._checksums)

    def write(self, tile: Tile, block: np.ndarray) -> int:
        """Keep a tile; when this returns it is on the disk, and may be noted with the checksum that is returned."""
        layout = self.layout
        chunk = np.ascontiguousarray(block, layout.numpy_dtype)
        if block.shape[:2] != (layout.size, layout.size):
            chunk = np.full((layout.size, layout.size, *layout.outputs), np.nan, layout.numpy_dtype)
            chunk[: block.shape[0], : block.shape[1]] = block
        checksum = google_crc32c.value(chunk)
        write_durably(self._file(tile), chunk.data.cast("B"), checksum.to_bytes(CHECKSUM_BYTES, "little"))
        return checksum

    def note(self, tile: Tile, checksum: int) -> None:
        """Call a tile finished that is on the disk."""
        self._ledger.append({"tile": list(tile), "crc32c": checksum})
        self._checksums[tile] = checksum

    def is_whole(self, tile: Tile) -> bool:
        """Whether a tile is there, and what the ledger says it is."""
        try:
            self._chunk(tile)
        except StoreError:
            return False
        return True

    def read(self, tile: Tile) -> Tensor:
        """The entries of a tile, without padding.

        Raises:
            StoreError: the tile is missing, damaged, or of another kernel.
        """
        rows, columns = self.layout.span(0, tile[0]), self.layout.span(1, tile[1])
        chunk = self._chunk(tile).astype(self.layout.numpy_dtype.newbyteorder("="), copy=False)
        return torch.from_numpy(chunk[: rows.stop - rows.start, : columns.stop - columns.start])

    def _chunk(self, tile: Tile) -> np.ndarray:
        """A tile's file, checked."""
        what = f"tile {tile[0]}, {tile[1]} of {self.path}"
        remedy = "run the command that made it again: only what is missing or damaged is computed"
        if tile not in self._checksums:
            raise StoreError(f"{what} is not finished; {remedy}")
        try:
            content = np.fromfile(self._file(tile), np.uint8)
        except OSError as error:
            raise StoreError(f"{what} cannot be read ({error.strerror or error}); {remedy}") from error
        if content.size != self.layout.tile_bytes + CHECKSUM_BYTES:
            raise StoreError(
                f"{what} has {content.size} bytes where {self.layout.tile_bytes + CHECKSUM_BYTES} belong; {remedy}"
            )
        body = content[:-CHECKSUM_BYTES]
        stated = int.from_bytes(content[-CHECKSUM_BYTES:].tobytes(), "little")
        if not google_crc32c.value(body) == stated == self._checksums[tile]:
            raise StoreError(f"{what} is damaged, or of another kernel: its checksum is not the noted one; {remedy}")
        return body.view(self.layout.numpy_dtype).reshape(self.layout.size, self.layout.size, *self.layout.outputs)

    def _file(self, tile: Tile) -> Path:
        return self.path.joinpath("c", *map(str, tile), *("0" for _ in self.layout.outputs))


def seconds_per_byte(folder: Path, size: int) -> float:
    """How long the disk takes, by writing a file of ``size`` bytes durably and removing it.

    Raises:
        StoreError: nothing can be written there.
    """
    trial = folder / f".gatelab-trial-{uuid.uuid4().hex}"
    start = time.perf_counter()
    try:
        write_durably(trial, np.zeros(size, np.uint8).data)
        return (time.perf_counter() - start) / size
    except RunError as error:
        raise StoreError(f"nothing can be written to {folder}: {error.__cause__}; choose another place") from error
    finally:
        with suppress(OSError):
            trial.unlink(missing_ok=True)
