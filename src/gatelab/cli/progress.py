"""Progress on standard error: a bar on a terminal, lines in a log."""

import shlex
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import typer

from gatelab.work.progress import LogLines, Reporter


@contextmanager
def reporter(shortest: float = 0.0) -> Iterator[Reporter]:
    """Yield a bar on a terminal, otherwise log lines; a log omits parts that take less than ``shortest`` seconds."""
    if sys.stderr.isatty():
        with Bar() as bar:
            yield bar
    else:
        yield LogLines(shortest)


@contextmanager
def stoppable(finished: Callable[[], str]) -> Iterator[None]:
    """Turn an interruption into a message that says what is finished and how to continue, and into exit code 130."""
    try:
        yield
    except KeyboardInterrupt:
        with suppress(OSError):  # the terminal may be gone
            typer.echo(f"\nstopped; {finished()}. Run the same command again to continue:", err=True)
            typer.echo(f"gatelab {shlex.join(sys.argv[1:])}", err=True)
        raise typer.Exit(130) from None


class Bar:
    """One bar for all parts, with the time left and what the latest part is doing."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

        columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:3.0f} %"))
        times = (TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn())
        self._progress = Progress(*columns, *times, console=Console(stderr=True), transient=True)
        self._weights: Mapping[str, float] = {}
        self._fractions: dict[str, float] = {}
        self._task: Any = None

    def __enter__(self) -> "Bar":
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):  # the terminal may be gone
            self._progress.stop()

    def start(self, parts: Mapping[str, float], done: Collection[str]) -> None:
        """Draw the bar."""
        self._weights, self._fractions = parts, dict.fromkeys(done, 1.0)
        self._task = self._progress.add_task("starting", total=sum(parts.values()))
        self._progress.update(self._task, completed=self._completed())
        self._progress.start()

    def update(self, part: str, fraction: float, text: str) -> None:
        """Move the bar."""
        self._fractions[part] = fraction
        self._progress.update(self._task, completed=self._completed(), description=f"{part}: {text}")

    def finish(self, part: str) -> None:
        """Move the bar to the end of a part."""
        self.update(part, 1.0, "done")

    def note(self, text: str) -> None:
        """Write a line above the bar; ignore a closed terminal."""
        with suppress(OSError):
            self._progress.console.print(text, markup=False, highlight=False)

    def _completed(self) -> float:
        return sum(self._weights[part] * fraction for part, fraction in self._fractions.items())
