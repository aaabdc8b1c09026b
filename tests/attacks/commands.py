"""The command line under attack: in this process for speed, or as a process of its own."""

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from gatelab.cli import main
from gatelab.errors import GatelabError
from gatelab.lab import Config, Experiment, Findings
from gatelab.papers import catalogue
from tests.attacks.outcomes import RawError
from tests.lab import small_run

ROOT = Path(__file__).parents[2]


def _findings(config, results):
    losses = [history[-1] for result in results.values() for history in result["train_loss"]]
    return Findings("Small", f"The last losses are {losses}.")


# Two trainings with checkpoints, the second from the weights of the first; about a second.
EXPERIMENTS = (
    Experiment("small", "Small", Config, {"quick": {}}, lambda _: small_run.CELLS, small_run.train, _findings),
)


@dataclass(frozen=True)
class Answer:
    """What a command left behind."""

    code: int
    out: str
    err: str


@pytest.fixture
def command(monkeypatch, capfd, single_precision):
    """Call ``main`` as the console script does, with the small experiment among the others."""
    monkeypatch.setitem(catalogue._HOMES_OF_EXPERIMENTS, "small", __name__)

    def call(*arguments: object) -> Answer:
        monkeypatch.setattr(sys, "argv", ["gatelab", *map(str, arguments)])
        capfd.readouterr()
        try:
            main()
        except SystemExit as end:
            written = capfd.readouterr()
            return Answer(end.code, written.out, written.err)
        except GatelabError as error:
            raise RawError(f"a traceback at the command line: {error!r}") from error
        except Exception as error:
            raise RawError(f"{type(error).__name__}: {error}") from error
        raise AssertionError("the command returned without an exit code")

    return call


def environment(**changes: str) -> dict[str, str]:
    """The environment of a process that finds this tree."""
    path = os.pathsep.join((str(ROOT / "src"), str(ROOT)))
    return {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", **changes}


def process(*arguments: object, **options) -> subprocess.CompletedProcess:
    """Run a command as a process of its own; a traceback is a success of the attack."""
    line = [sys.executable, "-m", "gatelab", *map(str, arguments)]
    given = {"capture_output": True, "text": True, "errors": "replace", "env": environment(), "timeout": 120, **options}
    done = subprocess.run(line, check=False, **given)
    if "Traceback" in (done.stderr or "") or "Exception ignored" in (done.stderr or ""):
        raise RawError(done.stderr[-2000:])
    return done
