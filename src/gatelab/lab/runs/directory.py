"""A run is a directory: the request, the machine, what is finished, and the files of each cell."""

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
from gatelab.lab.runs.journal import Journal
from gatelab.work.checksums import KEY, Condition
from gatelab.work.directory import DirectoryFormat
from gatelab.work.files import read_json, refuse_links, write_json

RUN_FORMAT = DirectoryFormat("run", "run.json", "gatelab run 1")


class Run:
    """A directory: ``run.json`` (request), ``environment.json``, ``journal.jsonl`` (results), ``cells/`` (files).

    Attributes:
        path: the directory.
        experiment: the experiment's id.
        config: the whole configuration, as plain data.
        journal: the finished cells.
    """

    def __init__(self, path: Path, record: Mapping[str, Any]):
        """Describe a run that exists; :meth:`open` and :meth:`read` are for callers."""
        self.path = path
        self.experiment, self.config = _typed(record, "experiment", str), _typed(record, "config", dict)
        self._started, self._checksum = record.get("started"), str(record.get(KEY, ""))
        self.journal, self._environment = Journal(path / "journal.jsonl", self._checksum), path / "environment.json"

    @classmethod
    def open(cls, path: Path, experiment: str, config: Mapping[str, Any]) -> "Run":
        """Start a run in a new or empty directory, or continue an existing run.

        Args:
            path: the run's directory.
            experiment: the experiment's id.
            config: the configuration, in a form that JSON can hold.

        Raises:
            RunError: the directory holds another run, and the message names the keys that differ; or other files.

        Example:
            >>> from tempfile import TemporaryDirectory
            >>> with TemporaryDirectory() as folder:
            ...     run = Run.open(Path(folder) / "run", "sums", {"terms": 2})
            ...     run.config, run.results()
            ({'terms': 2}, {})
        """
        wanted = json.loads(json.dumps(dict(config)))  # as JSON will return it: tuples become lists
        if not RUN_FORMAT.exists(path):
            record = {"format": RUN_FORMAT.version, "experiment": experiment, "config": wanted, "started": _now()}
            RUN_FORMAT.create(path, record)
        refuse_links(path)
        run = cls.read(path)
        RUN_FORMAT.refuse_changes(path, {"experiment": run.experiment}, {"experiment": experiment})
        # Runs of version 0.1 do not record whether they are smoke runs.
        RUN_FORMAT.refuse_changes(path, {"smoke": wanted.get("smoke"), **run.config}, wanted)
        if not run._environment.exists():
            write_json(run._environment, {**_environment(), "started": run._started or _now()})
        run.journal.create()
        return run

    @classmethod
    def read(cls, path: Path) -> "Run":
        """Return the run in a directory.

        Raises:
            RunError: there is none.
        """
        with RUN_FORMAT.reading(path) as record:
            return cls(path, record)

    def folder(self, cell: str) -> Path:
        """Return the directory for the files of a cell."""
        return self.path / "cells" / cell.replace("/", "--")

    def environment(self) -> dict[str, Any]:
        """Return the versions and the machine with which the run was started, and the time of its start.

        Raises:
            RunError: the file is missing or damaged.
        """
        remedy = "run the same command with --redo-damaged to write it again"
        return read_json(self._environment, remedy, must_be_sealed=bool(self._checksum))

    @property
    def started(self) -> str:
        """When the run was first started, even if it was continued later."""
        return str(self._started or self.environment().get("started", "?"))

    def results(self) -> dict[str, Result]:
        """Return the results of finished cells by name.

        Raises:
            RunError: a line of the journal is damaged.
        """
        return self.journal.results()

    def add_result(self, cell: str, result: Result, seconds: float) -> None:
        """Add a line to the journal and flush it to disk.

        Args:
            cell: the name of a finished cell.
            result: the cell's result, in a form that JSON can hold.
            seconds: the time that it took.

        Raises:
            RunError: the line cannot be written, for example because the disk is full; earlier lines are intact.
        """
        self.journal.add(cell, result, seconds)


def _environment() -> dict[str, Any]:
    return {
        "gatelab": __version__,
        "python": sys.version.split()[0],
        "torch": torch.__version__,
        "machine": platform.machine(),
        "system": platform.system(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
    }


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def must_be_sealed(folder: Path) -> bool:
    """Return whether all files of the run that a folder belongs to have checksums: version 0.1 wrote none."""
    runs = [place for place in (folder, *folder.parents) if (place / RUN_FORMAT.record).exists()]
    return not runs or RUN_FORMAT.record_condition(runs[0]) is not Condition.UNSEALED


def _typed(record: Mapping[str, Any], key: str, kind: type) -> Any:
    if not isinstance(record[key], kind):
        raise TypeError(f"'{key}' is {record[key]!r:.40}")
    return record[key]


def runs_in(folder: Path) -> list[Path]:
    """Return the directories of the runs directly below a folder, sorted by name."""
    return sorted(record.parent for record in folder.glob(f"*/{RUN_FORMAT.record}")) if folder.is_dir() else []
