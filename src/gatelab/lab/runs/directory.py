"""A run is a directory: what was asked, on what machine, what is finished, and the files of each cell."""

import json
import os
import platform
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from gatelab import __version__
from gatelab.lab.runs.cells import Result
from gatelab.work.directory import DirectoryFormat
from gatelab.work.files import JsonLines, write_json

_FORMAT = DirectoryFormat("run", "run.json", "gatelab run 1")


class Run:
    """A directory: ``run.json`` (request), ``environment.json``, ``journal.jsonl`` (results), ``cells/`` (files).

    Attributes:
        path: the directory.
        experiment: the experiment's id.
        config: the whole configuration, as plain data.
    """

    def __init__(self, path: Path, experiment: str, config: dict[str, Any]):
        """Describe a run that exists; :meth:`open` and :meth:`read` are for callers."""
        self.path, self.experiment, self.config = path, experiment, config
        self._journal, self._environment = JsonLines(path / "journal.jsonl"), path / "environment.json"

    @classmethod
    def open(cls, path: Path, experiment: str, config: Mapping[str, Any]) -> "Run":
        """Start a run in a new or empty directory, or continue the run that is there.

        Args:
            path: the run's directory.
            experiment: the experiment's id.
            config: the configuration, which JSON can hold.

        Raises:
            RunError: the directory holds another run, and the message names the keys that differ; or other files.

        Example:
            >>> from tempfile import TemporaryDirectory
            >>> with TemporaryDirectory() as folder:
            ...     run = Run.open(Path(folder) / "run", "sums", {"terms": 2})
            ...     run.config, run.results()
            ({'terms': 2}, {})
        """
        wanted = json.loads(json.dumps(dict(config)))  # as it will be read back: tuples become lists
        if not _FORMAT.exists(path):
            _FORMAT.create(path, {"format": _FORMAT.version, "experiment": experiment, "config": wanted})
        run = cls.read(path)
        _FORMAT.refuse_changes(path, {"experiment": run.experiment}, {"experiment": experiment})
        _FORMAT.refuse_changes(path, run.config, wanted)
        if not run._environment.exists():
            write_json(run._environment, _environment())
        return run

    @classmethod
    def read(cls, path: Path) -> "Run":
        """Return the run in a directory.

        Raises:
            RunError: there is none.
        """
        with _FORMAT.reading(path) as record:
            return cls(path, record["experiment"], record["config"])

    def folder(self, cell: str) -> Path:
        """Return the directory for the files of a cell."""
        return self.path / "cells" / cell.replace("/", "--")

    def environment(self) -> dict[str, Any]:
        """Return the versions and the machine with which the run was started."""
        return json.loads(self._environment.read_text(encoding="utf-8"))

    def results(self) -> dict[str, Result]:
        """Return the results of finished cells by name."""
        return {entry["cell"]: entry["result"] for entry in self._journal.read()}

    def add_result(self, cell: str, result: Result, seconds: float) -> None:
        """Add a line to the journal; it is on the disk when this returns.

        Args:
            cell: the name of a finished cell.
            result: what the cell returned, which JSON can hold.
            seconds: the time that it took.

        Raises:
            RunError: the line cannot be written, for example because the disk is full; earlier lines are intact.
        """
        self._journal.append({"cell": cell, "seconds": round(seconds, 3), "result": result})


def _environment() -> dict[str, Any]:
    return {
        "gatelab": __version__,
        "python": sys.version.split()[0],
        "torch": torch.__version__,
        "machine": platform.machine(),
        "system": platform.system(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def runs_in(folder: Path) -> list[Run]:
    """Return the runs directly below a folder, sorted by name."""
    records = sorted(folder.glob(f"*/{_FORMAT.record}")) if folder.is_dir() else []
    return [Run.read(record.parent) for record in records]
