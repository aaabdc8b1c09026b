"""Directories that record what they were made from, so that the same call can continue them."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gatelab import __version__
from gatelab.errors import RunError
from gatelab.work.checksums import Condition, condition
from gatelab.work.files import locked, parse_object, read_file, reason, sync_folder, write_json

# Keys of records that have a checksum; version 0.1, which wrote neither checksums nor these, is thus told from a record
# that has lost its checksum.
_VERSION, _SINCE_CHECKSUMS = "version", ("version", "started")


@dataclass(frozen=True)
class DirectoryFormat:
    """A format of directory: one JSON file, the record, says what the directory was made from.

    The record is written last and appears whole or not at all. A directory without a record counts as new if it holds
    only what an interrupted creation left behind.

    Example:
        >>> notes = DirectoryFormat("notebook", "notes.json", "notes 1")
        >>> try:
        ...     notes.refuse_changes(Path("here"), {"pages": 3}, {"pages": 4})
        ... except RunError as error:
        ...     print(error)
        here holds another notebook (pages: 3 there, 4 now); choose another directory, or remove this one
    """

    noun: str  # what messages call the directory
    record: str  # the name of the file
    version: str  # the value of "format" in the record
    error: type[RunError] = RunError
    inside: tuple[str, ...] = ()  # the keys that lead to the part of the record that holds "format"

    def exists(self, path: Path) -> bool:
        """Return whether there is a directory to continue.

        Raises:
            RunError: there is something else at ``path``.
        """
        if (path / self.record).is_file():
            return True
        leftovers = {"lock", f"{self.record}.partial"}
        if path.exists() and (not path.is_dir() or any(entry.name not in leftovers for entry in path.iterdir())):
            raise self.error(f"{path} exists and is not a {self.noun}; choose an empty or new directory")
        return False

    def create(self, path: Path, record: Mapping[str, Any]) -> None:
        """Make a directory and write its record.

        Raises:
            RunError: nothing can be written there, or another process has just made the directory.
        """
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise self.error(f"{path} cannot be created: {error.strerror or error}; choose another place") from error
        with locked(path):
            if (path / self.record).exists():
                raise self.error(f"another process has just created {path}; run the same command again to continue it")
            write_json(path / self.record, self._with_version(record), self.inside)
            sync_folder(path)
            sync_folder(path.parent)

    @contextmanager
    def reading(self, path: Path) -> Iterator[dict[str, Any]]:
        """Yield the record; inside the block, a key that it lacks raises an error that names the directory.

        Raises:
            RunError: there is no record, or one that this version does not read.
        """
        try:
            content = read_file(path / self.record)
            if condition(content) is Condition.DAMAGED:
                raise self.error(self._damage(path, "its content does not match its checksum"))
            record = self._parse(path, content)
            if self._condition(content, record) is Condition.DAMAGED:
                raise self.error(self._damage(path, "it has lost its checksum"))
            facts = self._facts(record)
            if facts["format"] != self.version:
                raise self.error(
                    f"{path} is a {self.noun} in another format ({facts['format']}); this version reads {self.version}"
                )
            yield record
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise self._foreign(path, error) from error

    def _foreign(self, path: Path, error: Exception) -> RunError:
        cause = reason(error) if isinstance(error, OSError) else repr(error)
        return self.error(f"{path} is not a {self.noun} of gatelab: {cause}; choose another place")

    def _parse(self, path: Path, content: bytes) -> dict[str, Any]:
        try:
            return parse_object(content)
        except ValueError as error:
            raise self.error(self._damage(path, str(error))) from error

    def _damage(self, path: Path, fault: str) -> str:
        return (
            f"{path / self.record} is damaged: {fault}. Nothing else in the directory can be used without it. Run the "
            f"command that made the {self.noun} with --redo-damaged: it sets the directory aside and starts again"
        )

    def set_aside(self, path: Path) -> Path:
        """Rename a directory whose record is damaged, and return its new name.

        Raises:
            RunError: another process is working on it, or the new name is taken.
        """
        with locked(path):
            aside = path.with_name(f"{path.name}.damaged")
            if aside.exists():
                raise self.error(f"{path} is damaged, and {aside} exists already; rename or remove one of them")
            path.rename(aside)
        return aside

    def record_condition(self, path: Path) -> Condition:
        """Return the condition of the record.

        Raises:
            RunError: there is none.
        """
        try:
            content = read_file(path / self.record)
            return self._condition(content, parse_object(content))
        except OSError as error:
            raise self._foreign(path, error) from error
        except ValueError:
            return Condition.DAMAGED

    def _condition(self, content: bytes, record: dict[str, Any]) -> Condition:
        found = condition(content)
        try:
            facts = self._facts(record)
        except (KeyError, TypeError):  # not a record of gatelab
            return found
        had_one = isinstance(facts, dict) and any(key in facts for key in _SINCE_CHECKSUMS)
        return Condition.DAMAGED if found is Condition.UNSEALED and had_one else found

    def _facts(self, record: Any) -> Any:
        """Return the part of the record that holds "format"."""
        for key in self.inside:
            record = record[key]
        return record

    def _with_version(self, record: Mapping[str, Any], inside: tuple[str, ...] | None = None) -> dict[str, Any]:
        keys = self.inside if inside is None else inside
        if keys:
            return {**record, keys[0]: self._with_version(record[keys[0]], keys[1:])}
        return {**record, _VERSION: __version__}

    def refuse_changes(self, path: Path, recorded: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
        """Raise an error that names each key whose value differs."""
        changed = [key for key in sorted({*recorded, *wanted}) if recorded.get(key) != wanted.get(key)]
        if changed:
            listed = "; ".join(f"{key}: {recorded.get(key)!r} there, {wanted.get(key)!r} now" for key in changed)
            raise self.error(
                f"{path} holds another {self.noun} ({listed}); choose another directory, or remove this one"
            )
