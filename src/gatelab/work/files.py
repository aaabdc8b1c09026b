"""Files that survive a crash whole, and directories that one process has to itself."""

import errno
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from gatelab.errors import RunError


def write_durably(path: Path, *parts: bytes | memoryview) -> None:
    """Write a file. After a crash there is the old file or the new one, never a part.

    Raises:
        RunError: the disk is full, say; the old file is unchanged.
    """
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
    remedy = "Make room" if full else "Make it writable"
    return RunError(
        f"{path} could not be written: {error.strerror or error}; {safe}. {remedy}, and run the same command again"
    )


def sync_folder(folder: Path) -> None:
    """Flush the entries of a directory to disk, as ``os.fsync`` does for the content of a file."""
    if os.name == "nt":
        return  # Windows cannot open a directory; it writes entries in order by itself
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _write_all(file: int, content: memoryview) -> None:
    while content:
        content = content[os.write(file, content) :]


def write_json(path: Path, content: Any) -> None:
    """Write indented JSON durably."""
    write_durably(path, (json.dumps(content, indent=2, ensure_ascii=False) + "\n").encode())


class JsonLines:
    """An append-only file of JSON objects, one on each line. A line is on the disk before :meth:`append` returns.

    A line that a crash cut short is ignored, and the next one overwrites it. A line that was damaged later is ignored.
    """

    def __init__(self, path: Path):
        """Use the file at ``path``, which need not exist."""
        self._path = path
        self._end = -1  # the position behind the last whole line, once it is known

    def read(self) -> list[dict[str, Any]]:
        """Return the objects of all whole lines."""
        content = self._path.read_bytes() if self._path.exists() else b""
        self._end = content.rfind(b"\n") + 1
        entries = []
        for line in content[: self._end].splitlines():
            with suppress(ValueError):
                entry = json.loads(line)
                if isinstance(entry, dict):
                    entries.append(entry)
        return entries

    def append(self, entry: dict[str, Any]) -> None:
        """Add a line.

        Raises:
            RunError: the disk is full, say; the earlier lines are unchanged.
        """
        try:
            # Before the first line, and after a line that a crash or a full disk cut short.
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
            raise _refusal(self._path, error, "the lines written before are safe") from error


@contextmanager
def locked(folder: Path, waiting: Callable[[], None] | None = None) -> Iterator[None]:
    """Keep other processes out of a directory. The lock ends with the process, however it ends.

    ``waiting`` is called before this process waits for another one that has the lock; None does not wait.

    Raises:
        RunError: another process has the lock and we do not wait, or the file system has no locks.
    """
    # A soft lock, filelock's substitute on file systems without locks, would outlive a process that is killed.
    lock = FileLock(folder / "lock", thread_local=False, fallback_to_soft=False)
    try:
        folder.stat()  # filelock would make a directory that is missing
        try:
            lock.acquire(blocking=False)
        except Timeout:
            if waiting is None:
                raise RunError(f"another process is working on {folder}; wait for it, or stop it") from None
            waiting()
            lock.acquire()
    except OSError as error:
        reason = error.strerror or error
        raise RunError(f"{folder} cannot be locked: {reason}; it must be writable, and have locks") from error
    try:
        yield
    finally:
        lock.release()
