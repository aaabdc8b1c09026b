"""A run is a directory: what was asked, on what machine, what is finished, what is under way."""

import json
import os
import platform
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from gatelab import __version__
from gatelab.errors import RunError
from gatelab.lab.runs.journal import Journal
from gatelab.work.files import locked, write_json

FORMAT = "gatelab run 1"


class Run:
    """One directory: ``run.json`` (what), ``environment.json`` (where), ``journal.jsonl`` (done), ``cells/`` (files).

    Attributes:
        path: the directory.
        experiment: what it is a run of.
        config: the whole configuration, as plain data.
    """

    def __init__(self, path: Path, experiment: str, config: dict[str, Any]):
        """A run that exists; see :meth:`open` and :meth:`read`."""
        self.path, self.experiment, self.config = path, experiment, config
        self.journal = Journal(path / "journal.jsonl")

    @classmethod
    def open(cls, path: Path, experiment: str, config: Mapping[str, Any]) -> "Run":
        """Start a run in an empty or new directory, or go on with the one that is there.

        Raises:
            RunError: the directory holds a run of something else, or other files; names the keys that differ.
        """
        wanted = json.loads(json.dumps(dict(config)))  # as it will be read back
        if (path / "run.json").exists():
            run = cls.read(path)
            if run.experiment != experiment:
                raise RunError(f"{path} holds a run of {run.experiment}, not of {experiment}; choose another directory")
            changed = [key for key in sorted({*run.config, *wanted}) if run.config.get(key) != wanted.get(key)]
            if changed:
                told = "; ".join(f"{key}: {run.config.get(key)!r} there, {wanted.get(key)!r} now" for key in changed)
                raise RunError(f"{path} holds a run with another configuration ({told}); choose another directory")
            return run
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise RunError(f"{path} exists and is not a run; choose an empty or new directory")
        write_json(path / "environment.json", environment())
        write_json(path / "run.json", {"format": FORMAT, "experiment": experiment, "config": wanted})
        return cls(path, experiment, wanted)

    @classmethod
    def read(cls, path: Path) -> "Run":
        """The run in a directory.

        Raises:
            RunError: there is none.
        """
        try:
            about = json.loads((path / "run.json").read_text())
            if about["format"] != FORMAT:
                raise RunError(f"{path} is a run in another format ({about['format']}); this version reads {FORMAT}")
            return cls(path, about["experiment"], about["config"])
        except (OSError, ValueError, KeyError) as error:
            raise RunError(f"{path} is not a run of gatelab: {error}") from error

    def folder(self, cell: str) -> Path:
        """Where a cell keeps its files."""
        return self.path / "cells" / cell.replace("/", "--")

    def environment(self) -> dict[str, Any]:
        """On what machine the run was started."""
        return json.loads((self.path / "environment.json").read_text())

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Have the directory alone; the lock ends with the process, however it ends."""
        with locked(self.path):
            yield


def environment() -> dict[str, Any]:
    """What a result may depend on, and a reader may want to know."""
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
    """The runs directly below a folder, by name."""
    found = sorted(folder.glob("*/run.json")) if folder.is_dir() else []
    return [Run.read(path.parent) for path in found]
