"""The progress of long work: one protocol for runs, kernels and theorems."""

from collections.abc import Collection, Mapping
from typing import Protocol, runtime_checkable


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
