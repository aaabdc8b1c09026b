"""Commands with hostile files, names and settings: one line, no traceback, nothing written."""

import gzip
import os
import shutil

import numpy as np
import pytest

from gatelab.cli.running import directory_of
from gatelab.data import catalogue
from gatelab.lab.runs import Run
from tests.attacks.outcomes import ChangedStateError, SilentlyWrongError, refusal

pytestmark = pytest.mark.attack("command line")


def refused(answer) -> str:
    """The one line of a refusal."""
    assert answer.code == 2, answer
    lines = [line for line in answer.err.splitlines() if line.startswith("gatelab: ")]
    assert len(lines) == 1, answer.err
    return lines[0]


SETTINGS = [
    "=1", "=", "epochs", "epochs=", "epochs=NaN", "epochs=Infinity", "epochs=1e400", "epochs=-1", "epochs=1.5",
    "epochs=null", "epochs=[]", "epochs={}", "epochs=" + "9" * 5000,
    "epochs=" + "[" * 50_000, "runs=0", "nothing=1", "__class__=1", "model_config={}", "data=/etc/passwd",
    "data=../../../etc/passwd", "data=", "model=net.txt:net", "model=/etc/passwd:net",
    "model=5", "weights=[]", "test_data=0", "augment={}",
    "learning_rate=0", "layers=[1]", "layers=\"x\"", "profile=smoke",
]  # fmt: skip


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: repr(setting[:24]))
def test_odd_settings_of_a_study(setting, tmp_path, command, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.txt").write_text("import torch\nnet = lambda: torch.nn.Linear(64, 10)\n")
    refused(command("study", "--profile", "smoke", "--plan", "--set", setting))
    if sorted(path.name for path in tmp_path.iterdir()) != ["net.txt"]:
        raise ChangedStateError(f"{list(tmp_path.iterdir())}")


@pytest.mark.parametrize("value", ["x" * 400, "é" * 150, "a\0b"], ids=["long", "long in bytes", "zero byte"])
def test_settings_that_make_no_name_of_a_directory(value):
    assert "--out" in refusal(lambda: directory_of("small", "quick", {"key": value}))


FILES = {
    "a file that is no Python": ("net.txt", "net = 1\n"),
    "a syntax error": ("net.py", "def net(:\n"),
    "bytes": ("net.py", b"\xff\xfe\x00"),
    "an error": ("net.py", "1 / 0\n"),
    "an exit": ("net.py", "import sys; sys.exit(3)\n"),
    "an import that is not there": ("net.py", "import nothing_of_that_name\n"),
    "an import of itself": ("net.py", "from net import net\n"),
    "endless recursion": ("net.py", "def net():\n    return net()\n"),
    "a number": ("net.py", "net = 7\n"),
    "a factory that needs arguments": ("net.py", "def net(width):\n    pass\n"),
    "a factory that returns None": ("net.py", "def net():\n    pass\n"),
    "a factory that exits": ("net.py", "def net():\n    raise SystemExit(3)\n"),
    "a factory of an endless class": ("net.py", "class net:\n    def __new__(cls): return cls\n"),
    "a network of NaN": ("net.py", "import torch\ndef net():\n    n = torch.nn.Sequential(torch.nn.Linear(3, 4), "
                         "torch.nn.ReLU(), torch.nn.Linear(4, 1))\n    n[0].weight.data.fill_(torch.nan)\n"
                         "    return n\n"),
    "a network for other data": ("net.py", "import torch\nnet = lambda: torch.nn.Sequential(torch.nn.Linear(5, 4), "
                                 "torch.nn.ReLU(), torch.nn.Linear(4, 1))\n"),
    "a forward that exits": ("net.py", "import torch\nclass net(torch.nn.Module):\n    def forward(self, x):\n"
                             "        raise SystemExit(3)\n"),
    "a forward that fails": ("net.py", "import torch\nclass net(torch.nn.Module):\n    def forward(self, x):\n"
                             "        return x @ 'a'\n"),
}  # fmt: skip


@pytest.mark.parametrize("name", FILES)
def test_hostile_files_of_a_network(name, tmp_path, command):
    file, content = FILES[name]
    (tmp_path / file).write_bytes(content if isinstance(content, bytes) else content.encode())
    np.save(tmp_path / "x.npy", np.eye(3))
    store = tmp_path / "K.zarr"
    refused(command("kernel", f"{tmp_path / file}:net", tmp_path / "x.npy", "--kind", "npk", "-o", store))
    if store.exists():
        raise ChangedStateError("a store was begun")


def test_a_file_that_moves_the_search_path(tmp_path, command):
    """What it puts there is taken away, and nothing else is."""
    import sys

    (tmp_path / "net.py").write_text("import sys\nsys.path.insert(0, '/nowhere')\nraise ValueError\n")
    np.save(tmp_path / "x.npy", np.eye(3))
    before = list(sys.path)
    refused(command("kernel", f"{tmp_path}/net.py:net", tmp_path / "x.npy", "--kind", "npk", "-o", tmp_path / "K"))
    if sys.path != before:
        raise ChangedStateError("the search path of modules")


def _data(folder, change):
    """A copy of the folder of a data set under an invented name, with one file changed."""
    entry = catalogue.ENTRIES["mnist"]
    place = folder / entry.folders[0]
    place.mkdir(parents=True)
    for file in entry.files:
        (place / file.name).write_bytes(b"\x00" * 16)
    change(place / entry.files[0].name)
    return folder


DATA = {
    "zeros": lambda path: None,
    "a link to a device": lambda path: (path.unlink(), path.symlink_to("/dev/zero")),
    "a link to itself": lambda path: (path.unlink(), path.symlink_to(path)),
    "a link to nothing": lambda path: (path.unlink(), path.symlink_to(path.parent / "nothing")),
    "a link to a folder": lambda path: (path.unlink(), path.symlink_to(path.parent)),
    "a pipe": lambda path: (path.unlink(), os.mkfifo(path)),
    "a bomb": lambda path: (
        path.unlink(),
        path.with_name(path.name + ".gz").write_bytes(gzip.compress(bytes(5 * 10**7), 1)),
    ),
    "half a gzip": lambda path: (
        path.unlink(),
        path.with_name(path.name + ".gz").write_bytes(gzip.compress(bytes(1000))[:20]),
    ),
}


@pytest.mark.parametrize("name", DATA)
def test_data_of_a_stranger(name, tmp_path, command, monkeypatch):
    monkeypatch.setenv("GATELAB_DATA", str(tmp_path / "none"))
    monkeypatch.chdir(tmp_path)
    folder = _data(tmp_path / "data-of-others", DATA[name])
    answer = command("data", "verify", "--data-root", folder)
    missing = "MNIST: not found" in answer.out.splitlines()
    assert missing == (name.startswith("a link to") or name == "a pipe"), answer.out
    assert answer.code == (0 if missing else 1), answer
    refused(command("kernel", "-", "mnist", "--kind", "infinite", "--depth", "2", "--data-root", folder, "-o", "K"))
    assert command("data", "list", "--data-root", folder).code == 0


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A small run that is complete, to be damaged in copies."""
    return tmp_path_factory.mktemp("whole") / "run"


def _cut(path, part=0.5):
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * part)])


def _first(folder, ending):
    return next(path for path in sorted(folder.rglob(f"*{ending}")) if path.is_file())


DAMAGE = {
    "a record that is a folder": lambda run: ((run / "run.json").unlink(), (run / "run.json").mkdir()),
    "a record that is a link to itself": lambda run: (
        (run / "run.json").unlink(),
        (run / "run.json").symlink_to(run / "run.json"),
    ),
    "a record of deep lists": lambda run: (run / "run.json").write_text("[" * 100_000),
    "a record with a huge number": lambda run: (run / "run.json").write_text('{"format": ' + "9" * 10_000 + "}"),
    "a journal that is a folder": lambda run: ((run / "journal.jsonl").unlink(), (run / "journal.jsonl").mkdir()),
    "a journal with a line of deep lists": lambda run: _append(run / "journal.jsonl", "[" * 100_000 + "\n"),
    "a journal with a line of null": lambda run: _append(run / "journal.jsonl", "null\n"),
    "a journal with a zero byte": lambda run: _append(run / "journal.jsonl", "\0\n"),
    "a journal whose lines are doubled": lambda run: _append(
        run / "journal.jsonl", (run / "journal.jsonl").read_text()
    ),
    "a checkpoint that is cut": lambda run: _cut(_first(run, ".safetensors")),
    "a checkpoint that is empty": lambda run: _cut(_first(run, ".safetensors"), 0),
    "a checkpoint that is a folder": lambda run: _replace_by_folder(_first(run, ".safetensors")),
    "a checkpoint with a header without end": lambda run: _first(run, ".safetensors").write_bytes(b"\xff" * 64),
}


def _append(path, text):
    path.write_text(path.read_text() + text)


def _replace_by_folder(path):
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize("name", DAMAGE)
def test_verify_of_a_damaged_run(name, finished, tmp_path, command):
    if not finished.exists():
        assert command("run", "small", "--out", finished).code == 0
    shutil.copytree(finished, tmp_path / "run")
    try:
        DAMAGE[name](tmp_path / "run")
    except StopIteration:
        pytest.fail("the run has no checkpoint to damage")
    before = sorted(path.relative_to(tmp_path) for path in tmp_path.rglob("*"))
    answer = command("verify", tmp_path / "run")
    if answer.code == 0 and "doubled" not in name:
        raise SilentlyWrongError(answer.out)
    if answer.code == 2:
        refused(answer)
    assert command("report", tmp_path / "run").code in (0, 2)
    assert command("runs", tmp_path).code == 0
    if [p for p in before if p not in {path.relative_to(tmp_path) for path in tmp_path.rglob("*")}]:
        raise ChangedStateError("a file is gone")


def test_a_line_of_another_run_is_not_taken(finished, tmp_path, command):
    """A journal copied from a run with other settings."""
    if not finished.exists():
        assert command("run", "small", "--out", finished).code == 0
    assert command("run", "small", "--set", "smoke=true", "--out", tmp_path / "other").code == 0
    shutil.copy(finished / "journal.jsonl", tmp_path / "other" / "journal.jsonl")
    assert command("verify", tmp_path / "other").code == 1
    assert Run.read(tmp_path / "other").config != Run.read(finished).config
