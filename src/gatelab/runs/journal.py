"""The journal of a run: finished cells and their results, one line each, never changed."""

import json
import os
from pathlib import Path
from typing import Any

from gatelab.errors import RunError

Result = dict[str, Any]


class Journal:
    """An append-only file of JSON lines, on the disk before :meth:`append` returns.

    A line that a crash cut short is ignored, and overwritten by the next.
    """

    def __init__(self, path: Path):
        """Use the file at ``path``, which need not exist."""
        self._path = path

    def results(self) -> dict[str, Result]:
        """The results of finished cells by name."""
        return {entry["cell"]: entry["result"] for entry, _ in self._entries()}

    def append(self, cell: str, result: Result, seconds: float) -> None:
        """Note a finished cell.

        Raises:
            RunError: the disk is full, say; the journal is as it was.
        """
        whole = max((end for _, end in self._entries()), default=0)
        line = json.dumps({"cell": cell, "seconds": round(seconds, 3), "result": result}) + "\n"
        try:
            with self._path.open("r+b" if self._path.exists() else "xb") as file:
                file.truncate(whole)
                file.seek(whole)
                file.write(line.encode())
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise RunError(
                f"{self._path} could not be written: {error.strerror or error}; the cells noted there are safe. Make "
                "room and run the same command again"
            ) from error

    def _entries(self) -> list[tuple[dict[str, Any], int]]:
        """Whole lines, and where each ends."""
        if not self._path.exists():
            return []
        found, place = [], 0
        for line in self._path.read_bytes().splitlines(keepends=True):
            place += len(line)
            try:
                entry = json.loads(line) if line.endswith(b"\n") else None
            except ValueError:
                entry = None
            if entry is None:
                break
            found.append((entry, place))
        return found
