"""Files that a crash leaves whole, and directories that one process has alone."""

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from gatelab.errors import RunError


def write_durably(path: Path, *parts: bytes | memoryview) -> None:
    """Write a file so that after a crash there is the old one or the new one, never a part."""
    partial = path.with_name(path.name + ".partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with partial.open("wb", buffering=0) as file:
            for part in parts:
                _write_all(file.fileno(), memoryview(part).cast("B"))
            os.fsync(file.fileno())
        partial.replace(path)
    except OSError as error:
        with suppress(OSError):  # a read-only disk refuses that as well
            partial.unlink(missing_ok=True)
        raise RunError(
            f"{path} could not be written: {error.strerror or error}; what was finished is kept. Make room and run the "
            "same command again"
        ) from error


def _write_all(file: int, content: memoryview) -> None:
    while content:
        content = content[os.write(file, content) :]


def write_json(path: Path, content: Any) -> None:
    """Write JSON that people may read, durably."""
    write_durably(path, (json.dumps(content, indent=2, ensure_ascii=False) + "\n").encode())


class JsonLines:
    """An append-only file of JSON objects, one a line, on the disk before :meth:`append` returns.

    A line that a crash cut short is ignored, and overwritten by the next.
    """

    def __init__(self, path: Path):
        """Use the file at ``path``, which need not exist."""
        self._path = path
        self._end = -1  # behind the last whole line, once it is known

    def read(self) -> list[dict[str, Any]]:
        """All whole lines."""
        found, self._end = [], 0
        content = self._path.read_bytes() if self._path.exists() else b""
        for line in content.splitlines(keepends=True):
            try:
                entry = json.loads(line) if line.endswith(b"\n") else None
            except ValueError:
                entry = None
            if not isinstance(entry, dict):
                break
            found.append(entry)
            self._end += len(line)
        return found

    def append(self, entry: dict[str, Any]) -> None:
        """Add a line.

        Raises:
            RunError: the disk is full, say; the lines before are as they were.
        """
        try:
            if not self._path.exists() or self._path.stat().st_size != self._end:
                self.read()
            with self._path.open("r+b" if self._path.exists() else "xb") as file:
                file.truncate(self._end)
                file.seek(self._end)
                line = (json.dumps(entry) + "\n").encode()
                file.write(line)
                file.flush()
                os.fsync(file.fileno())
            self._end += len(line)
        except OSError as error:
            raise RunError(
                f"{self._path} could not be written: {error.strerror or error}; what is noted there is safe. Make room "
                "and run the same command again"
            ) from error


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Have a directory alone; the lock ends with the process, however it ends."""
    with (folder / "lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise RunError(f"another process is working on {folder}; wait for it, or stop it") from None
        yield
