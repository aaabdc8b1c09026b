"""Directories, archives and answers of a stranger: nothing outside is written, filled or listened to."""

import json
import os
import pickle
import shutil
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import psutil
import pytest
import torch

from gatelab.errors import RunError
from gatelab.gates import GatePattern
from gatelab.kernels import InfiniteWidthKernel, compute
from gatelab.lab.runs import Run, execute
from gatelab.models.from_file import load_weights
from gatelab.work import Here
from gatelab.work.files import locked, write_durably
from gatelab.work.lines import JsonLines
from gatelab.work.progress import Silent
from tests.attacks.commands import environment
from tests.attacks.outcomes import ChangedStateError, SilentlyWrongError, refusal
from tests.lab import small_run

pytestmark = pytest.mark.attack("security")


@pytest.fixture
def precious(tmp_path):
    """A file, and a folder, outside of what a stranger gave us."""
    folder = tmp_path / "home"
    folder.mkdir()
    (folder / "precious").write_text("content")
    yield folder
    if {path.name: path.read_text() for path in folder.iterdir()} != {"precious": "content"}:
        raise ChangedStateError("something outside the directory was written")


def small(path: Path) -> None:
    execute(Run.open(path, "small", {}), None, small_run.CELLS, small_run.train, Silent())


RUN_FILES = ["lock", "journal.jsonl", "environment.json.partial", "probe", "cells/first/lock"]
RUN_FOLDERS = ["cells", "cells/first", "tables"]


@pytest.mark.parametrize("name", [*RUN_FILES, *RUN_FOLDERS])
def test_a_link_in_a_run_leads_nowhere(name, tmp_path, precious, single_precision):
    run = tmp_path / "run"
    Run.open(run, "small", {})
    (run / "environment.json").unlink()
    (run / name).parent.mkdir(parents=True, exist_ok=True)
    (run / name).unlink(missing_ok=True)
    (run / name).symlink_to(precious if name in RUN_FOLDERS else precious / "precious")
    assert f"{name} is a symbolic link to {precious}" in refusal(lambda: small(run))


def test_a_repair_removes_nothing_outside(tmp_path, command):
    """In a run with checksums every file without one counts as damaged; so would a user's own, behind a link."""
    run, project = Run.open(tmp_path / "run", "small", {}).path, tmp_path / "home" / "project"
    project.mkdir(parents=True)
    (project / "thesis.json").write_text("{}")
    (run / "cells").symlink_to(tmp_path / "home")
    assert command("run", "small", "--out", run, "--redo-damaged").code == 2
    if not (project / "thesis.json").exists():
        raise ChangedStateError("a folder outside the run was removed")


@pytest.mark.parametrize("cell", ["..", ".", "../../home", "/"])
def test_a_line_that_names_a_folder_outside(cell, tmp_path, precious, command):
    run = Run.open(tmp_path / "run", "small", {}).path
    (run / "notes.txt").write_text("mine")
    (run / "cells").mkdir()
    (run / "journal.jsonl").write_text(json.dumps({"cell": cell, "seconds": 1, "result": {}}) + "\n")
    assert command("run", "small", "--out", run, "--redo-damaged").code == 0
    if (run / "notes.txt").read_text() != "mine":
        raise ChangedStateError("more than the cell was removed")


@pytest.mark.parametrize("name", ["lock", "ledger.jsonl", "c", "c/0", "c/0/0.partial"])
def test_a_link_in_a_kernel_leads_nowhere(name, tmp_path, precious):
    store, x = tmp_path / "K.zarr", torch.randn(9, 3)

    def make():
        return compute(InfiniteWidthKernel(2), x, store=store, tile=3, executor=Here(1))

    make()
    shutil.rmtree(store / "c")
    (store / "ledger.jsonl").unlink()
    (store / name).parent.mkdir(parents=True, exist_ok=True)
    (store / name).unlink(missing_ok=True)
    (store / name).symlink_to(precious if name in ("c", "c/0") else precious / "precious")
    assert f"{name} is a symbolic link to {precious}" in refusal(make)


@pytest.mark.parametrize("kind", ["symbolic link", "hard link", "pipe", "folder"])
@pytest.mark.parametrize("use", ["lock", "journal", "partial"])
def test_what_stands_where_a_file_is_to_be(kind, use, tmp_path, precious):
    """Put there between the check of the directory and the writing."""
    name = {"lock": "lock", "journal": "journal", "partial": "file.partial"}[use]
    place = tmp_path / "foreign" / name
    place.parent.mkdir()
    if kind == "symbolic link":
        place.symlink_to(precious / "precious")
    elif kind == "hard link":
        os.link(precious / "precious", place)
    elif kind == "pipe":
        os.mkfifo(place)
    else:
        place.mkdir()

    def act():
        if use == "lock":
            with locked(place.parent):
                pass
        elif use == "journal":
            JsonLines(place).append({"value": 1})
        else:
            write_durably(place.parent / "file", b"new")

    if use == "partial" and kind != "folder":
        act()  # the link or pipe is removed, and not what it leads to
        assert (place.parent / "file").read_bytes() == b"new"
    else:
        with pytest.raises(RunError):
            act()


@pytest.mark.parametrize("name", ["run.json", "journal.jsonl", "environment.json"])
@pytest.mark.parametrize("kind", ["pipe", "endless device"])
def test_a_file_that_never_ends_is_not_read(name, kind, tmp_path):
    run = Run.open(tmp_path / "run", "small", {}).path
    (run / name).unlink(missing_ok=True)
    (os.mkfifo if kind == "pipe" else lambda path: path.symlink_to("/dev/zero"))(run / name)

    def read():
        found = Run.read(run)
        return found.results(), found.environment()

    assert "not a regular file" in refusal(read)


def test_a_tile_that_is_a_pipe_is_not_read(tmp_path):
    made = compute(InfiniteWidthKernel(2), torch.randn(9, 3), store=tmp_path / "K.zarr", tile=3, executor=Here(1))
    (tmp_path / "K.zarr/c/0/0").unlink()
    os.mkfifo(tmp_path / "K.zarr/c/0/0")
    assert "not a regular file" in refusal(lambda: made[0, 0])


def test_a_file_is_private_until_it_is_complete(tmp_path, monkeypatch):
    modes, real = [], os.fsync

    def look(handle):
        modes.append(stat.S_IMODE(os.fstat(handle).st_mode))
        real(handle)

    def write(handle, content):
        modes.append(stat.S_IMODE(os.fstat(handle).st_mode))
        return real_write(handle, content)

    real_write = os.write
    monkeypatch.setattr("gatelab.work.files.os.write", write)
    monkeypatch.setattr("gatelab.work.files.os.fsync", look)
    write_durably(tmp_path / "file", b"content")
    monkeypatch.undo()
    umask = os.umask(0)
    os.umask(umask)
    assert modes == [0o600, 0o666 & ~umask]
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o666 & ~umask


@pytest.mark.parametrize("name", ["gates", "gates.partial"])
def test_a_link_beside_saved_gates_leads_nowhere(name, tmp_path, precious):
    folder = tmp_path / "foreign"
    folder.mkdir()
    (folder / name).symlink_to(precious / "precious")
    before = (precious / "precious").read_bytes()
    GatePattern({"relu": torch.ones(2, 3, dtype=torch.bool)}).save(folder / "gates")
    assert GatePattern.load(folder / "gates").n == 2
    assert not any(path.is_symlink() for path in folder.iterdir())
    if (precious / "precious").read_bytes() != before:
        raise ChangedStateError("the file behind the link has changed")


class Evil:
    def __reduce__(self):
        return Path.write_text, (Path(tempfile.gettempdir()) / "gatelab-was-here", "opened")


@pytest.mark.parametrize("name", ["evil.pt", "evil.safetensors", "evil.npy"])
def test_a_pickle_is_not_opened(name, tmp_path, command):
    (tmp_path / name).write_bytes(pickle.dumps(Evil(), protocol=2))
    if name.endswith(".npy"):
        np.save(tmp_path / name, np.array([Evil()], dtype=object), allow_pickle=True)
        made = ("--kind", "infinite", "--depth", "2", "-o", tmp_path / "K.zarr")
        assert command("kernel", "-", tmp_path / name, *made).code == 2
    else:
        message = refusal(lambda: load_weights(torch.nn.Linear(2, 2), tmp_path / name))
        assert name in message
    if (Path(tempfile.gettempdir()) / "gatelab-was-here").exists():
        raise SilentlyWrongError("the code in the file was run")


@pytest.mark.slow
def test_nothing_listens_to_the_network_while_a_cluster_works(tmp_path):
    """Scheduler, workers and their dashboards: on this machine only; and their files are private."""
    line = [sys.executable, "-m", "gatelab", "study", "--profile", "smoke", "--set", "epochs=4000"]
    line += ["--cluster", "local:2", "--out", str(tmp_path / "run")]
    (tmp_path / "temporary").mkdir()
    variables = environment(TMPDIR=str(tmp_path / "temporary"))
    with subprocess.Popen(line, env=variables, stderr=subprocess.PIPE, text=True) as run:
        while "/4000" not in run.stderr.readline():  # an epoch of 4000
            assert run.poll() is None
        parent = psutil.Process(run.pid)
        sockets = [one for child in (parent, *parent.children(recursive=True)) for one in child.net_connections("inet")]
        modes = {path.name: path.stat().st_mode for path in (tmp_path / "temporary").glob("*") if path.is_dir()}
        run.terminate()
        run.communicate(timeout=60)
    listening = {one.laddr.ip for one in sockets if one.status == psutil.CONN_LISTEN}
    assert listening == {"127.0.0.1"}
    torch_cache = {name for name in modes if name.startswith("torchinductor_")}
    assert modes.keys() - torch_cache
    assert not {name for name, mode in modes.items() if mode & 0o077} - torch_cache, modes
