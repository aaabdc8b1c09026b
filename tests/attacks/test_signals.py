"""Signals, terminals and locales: work that is stopped says how to go on, and nobody is left behind."""

import builtins
import json
import os
import random
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from gatelab.lab import Config, Experiment, Findings
from gatelab.lab.runs import Cell, Run
from gatelab.papers import catalogue
from tests.attacks.commands import environment, process
from tests.attacks.outcomes import ChangedStateError, RawError, SilentlyWrongError

pytestmark = pytest.mark.attack("signals, terminals, locale")
STOPPING = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]


class SignalConfig(Config):
    """Which signal to send, and how often."""

    signal: int
    times: int = 1


def _work(config, cell, context):
    """The second cell sends signals to its own process, once in the life of the run."""
    marker = context.folder / "sent"
    if cell.name == "second" and not marker.exists():
        marker.touch()
        for _ in range(config.times):
            os.kill(os.getpid(), config.signal)
        time.sleep(5)
    return {"value": 1}


CELLS = [Cell("first"), Cell("second", needs=("first",))]
EXPERIMENTS = (
    Experiment(
        "signalled",
        "Signalled",
        SignalConfig,
        {"quick": {}},
        lambda _: CELLS,
        _work,
        lambda _, results: Findings("Signalled", f"{len(results)} cells"),
    ),
)


@pytest.fixture(autouse=True)
def _with_the_experiment(monkeypatch):
    monkeypatch.setitem(catalogue._HOMES_OF_EXPERIMENTS, "signalled", __name__)


# A terminal that is closed may send its signal twice; a second Ctrl-C, however, may end the work at once.
@pytest.mark.parametrize(
    ("number", "times"), [*((number, 1) for number in STOPPING), (STOPPING[1], 2), (STOPPING[2], 2)]
)
def test_a_signal_ends_a_run_like_ctrl_c(number, times, tmp_path, command):
    arguments = ["run", "signalled", "--out", str(tmp_path / "a run"), "--set", f"signal={number.value}"]
    arguments += ["--set", f"times={times}"]
    stopped = command(*arguments)
    assert stopped.code == 128 + number
    said = stopped.err.splitlines()
    assert "stopped; 1 of 2 cells are finished. Run the same command again to continue:" in said
    assert list(Run.read(tmp_path / "a run").results()) == ["first"]
    continued = command(*shlex.split(said[-1])[1:])  # what was printed is what goes on
    assert continued.code == 0, continued.err
    assert "2 cells, 1 already finished" in continued.err
    for other in STOPPING:
        if getattr(signal.getsignal(other), "__module__", "").startswith("gatelab"):
            raise ChangedStateError(f"the handler of {other.name} is still there")


@pytest.mark.parametrize("number", STOPPING)
@pytest.mark.parametrize("arguments", [("theorems", "npk-2.1"), ("experiments",), ("verify", "run"), ("data", "list")])
def test_a_signal_ends_any_command_without_a_traceback(number, arguments, monkeypatch, command):
    """The signal comes when the command imports what it needs."""

    def import_and_signal(name, *rest, **named):
        if name.startswith("gatelab.") and name != "gatelab.errors" and not sent:
            sent.append(name)
            os.kill(os.getpid(), number)
        return real(name, *rest, **named)

    real, sent = builtins.__import__, []
    monkeypatch.setattr(builtins, "__import__", import_and_signal)
    stopped = command(*arguments)
    assert sent
    assert stopped.code == 128 + number
    assert stopped.out == ""


def test_a_signal_that_is_ignored_stays_ignored(tmp_path, command, monkeypatch):
    """As under nohup: the terminal is closed, and the run goes on."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    monkeypatch.setattr(time, "sleep", lambda _: None)
    try:
        answer = command("run", "signalled", "--out", tmp_path / "run", "--set", f"signal={signal.SIGHUP.value}")
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)
    assert answer.code == 0, answer.err


MODEL = "import torch\ndef net():\n    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 30), "
MODEL += "torch.nn.ReLU(), torch.nn.Linear(30, 2))\n"


@pytest.mark.parametrize("number", STOPPING)
def test_a_signal_ends_a_kernel_like_ctrl_c(number, tmp_path, command, monkeypatch):
    (tmp_path / "net.py").write_text(MODEL)
    from gatelab.kernels.disk.store import KernelStore

    real, added = KernelStore.add_to_ledger, []

    def add(store, *entry):
        real(store, *entry)
        added.append(entry)
        if len(added) == 2:
            os.kill(os.getpid(), number)

    monkeypatch.setattr(KernelStore, "add_to_ledger", add)
    arguments = ["kernel", f"{tmp_path}/net.py:net", "digits", "--kind", "npk", "-o", tmp_path / "K.zarr"]
    arguments += ["--examples", "50"]
    stopped = command(*arguments)
    assert stopped.code == 128 + number
    assert re.search(r"stopped; 2 of \d+ tiles are finished. Run the same command again to continue:", stopped.err)
    assert command("verify", tmp_path / "K.zarr").code == 0
    assert command(*shlex.split(stopped.err.splitlines()[-1])[1:]).code == 0


@pytest.mark.parametrize(
    "encoding", [{"PYTHONIOENCODING": "ascii"}, {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}]
)
@pytest.mark.parametrize(
    "arguments",
    [("kernel", "--help"), pytest.param(("theorems", "npk-2.1"), marks=pytest.mark.slow)],
    ids=["help", "≤"],
)
def test_a_terminal_without_greek_letters(encoding, arguments):
    done = process(*arguments, env=environment(**encoding))
    assert done.returncode == 0, done.stderr
    assert done.stdout.isascii()
    assert "\\u" in done.stdout


@pytest.mark.slow
def test_json_in_a_terminal_without_greek_letters_is_the_same_json():
    plain, ascii_only = (
        json.loads(process("theorems", "npk-2.1", "--json", env=environment(PYTHONIOENCODING=name)).stdout)
        for name in ("utf-8", "ascii")
    )
    for record in (plain, ascii_only):
        del record[0]["seconds"]
    if plain != ascii_only:
        raise SilentlyWrongError(f"{ascii_only}")


def test_a_log_that_cannot_be_written_does_not_end_the_work(tmp_path, command, monkeypatch):
    """The terminal is gone, or the disk of the log is full: results matter more than progress."""
    full = Path("/dev/full").open("w", buffering=1)  # noqa: SIM115  closed after main has led it elsewhere
    monkeypatch.setattr(sys, "stderr", full)
    assert command("run", "small", "--out", tmp_path / "run").code == 0
    assert (tmp_path / "run" / "report.html").exists()
    full.close()


def _study(folder: Path, *where: str) -> subprocess.Popen:
    line = [sys.executable, "-m", "gatelab", "study", "--profile", "smoke", "--set", "epochs=4000", *where]
    line += ["--out", str(folder / "run")]
    return subprocess.Popen(line, env=environment(), stderr=subprocess.PIPE, text=True, start_new_session=True)


@pytest.mark.slow
@pytest.mark.parametrize("where", [(), ("--workers", "2"), ("--cluster", "local:2")], ids=["alone", "pool", "cluster"])
@pytest.mark.parametrize("number", STOPPING)
@pytest.mark.parametrize("target", ["its process", "all processes of its group"])
def test_a_real_run_ends_in_order_and_leaves_nobody(where, number, target, tmp_path):
    with _study(tmp_path, *where) as run:
        while "/4000" not in run.stderr.readline():  # an epoch of 4000
            assert run.poll() is None
        children = psutil.Process(run.pid).children(recursive=True)
        time.sleep(random.Random(int(number)).uniform(0.0, 0.5))
        (os.kill if target == "its process" else os.killpg)(run.pid, number)
        _, errors = run.communicate(timeout=100)
    if "Traceback" in errors:
        raise RawError(errors)
    assert run.returncode == 128 + number
    said = [line for line in errors.splitlines() if line and not line.startswith("[")]
    assert said[0] == "stopped; 1 of 8 cells are finished. Run the same command again to continue:"
    assert said[1].startswith("gatelab study --profile smoke")
    _, alive = psutil.wait_procs(children, timeout=30)
    assert not alive
    assert process("verify", tmp_path / "run").returncode == 0
