"""Locks on directories; the tests of runs and stores cover the other files."""

import os
import signal
import subprocess
import sys
import threading

import pytest

from gatelab.errors import RunError
from gatelab.work.files import locked, sync_folder

HOLDER = """
import pathlib, sys, time
from gatelab.work.files import locked
with locked(pathlib.Path(sys.argv[1])):
    print("locked", flush=True)
    time.sleep(100)
"""


@pytest.fixture
def holder(tmp_path):
    """A process that has the lock of the directory."""
    with subprocess.Popen([sys.executable, "-c", HOLDER, str(tmp_path)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "locked\n"
        yield process
        process.kill()


def test_the_lock_of_another_process_ends_with_it(holder, tmp_path):
    with pytest.raises(RunError, match=f"another process is working on {tmp_path}; wait for it, or stop it"):
        locked(tmp_path).__enter__()
    calls = []

    def waiting():
        calls.append("waits")
        threading.Timer(0.2, os.kill, (holder.pid, signal.SIGKILL)).start()

    with locked(tmp_path, waiting):
        calls.append("has it")
        with pytest.raises(RunError, match="another process is working on"):
            locked(tmp_path).__enter__()
    assert calls == ["waits", "has it"]
    with locked(tmp_path, lambda: pytest.fail("nobody has it")):
        pass


def test_an_old_lock_file_is_used_and_left_alone(tmp_path):
    (tmp_path / "lock").write_text("old")
    with locked(tmp_path):
        pass
    assert (tmp_path / "lock").read_text() == "old"


def test_what_cannot_be_locked(tmp_path):
    (tmp_path / "precious").write_text("content")
    (tmp_path / "lock").symlink_to(tmp_path / "precious")
    for folder in (tmp_path, tmp_path / "missing"):
        with pytest.raises(RunError, match=rf"{folder} cannot be locked: .*; choose a writable place"):
            locked(folder).__enter__()
    assert (tmp_path / "precious").read_text() == "content"


def test_windows_has_no_directories_to_flush(tmp_path, monkeypatch):
    sync_folder(tmp_path)
    monkeypatch.setattr("gatelab.work.files.os.open", lambda *_: pytest.fail("Windows cannot open a directory"))
    monkeypatch.setattr("gatelab.work.files.os.name", "nt")
    sync_folder(tmp_path)
