"""Append-only files of JSON objects, one on each line, each with its checksum."""

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gatelab.errors import RunError
from gatelab.work.checksums import BLANK, KEY, Condition, condition, sealed
from gatelab.work.files import open_own, parse_object, read_file, reason, refusal, write_durably


@dataclass(frozen=True)
class Line:
    """A line of the file; ``fault`` is a predicate that says what is wrong, or empty if nothing is."""

    number: int
    content: bytes
    condition: Condition
    entry: dict[str, Any]  # without the checksum
    fault: str = ""


class JsonLines:
    """A file that only grows. A line is on the disk before :meth:`append` returns.

    A line that a crash cut short lacks its line end; readers ignore it, and the next append overwrites it.
    """

    def __init__(self, path: Path, bound_to: str = "", *, must_be_sealed: bool = False):
        """Use the file at ``path``, which need not exist.

        Args:
            path: the file.
            bound_to: enters every checksum, so that a line from another file counts as damaged.
            must_be_sealed: whether every line without a checksum counts as damaged. If False, such a line is damaged
                only after a line that has one: version 0.1 cannot have written it.
        """
        self.path = path
        self._bound_to, self._must_be_sealed = bound_to, must_be_sealed
        self._end = -1  # the position after the last whole line, once known

    def read(self) -> list[Line]:
        """Return all complete lines.

        Raises:
            RunError: this is not a regular file.
        """
        try:
            content = read_file(self.path)
        except FileNotFoundError:
            content = b""
        except OSError as error:
            raise RunError(f"{self.path} cannot be read: {reason(error)}; remove it") from error
        self._end = content.rfind(b"\n") + 1
        lines: list[Line] = []
        must_be_sealed = self._must_be_sealed
        for number, line in enumerate(content[: self._end].split(b"\n")[:-1], start=1):
            lines.append(self._line(number, line, must_be_sealed))
            must_be_sealed |= lines[-1].condition is Condition.WHOLE
        return lines

    def _line(self, number: int, content: bytes, must_be_sealed: bool) -> Line:
        found = condition(content, self._bound_to)
        try:
            entry = parse_object(content)
        except ValueError as error:
            return Line(number, content, Condition.DAMAGED, {}, f"is not a JSON object ({error})")
        entry.pop(KEY, None)
        if found is Condition.DAMAGED:
            return Line(number, content, found, entry, "does not match its checksum")
        if must_be_sealed and found is Condition.UNSEALED:
            return Line(number, content, Condition.DAMAGED, entry, "has no checksum")
        return Line(number, content, found, entry)

    def append(self, entry: dict[str, Any]) -> None:
        """Add a line.

        Raises:
            RunError: the line cannot be written, for example on a full disk; the earlier lines are unchanged.
        """
        line = b"".join((*sealed(json.dumps({KEY: BLANK, **entry}).encode(), self._bound_to), b"\n"))
        try:
            with open_own(self.path) as file:
                # Before the first line, and after a line that a crash or a full disk cut short.
                if os.fstat(file.fileno()).st_size != self._end:
                    self.read()
                file.truncate(self._end)
                file.seek(self._end)
                file.write(line)
                file.flush()
                os.fsync(file.fileno())
            self._end += len(line)
        except OSError as error:
            raise refusal(self.path, error, "earlier lines are safe") from error

    def keep(self, lines: Iterable[Line]) -> None:
        """Replace the file by some of its lines."""
        write_durably(self.path, *(line.content + b"\n" for line in lines))
        self._end = -1
