"""Mirrors and archives of a stranger: bombs are not unpacked, and nothing is opened that was not compared."""

import gzip
import hashlib
import io
import lzma
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest

from gatelab.data import catalogue, fetching, folders
from gatelab.data.catalogue import Entry, File
from gatelab.errors import DataError
from tests.attacks.outcomes import ChangedStateError, refusal

pytestmark = pytest.mark.attack("security")


class _Answer(io.BytesIO):
    url = ""


@pytest.fixture
def web(monkeypatch):
    def answer(content: bytes, url: str | None = None):
        def urlopen(address, timeout):
            made = _Answer(content)
            made.url = url or address
            return made

        monkeypatch.setattr(fetching.urllib.request, "urlopen", urlopen)

    monkeypatch.setattr(fetching.shutil, "which", lambda _: None)
    return answer


def file_of(name: str, size: int | None, content: bytes) -> File:
    md5 = hashlib.md5(content, usedforsecurity=False).hexdigest()
    return File(name, size, md5, hashlib.sha256(content).hexdigest())


def tiny(**sources) -> Entry:
    """A data set of one file with nine zeros."""
    return Entry("tiny", "Tiny", (file_of("file", 9, bytes(9)),), ("tiny",), ("a",), **sources)


def fetch(entry: Entry, folder: Path, monkeypatch) -> str:
    monkeypatch.setitem(fetching.ENTRIES, "tiny", entry)
    message = refusal(lambda: fetching.fetch("tiny", folder, report=lambda _: None))
    if (folder / "tiny").exists():
        raise ChangedStateError("files of a failed download are left")
    return message


def bomb(size: int) -> bytes:
    return gzip.compress(bytes(size), 9)


def tar(name: str, size: int, pack=gzip.compress) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        member = tarfile.TarInfo(name)
        member.size = size
        archive.addfile(member, io.BytesIO(bytes(size)))
    return pack(buffer.getvalue())


@pytest.fixture
def _small_limit(monkeypatch):
    """What would fill the memory of a machine is too much for a test; the limit is lower, the way to it the same."""
    for module in (fetching, folders):
        monkeypatch.setattr(module, "LARGEST", 100_000)


@pytest.mark.usefixtures("_small_limit")
@pytest.mark.parametrize("size", [10, 10_000_000])
def test_a_gzip_bomb_is_not_unpacked(size, web, tmp_path, monkeypatch):
    web(bomb(size))
    assert "expected at most 9 bytes" in fetch(tiny(mirrors=("https://mirror/",)), tmp_path, monkeypatch)


@pytest.mark.usefixtures("_small_limit")
@pytest.mark.parametrize("pack", [gzip.compress, lzma.compress, bytes], ids=["gzip", "xz", "plain"])
@pytest.mark.parametrize("name", ["file", "README"])
def test_a_tar_bomb_is_not_unpacked(name, pack, web, tmp_path, monkeypatch):
    content = tar(name, 99_000 if pack is bytes else 10_000_000, pack)
    web(content)
    known = file_of("https://mirror/a.tar", None, content)
    message = fetch(tiny(archive=known), tmp_path, monkeypatch)
    assert "at most 100000 bytes" in message or "unpacks to more" in message, message


@pytest.mark.usefixtures("_small_limit")
def test_a_header_of_a_tar_archive_may_be_a_bomb(web, tmp_path, monkeypatch):
    """tarfile reads extended headers into memory before anybody sees the member."""
    header = tarfile.TarInfo("pax")
    header.type, header.size = tarfile.XHDTYPE, 10_000_000
    content = gzip.compress(header.tobuf() + bytes(10_000_000))
    web(content)
    known = file_of("https://mirror/a.tar", None, content)
    assert "unpacks to more" in fetch(tiny(archive=known), tmp_path, monkeypatch)


@pytest.mark.usefixtures("_small_limit")
def test_an_answer_without_an_end_is_not_kept(web, tmp_path, monkeypatch):
    web(bytes(200_000))
    assert "expected at most 100000 bytes" in fetch(tiny(mirrors=("https://mirror/",)), tmp_path, monkeypatch)


@pytest.mark.parametrize("address", ["http://mirror/file.gz", "ftp://mirror/file.gz", "file:///etc/passwd"])
def test_an_answer_from_an_open_address_is_not_taken(address, web, tmp_path, monkeypatch):
    web(gzip.compress(bytes(9)), address)
    message = fetch(tiny(mirrors=("https://mirror/",)), tmp_path, monkeypatch)
    assert f"redirects to {address}; without HTTPS the file is not safe in transit" in message


@pytest.mark.parametrize("change", ["sha256", "gzipped_md5"])
def test_a_file_with_the_right_md5_only(change, web, tmp_path, monkeypatch):
    web(gzip.compress(bytes(9), mtime=0))
    entry = tiny(mirrors=("https://mirror/",))
    entry = replace(entry, files=(replace(entry.files[0], **{change: "0" * 64}),))
    expected = "expected SHA-256" if change == "sha256" else "expected MD5"
    assert expected in fetch(entry, tmp_path, monkeypatch)


def test_an_archive_is_compared_before_it_is_opened(web, tmp_path, monkeypatch):
    web(tar("file", 9))
    monkeypatch.setattr(fetching, "_members", lambda *_: pytest.fail("it was opened"))
    known = File("https://mirror/a.tar", None, "0" * 32, "0" * 64)
    assert "https://mirror/a.tar: expected MD5" in fetch(tiny(archive=known), tmp_path, monkeypatch)


@pytest.mark.parametrize("content", [b"", b"\x1f\x8b", b"\xfd7zXZ\x00", b"<html>", bytes(1000)],
                         ids=["nothing", "cut gzip", "cut xz", "a page", "zeros"])  # fmt: skip
@pytest.mark.parametrize("source", ["mirror", "archive"])
def test_an_answer_that_is_something_else(content, source, web, tmp_path, monkeypatch):
    web(content)
    known = file_of("https://mirror/a.tar", None, content)
    entry = tiny(mirrors=("https://mirror/",)) if source == "mirror" else tiny(archive=known)
    assert "Tiny could not be fetched" in fetch(entry, tmp_path, monkeypatch)


@pytest.mark.parametrize("entry", catalogue.ENTRIES.values(), ids=lambda entry: entry.name)
def test_every_download_has_a_sha256(entry):
    known = [entry.archive] if entry.archive else entry.files
    assert all(file.sha256 and len(file.sha256) == 64 for file in known)
    assert all(
        address.startswith("https://") for address in (*entry.mirrors, *(f.name for f in known if entry.archive))
    )


@pytest.mark.usefixtures("_small_limit")
def test_a_local_file_that_is_a_bomb(tmp_path):
    (tmp_path / "file.gz").write_bytes(bomb(10_000_000))
    with pytest.raises(DataError, match="expected at most 9 bytes"):
        folders.read_whole(tmp_path / "file.gz", tiny().files[0])
