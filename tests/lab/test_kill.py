"""A run that is killed at any moment and started again ends like a run that was left alone."""

import json
import os
import random
import signal
import subprocess
import sys
import time
import types
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from gatelab import cli
from gatelab.lab import Config, Experiment, Findings
from gatelab.papers import catalogue
from gatelab.work.progress import Silent
from tests.lab import small_run

ROOT = Path(__file__).parents[2]


def _kill(command: list[str], lines: int, pause: float = 0.0) -> None:
    """Start a run; kill it a moment after it has reported so many epochs."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    environment["PYTHONPATH"] = os.pathsep.join((str(ROOT / "src"), str(ROOT)))
    command = [sys.executable, "-m", *command]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        assert process.stdout is not None
        reported, output = 0, b""
        while reported < lines:
            line = process.stdout.readline()
            output += line
            assert line, f"the run was over before it could be killed: {output.decode()}"
            reported += b"epoch" in line
        time.sleep(pause)
        assert process.poll() is None, "the run was over before it could be killed"
        process.send_signal(signal.SIGKILL)


def test_killed_while_it_trains(tmp_path, single_precision):
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    _kill(["tests.lab.small_run", str(tmp_path / "killed")], lines=small_run.EPOCHS + 4)
    # In the second of two trainings, which has a checkpoint.
    assert len((tmp_path / "killed" / "journal.jsonl").read_text().splitlines()) == 1
    assert list(tmp_path.glob("killed/cells/second/checkpoint*"))
    results = small_run.run(tmp_path / "killed", Silent())
    assert results == small_run.run(tmp_path / "whole", Silent())
    for file in sorted((tmp_path / "whole" / "cells").rglob("*.safetensors")):
        assert (tmp_path / "killed" / file.relative_to(tmp_path / "whole")).read_bytes() == file.read_bytes()
    assert len((tmp_path / "killed" / "journal.jsonl").read_text().splitlines()) == 2
    torch.set_num_threads(threads)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    "where",
    [(), ("--workers", "2"), ("--cluster", "local:2")],
    ids=["in one process", "in a pool", "on a cluster"],
)
def test_a_study_killed_twenty_times(where, tmp_path):
    """Wherever its cells are computed; the run that is left alone has one process."""

    def command(name: str, *where: str) -> list[str]:
        settings = ["--set", "epochs=60", "--set", "train_size=400"]
        return ["gatelab", "study", "--profile", "smoke", "--out", str(tmp_path / name), *settings, *where]

    def outcome(name: str, *where: str) -> tuple[object, ...]:
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        subprocess.run([sys.executable, "-m", *command(name, *where)], check=True, env=environment)
        lines = [json.loads(line) for line in (tmp_path / name / "journal.jsonl").read_text().splitlines()]
        results = json.loads((tmp_path / name / "results.json").read_text())
        return {line["cell"]: line["result"] for line in lines}, len(lines), results["answer"]

    chance = random.Random(1)
    for _ in range(20):
        _kill(command("killed", *where), lines=chance.randint(1, 3), pause=chance.uniform(0.0, 0.2))
    assert outcome("killed", *where) == outcome("whole")


def test_an_interrupted_run_says_how_to_continue(tmp_path, monkeypatch):
    interrupts = [KeyboardInterrupt]

    def work(config, cell, context):
        if cell.name == "second" and interrupts:
            raise interrupts.pop()
        return {"value": 1}

    def findings(config, results):
        return Findings("Sums", f"{len(results)} cells", (), (), (), ())

    module = types.ModuleType("tests_of_runs")
    module.EXPERIMENTS = (
        Experiment("sums", "Sums", Config, {"quick": {}}, lambda config: small_run.CELLS, work, findings),
    )
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setitem(catalogue._HOMES_OF_EXPERIMENTS, "sums", module.__name__)
    command = ["run", "sums", "--out", str(tmp_path / "run")]
    stopped = CliRunner().invoke(cli.app, command)
    assert stopped.exit_code == 130
    assert "stopped; 1 of 2 cells are finished. Run the same command again to continue:\ngatelab " in stopped.output
    continued = CliRunner().invoke(cli.app, command)
    assert continued.exit_code == 0, continued.output
    assert "2 cells, 1 already finished" in continued.output
    assert "report: " in continued.output
