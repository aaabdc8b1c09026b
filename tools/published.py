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

from gatelab.errors import RunError
from gatelab.lab.findings import Findings
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
    """Return what a published run found, concluded by today's code."""
    run = Run.read(RUNS / name)
    return findings_of(run, find_experiment(run.experiment), runs)


def filled(page: str) -> str:
    """Return a page with every published table as the records give it."""

    def block(match: re.Match[str]) -> str:
        found = findings(match["name"], int(match["runs"]) if match["runs"] else None)
        table = found.tables[int(match["table"]) - 1] if match["table"] else claims_table(found.claims)
        first = match[0].split("\n", 1)[0]
        return f"{first}\n\n{as_markdown(table)}\n<!-- end -->"

    return _BLOCK.sub(block, page)


def published(page: str) -> set[str]:
    """Return the names of the runs whose tables a page shows."""
    return {match["name"] for match in _BLOCK.finditer(page)}


def take(directory: Path, name: str) -> Run:
    """Copy the record of a run, except for the cells whose files an unfinished cell still needs.

    Whoever copies the record to a directory of their own can continue it there by the command that began it.

    Raises:
        RunError: a part of the run is damaged.
    """
    damaged = [
        f"{part.group} {part.name}".strip() for part in check_run(directory) if part.condition is not Condition.WHOLE
    ]
    if damaged:
        raise RunError(f"{directory} cannot be published: {', '.join(damaged)} damaged or without a checksum")
    place = RUNS / name
    place.mkdir(parents=True, exist_ok=True)
    for file in FILES:
        shutil.copyfile(directory / file, place / file)
    run = Run.read(place)
    experiment = find_experiment(run.experiment)
    done = run.results()
    waiting = [cell for cell in experiment.cells(experiment.read(run.config)) if cell.name not in done]
    run.journal.drop({need for cell in waiting for need in cell.needs})
    return run


def main(*arguments: str) -> None:
    """Take a run, or fill all pages."""
    if arguments:
        directory, name = arguments
        run = take(Path(directory), name)
        print(f"{name}: {len(run.results())} cells of {run.experiment}")  # noqa: T201
    for page in sorted(RESULTS.glob("*.md")):
        page.write_text(filled(page.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
