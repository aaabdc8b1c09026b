"""Runs whose files were changed, cut, emptied or mixed up: the damage is named, never used, and redone on request."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from gatelab.lab.runs import Run, execute
from gatelab.work.checksums import BLANK, KEY, sealed
from gatelab.work.files import write_json
from gatelab.work.progress import Silent
from tests.attacks.outcomes import ChangedStateError, SilentlyWrongError
from tests.lab import small_run

pytestmark = pytest.mark.attack("damaged run files")


@pytest.fixture(scope="module", autouse=True)
def _shorter_trainings():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(small_run, "EPOCHS", 3)
        yield


@pytest.fixture(scope="module")
def finished(_shorter_trainings, tmp_path_factory):
    """The directory of a run and its results; tests take copies."""
    path = tmp_path_factory.mktemp("whole") / "run"
    torch.set_default_dtype(torch.float32)
    results = execute(Run.open(path, "small", {}), None, small_run.CELLS, small_run.train, Silent())
    torch.set_default_dtype(torch.float64)
    return path, results


@pytest.fixture
def run(finished, tmp_path):
    return Path(shutil.copytree(finished[0], tmp_path / "run"))


def stopped(path: Path) -> Path:
    """As if it had been stopped in the second cell: its line is missing, its checkpoint is from before the end."""
    lines = (path / "journal.jsonl").read_bytes().splitlines(keepends=True)
    (path / "journal.jsonl").write_bytes(lines[0])
    return path


def replace(name: str, old: str, new: str):
    def harm(path: Path) -> None:
        file = path / name
        content = file.read_bytes()
        assert old.encode() in content
        file.write_bytes(content.replace(old.encode(), new.encode(), 1))

    return harm


def flip(name: str, place: float):
    def harm(path: Path) -> None:
        content = bytearray((path / name).read_bytes())
        content[int(place * (len(content) - 1))] ^= 1
        (path / name).write_bytes(content)

    return harm


def cut(name: str, share: float):
    def harm(path: Path) -> None:
        content = (path / name).read_bytes()
        (path / name).write_bytes(content[: int(share * len(content))])

    return harm


def zero(name: str, share: float):
    """Zero the end of a file, as a file system may after a loss of power."""

    def harm(path: Path) -> None:
        content = (path / name).read_bytes()
        kept = int(share * len(content))
        (path / name).write_bytes(content[:kept] + bytes(len(content) - kept))

    return harm


def overwrite(name: str, content: str):
    return lambda path: (path / name).write_text(content)


def insert_line(content: bytes):
    def harm(path: Path) -> None:
        lines = (path / "journal.jsonl").read_bytes().splitlines(keepends=True)
        (path / "journal.jsonl").write_bytes(b"".join([lines[0], content + b"\n", *lines[1:]]))

    return harm


def changed_entry(change, *, seal: bool = True):
    """Change the fields of the first line; with ``seal``, as somebody does who knows of the checksum."""

    def harm(path: Path) -> None:
        lines = (path / "journal.jsonl").read_bytes().splitlines(keepends=True)
        entry = json.loads(lines[0])
        del entry[KEY]
        change(entry)
        bound_to = json.loads((path / "run.json").read_text())[KEY]
        content = json.dumps({KEY: BLANK, **entry} if seal else entry).encode()
        line = b"".join(sealed(content, bound_to)) if seal else content
        (path / "journal.jsonl").write_bytes(b"".join([line, b"\n", *lines[1:]]))

    return harm


def other_configuration(path: Path) -> None:
    """A configuration that was changed together with its checksum: the results belong to another one."""
    record = json.loads((path / "run.json").read_text())
    del record[KEY]
    write_json(path / "run.json", {**record, "started": "2020-01-01T00:00:00+00:00"})


def line_of_another_run(path: Path) -> None:
    # Another configuration: runs of one configuration that start in the same second have lines of the same binding.
    other = Run.open(path.with_name("other"), "small", {"epochs": 9})
    other.add_result("first", json.loads((path / "journal.jsonl").read_bytes().splitlines()[0])["result"], 1.0)
    lines = (path / "journal.jsonl").read_bytes().splitlines(keepends=True)
    (path / "journal.jsonl").write_bytes((other.path / "journal.jsonl").read_bytes() + lines[1])


def strip(path: Path) -> None:
    """Remove the record's checksum: a run of version 0.1 has none, and no time of its start either."""
    record = json.loads((path / "run.json").read_text())
    del record[KEY]
    (path / "run.json").write_text(json.dumps(record))


def delete(key):
    return lambda entry: entry.pop(key)


def put(key, value):
    return lambda entry: entry.update({key: value})


CHECKPOINT = "cells/second/checkpoint-0.safetensors"
WEIGHTS = "cells/first/epoch-3-0.safetensors"
BEST = "cells/first/best.safetensors"

RENAMED = ('"checksum": "sha256:', '"checksim": "sha25x:')  # a checksum of which no trace is left

# What is done, and the part that must be named.
HARM = {
    "a digit of a result": (changed_entry(lambda e: e["result"]["train_loss"][0].append(1.0), seal=False), "line 1"),
    "a digit of the seconds": (replace("journal.jsonl", '"seconds": ', '"seconds": 1'), "line 1"),
    "the name of a cell": (replace("journal.jsonl", '"cell": "second"', '"cell": "sekond"'), "line 2"),
    "a digit of a line's checksum": (flip("journal.jsonl", 0.0), "line 1"),
    "a line without its checksum": (changed_entry(lambda e: None, seal=False), "line 1"),
    "a line of zeros": (insert_line(bytes(40)), "line 2"),
    "an empty line": (insert_line(b""), "line 2"),
    "a line of another run": (line_of_another_run, "line 1"),
    "a line that is a list": (insert_line(b"[1, 2]"), "line 2"),
    "a line that is a number": (insert_line(b"7"), "line 2"),
    "a line that is no text": (insert_line(b"\xff\xfe{}"), "line 2"),
    "a line nested too deeply": (insert_line(b"[" * 100_000), "line 2"),
    "line ends of another system": (lambda p: (p / "journal.jsonl").write_bytes(
        (p / "journal.jsonl").read_bytes().replace(b"\n", b"\r\n")), "line 1"),
    "no field cell": (changed_entry(delete("cell")), "has no field 'cell'"),
    "no field seconds": (changed_entry(delete("seconds")), "has no field 'seconds'"),
    "no field result": (changed_entry(delete("result")), "has no field 'result'"),
    "a cell that is a number": (changed_entry(put("cell", 7)), "has 7 as 'cell', which must be text"),
    "seconds that are text": (changed_entry(put("seconds", "x")), "has 'x' as 'seconds', which must be a number"),
    "seconds that are true": (changed_entry(put("seconds", True)), "has True as 'seconds'"),
    "a result that is a list": (changed_entry(put("result", [1])), "has [1] as 'result', which must be an object"),
    "a result that is nothing": (changed_entry(put("result", None)), "has None as 'result'"),
    "the experiment's name": (replace("run.json", '"small"', '"smell"'), "run.json"),
    "a record cut short": (cut("run.json", 0.5), "run.json"),
    "an empty record": (cut("run.json", 0.0), "run.json"),
    "a record of zeros": (zero("run.json", 0.0), "run.json"),
    "a record that is a list": (overwrite("run.json", "[]"), "run.json"),
    "a record nested too deeply": (overwrite("run.json", "[" * 100_000), "run.json"),
    "a record without its checksum": (strip, "run.json"),
    "a record whose checksum has another name": (replace("run.json", *RENAMED), "run.json"),
    "a line whose checksum has another name": (replace("journal.jsonl", *RENAMED), "line 1"),
    "a checkpoint whose checksum has another name": (
        replace(CHECKPOINT, '"checksum":"sha256:', '"checksim":"sha25x:'), CHECKPOINT.rpartition("/")[2]),
    "an environment whose checksum has another name": (replace("environment.json", *RENAMED), "environment.json"),
    "a record that was made anew": (other_configuration, "line 1"),
    "a digit of the environment": (replace("environment.json", '"cores": ', '"cores": 1'), "environment.json"),
    "an environment cut short": (cut("environment.json", 0.5), "environment.json"),
    "an empty environment": (cut("environment.json", 0.0), "environment.json"),
    "an environment that is text": (overwrite("environment.json", '"x86"'), "environment.json"),
    "a checkpoint's last bit": (flip(CHECKPOINT, 1.0), CHECKPOINT.rpartition("/")[2]),
    "a checkpoint's header": (flip(CHECKPOINT, 0.05), CHECKPOINT.rpartition("/")[2]),
    "a checkpoint of zeros": (zero(CHECKPOINT, 0.0), CHECKPOINT.rpartition("/")[2]),
    "a checkpoint with zeros for weights": (zero(CHECKPOINT, 0.7), CHECKPOINT.rpartition("/")[2]),
    "a checkpoint cut short": (cut(CHECKPOINT, 0.9), CHECKPOINT.rpartition("/")[2]),
    "an empty checkpoint": (cut(CHECKPOINT, 0.0), CHECKPOINT.rpartition("/")[2]),
    "weights without a checksum": (
        lambda p: save_file(load_file(p / WEIGHTS), p / WEIGHTS), WEIGHTS.rpartition("/")[2]),
    "weights that the next cell reads": (flip(WEIGHTS, 0.9), WEIGHTS.rpartition("/")[2]),
    "weights of zeros": (zero(WEIGHTS, 0.8), WEIGHTS.rpartition("/")[2]),
    "the best weights": (flip(BEST, 0.6), BEST.rpartition("/")[2]),
}  # fmt: skip


@pytest.mark.parametrize("name", HARM)
def test_damage_is_named_and_redone_on_request(name, run, finished, command):
    harm, named = HARM[name]
    harm(run)
    checked = command("verify", run)
    if checked.code != 1 or named not in " ".join(checked.out.split()):
        raise SilentlyWrongError(f"verify says {checked.code}: {checked.out}")
    again = command("run", "small", "--out", run, "--redo-damaged")
    if Run.read(run).results() != finished[1]:
        raise SilentlyWrongError(f"other results after the repair: {again.err}")
    assert again.code == 0, again.err
    assert command("verify", run).code == 0


def conclude(path: Path) -> None:
    write_json(path / "results.json", {})


LOST = {
    "the environment": (lambda run: (run / "environment.json").unlink(), "environment.json damaged: is missing"),
    "the environment beside the journal alone": (
        lambda run: (shutil.rmtree(run / "cells"), (run / "environment.json").unlink()), "environment.json damaged"),
    "the journal": (lambda run: (run / "journal.jsonl").unlink(), "journal.jsonl damaged: is missing"),
    "the journal, after the report": (
        lambda run: (conclude(run), (run / "journal.jsonl").unlink()), "journal.jsonl damaged: is missing"),
    "the lines of the journal": (
        lambda run: (conclude(run), (run / "journal.jsonl").write_bytes(b"")), "journal.jsonl damaged: has no line"),
}  # fmt: skip


@pytest.mark.parametrize("name", LOST)
def test_what_is_missing_is_named_and_made_again(name, run, finished, command):
    harm, named = LOST[name]
    harm(run)
    checked = command("verify", run)
    told = " ".join(checked.out.replace("\u2502", " ").split())
    if checked.code != 1 or named not in told:
        raise SilentlyWrongError(f"verify says {checked.code}: {checked.out}")
    assert command("run", "small", "--out", run, "--redo-damaged").code == 0
    assert Run.read(run).results() == finished[1]
    assert command("verify", run).code == 0


def test_a_run_that_has_only_just_begun_is_whole(tmp_path, command):
    """It may have been stopped after each file that it writes."""
    run = Run.open(tmp_path / "run", "small", {})
    for last in ("", "journal.jsonl", "environment.json"):
        (run.path / last).unlink() if last else None
        assert command("verify", run.path).code == 0
    first = Run.open(tmp_path / "run", "small", {})
    first.folder("first").mkdir(parents=True)
    assert command("verify", run.path).code == 0


def test_a_journal_that_lost_its_last_line_is_completed(run, finished, command):
    assert command("verify", stopped(run)).code == 0
    assert command("run", "small", "--out", run).code == 0
    assert Run.read(run).results() == finished[1]


# Damage that a command which goes on with the run would meet.
MET = [name for name, (_, named) in HARM.items() if not named.startswith("best")]


@pytest.mark.parametrize("name", MET)
def test_damage_is_never_used_silently(name, run, command):
    """In a run that is to go on: refused in one line that names the file, or the line, and the remedy."""
    harm, named = HARM[name]
    harm(stopped(run) if "safetensors" in named else run)
    before = (run / "journal.jsonl").read_bytes()
    refused = command("run", "small", "--out", run)
    if refused.code == 0:
        raise SilentlyWrongError(f"it went on: {refused.err}")
    assert refused.code == 2
    assert "--redo-damaged" in refused.err, refused.err
    place = named if "safetensors" in named or "json" in named else "journal.jsonl, line "
    assert place in refused.err, refused.err
    if (run / "journal.jsonl").read_bytes() != before:
        raise ChangedStateError("a refused command has changed the journal")


def test_a_record_that_lost_its_checksum_before_anything_was_finished(run, command):
    """No line of the journal gives it away; only what version 0.1 did not write."""
    (run / "journal.jsonl").write_bytes(b"")
    strip(run)
    assert command("verify", run).code == 1
    assert "run.json is damaged: it has lost its checksum" in command("run", "small", "--out", run).err


def test_a_changed_digit_is_not_reported(run, command):
    HARM["a digit of a result"][0](run)
    refused = command("report", run)
    assert refused.code == 2
    assert "journal.jsonl, line 1 (cell first)" in refused.err
    assert not (run / "report.html").exists()


def test_a_list_of_runs_names_the_damaged_one_and_shows_the_others(run, command):
    shutil.copytree(run, run.with_name("whole"))
    HARM["a line of zeros"][0](run)
    listed = command("runs", run.parent)
    assert listed.code == 0
    assert "whole  small  2 of 2 cells" in listed.out
    assert f"{run}  cannot be read: {run}/journal.jsonl, line 2 (cell ?)" in listed.out


def test_a_record_that_is_damaged_sets_the_run_aside_and_loses_nothing(run, command):
    HARM["a record of zeros"][0](run)
    journal = (run / "journal.jsonl").read_bytes()
    command("run", "small", "--out", run, "--redo-damaged")
    assert (run.with_name("run.damaged") / "journal.jsonl").read_bytes() == journal
    HARM["a record of zeros"][0](run)
    refused = command("run", "small", "--out", run, "--redo-damaged")
    assert "run.damaged exists already; rename or remove one of them" in refused.err


@pytest.mark.parametrize("missing", ["nothing", "environment.json"])
def test_who_continues_a_run_does_not_start_it(missing, run, command):
    started = json.loads((run / "run.json").read_text())["started"]
    (run / missing).unlink(missing_ok=True)
    stopped(run)
    assert command("run", "small", "--out", run).code == 0
    assert Run.read(run).started == started
    assert Run.read(run).environment()["started"] == started
