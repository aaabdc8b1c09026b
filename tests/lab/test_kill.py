"""A run that is killed at random moments and started again ends as one that was left alone."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest


def _start(out: Path, epochs: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "gatelab", "study", "--profile", "smoke", "--out", str(out)]
    settings = ["--set", f"epochs={epochs}", "--set", "train_size=400"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen([*command, *settings], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def _wait_for_work(process: subprocess.Popen[bytes]) -> None:
    """Until the run begins to tell: importing takes seconds, and a signal shall hit the work behind it."""
    assert process.stderr is not None
    assert b"cells" in process.stderr.readline()


def _outcome(out: Path) -> dict[str, object]:
    lines = [json.loads(line) for line in (out / "journal.jsonl").read_text().splitlines()]
    results = json.loads((out / "results.json").read_text())
    return {"cells": {line["cell"]: line["result"] for line in lines}, "answer": results["answer"], "count": len(lines)}


def _finish(out: Path, epochs: int) -> float:
    """Let a run end; returns the seconds that its work took."""
    process = _start(out, epochs)
    _wait_for_work(process)
    began = time.monotonic()
    _, errors = process.communicate(timeout=200)
    assert process.returncode == 0, errors.decode()
    return time.monotonic() - began


def _kill_and_compare(tmp_path: Path, kills: int, epochs: int, seed: int) -> None:
    """Kill one run so many times, then let it finish; ``epochs`` must be enough for it to be at work each time."""
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    chance, longest = random.Random(seed), 0.8 * _finish(whole, epochs) / kills
    for _ in range(kills):
        process = _start(killed, epochs)
        _wait_for_work(process)
        time.sleep(chance.uniform(0.0, longest))
        assert process.poll() is None, "the run was over before it could be killed: give it more epochs"
        process.send_signal(signal.SIGKILL)
        process.communicate()
    _finish(killed, epochs)
    assert _outcome(killed) == _outcome(whole)


def test_killed_three_times(tmp_path):
    _kill_and_compare(tmp_path, 3, epochs=8, seed=0)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_killed_twenty_times(tmp_path):
    _kill_and_compare(tmp_path, 20, epochs=60, seed=1)


def test_interrupt_says_how_to_go_on(tmp_path):
    process = _start(tmp_path / "run", epochs=8)
    _wait_for_work(process)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=100)
    assert process.returncode == 130
    assert "Run the same command again to continue" in errors.decode()
    _finish(tmp_path / "run", epochs=8)
