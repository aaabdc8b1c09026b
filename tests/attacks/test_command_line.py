"""The command line given nonsense: one line that says what to do, never a traceback."""

import json
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest

from tests.attacks.commands import process
from tests.attacks.outcomes import ChangedStateError

pytestmark = pytest.mark.attack("command line")

RECORD = {"format": "gatelab run 1", "experiment": "small", "config": {}}
ZARR = {"format": "gatelab.kernel/1", "symmetric": True, "about": {}}
JUNK = {
    "an empty folder": {},
    "a folder of something else": {"thesis.tex": "years of work"},
    "a record that is cut": {"run.json": '{"format": "gatelab run 1", "exp'},
    "a record that is a list": {"run.json": "[1, 2]"},
    "a record that is null": {"run.json": "null"},
    "a record of another program": {"run.json": '{"name": "lint", "steps": []}'},
    "a record that is no text": {"run.json": b"\xff\xfe\x00"},
    "a record without a format": {"run.json": json.dumps({**RECORD, "format": None})},
    "a record of a later version": {"run.json": json.dumps({**RECORD, "format": "gatelab run 9"})},
    "a record whose format is a list": {"run.json": json.dumps({**RECORD, "format": ["gatelab run 1"]})},
    "an experiment that is a number": {"run.json": json.dumps({**RECORD, "experiment": 7})},
    "an experiment that is unknown": {"run.json": json.dumps({**RECORD, "experiment": "nothing"})},
    "a configuration that is a list": {"run.json": json.dumps({**RECORD, "config": [1]})},
    "a configuration with unknown keys": {"run.json": json.dumps({**RECORD, "config": {"nothing": 1}})},
    "no environment": {"run.json": json.dumps(RECORD)},
    "an environment that is text": {"run.json": json.dumps(RECORD), "environment.json": '"x"'},
    "a journal that is a picture": {"run.json": json.dumps(RECORD), "journal.jsonl": b"\x89PNG\r\n\x1a\n\x00\n"},
    "results that do not fit": {
        "run.json": json.dumps(RECORD),
        "environment.json": "{}",
        "journal.jsonl": '{"cell": "first", "seconds": 1, "result": {"train_loss": 3}}\n'
        '{"cell": "second", "seconds": 1, "result": {}}\n',
    },
    "metadata that are cut": {"zarr.json": '{"shape": [20'},
    "metadata of another program": {"zarr.json": '{"zarr_format": 3, "node_type": "group", "attributes": {}}'},
    "metadata whose attributes are a list": {"zarr.json": '{"attributes": [1]}'},
    "metadata without a shape": {"zarr.json": json.dumps({"attributes": {"gatelab": ZARR}})},
    "metadata with one axis": {"zarr.json": json.dumps({"attributes": {"gatelab": ZARR}, "shape": [3]})},
    "metadata with an unknown dtype": {
        "zarr.json": json.dumps(
            {
                "attributes": {"gatelab": ZARR},
                "shape": [3, 3],
                "data_type": "quaternion",
                "chunk_grid": {"configuration": {"chunk_shape": [2, 2]}},
            }
        )
    },
}


# Enough for a run to go on, or for a check of what is there.
ENOUGH = ("no environment", "an environment that is text", "results that do not fit", "an experiment that is unknown",
          "a configuration with unknown keys")  # fmt: skip


def put(folder: Path, files: dict[str, str | bytes]) -> Path:
    folder.mkdir()
    for name, content in files.items():
        (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder


@pytest.mark.parametrize("name", JUNK)
def test_a_directory_of_junk(name, tmp_path, command):
    """Every command that takes a directory refuses it, or lists what is wrong, and leaves it as it is."""
    folder = put(tmp_path / "junk", JUNK[name])
    np.save(tmp_path / "x.npy", np.eye(3))
    kernel = ("kernel", "-", tmp_path / "x.npy", "--kind", "infinite", "--depth", "2", "-o", folder)
    commands = [("verify", folder), ("report", folder), ("run", "small", "--out", folder), kernel]
    for arguments in commands if JUNK[name] else commands[:2]:
        answer = command(*arguments)
        assert answer.code in ((0, 1, 2) if name in ENOUGH else (1, 2)), answer
        assert answer.code != 2 or answer.err.splitlines()[-1].startswith("gatelab: "), answer
    assert command("runs", tmp_path).code == 0
    if not JUNK[name].keys() <= {path.name for path in folder.iterdir()}:
        raise ChangedStateError(f"{folder} lost a file")


@pytest.mark.parametrize("arguments", [
    ("verify", "{file}"), ("verify", "{missing}"), ("report", "{file}"), ("report", "{missing}"),
    ("runs", "{file}"), ("runs", "{missing}"),
    ("run", "small", "--out", "{file}"), ("run", "small", "--out", "{file}/run"),
    ("run", "small", "--out", "/dev/null/run"), ("run", "small", "--out", "/proc/run"),
    ("run", "nothing"), ("run", "small", "--set", "x"), ("run", "small", "--set", "x=1"),
    ("run", "small", "--profile", "huge"),
    ("kernel", "-", "{array}", "--kind", "infinite", "--depth", "2", "-o", "{file}"),
    ("kernel", "-", "{array}", "--kind", "infinite", "--depth", "2", "-o", "/proc/K.zarr"),
    ("kernel", "-", "{file}", "--kind", "infinite", "--depth", "2", "-o", "{missing}"),
    ("kernel", "-", "{folder}.npy", "--kind", "infinite", "--depth", "2", "-o", "{missing}"),
    ("kernel", "-", "{enormous}", "--kind", "infinite", "--depth", "2", "-o", "{missing}"),
    ("kernel", "-", "{pickled}", "--kind", "infinite", "--depth", "2", "-o", "{missing}"),
    ("kernel", "{missing}:net", "{array}", "--kind", "npk", "-o", "{missing}"),
    ("kernel", "{folder}:net", "{array}", "--kind", "npk", "-o", "{missing}"),
    ("kernel", "{exits}:net", "{array}", "--kind", "npk", "-o", "{missing}"),
    ("kernel", "{net}:net", "{array}", "--kind", "npk", "--weights", "{file}", "-o", "{missing}"),
    ("kernel", "{net}:net", "{array}", "--kind", "npk", "--weights", "{folder}", "-o", "{missing}"),
    ("study", "{missing}:net"), ("data", "fetch", "nothing"), ("data", "fetch", "mnist", "--data-root", "{file}"),
    ("theorems", "nothing"), ("theorems", "npk-2.1", "--plot", "{missing}/figure.png"),
    ("theorems", "npk-2.1", "--plot", "{folder}/figure.nothing"),
], ids=" ".join)  # fmt: skip
def test_places_that_are_not_what_they_should_be(arguments, tmp_path, command, monkeypatch):
    monkeypatch.setattr("gatelab.data.fetching._sources", lambda _: [])
    (tmp_path / "file").write_text("content")
    (tmp_path / "folder").mkdir()
    (tmp_path / "exits.py").write_text("raise SystemExit(0)\n")
    (tmp_path / "net.py").write_text("import torch\nnet = lambda: torch.nn.Linear(3, 2)\n")
    np.save(tmp_path / "array.npy", np.eye(3))
    np.save(tmp_path / "pickled.npy", np.array([{}], dtype=object), allow_pickle=True)
    header = np.lib.format.magic(1, 0)
    text = b"{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000, 1000), }".ljust(117) + b"\n"
    (tmp_path / "enormous.npy").write_bytes(header + len(text).to_bytes(2, "little") + text)
    names = {name: tmp_path / name for name in ("file", "folder", "missing")}
    names |= {name: tmp_path / f"{name}.npy" for name in ("array", "enormous", "pickled")}
    names |= {name: tmp_path / f"{name}.py" for name in ("exits", "net")}
    answer = command(*(part.format(**names) for part in arguments))
    if arguments[0] == "runs":
        assert (answer.code, answer.out.startswith("no runs in")) == (0, True)
    else:
        assert answer.code == 2, answer
        assert sum(line.startswith("gatelab: ") for line in answer.err.splitlines()) == 1, answer.err
    if (tmp_path / "file").read_text() != "content":
        raise ChangedStateError("a file was written over")


@pytest.mark.parametrize("arguments", [("--help",), ("--version",), ("kernel", "--help")], ids=" ".join)
def test_a_full_disk_behind_standard_output(arguments):
    with Path("/dev/full").open("w") as full:
        done = process(*arguments, stdout=full, stderr=subprocess.PIPE, capture_output=False)
    assert done.returncode == 1
    assert done.stderr.startswith("gatelab: standard output could not be written: No space left on device")


@pytest.mark.parametrize("arguments", [("--help",), ("kernel", "--help")], ids=" ".join)
def test_a_reader_that_has_gone(arguments):
    """As in ``gatelab --help | head -1``, only faster."""
    reading, writing = os.pipe()
    os.close(reading)
    done = process(*arguments, stdout=writing, stderr=subprocess.PIPE, capture_output=False)
    os.close(writing)
    assert done.returncode == 1
    assert done.stderr == ""


@pytest.mark.parametrize("closed", ["stdout", "stderr"])
def test_a_stream_that_is_closed(closed):
    number = {"stdout": 1, "stderr": 2}[closed]
    done = process("--version", preexec_fn=lambda: os.close(number))
    assert done.returncode == 0


def test_an_error_that_nobody_can_read():
    with Path("/dev/full").open("w") as full:
        done = process("data", "nothing", stdout=subprocess.PIPE, stderr=full, capture_output=False)
    assert done.returncode in (1, 2)


def test_a_name_that_is_no_text(tmp_path, command):
    """A path of bytes that no encoding explains: it can be used, and printed."""
    folder = tmp_path / os.fsdecode(b"r\xffn")
    assert command("run", "small", "--out", folder).code == 0
    assert command("verify", folder).code == 0
    assert command("runs", tmp_path).code == 0
    assert command("report", folder / "nothing").code == 2
