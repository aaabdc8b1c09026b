"""Checks every part of a run against its checksum, and discards damaged parts."""

import shutil
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load

from gatelab.kernels.disk.verify import check_store
from gatelab.lab.runs.directory import RUN_FORMAT, Run
from gatelab.lab.runs.journal import JournalEntry
from gatelab.work.checksums import Condition, Part, condition
from gatelab.work.files import locked, parse_object, read_file, reason, refuse_links

# Files that gatelab creates and that hold nothing of value.
_PASSING = ("lock", "probe")


def check_run(path: Path) -> list[Part]:
    """Return the condition of each part of a run: its metadata, each line of its journal, each file of its cells.

    A run that holds nothing but its record has only just begun. Later, its environment and its journal must be there.

    Raises:
        RunError: there is no run.
    """
    found = RUN_FORMAT.record_condition(path)
    record = Part(
        RUN_FORMAT.record,
        "",
        found,
        "does not match its checksum, or has lost it" if found is Condition.DAMAGED else "",
    )
    if found is Condition.DAMAGED:
        return [record]
    entries, folders = Run.read(path).journal.entries(), _cell_folders(path)
    strict = found is Condition.WHOLE  # then this version started the run, and all its files have checksums
    concluded = (path / "results.json").exists()
    begun = bool(entries or folders or concluded)
    named = {"environment.json": begun, "results.json": False}
    return [
        record,
        *(_file(path / name, name, "", strict) for name, due in named.items() if due or (path / name).exists()),
        *_check_journal(path / "journal.jsonl", entries, due=concluded or (strict and bool(folders)), filled=concluded),
        *(part for folder in folders for part in _check_cell(folder, strict)),
    ]


def _check_journal(path: Path, entries: list[JournalEntry], *, due: bool, filled: bool) -> list[Part]:
    """Check each line; ``due`` if the file must exist, ``filled`` if it must hold a line."""
    if due and not path.exists():
        return [Part(path.name, "", Condition.DAMAGED, "is missing")]
    if filled and not entries:
        return [Part(path.name, "", Condition.DAMAGED, "has no line, but results.json was concluded from some")]
    return [
        Part(path.name, f"line {entry.line.number} (cell {entry.cell})", entry.condition, entry.fault)
        for entry in entries
    ]


def _cell_folders(path: Path) -> list[Path]:
    return sorted(folder for folder in (path / "cells").glob("*") if folder.is_dir())


def _check_cell(folder: Path, must_be_sealed: bool) -> list[Part]:
    """Check the files of a cell, and the kernels among them."""
    group, parts = f"cells/{folder.name}", []
    stores = [file.parent for file in sorted(folder.rglob("zarr.json"))]
    for store in stores:
        inside = store.relative_to(folder)
        parts += [Part(f"{group}/{inside}", f"{part.group} {part.name}", part.condition, part.fault)
                  for part in check_store(store)]  # fmt: skip
    for file in sorted(folder.rglob("*")):
        passing = file.name in _PASSING or file.suffix == ".partial" or any(s in file.parents for s in stores)
        if not passing and file.suffix in (".json", ".safetensors"):
            parts.append(_file(file, group, str(file.relative_to(folder)), must_be_sealed))
    return parts


def _file(path: Path, group: str, name: str, must_be_sealed: bool) -> Part:
    if not path.exists():
        return Part(group, name, Condition.DAMAGED, "is missing")
    try:
        content = read_file(path)
        found = condition(content)
        if found is Condition.UNSEALED and must_be_sealed:
            return Part(group, name, Condition.DAMAGED, "has no checksum")
        if found is Condition.DAMAGED:
            return Part(group, name, found, "does not match its checksum")
        (parse_object if path.suffix == ".json" else load)(content)
    except (OSError, ValueError, SafetensorError) as error:
        return Part(group, name, Condition.DAMAGED, f"cannot be read ({reason(error)})")
    return Part(group, name, found)


def discard_damaged(path: Path) -> list[str]:
    """Discard the damaged parts of a run, so that the next execution recomputes them; return what was done.

    A cell with a damaged line or file is discarded as a whole. A run whose record is damaged is set aside, because the
    configuration of its results is unknown.

    Raises:
        RunError: there is no run, another process is working on it, or a symbolic link leads out of it.
    """
    if not (path / RUN_FORMAT.record).exists():
        return []
    refuse_links(path)  # before anything is removed
    damaged = [part for part in check_run(path) if part.condition is Condition.DAMAGED]
    if any(part.group == RUN_FORMAT.record for part in damaged):
        aside = RUN_FORMAT.set_aside(path)
        return [f"{RUN_FORMAT.record} is damaged; the run is now {aside}, and all cells will be recomputed"]
    done = []
    with locked(path):
        run = Run.read(path)
        cells = {part.group.split("/")[1] for part in damaged if part.group.startswith("cells/")}
        cells |= {run.folder(entry.cell).name for entry in run.journal.entries() if entry.fault}
        run.journal.drop({entry.cell for entry in run.journal.entries() if run.folder(entry.cell).name in cells})
        # Only existing folders: a damaged line may name a cell "..".
        for folder in [folder for folder in _cell_folders(path) if folder.name in cells]:
            shutil.rmtree(folder)
        for part in damaged:
            if not part.name:  # a file of the run itself
                (path / part.group).unlink(missing_ok=True)
            done.append(f"{part.group} {part.name}".strip() + f" {part.fault}; discarded")
    return done
