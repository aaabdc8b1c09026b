"""The journal of a run: finished cells and their results, one line each, never changed."""

from pathlib import Path
from typing import Any

from gatelab.work.files import JsonLines

Result = dict[str, Any]


class Journal:
    """What is finished, on the disk before :meth:`append` returns."""

    def __init__(self, path: Path):
        """Use the file at ``path``, which need not exist."""
        self._lines = JsonLines(path)

    def results(self) -> dict[str, Result]:
        """The results of finished cells by name."""
        return {entry["cell"]: entry["result"] for entry in self._lines.read()}

    def append(self, cell: str, result: Result, seconds: float) -> None:
        """Note a finished cell.

        Raises:
            RunError: the disk is full, say; the journal is as it was.
        """
        self._lines.append({"cell": cell, "seconds": round(seconds, 3), "result": result})
