"""What becomes of a kernel on disk: killed, damaged, mixed up, read-only."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch

import gatelab as gl
from gatelab.errors import RunError, StoreError
from gatelab.kernels import OverlapKernel, PathKernel, TangentKernel, compute, open_kernel
from gatelab.kernels.disk.store import KERNEL_FORMAT
from gatelab.work import Here
from gatelab.work.directory import DirectoryFormat
from gatelab.work.files import locked, write_json

ONE = Here(1)


def network(seed: int = 0) -> torch.nn.Module:
    return gl.models.mlp((5, 8, 3), bias=True, generator=torch.Generator().manual_seed(seed))


@pytest.fixture
def x():
    return torch.randn(70, 5)


@pytest.fixture
def made(tmp_path, x):
    """A finished kernel, its entries, and the way to make it again."""
    path, kernel = tmp_path / "K.zarr", PathKernel(network())
    entries = compute(kernel, x, store=path, executor=ONE)[:, :]
    return path, entries, lambda: compute(kernel, x, store=path, executor=ONE)


def lines(path: Path) -> int:
    return len((path / "ledger.jsonl").read_text().splitlines())


def rewrite(path: Path, old: str, new: str) -> None:
    """Replace a text in the metadata, as somebody does who knows of the checksum."""
    record = json.loads((path / "zarr.json").read_text().replace(old, new))
    del record["attributes"]["gatelab"]["checksum"]
    write_json(path / "zarr.json", record, KERNEL_FORMAT.inside)


def remove(file: Path) -> None:
    file.unlink()


def truncate(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-100])


def flip(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


def flip_checksum(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)


def swap(file: Path) -> None:
    """A whole tile with a right checksum, from another place."""
    shutil.copy(file.parent.parent / "0" / "0", file)


def empty(file: Path) -> None:
    file.write_bytes(b"")


@pytest.mark.parametrize("harm", [remove, truncate, flip, flip_checksum, swap, empty])
def test_a_damaged_tile_is_found_and_only_it_is_computed_again(harm, made):
    path, entries, again = made
    before = lines(path)
    harm(path / "c" / "2" / "1")
    with pytest.raises(StoreError, match=r"tile 2, 1 of .* it computes only what is missing or damaged"):
        open_kernel(path).rows(slice(None))
    untouched = (path / "c" / "1" / "0").stat().st_mtime_ns
    assert again()[:, :].tobytes() == entries.tobytes()
    assert lines(path) == before + 1
    assert (path / "c" / "1" / "0").stat().st_mtime_ns == untouched
    assert open_kernel(path)[:, :].tobytes() == entries.tobytes()


def test_a_ledger_cut_short_loses_one_tile(made):
    path, entries, again = made
    ledger = path / "ledger.jsonl"
    ledger.write_bytes(ledger.read_bytes()[:-5])
    with pytest.raises(StoreError, match="is not finished: 1 of"):
        open_kernel(path)
    assert again()[:, :].tobytes() == entries.tobytes()


def test_a_damaged_line_costs_its_tile_and_no_other(made):
    path, entries, again = made
    ledger = path / "ledger.jsonl"
    content = ledger.read_bytes().splitlines(keepends=True)
    ledger.write_bytes(b"".join([content[0], b"#" + content[1][1:], *content[2:]]))
    assert again()[:, :].tobytes() == entries.tobytes()
    assert lines(path) == len(content) + 1


def test_a_ledger_with_a_tile_that_cannot_be(made):
    path, entries, again = made
    ledger = path / "ledger.jsonl"
    ledger.write_text(ledger.read_text().replace("[0, 0]", "[0, 7]") + '{"cell": "not a tile"}\n')
    with pytest.raises(StoreError, match="1 of"):
        open_kernel(path)
    assert again()[:, :].tobytes() == entries.tobytes()
    assert open_kernel(path)[:, :].tobytes() == entries.tobytes()


def test_what_another_process_finished_meanwhile_is_not_computed_again(made, monkeypatch):
    path, entries, again = made
    ledger = path / "ledger.jsonl"
    whole = ledger.read_bytes()
    ledger.write_bytes(whole.splitlines(keepends=True)[0])

    def after_the_other(path):
        ledger.write_bytes(whole)
        return locked(path)

    monkeypatch.setattr("gatelab.kernels.disk.engine.locked", after_the_other)
    assert again()[:, :].tobytes() == entries.tobytes()
    assert ledger.read_bytes() == whole


def test_a_ledger_that_is_gone_means_starting_over_not_trusting(made):
    path, entries, again = made
    (path / "ledger.jsonl").unlink()
    flip(path / "c" / "0" / "0")
    assert again()[:, :].tobytes() == entries.tobytes()


@pytest.mark.parametrize(
    ("other", "difference"),
    [
        (lambda x, path: compute(PathKernel(network(1)), x, store=path), "model: '[0-9a-f]+' there"),
        (lambda x, path: compute(PathKernel(network()), x + 1, store=path), "rows: '[0-9a-f]+' there"),
        (lambda x, path: compute(PathKernel(network()), x, x[:3], store=path), "columns: None there"),
        (lambda x, path: compute(OverlapKernel(network()), x, store=path), "kind: 'npk' there, 'overlap' now"),
        (lambda x, path: compute(PathKernel(network(), biases=True), x, store=path), "biases: False there, True now"),
        (lambda x, path: compute(PathKernel(network().float()), x.float(), store=path), "dtype: 'float64' there"),
    ],
)
def test_a_store_of_something_else_is_refused_and_left_alone(other, difference, made, x):
    path, entries, _ = made
    with pytest.raises(StoreError, match=f"holds another kernel .*{difference}.*; choose another directory, or"):
        other(x, path)
    assert open_kernel(path)[:, :].tobytes() == entries.tobytes()


def test_a_store_of_another_arithmetic_or_format_is_refused(made, monkeypatch, x):
    path, _, again = made
    monkeypatch.setattr("gatelab.kernels.disk.engine.ARITHMETIC", "9.9")
    with pytest.raises(StoreError, match=r"gatelab: '.*' there, '9.9' now"):
        again()
    rewrite(path, "gatelab.kernel/1", "gatelab.kernel/7")
    with pytest.raises(StoreError, match="another format"):
        open_kernel(path)


def test_what_is_no_kernel(tmp_path, x):
    with pytest.raises(StoreError, match=r"K.zarr does not exist"):
        open_kernel(tmp_path / "K.zarr")
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "thesis.txt").write_text("years of work")
    with pytest.raises(StoreError, match="exists and is not a kernel; choose an empty"):
        compute(PathKernel(network()), x, store=folder)
    assert (folder / "thesis.txt").read_text() == "years of work"
    with pytest.raises(StoreError, match="is not a directory"):
        compute(PathKernel(network()), x, store=folder / "thesis.txt" / "K.zarr")


def test_a_creation_that_was_killed_leaves_nothing_in_the_way(tmp_path, x):
    (tmp_path / "K.zarr").mkdir()
    (tmp_path / "K.zarr" / "zarr.json.partial").write_text("{")
    (tmp_path / "K.zarr" / "lock").touch()
    assert compute(PathKernel(network()), x, store=tmp_path / "K.zarr", executor=ONE).shape == (70, 70)
    assert sorted(path.name for path in (tmp_path / "K.zarr").iterdir()) == ["c", "ledger.jsonl", "lock", "zarr.json"]


def test_metadata_that_lack_a_key(made):
    path, _, again = made
    rewrite(path, "chunk_grid", "grid_of_chunks")
    with pytest.raises(StoreError, match=r"is not a kernel of gatelab: KeyError.*chunk_grid"):
        again()


def test_a_store_that_another_process_has_just_made(made, x, monkeypatch):
    path, entries, again = made
    monkeypatch.setattr(DirectoryFormat, "exists", lambda self, path: False)
    with pytest.raises(StoreError, match=r"another process has just created .*K.zarr; run the same command again"):
        again()
    assert open_kernel(path)[:, :].tobytes() == entries.tobytes()


def test_one_process_at_a_time(made):
    path, _, again = made
    (path / "c" / "0" / "0").unlink()
    with locked(path), pytest.raises(RunError, match="another process is working on"):
        again()


def test_a_store_that_cannot_be_locked(made):
    path, _, again = made
    (path / "c" / "0" / "0").unlink()
    (path / "lock").unlink()
    (path / "lock").mkdir()
    with pytest.raises(RunError, match="cannot be locked: Is a directory; choose a writable place"):
        again()


def test_a_dtype_that_files_do_not_have(tmp_path):
    with pytest.raises(StoreError, match=r"cannot be stored; use x.float"):
        compute(TangentKernel(network().bfloat16()), torch.randn(9, 5).bfloat16(), store=tmp_path / "K.zarr")


SCRIPT = """
import sys, time, torch
from torch import nn
from gatelab.kernels import PathKernel, compute
from gatelab.kernels.disk.engine import TileJob
from gatelab.kernels.disk.store import KERNEL_FORMAT
from gatelab.work import Here
torch.set_default_dtype(torch.float64)
net = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 3))
net.load_state_dict(torch.load(sys.argv[2]))
fast = TileJob.tile
def slow(job, tile):
    time.sleep(0.05)
    return fast(job, tile)
TileJob.tile = slow
compute(PathKernel(net), torch.load(sys.argv[3]), store=sys.argv[1], executor=Here(4))
"""


def kill_and_compare(folder: Path, kills: int) -> None:
    """Kill a process when it has finished a tile, so often; finish here, and compare with an undisturbed kernel."""
    x, net, path = torch.randn(200, 5), network(), folder / "K.zarr"
    calm = compute(PathKernel(net), x, store=folder / "calm.zarr")
    torch.save(net.state_dict(), folder / "net.pt")
    torch.save(x, folder / "x.pt")
    command = [sys.executable, "-c", SCRIPT, path, folder / "net.pt", folder / "x.pt"]
    for _ in range(kills):
        seen = lines(path) if (path / "ledger.jsonl").exists() else 0
        with subprocess.Popen(command) as process:
            while not (path / "ledger.jsonl").exists() or lines(path) <= seen:
                assert process.poll() is None, "it was over before it could be killed"
                time.sleep(0.001)
            process.send_signal(signal.SIGKILL)
    assert kills <= lines(path) < calm._layout.count
    assert compute(PathKernel(net), x, store=path)[:, :].tobytes() == calm[:, :].tobytes()
    # No tile is listed twice: only tiles under way at a kill were computed twice.
    assert lines(path) == calm._layout.count


def test_killed_it_ends_with_the_same_bits(tmp_path):
    kill_and_compare(tmp_path, 1)


@pytest.mark.slow
def test_killed_again_and_again_it_ends_with_the_same_bits(tmp_path):
    kill_and_compare(tmp_path, 6)


@pytest.fixture
def read_only(tmp_path):
    """A real file system that is mounted read-only."""
    place = tmp_path / "mounted"
    place.mkdir()
    mount = subprocess.run(["mount", "-t", "tmpfs", "-o", "ro", "tmpfs", place], capture_output=True, check=False)
    if mount.returncode:
        pytest.skip("nothing can be mounted here")
    yield place
    subprocess.run(["umount", place], check=True)


def test_a_place_where_nothing_can_be_written(read_only, x):
    with pytest.raises(StoreError, match=r"nothing can be written to .*Read-only file system.*; choose another place"):
        compute(PathKernel(network()), x, store=read_only / "deep" / "K.zarr")


def test_a_disk_that_fills_up_leaves_what_is_finished(tmp_path, x, monkeypatch):
    path, real, written = tmp_path / "K.zarr", os.write, []

    def full_after_two(file, content):
        written.append(len(content))
        if len(written) > 9:  # a trial, three parts of the metadata, then entries and checksum of each tile
            raise OSError(28, "No space left on device")
        return real(file, content)

    monkeypatch.setattr("gatelab.work.files.os.write", full_after_two)
    with pytest.raises(RunError, match="No space left on device; finished work is kept"):
        compute(PathKernel(network()), x, store=path, executor=ONE)
    monkeypatch.undo()
    finished = lines(path)
    assert finished >= 2
    compute(PathKernel(network()), x, store=path, executor=ONE)
    assert np.isfinite(open_kernel(path)[:, :]).all()
    assert lines(path) == open_kernel(path)._layout.count
