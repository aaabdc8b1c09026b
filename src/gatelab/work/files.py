"""Files that are whole after a crash, and directories that one process locks.

A directory may come from somebody else. gatelab writes there only to regular files under their own names: it follows no
symbolic link, truncates no file, and opens no pipe or device.
"""

import errno
import json
import os
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from filelock import FileLock, Timeout

from gatelab.errors import InputError, RunError
from gatelab.work.checksums import BLANK, KEY, Condition, condition, sealed

# Windows has neither flag; there, making a symbolic link is a privilege.
_NO_LINK = getattr(os, "O_NOFOLLOW", 0)
_NO_WAIT = getattr(os, "O_NONBLOCK", 0)  # opening a pipe would wait for its other end
_BINARY = getattr(os, "O_BINARY", 0)
# Setting the mask is the only way to read it.
_UMASK = os.umask(0o077)
os.umask(_UMASK)


def open_own(path: Path) -> BinaryIO:
    """Open a regular file to read and write; create it if it is missing, and keep its content.

    Raises:
        OSError: this is a symbolic link, has a second hard link, or is not a regular file.
    """
    handle = os.open(path, os.O_RDWR | os.O_CREAT | _NO_LINK | _NO_WAIT | _BINARY, 0o666)
    _close_unless_regular(handle)
    if os.fstat(handle).st_nlink > 1:
        os.close(handle)
        raise OSError(errno.EMLINK, "the file has a second name (a hard link)")
    return os.fdopen(handle, "r+b")


def _close_unless_regular(handle: int) -> None:
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(errno.EINVAL, "it is not a regular file")


def open_regular(path: Path) -> BinaryIO:
    """Open a regular file to read; a pipe or a device, which may never end, raises an OSError."""
    handle = os.open(path, os.O_RDONLY | _NO_WAIT | _BINARY)
    _close_unless_regular(handle)
    return os.fdopen(handle, "rb")


def read_file(path: Path) -> bytes:
    """Read a regular file."""
    with open_regular(path) as file:
        return file.read()


def write_durably(path: Path, *parts: bytes | memoryview) -> None:
    """Write a file. A crash leaves the old file or the new one, never a part.

    Until the file is complete, only its owner can read it.

    Raises:
        RunError: the file cannot be written, for example on a full disk; the old file is unchanged.
    """
    partial = path.with_name(path.name + ".partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial.unlink(missing_ok=True)  # left by a killed process, or a link to another place
        handle = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _BINARY, 0o600)
        try:
            for part in parts:
                _write_all(handle, memoryview(part).cast("B"))
            if hasattr(os, "fchmod"):
                os.fchmod(handle, 0o666 & ~_UMASK)
            os.fsync(handle)
        finally:
            os.close(handle)
        partial.replace(path)
    except OSError as error:
        with suppress(OSError):  # this also fails on a read-only disk
            partial.unlink(missing_ok=True)
        raise refusal(path, error, "finished work is kept") from error


def writable(path: Path, *, force: bool) -> Path:
    """Refuse a path that cannot be written, before anything is computed."""
    try:
        exists = path.exists()
    except OSError as error:  # such as a name that is too long
        raise InputError(f"{path} cannot be written: {error.strerror}; give another path") from error
    if path.is_dir():
        raise InputError(f"{path} is a directory; give the name of a file, such as {path / 'page.html'}")
    if exists and not force:
        raise InputError(f"{path} exists; give another name, or force=True (--force) to replace it")
    folder = next(place for place in path.absolute().parents if place.exists())
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        raise InputError(f"{path} cannot be written: {folder} is no folder that you may write to; give another path")
    return path


def refusal(path: Path, error: OSError, safe: str) -> RunError:
    """Return the error for a file that cannot be written; ``safe`` says what is not lost."""
    full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
    in_the_way = error.errno in (errno.EISDIR, errno.ENOTDIR, errno.EEXIST)
    remedy = "Make room" if full else "Remove what is in its place" if in_the_way else "Make it writable"
    if error.errno == errno.ELOOP:
        return RunError(f"{path} is a symbolic link, which gatelab does not follow to write elsewhere; remove it")
    return RunError(
        f"{path} could not be written: {error.strerror or error}; {safe}. {remedy}, and run the same command again"
    )


def refuse_links(folder: Path) -> None:
    """Raise a RunError if there is a symbolic link below a directory: files would be written to its target."""
    for place, folders, files in os.walk(folder):
        for name in (*folders, *files):
            link = Path(place) / name
            if link.is_symlink():
                raise RunError(
                    f"{link} is a symbolic link to {link.readlink()}; gatelab writes only inside {folder}. "
                    "Replace the link by its target, or remove it"
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


def write_json(path: Path, content: Mapping[str, Any], inside: Sequence[str] = ()) -> None:
    """Write indented JSON durably. The checksum is its first entry, or the first of the part that ``inside`` names."""
    text = json.dumps(_with_place(content, inside), indent=2, ensure_ascii=False) + "\n"
    # A path may hold bytes that are not valid text; JSON keeps Python's escapes for them.
    write_durably(path, *sealed(text.encode(errors="backslashreplace")))


def _with_place(content: Mapping[str, Any], inside: Sequence[str]) -> dict[str, Any]:
    if not inside:
        return {KEY: BLANK, **content}
    return {**content, inside[0]: _with_place(content[inside[0]], inside[1:])}


def read_json(path: Path, remedy: str, *, must_be_sealed: bool = False) -> dict[str, Any]:
    """Read a file written by :func:`write_json`; the checksum is left out of the result.

    Args:
        path: the file.
        remedy: what the user can do if it is damaged.
        must_be_sealed: whether a file without a checksum counts as damaged.

    Raises:
        RunError: the file cannot be read, is damaged, or does not hold a JSON object.
    """
    try:
        content = read_file(path)
        found = condition(content)
        if found is Condition.DAMAGED or (must_be_sealed and found is Condition.UNSEALED):
            raise ValueError("its content does not match its checksum")  # noqa: TRY301  one refusal for all faults
        entries = parse_object(content)
    except (OSError, ValueError) as error:
        raise RunError(f"{path} is damaged: {reason(error)}; {remedy}") from error
    entries.pop(KEY, None)
    return entries


def parse_object(content: bytes) -> dict[str, Any]:
    """Return a JSON object.

    Raises:
        ValueError: the content is something else.
    """
    try:
        parsed = json.loads(content)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    if not isinstance(parsed, dict):
        raise ValueError(f"it holds {type(parsed).__name__} instead of a JSON object")  # noqa: TRY004  content, not a type
    return parsed


def reason(error: Exception) -> str:
    """Return what an error says, without the number and the file name that an OSError repeats."""
    return str((isinstance(error, OSError) and error.strerror) or error)


@contextmanager
def locked(folder: Path, waiting: Callable[[], None] | None = None) -> Iterator[None]:
    """Keep other processes out of a directory. The lock ends with the process, however it ends.

    ``waiting`` is called before this process waits for another that holds the lock; with None it does not wait.

    Raises:
        RunError: another process holds the lock and ``waiting`` is None, or the file system has no locks.
    """
    try:
        folder.stat()  # filelock would create a missing directory
        with open_own(folder / "lock"):  # refuses a link or a pipe, which filelock may follow or open
            pass
        # A soft lock, filelock's substitute on file systems without locks, would outlive a process that is killed.
        lock = FileLock(folder / "lock", thread_local=False, fallback_to_soft=False)
        try:
            lock.acquire(blocking=False)
        except Timeout:
            if waiting is None:
                raise RunError(f"another process is working on {folder}; wait for it, or stop it") from None
            waiting()
            lock.acquire()
    except OSError as error:
        raise RunError(f"{folder} cannot be locked: {reason(error)}; choose a writable place with locks") from error
    try:
        yield
    finally:
        lock.release()
