"""A run that is killed at random moments and started again ends like a run that was left alone."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from gatelab import cli
from gatelab.cli import progress


def _arguments(out: Path, epochs: int) -> list[str]:
    settings = {"epochs": epochs, "train_size": 100, "probes": 5, "stages": [0.5]}  # four cells
    given = [argument for key, value in settings.items() for argument in ("--set", f"{key}={value}")]
    return ["study", "--profile", "smoke", "--out", str(out), *given]


@contextmanager
def _like_a_process_of_its_own() -> Iterator[None]:
    """In float32 and on one thread, as the processes below."""
    threads = torch.get_num_threads()
    torch.set_default_dtype(torch.float32)
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
    torch.set_default_dtype(torch.float64)


def _finish(out: Path, epochs: int) -> dict[str, object]:
    """Let a run end, in this process, which has paid for the imports; return what it leaves."""
    with _like_a_process_of_its_own():
        answer = CliRunner().invoke(cli.app, _arguments(out, epochs))
    assert answer.exit_code == 0, answer.output
    lines = [json.loads(line) for line in (out / "journal.jsonl").read_text().splitlines()]
    results = json.loads((out / "results.json").read_text())
    return {"cells": {line["cell"]: line["result"] for line in lines}, "answer": results["answer"], "count": len(lines)}


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> dict[str, object]:
    """What a run of eight epochs leaves that nobody disturbs."""
    return _finish(tmp_path_factory.mktemp("whole"), 8)


def _kill(out: Path, epochs: int, lines: int, pause: float) -> None:
    """Start a run; kill it a moment after it has reported so many epochs."""
    command = [sys.executable, "-m", "gatelab", *_arguments(out, epochs)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        reported = 0
        while reported < lines:
            line = process.stderr.readline()
            assert line, "the run was over before it could be killed: give it more epochs"
            reported += b"epoch" in line
        time.sleep(pause)
        assert process.poll() is None, "the run was over before it could be killed: give it more epochs"
        process.send_signal(signal.SIGKILL)


def test_killed_while_it_trains(tmp_path, whole):
    _kill(tmp_path, 8, lines=11, pause=0.0)  # in the second cell, which has a checkpoint by then
    assert len((tmp_path / "journal.jsonl").read_text().splitlines()) == 1
    assert list(tmp_path.glob("cells/random/checkpoint*"))
    assert _finish(tmp_path, 8) == whole


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_killed_twenty_times(tmp_path):
    chance = random.Random(1)
    for _ in range(20):
        _kill(tmp_path / "killed", 100, lines=chance.randint(1, 2), pause=chance.uniform(0.0, 0.1))
    assert _finish(tmp_path / "killed", 100) == _finish(tmp_path / "whole", 100)


def test_an_interrupted_run_says_how_to_continue(tmp_path, whole, monkeypatch):
    def interrupted(self: progress.Lines, part: str, fraction: float, text: str) -> None:
        if part == "random" and fraction > 0.4:
            raise KeyboardInterrupt

    monkeypatch.setattr(progress.Lines, "update", interrupted)
    with _like_a_process_of_its_own():
        answer = CliRunner().invoke(cli.app, _arguments(tmp_path, 8))
    assert answer.exit_code == 130
    assert "stopped; 1 of 4 cells are finished. Run the same command again to continue." in answer.output
    monkeypatch.undo()
    assert _finish(tmp_path, 8) == whole
