"""Published runs: their records in docs/results/runs, and the tables that docs/results shows of them.

``python -m tools.published DIR NAME`` takes a run into docs/results/runs: its configuration, environment and journal,
without checkpoints. ``make results`` fills the tables of the pages from these records. A table stands between
``<!-- published NAME table 1 -->`` (or ``claims``; ``NAME runs=3 …`` for the first runs of an unfinished one) and
``<!-- end -->``.
"""

import re
import shutil
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from gatelab.errors import GatelabError, InputError, RunError
from gatelab.lab.findings import Findings, Table
from gatelab.lab.report.tables import as_markdown, claims_table
from gatelab.lab.report.write import findings_of
from gatelab.lab.runs.directory import Run
from gatelab.lab.runs.verify import check_run
from gatelab.papers import find_experiment
from gatelab.work.checksums import Condition

RESULTS = Path(__file__).parents[1] / "docs" / "results"
RUNS = RESULTS / "runs"
FILES = ("run.json", "environment.json", "journal.jsonl")
_BLOCK = re.compile(
    r"<!-- published (?P<name>[\w-]+)(?: runs=(?P<runs>\d+))? (?P<what>claims|table (?P<table>\d+)) -->\n"
    r".*?<!-- end -->",
    re.DOTALL,
)


def findings(name: str, runs: int | None = None) -> Findings:
    """Return what a published run found, concluded by today's code.

    Raises:
        RunError: there is no such record, or it cannot be concluded from.
    """
    if not (RUNS / name).is_dir():
        raise RunError(
            f"{RUNS / name} does not exist; correct the name, or run 'python -m tools.published DIR {name}' on its run"
        )
    run = Run.read(RUNS / name)
    return findings_of(run, find_experiment(run.experiment), runs)


def filled(page: str, only: str | None = None) -> str:
    """Return a page with every published table, or those of one record, as the records give it.

    Raises:
        GatelabError: a comment names a record or a table that does not exist.
    """

    def block(match: re.Match[str]) -> str:
        if only not in (None, match["name"]):
            return match[0]
        found = findings(match["name"], int(match["runs"]) if match["runs"] else None)
        first = match[0].split("\n", 1)[0]
        return f"{first}\n\n{as_markdown(_table(found, match))}\n<!-- end -->"

    return _BLOCK.sub(block, page)


def _table(found: Findings, match: re.Match[str]) -> Table:
    if not match["table"]:
        return claims_table(found.claims)
    number, count = int(match["table"]), len(found.tables)
    if not 1 <= number <= count:
        raise InputError(f"{match['name']} has no table {number}; it has {count}, counted from 1")
    return found.tables[number - 1]


def published(page: str) -> set[str]:
    """Return the names of the runs whose tables a page shows."""
    return {match["name"] for match in _BLOCK.finditer(page)}


def take(directory: Path, name: str) -> Run:
    """Copy the record of a run, except for the cells whose files an unfinished cell still needs.

    Whoever copies the record to a directory of their own can continue it there by the command that began it.

    Raises:
        RunError: a part of the run is damaged or missing.
        InputError: the name is not one that a page can use.
    """
    if not re.fullmatch(r"[\w-]+", name):
        raise InputError(f"{name!r} cannot be the name of a record; use letters, digits, _ and -")
    damaged = [
        f"{part.group} {part.name}".strip() for part in check_run(directory) if part.condition is not Condition.WHOLE
    ]
    if damaged:
        raise RunError(f"{directory} cannot be published: {', '.join(damaged)} damaged or without a checksum")
    missing = [file for file in FILES if not (directory / file).is_file()]
    if missing:
        raise RunError(f"{directory} cannot be published: it has no {', '.join(missing)}; name the directory of a run")
    with TemporaryDirectory() as folder:
        for file in FILES:
            shutil.copyfile(directory / file, Path(folder) / file)
        run = Run.read(Path(folder))
        experiment = find_experiment(run.experiment)
        done = run.results()
        waiting = [cell for cell in experiment.cells(experiment.read(run.config)) if cell.name not in done]
        run.journal.drop({need for cell in waiting for need in cell.needs})
        shutil.copytree(folder, RUNS / name, dirs_exist_ok=True)
    return Run.read(RUNS / name)


def main(*arguments: str) -> None:
    """Take a run and fill its tables, or fill all tables.

    Raises:
        InputError: the arguments are not a directory and a name; or some pages cannot be filled, and are left alone.
    """
    if len(arguments) not in (0, 2):
        raise InputError(f"{len(arguments)} arguments; give DIR and NAME to take a run, or none to fill all tables")
    name = arguments[1] if arguments else None
    if name is not None:
        run = take(Path(arguments[0]), name)
        print(f"{name}: {len(run.results())} cells of {run.experiment}")  # noqa: T201
    faults = []
    for page in sorted(RESULTS.glob("*.md")):
        try:
            page.write_text(filled(page.read_text(encoding="utf-8"), name), encoding="utf-8")
        except GatelabError as error:
            faults.append(f"{page}: {error}")
    if faults:
        raise InputError("\n".join(faults))


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except GatelabError as error:
        sys.exit(str(error))
