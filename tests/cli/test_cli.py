import json
import resource
import subprocess
import sys
import types
from dataclasses import fields

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from gatelab import __version__, cli
from gatelab.cli import progress
from gatelab.cli.options import RunOptions
from gatelab.figures import Plot
from gatelab.lab import Theorem
from gatelab.lab.theorem import Measurement
from gatelab.lab.verdicts import Check
from gatelab.papers import all_theorems, catalogue
from gatelab.work import progress as log

runner = CliRunner()


def invoke(*args: str):
    return runner.invoke(cli.app, list(args))


def test_help_is_quick_and_needs_no_torch():
    code = (
        "import sys, gatelab.cli as c\ntry: c.app(['--help'])\nexcept SystemExit: pass\nprint('torch' in sys.modules)"
    )
    times = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        # The processor's time, not the clock's, which a busy machine stretches.
        times.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    assert answer.strip().endswith("False")
    assert "theorems" in answer
    assert min(times) < 0.5


def test_python_m_gatelab():
    answer = subprocess.run([sys.executable, "-m", "gatelab", "--version"], capture_output=True, text=True, check=True)
    assert answer.stdout == f"gatelab {__version__}\n"


def test_one_theorem_in_detail_with_a_plot(tmp_path):
    answer = invoke("theorems", "npk-2.1", "--plot", str(tmp_path / "figure.svg"))
    assert answer.exit_code == 0, answer.output
    assert "Proposition 2.1: holds" in answer.output
    assert "why this bound: an identity" in answer.output
    assert (tmp_path / "figure.svg").exists()


def test_json_is_for_machines():
    answer = invoke("theorems", "npk-C.2", "--json", "--seed", "3")
    (record,) = json.loads(answer.stdout)
    assert record["id"] == "npk-C.2"
    assert record["verdict"] == "holds"
    assert record["seed"] == 3
    assert {check["side"] for check in record["checks"]} == {"≤", "≥"}
    for check in record["checks"]:
        assert check["value"] <= check["bound"] if check["side"] == "≤" else check["value"] >= check["bound"]


def test_list_measures_nothing():
    answer = invoke("theorems", "--list")
    assert len(answer.output.splitlines()) == len(all_theorems())


@pytest.fixture
def false_theorem(monkeypatch):
    def measure(seed: int) -> Measurement:
        return Measurement((Check("one minus [zero]", 1.0, 0.5, "arithmetic"),), Plot("x", "y", ()))

    module = types.ModuleType("tests_of_theorems")
    module.first = Theorem("test-0", "Theorem 0", "One is zero", measure)
    module.second = Theorem("test-1", "Theorem 1", "And again", measure)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    for name in ("test-0", "test-1"):
        monkeypatch.setitem(catalogue._HOMES_OF_THEOREMS, name, module.__name__)


@pytest.mark.usefixtures("false_theorem")
def test_a_failing_theorem_sets_the_exit_code():
    detail = invoke("theorems", "test-0")
    assert detail.exit_code == 1
    assert "FAILS" in detail.output
    table = invoke("theorems", "test")
    assert table.exit_code == 1
    assert "0 of 2 hold" in table.output
    assert "one minus [zero]" in table.output


def modules_after(code: str) -> set[str]:
    """The modules that a fresh process has loaded after this code."""
    report = "\nimport sys; print('\\n' + ' '.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code + report], capture_output=True, text=True, check=True)
    return set(done.stdout.splitlines()[-1].split())


def test_refusals_are_one_line_and_exit_2():
    command = [sys.executable, "-m", "gatelab", "theorems", "npk-9.9"]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    assert answer.returncode == 2
    assert answer.stderr.startswith("gatelab: there is no theorem 'npk-9.9'")
    assert len(answer.stderr.splitlines()) == 1


def test_a_command_imports_the_papers_that_it_needs():
    code = (
        "from typer.testing import CliRunner\n"
        "from gatelab import cli\n"
        "done = CliRunner().invoke(cli.app, ['theorems', 'npk-2.1'])\n"
        "assert done.exit_code == 0, done.output\n"
        "done = CliRunner().invoke(cli.app, ['run', 'npk-table2', '--set', 'epochs=none'])\n"
        "assert 'epochs' in str(done.exception), done.output\n"
    )
    papers = {name for name in modules_after(code) if name.startswith("gatelab.papers.") and name.count(".") > 2}
    assert papers == {"gatelab.papers.npk.theorems", "gatelab.papers.npk.table2"}


def test_kernels_need_neither_zarr_nor_scikit_learn_until_they_are_used():
    loaded = modules_after("import gatelab.kernels")
    assert "gatelab.kernels.disk.store" in loaded
    assert not loaded & {"zarr", "sklearn", "dask", "distributed"}


def test_plot_needs_one_theorem():
    answer = invoke("theorems", "npk", "--plot", "x.png")
    assert answer.exit_code != 0
    assert "--plot draws one theorem" in str(answer.exception)


def test_every_run_has_the_same_options():
    """`run` and `study` perform experiments alike; both receive what RunOptions lists."""
    shared = {field.name for field in fields(RunOptions)}
    for command in ("run", "study"):
        assert shared <= {parameter.name for parameter in get_command(cli.app).commands[command].params}
    help_text = CliRunner().invoke(cli.app, ["run", "--help"], env={"COLUMNS": "200"}).stdout
    assert "--redo-damaged" in help_text
    assert "--set" in help_text


def test_a_log_is_not_silent_for_long(capsys, monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(log.time, "monotonic", lambda: clock[0])
    lines = log.LogLines()
    for second, fraction in ((0, 0.0), (10, 0.05), (20, 0.12), (70, 0.13), (79, 0.14), (81, 0.15)):
        clock[0] = float(second)
        lines.update("cell", fraction, f"step {second}")
    told = [line.rsplit(" ", 1)[1] for line in capsys.readouterr().err.splitlines()]
    assert told == ["0", "20", "70", "81"]


def test_a_log_names_only_the_long_parts_if_asked(capsys, monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(log.time, "monotonic", lambda: clock[0])
    lines = log.LogLines(shortest=1.0)
    for part, seconds in (("npk-1.1", 0.2), ("npk-5.1", 3.0)):
        lines.update(part, 0.0, "begins")
        clock[0] += seconds
        lines.finish(part)
    assert capsys.readouterr().err == "[    3.2 s] npk-5.1: done\n"


def test_a_log_says_how_much_time_is_left(capsys, monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(log.time, "monotonic", lambda: clock[0])
    lines = log.LogLines()
    lines.update("tiles", 0.2, "9 of 45")  # the others were finished before
    clock[0] = 30.0
    lines.update("tiles", 0.4, "18 of 45")
    assert capsys.readouterr().err.splitlines()[-1] == "[   30.0 s] tiles: 40%, 1 min 30 s left, 18 of 45"


def test_a_bar_counts_parts_by_their_weight():
    with progress.Bar() as bar:
        bar.start({"long": 3.0, "short": 1.0, "before": 4.0}, ["before"])
        bar.note("a line above the bar")
        bar.update("long", 0.5, "epoch 3")
        bar.finish("short")
        (task,) = bar._progress.tasks
        assert (task.completed, task.total) == (6.5, 8.0)
        assert task.description == "short: done"


@pytest.mark.usefixtures("false_theorem")
def test_the_progress_names_the_theorem_that_runs(monkeypatch):
    shown = []
    monkeypatch.setattr(log.LogLines, "update", lambda self, part, fraction, text: shown.append((part, text)))
    invoke("theorems", "test")
    assert shown == [("test-0", "Theorem 0"), ("test-1", "Theorem 1")]
