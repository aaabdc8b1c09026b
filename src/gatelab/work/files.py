"""Files that a crash leaves whole, and directories that one process has alone."""

import errno
import fcntl
import json
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
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
        raise _refusal(path, error, "what was finished is kept") from error


def _refusal(path: Path, error: OSError, safe: str) -> RunError:
    full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
    remedy = "Make room" if full else "See to it that it can be"
    return RunError(
        f"{path} could not be written: {error.strerror or error}; {safe}. {remedy}, and run the same command again"
    )


def sync_folder(folder: Path) -> None:
    """Let names in a directory be on the disk, as what they name is."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _write_all(file: int, content: memoryview) -> None:
    while content:
        content = content[os.write(file, content) :]


def write_json(path: Path, content: Any) -> None:
    """Write JSON that people may read, durably."""
    write_durably(path, (json.dumps(content, indent=2, ensure_ascii=False) + "\n").encode())


class JsonLines:
    """An append-only file of JSON objects, one a line, on the disk before :meth:`append` returns.

    A line that a crash cut short is ignored, and overwritten by the next; one that was damaged later is passed over.
    """

    def __init__(self, path: Path):
        """Use the file at ``path``, which need not exist."""
        self._path = path
        self._end = -1  # behind the last whole line, once it is known

    def read(self) -> list[dict[str, Any]]:
        """All whole lines."""
        content = self._path.read_bytes() if self._path.exists() else b""
        self._end = content.rfind(b"\n") + 1
        found = []
        for line in content[: self._end].splitlines():
            with suppress(ValueError):
                entry = json.loads(line)
                if isinstance(entry, dict):
                    found.append(entry)
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
            raise _refusal(self._path, error, "what is noted there is safe") from error


@contextmanager
def locked(folder: Path, waiting: Callable[[], None] | None = None) -> Iterator[None]:
    """Have a directory alone; the lock ends with the process, however it ends.

    Args:
        folder: the directory.
        waiting: called before we wait for another process that has it.

    Raises:
        RunError: another process has it, and we are not to wait; or there can be no lock.
    """
    with ExitStack() as stack:
        try:
            file = stack.enter_context((folder / "lock").open("w"))
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if waiting is None:
                    raise
                waiting()
                fcntl.flock(file, fcntl.LOCK_EX)
        except BlockingIOError:
            raise RunError(f"another process is working on {folder}; wait for it, or stop it") from None
        except OSError as error:
            raise RunError(
                f"{folder} cannot be locked: {error.strerror or error}; it must be writable, and have locks"
            ) from error
        yield
