"""The progress of long work: one protocol for runs, kernels and theorems."""

import sys
import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import Protocol, runtime_checkable

_SILENCE = 10.0  # seconds after which an update is written even if it completes no tenth


@runtime_checkable
class Reporter(Protocol):
    """Receives the progress of work that has named parts. Calls may come from several threads."""

    def start(self, parts: Mapping[str, float], done: Collection[str]) -> None:
        """Begin: the relative weight of each part, and the parts that an earlier process finished."""
        ...

    def update(self, part: str, fraction: float, text: str) -> None:
        """Report how far a part is, from 0 to 1, and what it is doing."""
        ...

    def finish(self, part: str) -> None:
        """Report that a part is finished."""
        ...

    def note(self, text: str) -> None:
        """Report a fact about the work as a whole."""
        ...


class Silent:
    """A reporter that reports nothing."""

    def start(self, parts: Mapping[str, float], done: Collection[str]) -> None:
        """Ignore the start."""

    def update(self, part: str, fraction: float, text: str) -> None:
        """Ignore the progress of a part."""

    def finish(self, part: str) -> None:
        """Ignore the end of a part."""

    def note(self, text: str) -> None:
        """Ignore a fact."""


class LogLines(Silent):
    """Writes to standard error: a line per tenth of a part, after ten seconds of silence, and at its end."""

    def __init__(self, shortest: float = 0.0):
        self._start, self._shortest = time.monotonic(), shortest
        self._begun: dict[str, tuple[float, float]] = {}  # when a part was first reported, and its fraction then
        self._last: dict[str, tuple[int, float]] = {}  # the tenth in its latest line, and the time of that line

    def update(self, part: str, fraction: float, text: str) -> None:
        """Write a line if another tenth is complete, or if the last line is more than 20 seconds old."""
        tenth, now = int(10 * fraction), time.monotonic()
        begun, first = self._begun.setdefault(part, (now, fraction))
        if now - begun < self._shortest:
            return
        previous, then = self._last.get(part, (-1, now))
        if tenth != previous or now - then > _SILENCE:
            self._last[part] = tenth, now
            left = (now - begun) * (1 - fraction) / (fraction - first) if fraction > first else 0.0
            self.note(f"{part}: {fraction:.0%}, {f'{duration(left)} left, ' if left else ''}{text}")

    def finish(self, part: str) -> None:
        """Write a line."""
        now = time.monotonic()
        if now - self._begun.get(part, (now, 0.0))[0] >= self._shortest:
            self.note(f"{part}: done")

    def note(self, text: str) -> None:
        """Write a line with the seconds since the start; ignore a closed standard error."""
        with suppress(OSError):
            sys.stderr.write(f"[{time.monotonic() - self._start:7.1f} s] {text}\n")
            sys.stderr.flush()


def duration(seconds: float) -> str:
    """Return a number of seconds as text.

    Example:
        >>> duration(0.3), duration(47.2), duration(185), duration(7260)
        ('1 s', '47 s', '3 min 5 s', '2 h 1 min')
    """
    whole = max(1, round(seconds))
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
