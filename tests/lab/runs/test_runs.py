"""Runs: a directory that remembers, whatever happens to the process."""

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import gatelab
from gatelab.errors import RunError
from gatelab.lab.runs import Cell, Context, Run, execute, runs_in
from gatelab.lab.runs.crews import do_cell
from gatelab.work.files import locked, write_durably
from gatelab.work.lines import JsonLines

CELLS = [Cell("a", {"value": 1}), Cell("b", {"value": 2}), Cell("sum", needs=("a", "b"))]


class Log:
    def __init__(self):
        self.lines = []

    def start(self, parts, done):
        self.lines.append(("start", len(parts), sorted(done)))

    def update(self, part, fraction, text):
        self.lines.append((part, fraction, text))

    def note(self, text):
        pass

    def finish(self, part):
        self.lines.append(("finish", part))


def add(config, cell, context):
    context.tell(0.5, "half")
    if cell.needs:
        return {"value": sum(result["value"] for result in context.results.values())}
    (context.folder / "file").write_text("left here")
    return {"value": cell.parameters["value"] * config}


def forbidden(config, cell, context):
    raise AssertionError(f"{cell.name} was done before")


def test_cells_run_once_and_in_order(tmp_path):
    run, log = Run.open(tmp_path / "run", "sums", {"x": 1}), Log()
    results = execute(run, 10, CELLS, add, log)
    assert results["sum"] == {"value": 30}
    assert log.lines[0] == ("start", 3, [])
    again = Run.open(tmp_path / "run", "sums", {"x": 1})
    assert execute(again, 10, CELLS, forbidden, Log()) == results
    assert (again.folder("a") / "file").read_text() == "left here"


def test_a_pool_gives_the_same(tmp_path):
    log = Log()
    run = Run.open(tmp_path / "run", "sums", {})
    assert execute(run, 10, CELLS, add, log, workers=2)["sum"] == {"value": 30}
    assert ("a", 0.5, "half") in log.lines
    assert ("finish", "sum") in log.lines


def fail_once(config, cell, context):
    marker = context.folder / "tried"
    if cell.name == "b" and not marker.exists():
        marker.touch()
        raise KeyboardInterrupt
    return add(config, cell, context)


def test_what_was_finished_before_a_stop_is_not_redone(tmp_path):
    run = Run.open(tmp_path / "run", "sums", {})
    with pytest.raises(KeyboardInterrupt):
        execute(run, 1, CELLS, fail_once, Log())
    assert list(run.results()) == ["a"]
    log = Log()
    assert execute(run, 1, CELLS, fail_once, log)["sum"] == {"value": 3}
    assert log.lines[0] == ("start", 3, ["a"])


def test_a_changed_configuration_is_refused_naming_the_keys(tmp_path):
    Run.open(tmp_path / "run", "sums", {"epochs": 3, "seed": 0})
    with pytest.raises(RunError, match=r"epochs: 3 there, 4 now"):
        Run.open(tmp_path / "run", "sums", {"epochs": 4, "seed": 0})
    with pytest.raises(RunError, match="experiment: 'sums' there, 'products' now"):
        Run.open(tmp_path / "run", "products", {"epochs": 3, "seed": 0})
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.tex").touch()
    with pytest.raises(RunError, match="is not a run; choose an empty"):
        Run.open(tmp_path / "other", "sums", {})
    with pytest.raises(RunError, match="is not a run of gatelab"):
        Run.read(tmp_path / "other")
    assert runs_in(tmp_path) == [tmp_path / "run"]


def test_two_processes_do_not_share_a_run(tmp_path):
    run = Run.open(tmp_path / "run", "sums", {})
    with locked(run.path), pytest.raises(RunError, match="another process"):
        execute(run, 1, CELLS, add, Log())


def test_a_line_cut_short_is_ignored_and_overwritten(tmp_path):
    run = Run.open(tmp_path / "run", "sums", {})
    run.add_result("a", {"value": 1}, 0.1)
    journal = run.path / "journal.jsonl"
    whole = journal.read_bytes()
    for cut in (b'{"cell": "b", "resu', b'{"cell": "b", "seconds": 1, "result": {}}', b"\x00\x00"):
        journal.write_bytes(whole + cut)
        assert list(run.results()) == ["a"]
        run.add_result("b", {"value": 2}, 0.1)
        assert run.results() == {"a": {"value": 1}, "b": {"value": 2}}


def test_a_full_disk_is_an_error_that_loses_nothing(tmp_path):
    code = (
        "import resource, sys\n"
        "from pathlib import Path\n"
        "from gatelab.work.files import write_durably\n"
        "from gatelab.work.lines import JsonLines\n"
        "import signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (200, 200))\n"
        f"folder = Path({str(tmp_path)!r})\n"
        "JsonLines(folder / 'journal').append({'value': 1})\n"
        "write_durably(folder / 'file', b'old')\n"
        "for attempt in (lambda: JsonLines(folder / 'journal').append({'value': 'x' * 500}),\n"
        "                lambda: write_durably(folder / 'file', b'n' * 500)):\n"
        "    try: attempt()\n"
        "    except Exception as error: print(type(error).__name__, error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.count("RunError") == 2
    assert done.stdout.count("Make room") == 2
    assert [line.entry for line in JsonLines(tmp_path / "journal").read()] == [{"value": 1}]
    assert (tmp_path / "file").read_bytes() == b"old"
    assert not (tmp_path / "file.partial").exists()


def test_durable_writes_replace_whole_files(tmp_path):
    write_durably(tmp_path / "deep" / "file", b"one")
    write_durably(tmp_path / "deep" / "file", b"two")
    assert (tmp_path / "deep" / "file").read_bytes() == b"two"
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["file"]


def test_the_environment_is_noted(tmp_path):
    run = Run.open(tmp_path / "run", "sums", {})
    assert run.environment()["cores"] == os.cpu_count()
    assert json.loads((run.path / "run.json").read_text())["experiment"] == "sums"


def test_needs_must_exist(tmp_path):
    run = Run.open(tmp_path / "run", "sums", {})
    with pytest.raises(RunError, match="needs"):
        execute(run, 1, [Cell("a", needs=("b",))], add, Log())


def test_needs_in_a_circle(tmp_path):
    run = Run.open(tmp_path / "run", "sums", {})
    with pytest.raises(RunError, match="need each other in a circle: a, b"):
        execute(run, 1, [Cell("a", needs=("b",)), Cell("b", needs=("a",))], add, Log())


def test_one_cell_in_a_process_and_one_process_in_a_folder(tmp_path):
    """A worker may have threads, and one that was given up may still write."""
    told, inside, most = [], [], []

    def work(config, cell, context):
        inside.append(cell.name)
        most.append(len(inside))
        time.sleep(0.05)
        inside.remove(cell.name)
        return {}

    def start(name):
        (tmp_path / name).mkdir(exist_ok=True)
        context = Context(tmp_path / name, {}, {}, lambda fraction, text: told.append(text))
        thread = threading.Thread(target=do_cell, args=((work, None), (Cell(name), context)))
        thread.start()
        return thread

    for thread in [start("a"), start("b"), start("c")]:
        thread.join()
    assert most == [1, 1, 1]
    code = "import fcntl, sys; f = open(sys.argv[1], 'w'); fcntl.flock(f, fcntl.LOCK_EX); print(); sys.stdin.read()"
    command = [sys.executable, "-c", code, str(tmp_path / "a" / "lock")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        other.stdout.readline()
        thread = start("a")
        while not told:
            time.sleep(0.01)
        assert told == ["waiting for another process that still uses its folder"]
        assert len(most) == 3
        other.stdin.close()
        thread.join()
    assert len(most) == 4


SLEEPER = """
import os, time
def sleep_long(config, cell, context):
    (context.folder / "pid").write_text(str(os.getpid()))
    time.sleep(60)
"""
PARENT = """
import sys
from pathlib import Path
if __name__ == "__main__":  # a worker imports this file, too
    from gatelab.lab.runs import Cell, Run, execute
    from gatelab.work.progress import Silent
    from sleeper import sleep_long
    execute(Run.open(Path(sys.argv[1]), "sleep", {}), 1, [Cell("a"), Cell("b")], sleep_long, Silent(), workers=2)
"""


def test_workers_end_with_their_parent(tmp_path):
    (tmp_path / "sleeper.py").write_text(SLEEPER)
    (tmp_path / "parent.py").write_text(PARENT)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(Path(gatelab.__file__).parents[1]), str(tmp_path)))}
    parent = subprocess.Popen([sys.executable, str(tmp_path / "parent.py"), str(tmp_path / "run")], env=environment)
    deadline = time.monotonic() + 100
    while len(list(tmp_path.glob("run/cells/*/pid"))) < 2 and time.monotonic() < deadline:
        time.sleep(0.1)
    parent.kill()
    parent.wait()
    time.sleep(0.2)
    workers = [int(path.read_text()) for path in tmp_path.glob("run/cells/*/pid")]
    assert len(workers) == 2
    while any(_alive(pid) for pid in workers) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not any(_alive(pid) for pid in workers)


def _alive(pid):
    try:
        return "zombie" not in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False
