"""The cells of a run."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Result = dict[str, Any]


@dataclass(frozen=True)
class Cell:
    """One part of a run.

    Attributes:
        name: unique in the run.
        parameters: what distinguishes the cell from the others, as plain data.
        needs: names of the cells whose results or files it reads.
        weight: how long it takes, relative to the others.

    Example:
        >>> Cell("w = 16", {"width": 16}).needs
        ()
    """

    name: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    needs: tuple[str, ...] = ()
    weight: float = 1.0


@dataclass(frozen=True)
class Context:
    """What a cell may use while it works.

    Attributes:
        folder: a directory for its files: checkpoints, and files that other cells read.
        results: the results of the cells that it needs, by name.
        folders: the directories of the cells that it needs, by name.
        tell: reports progress: a fraction between 0 and 1, and a text.

    Example:
        >>> context = Context(Path("cells/a"), {}, {}, lambda fraction, text: print(f"{fraction:.0%} {text}"))
        >>> context.tell(0.5, "epoch 3 of 6")
        50% epoch 3 of 6
    """

    folder: Path
    results: Mapping[str, Result]
    folders: Mapping[str, Path]
    tell: Callable[[float, str], None]


Work = Callable[[Any, Cell, Context], Result]
