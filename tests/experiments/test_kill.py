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

COMMAND = [
    *(sys.executable, "-m", "gatelab", "study", "--profile", "smoke"),
    *("--set", "epochs=6", "--set", "train_size=400"),
]


def _start(out: Path) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [*COMMAND, "--out", str(out)], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )


def _outcome(out: Path) -> dict[str, object]:
    lines = [json.loads(line) for line in (out / "journal.jsonl").read_text().splitlines()]
    results = json.loads((out / "results.json").read_text())
    return {"cells": {line["cell"]: line["result"] for line in lines}, "answer": results["answer"], "count": len(lines)}


def _finish(out: Path) -> None:
    process = _start(out)
    _, errors = process.communicate(timeout=200)
    assert process.returncode == 0, errors.decode()


def _kill_and_compare(tmp_path: Path, kills: int, seed: int) -> None:
    _finish(tmp_path / "whole")
    chance, killed = random.Random(seed), 0
    out = tmp_path / "killed"
    while killed < kills:
        process = _start(out)
        # Importing takes a few seconds; most kills shall hit the work behind it.
        time.sleep(chance.uniform(1.0, 9.0))
        if process.poll() is not None:
            process.communicate()
            assert process.returncode == 0
            if killed < kills // 2:  # too quick on this machine: begin again in another directory
                out = tmp_path / f"killed-{killed}-{chance.random()}"
                continue
            break
        process.send_signal(signal.SIGKILL)
        process.communicate()
        killed += 1
    _finish(out)
    assert _outcome(out) == _outcome(tmp_path / "whole")


def test_killed_three_times(tmp_path):
    _kill_and_compare(tmp_path, 3, seed=0)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_killed_twenty_times(tmp_path):
    _kill_and_compare(tmp_path, 20, seed=1)


def test_interrupt_says_how_to_go_on(tmp_path):
    process = _start(tmp_path / "run")
    deadline = time.monotonic() + 100
    while not list((tmp_path / "run").glob("cells/*")) and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=100)
    if process.returncode != 0:  # it may have finished before the signal came
        assert process.returncode == 130
        assert "Run the same command again to go on" in errors.decode()
    _finish(tmp_path / "run")
