"""The cells of a run."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gatelab.lab.runs.journal import Result


@dataclass(frozen=True)
class Cell:
    """One piece of a run: what to do, and what must be finished before.

    Attributes:
        name: unique in the run.
        parameters: what tells it from the others, as plain data.
        needs: names of cells whose results or files it reads.
        weight: how long it takes, relative to the others.
    """

    name: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    needs: tuple[str, ...] = ()
    weight: float = 1.0


@dataclass(frozen=True)
class Context:
    """What a cell may use while it works.

    Attributes:
        folder: for its files: a checkpoint, and what others read.
        results: of the cells that it needs.
        folders: of the cells that it needs.
        tell: say how far it is, between 0 and 1, and in words.
    """

    folder: Path
    results: Mapping[str, Result]
    folders: Mapping[str, Path]
    tell: Callable[[float, str], None]


Work = Callable[[Any, Cell, Context], Result]
