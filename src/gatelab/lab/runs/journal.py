"""The journal of a run: one line for each finished cell."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gatelab.errors import RunError
from gatelab.lab.runs.cells import Result
from gatelab.work.checksums import Condition
from gatelab.work.files import open_own, refusal
from gatelab.work.lines import JsonLines, Line

# The fields of a line: the types that a value may have, and what to call them.
_FIELDS: Mapping[str, tuple[tuple[type, ...], str]] = {
    "cell": ((str,), "text"),
    "seconds": ((int, float), "a number"),
    "result": ((dict,), "an object"),
}


@dataclass(frozen=True)
class JournalEntry:
    """A line of the journal; ``fault`` is a predicate that says what is wrong, or empty if nothing is."""

    line: Line
    fault: str

    @property
    def cell(self) -> str:
        """The name of the cell, if it can be read."""
        return str(self.line.entry.get("cell", "?"))

    @property
    def condition(self) -> Condition:
        """Whether the line is whole."""
        return Condition.DAMAGED if self.fault else self.line.condition


class Journal:
    """Finished cells with their results."""

    def __init__(self, path: Path, bound_to: str):
        """Use the file at ``path``; ``bound_to`` is the checksum of the run's record, empty if it has none."""
        self._lines = JsonLines(path, bound_to, must_be_sealed=bool(bound_to))

    def create(self) -> None:
        """Create the file unless it exists: from now on, a missing journal is a lost one."""
        path = self._lines.path
        if not path.exists():
            try:
                open_own(path).close()
            except OSError as error:
                raise refusal(path, error, "nothing was changed") from error

    def entries(self) -> list[JournalEntry]:
        """Return all lines, including damaged ones."""
        return [JournalEntry(line, line.fault or _fault(line.entry)) for line in self._lines.read()]

    def results(self) -> dict[str, Result]:
        """Return the results by cell.

        Raises:
            RunError: a line is damaged or lacks a field; the message names the line.
        """
        entries = self.entries()
        for entry in entries:
            if entry.fault:
                path = self._lines.path
                raise RunError(
                    f"{path}, line {entry.line.number} (cell {entry.cell}) {entry.fault}. Run the same command with "
                    f"--redo-damaged to compute that cell again; 'gatelab verify {path.parent}' lists all damage"
                )
        return {entry.cell: entry.line.entry["result"] for entry in entries}

    def add(self, cell: str, result: Result, seconds: float) -> None:
        """Add a line and flush it to disk."""
        self._lines.append({"cell": cell, "seconds": round(seconds, 3), "result": result})

    def drop(self, cells: set[str]) -> None:
        """Remove damaged lines, and the lines of some cells."""
        entries = self.entries()
        kept = [entry.line for entry in entries if not entry.fault and entry.cell not in cells]
        if len(kept) < len(entries):
            self._lines.keep(kept)


def _fault(entry: Mapping[str, Any]) -> str:
    for field, (types, called) in _FIELDS.items():
        if field not in entry:
            return f"has no field '{field}'"
        if not isinstance(entry[field], types) or isinstance(entry[field], bool):
            return f"has {entry[field]!r:.40} as '{field}', which must be {called}"
    return ""
