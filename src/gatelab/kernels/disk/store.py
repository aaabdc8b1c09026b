"""A kernel on disk: a zarr array with one chunk per tile, and a ledger of the finished tiles.

zarr writes the metadata, and any zarr reader opens the result. This module writes the tiles itself, in the plain form
that the metadata describe: little-endian entries, then their CRC-32C. It does so for two reasons: a tile must be on the
disk before the ledger lists it, and zarr does not wait for that; and the ledger needs the same checksum, which
distinguishes a tile from one of another kernel.
"""

import json
import time
import uuid
from contextlib import suppress
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np
import torch
from torch import Tensor

from gatelab.errors import RunError, StoreError
from gatelab.kernels.disk.layout import Layout, Tile
from gatelab.work.checksums import KEY, Condition
from gatelab.work.directory import DirectoryFormat
from gatelab.work.files import open_regular, reason, write_durably
from gatelab.work.lines import JsonLines, Line

KERNEL_FORMAT = DirectoryFormat("kernel", "zarr.json", "gatelab.kernel/1", StoreError, ("attributes", "gatelab"))
_CHECKSUM_BYTES = 4


class KernelStore:
    """A directory with a kernel, finished or not; ``about`` is what the kernel was made from, as plain data."""

    def __init__(self, path: Path, layout: Layout, about: dict[str, Any], checksum: str):
        """Describe a store that exists; :meth:`create` and :meth:`open` are for callers.

        ``checksum`` is the checksum of the metadata, to which each line of the ledger is bound; version 0.1 wrote none.
        """
        self.path, self.layout, self.about = path, layout, about
        self._ledger = JsonLines(path / "ledger.jsonl", checksum, must_be_sealed=bool(checksum))
        self._checksums: dict[Tile, int] = {}
        self.read_ledger()

    @classmethod
    def create(cls, path: Path, layout: Layout, about: dict[str, Any]) -> "KernelStore":
        """Make a store without tiles, which a zarr reader sees as all NaN."""
        # Imported here because only a new store needs zarr, and zarr takes long to load.
        import zarr  # noqa: PLC0415
        from zarr.codecs import Crc32cCodec  # noqa: PLC0415
        from zarr.storage import MemoryStore  # noqa: PLC0415

        files: dict[str, Any] = {}
        zarr.create_array(
            MemoryStore(files),
            shape=(*layout.shape, *layout.outputs),
            chunks=(layout.size, layout.size, *layout.outputs),
            dtype=layout.numpy_dtype,
            fill_value=float("nan"),
            compressors=[Crc32cCodec()],
            attributes={"gatelab": {"format": KERNEL_FORMAT.version, "symmetric": layout.symmetric, "about": about}},
        )
        KERNEL_FORMAT.create(path, json.loads(files["zarr.json"].to_bytes()))
        return cls.open(path)

    @classmethod
    def open(cls, path: Path) -> "KernelStore":
        """Return the store in a directory.

        Raises:
            StoreError: there is none, or one that this version does not read.
        """
        if not path.exists():
            raise StoreError(f"{path} does not exist; create it with 'gatelab kernel … -o {path}'")
        with KERNEL_FORMAT.reading(path) as record:
            facts = record["attributes"]["gatelab"]
            about, symmetric = facts["about"], facts["symmetric"]
            n, m, *outputs = record["shape"]
            size = record["chunk_grid"]["configuration"]["chunk_shape"][0]
            if not all(type(number) is int and number > 0 for number in (n, m, *outputs, size)):
                raise ValueError(f"sizes must be whole numbers from 1, not {[n, m, *outputs, size]}")
            if not isinstance(about, dict) or not isinstance(symmetric, bool):
                raise TypeError("'about' must be an object, and 'symmetric' true or false")
            dtype = torch.from_numpy(np.empty(0, record["data_type"])).dtype
            return cls(path, Layout((n, m), tuple(outputs), dtype, symmetric, size), about, facts.get(KEY, ""))

    def read_ledger(self) -> None:
        """Read which tiles are finished; ignore damaged lines, and lines that name no tile of this kernel."""
        self._checksums = {}
        for line in self._ledger.read():
            if not line.fault and not _fault(line, self.layout):
                self._checksums[tuple(line.entry["tile"])] = line.entry["crc32c"]

    def ledger(self) -> list[tuple[int, Condition, str]]:
        """Return the number, the condition and the fault of each line of the ledger."""
        lines = [(line, line.fault or _fault(line, self.layout)) for line in self._ledger.read()]
        return [(line.number, Condition.DAMAGED if fault else line.condition, fault) for line, fault in lines]

    @property
    def finished(self) -> frozenset[Tile]:
        """The tiles that the ledger lists."""
        return frozenset(self._checksums)

    def write(self, tile: Tile, block: np.ndarray) -> int:
        """Write a tile and flush it to disk; return the checksum for :meth:`add_to_ledger`."""
        layout = self.layout
        chunk = np.ascontiguousarray(block, layout.numpy_dtype)
        if block.shape[:2] != (layout.size, layout.size):
            chunk = np.full((layout.size, layout.size, *layout.outputs), np.nan, layout.numpy_dtype)
            chunk[: block.shape[0], : block.shape[1]] = block
        checksum = google_crc32c.value(chunk)
        write_durably(self._file(tile), chunk.data.cast("B"), checksum.to_bytes(_CHECKSUM_BYTES, "little"))
        return checksum

    def add_to_ledger(self, tile: Tile, checksum: int) -> None:
        """Add a tile that is on the disk to the ledger."""
        self._ledger.append({"tile": list(tile), "crc32c": checksum})
        self._checksums[tile] = checksum

    def is_whole(self, tile: Tile) -> bool:
        """Return whether a tile is on the disk and has the checksum in the ledger."""
        try:
            self._chunk(tile)
        except StoreError:
            return False
        return True

    def read(self, tile: Tile) -> Tensor:
        """Return the entries of a tile, without padding.

        Raises:
            StoreError: the tile is missing, damaged, or of another kernel.
        """
        rows, columns = self.layout.span(0, tile[0]), self.layout.span(1, tile[1])
        chunk = self._chunk(tile).astype(self.layout.numpy_dtype.newbyteorder("="), copy=False)
        return torch.from_numpy(chunk[: rows.stop - rows.start, : columns.stop - columns.start])

    def _chunk(self, tile: Tile) -> np.ndarray:
        """Read and check the file of a tile."""
        what = f"tile {tile[0]}, {tile[1]} of {self.path}"
        remedy = "run the command that made it again: it computes only what is missing or damaged"
        if tile not in self._checksums:
            raise StoreError(f"{what} is not finished; {remedy}")
        try:
            with open_regular(self._file(tile)) as file:
                content = np.fromfile(file, np.uint8)
        except OSError as error:
            raise StoreError(f"{what} cannot be read ({reason(error)}); {remedy}") from error
        expected = self.layout.tile_bytes + _CHECKSUM_BYTES
        if content.size != expected:
            raise StoreError(f"{what} has {content.size} bytes instead of {expected}; {remedy}")
        body = content[:-_CHECKSUM_BYTES]
        stated = int.from_bytes(content[-_CHECKSUM_BYTES:].tobytes(), "little")
        # The ledger decides: the file's own checksum would also accept a whole tile of another kernel.
        if not google_crc32c.value(body) == stated == self._checksums[tile]:
            raise StoreError(
                f"{what} is damaged, or of another kernel: its checksum differs from the ledger's; {remedy}"
            )
        return body.view(self.layout.numpy_dtype).reshape(self.layout.size, self.layout.size, *self.layout.outputs)

    def _file(self, tile: Tile) -> Path:
        return self.path.joinpath("c", *map(str, tile), *("0" for _ in self.layout.outputs))


def _fault(line: Line, layout: Layout) -> str:
    """Return what is wrong with a line of the ledger that is whole, as a predicate."""
    tile, checksum = line.entry.get("tile"), line.entry.get("crc32c")
    if type(checksum) is not int:
        return f"has {checksum!r:.40} as 'crc32c', which must be a whole number"
    if not (isinstance(tile, list) and len(tile) == 2 and all(type(place) is int for place in tile)):
        return f"has {tile!r:.40} as 'tile', which must be two whole numbers"
    known = layout.holds((tile[0], tile[1]))
    return "" if known else f"names tile {tile[0]}, {tile[1]}, which this kernel does not have"


def seconds_per_byte(folder: Path, size: int) -> float:
    """Measure the disk: write a file of ``size`` bytes durably, and remove it.

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
