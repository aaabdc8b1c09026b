"""Find data files, and verify their size and checksum."""

import gzip
import hashlib
import io
import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import platformdirs

from gatelab.data.catalogue import LARGEST, Entry, File
from gatelab.errors import DataError
from gatelab.work.files import locked, refusal

DEBIAN_FOLDER = Path("/usr/share/datasets")


def cache_folder() -> Path:
    """Return the user's cache folder for data."""
    return Path(platformdirs.user_cache_dir("gatelab")) / "data"


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Make a data folder if it is missing, and wait for other processes that are writing there."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise refusal(folder, error, "nothing was changed") from error
    with locked(folder, waiting=lambda: None):
        yield


def data_folders(root: str | Path | None = None) -> list[Path]:
    """Return the folders to search, in order: ``root``, those of $GATELAB_DATA, ./data, the user's cache, Debian's."""
    named = [Path(root)] if root is not None else []
    named += [Path(part) for part in os.environ.get("GATELAB_DATA", "").split(os.pathsep) if part]
    return [*named, Path("data"), cache_folder(), DEBIAN_FOLDER]


def find(entry: Entry, root: str | Path | None = None) -> dict[str, Path]:
    """Find all files of a data set, raw or gzipped, in one folder."""
    looked, partial = [], ""
    for folder in data_folders(root):
        for below in entry.folders:
            place = folder / below
            looked.append(str(place))
            found = {
                file.name: path for file in entry.files if (path := _raw_or_gzipped(place / file.name)) is not None
            }
            if len(found) == len(entry.files):
                return found
            if found and not partial:
                missing = [file.name for file in entry.files if file.name not in found]
                partial = f" {place} holds only a part; missing: {', '.join(missing)}."
    raise DataError(
        f"{entry.title} was not found in {', '.join(looked)}.{partial} Run 'gatelab data fetch {entry.name}', or "
        f"name a folder that holds {entry.folders[0]}/ with --data-root or $GATELAB_DATA"
    )


def _raw_or_gzipped(path: Path) -> Path | None:
    return next((p for p in (path, path.with_name(path.name + ".gz")) if p.is_file()), None)


def read_whole(path: Path, file: File) -> bytes:
    """Read a file, unzip it, and verify size and checksums."""
    try:
        with path.open("rb") as stream:
            content = bounded(stream, LARGEST if path.suffix == ".gz" else file.size or LARGEST, path)
        if path.suffix == ".gz":
            content = unzipped(content, file, path)
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error}; remove it and fetch it again") from error
    check(content, file, path)
    return content


def unzipped(content: bytes, file: File, path: Path | str) -> bytes:
    """Unzip the content of a file; more bytes than the file has raise a DataError before they fill the memory."""
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(content)) as stream:
            return bounded(stream, file.size or LARGEST, path)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DataError(f"{path} cannot be read: {error}; remove it and fetch it again") from error


def bounded(stream: io.BufferedIOBase, limit: int, path: Path | str) -> bytes:
    """Read a stream that may have at most ``limit`` bytes."""
    content = stream.read(limit + 1)
    if len(content) > limit:
        raise DataError(f"{path}: expected at most {limit} bytes, but it is larger; remove it and fetch it again")
    return content


def check(content: bytes, file: File, path: Path | str) -> None:
    """Raise DataError unless the content has the size and checksums of ``file``."""
    fault = ""
    if file.size is not None and len(content) != file.size:
        fault = f"expected {file.size} bytes, found {len(content)}: it is truncated"
    for name, expected in {"MD5": file.md5, "SHA-256": file.sha256}.items():
        found = hashlib.new(name.replace("-", ""), content, usedforsecurity=False).hexdigest()
        if not fault and expected not in (None, found):
            fault = f"expected {name} {expected}, found {found}: it is corrupt"
    if fault:
        raise DataError(f"{path}: {fault}, or another file; remove it and fetch it again")
