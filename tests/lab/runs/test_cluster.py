"""A run's cells on the workers of a scheduler."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
import torch
from typer.testing import CliRunner

from gatelab.cli import app
from gatelab.errors import InputError
from gatelab.lab.runs import Cell, Run, execute
from gatelab.papers import find_experiment
from gatelab.work import connect
from tests.lab.runs.test_runs import CELLS, Log, add
from tests.work.processes import ROOT
from tests.work.tasks import count_in_steps
from tests.work.test_dask import Meanwhile, wait_until

# Found now: Python 3.11 may fail to compile a module while a thread of Dask's compiles something, too.
STUDY = find_experiment("study")
STEPS = [Cell("first"), Cell("second"), Cell("sum", needs=("first", "second"))]


@pytest.fixture(scope="module")
def cluster():
    notes = []
    with connect(None, "local:2", notify=notes.append) as executor:
        yield executor
    assert notes == []


@pytest.fixture
def _single_precision():
    torch.set_default_dtype(torch.float32)  # as the command runs


@pytest.fixture
def study_here(tmp_path, _single_precision):
    """The results of one process."""
    config = STUDY.configure("smoke", {})
    run = Run.open(tmp_path / "here", STUDY.id, config.model_dump(mode="json"))
    return execute(run, config, STUDY.cells(config), STUDY.work, Log())


@pytest.mark.slow
def test_an_experiment_finds_what_one_process_finds(tmp_path, monkeypatch, cluster, study_here, capfd):
    monkeypatch.chdir(tmp_path)
    config, log = STUDY.configure("smoke", {}), Log()
    run = Run.open(Path("there"), STUDY.id, config.model_dump(mode="json"))  # workers stand elsewhere
    assert execute(run, config, STUDY.cells(config), STUDY.work, log, cluster=cluster) == study_here
    assert run.results() == study_here
    assert any(cell == "network" and fraction == 0.5 for cell, fraction, *_ in log.lines[1:] if cell != "finish")
    assert not (run.path / "probe").exists()
    assert capfd.readouterr() == ("", "")


@pytest.mark.slow
def test_a_directory_that_workers_do_not_see(tmp_path, cluster):
    run = Run.open(tmp_path / "run", "sums", {})
    cluster._client.run(_hide, str(run.path))
    with pytest.raises(InputError, match=rf"worker .*tcp://.* does not see the files in {run.path}.*share, with --out"):
        execute(run, 10, CELLS, add, Log(), cluster=cluster)
    assert not run.results()
    cluster._client.run(_hide, "nothing")
    assert execute(run, 10, CELLS, add, Log(), cluster=cluster)["sum"] == {"value": 30}


@pytest.mark.slow
def test_nothing_listens_to_the_network(cluster):
    """Neither workers nor dashboards, here or in the workers."""
    places = [_listening(), *cluster._client.run(_listening).values()]
    assert all(places)
    assert {address for place in places for address in place} == {"127.0.0.1"}


def _listening():
    connections = psutil.Process().net_connections("inet")
    return [one.laddr.ip for one in connections if one.status == psutil.CONN_LISTEN]


def _hide(path):
    """In a worker: as if it were another machine, on which the name leads nowhere."""
    import pathlib

    pathlib.Path.is_file = lambda self: not str(self).startswith(path) and self.exists()


@pytest.mark.slow
def test_a_worker_dies_in_the_middle_of_a_cell(tmp_path, cluster, capfd):
    """The cell goes on elsewhere from where it was."""
    run, log = Run.open(tmp_path / "run", "steps", {}), Log()
    killed = []

    def kill():
        (began,) = wait_until(lambda: list((run.path / "cells").glob("began-0-*")))
        killed.append(began.name.rpartition("-")[2])
        os.kill(int(killed[0]), signal.SIGKILL)
        (began.parent / "go").touch()

    with Meanwhile(kill):
        results = execute(run, 10, STEPS, count_in_steps, log, cluster=cluster)
    assert results == execute(Run.open(tmp_path / "here", "steps", {}), 10, STEPS, _without_a_stop, Log())
    assert results["sum"] == {"total": 30}
    steps = (run.folder("first") / "steps").read_text().split()
    assert len(steps) == 10  # none was done twice
    assert steps[:5] == 5 * killed
    assert killed[0] not in steps[5:]
    assert ("first", 0.7, "counting") in log.lines
    assert capfd.readouterr() == ("", "")


def _without_a_stop(config, cell, context):
    (context.folder.parent / "go").touch()
    return count_in_steps(config, cell, context)


def _start(*arguments, **options):
    command = [sys.executable, "-m", "gatelab", "study", "--profile", "smoke", "--cluster", "local:2", *arguments]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT / "src")}
    return subprocess.Popen(
        command, env=environment, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, **options
    )


@pytest.mark.slow
def test_the_command(tmp_path, study_here):
    with _start("--out", "there", cwd=tmp_path) as process:
        _, errors = process.communicate(timeout=250)
    assert process.returncode == 0, errors
    assert all(line.startswith("[") for line in errors.splitlines()), errors
    assert Run.read(tmp_path / "there").results() == study_here


@pytest.mark.slow
def test_ctrl_c_is_one_line_and_leaves_nobody(tmp_path):
    with _start("--out", str(tmp_path / "run"), "--set", "epochs=4000", start_new_session=True) as process:
        while "/4000" not in process.stderr.readline():  # an epoch of 4000
            assert process.poll() is None
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does it
        _, errors = process.communicate(timeout=100)
    assert process.returncode == 130
    lines = [line for line in errors.splitlines() if line and not line.startswith("[")]
    first, second = lines
    assert first == "stopped; 1 of 8 cells are finished. Run the same command again to continue:"
    assert second.startswith("gatelab study --profile smoke --cluster local:2 --out ")
    wait_until(lambda: not _alive(process.pid), seconds=30)


def _alive(group):
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def test_the_command_refuses(tmp_path):
    for place, message in (
        (["--cluster", "local:x"], "--cluster local:x: write local:4"),
        (["--cluster", "local:2", "--workers", "2"], "--workers is for processes without Dask"),
        (["--cluster", "local:2", "--scheduler", "tcp://127.0.0.1:1"], "give one of them"),
    ):
        for command in (["study"], ["run", "npk-table2"]):
            answer = CliRunner().invoke(app, [*command, "--out", str(tmp_path / "run"), *place])
            assert isinstance(answer.exception, InputError)
            assert message in str(answer.exception)
    assert not (tmp_path / "run").exists()
