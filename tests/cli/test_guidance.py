import inspect
import pickle
import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from gatelab import __version__, cli, errors
from gatelab.errors import InputError

ROOT = Path(__file__).parents[2]
ERRORS = [name for name, held in vars(errors).items() if inspect.isclass(held)]


def invoke(*args: str):
    return CliRunner().invoke(cli.app, list(args))


def test_the_command_alone_says_what_to_do_next():
    answer = invoke()
    assert answer.exit_code == 0
    commands = re.findall(r"^  gatelab (\w+)", answer.output, flags=re.MULTILINE)
    assert "study" in commands
    for command in set(commands):  # each of them exists
        assert invoke(command, "--help").exit_code == 0, command


def test_the_doctor_tells_versions_and_data(monkeypatch, tmp_path):
    monkeypatch.setenv("GATELAB_DATA", str(tmp_path))
    answer = invoke("doctor")
    assert answer.exit_code == 0
    for word in (__version__, "torch 2.", "threads", "GiB free", "digits", str(tmp_path)):
        assert word in answer.output


@pytest.mark.parametrize("name", ERRORS)
def test_every_error_has_causes_or_remedies(name):
    answer = invoke("explain", name)
    assert answer.exit_code == 0
    assert len(answer.output.split("\n\n")) > 2, "a first line and nothing to do"


def test_an_unknown_error_lists_the_known_ones():
    answer = invoke("explain", "Inputerror")
    assert isinstance(answer.exception, InputError)
    assert "StoreError" in str(answer.exception)


def test_a_traceback_names_the_command_that_explains():
    code = "from gatelab.errors import StoreError\nraise StoreError('the store is gone')"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False).stderr
    assert "gatelab explain StoreError" in said.splitlines()[-1]
    error = pickle.loads(pickle.dumps(errors.StoreError("the store is gone")))
    assert str(error) == "the store is gone"
    assert len(error.__notes__) == 1


def test_a_refused_command_names_it_too():
    done = subprocess.run(
        [sys.executable, "-m", "gatelab", "theorems", "npk-99"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert done.stderr.rstrip().endswith("(more: gatelab explain InputError)")


def test_the_citation_has_the_version():
    assert f"version: {__version__}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")
