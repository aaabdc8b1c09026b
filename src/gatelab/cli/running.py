"""``gatelab experiments``, ``run``, ``runs`` and ``report``; and how an experiment is executed."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gatelab.cli.app import app
from gatelab.cli.options import RunOptions, with_run_options

if TYPE_CHECKING:
    from collections.abc import Callable

    from gatelab.lab import Config, Experiment, Findings
    from gatelab.work.progress import Reporter

_LONGEST_NAME = 200  # bytes; file systems take 255


@app.command()
def experiments() -> None:
    """List the experiments and their profiles."""
    from gatelab.papers import all_experiments

    listed = all_experiments()
    width = max(len(experiment.id) for experiment in listed)
    for experiment in listed:
        typer.echo(f"{experiment.id:<{width}}  {experiment.title}  [{', '.join(experiment.profiles)}]")


@app.command()
@with_run_options
def run(
    identifier: Annotated[str, typer.Argument(metavar="ID", help="An experiment; 'gatelab experiments' lists them.")],
    *,
    how: RunOptions,
) -> None:
    """Run an experiment, or continue one that was stopped, and write its report."""
    from gatelab.papers import find_experiment

    experiment = find_experiment(identifier)
    values = settings_of(how.settings or [])
    config = experiment.configure(how.profile, {**values, **root_of(how.data_root)})
    perform(experiment, config, how.out or directory_of(experiment.id, how.profile, values), how)


@app.command()
def runs(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="The folder to list.")] = Path("runs"),
) -> None:
    """List the runs in a folder, and how many of their cells are finished."""
    from gatelab.errors import GatelabError
    from gatelab.lab.runs import runs_in

    listed = runs_in(folder)
    for path in listed:
        try:
            typer.echo(_standing(path))
        except GatelabError as error:
            typer.echo(f"{path}  cannot be read: {error}")
    if not listed:
        typer.echo(f"no runs in {folder}")


def _standing(path: Path) -> str:
    from gatelab.lab.runs import Run
    from gatelab.papers import find_experiment

    one = Run.read(path)
    experiment = find_experiment(one.experiment)
    cells, results = experiment.cells(experiment.read(one.config)), one.results()
    done = sum(cell.name in results for cell in cells)
    return f"{path}  {one.experiment}  {done} of {len(cells)} cells  {one.started}"


@app.command()
def report(
    directory: Annotated[Path, typer.Argument(metavar="DIRECTORY", help="The directory of a run.")],
    runs: Annotated[
        int | None, typer.Option(min=1, help="Conclude from the first runs only, if the others are not finished.")
    ] = None,
) -> None:
    """Write the report of a run again, or that of its first runs."""
    from gatelab.lab.report import write_report
    from gatelab.lab.runs import Run
    from gatelab.papers import find_experiment

    run = Run.read(directory)
    path, findings = write_report(run, find_experiment(run.experiment), runs)
    _print_findings(findings)
    typer.echo(f"report: {path}")


def settings_of(given: list[str]) -> dict[str, Any]:
    """Read key=value; a value that is not JSON is text."""
    from gatelab.errors import InputError

    values: dict[str, Any] = {}
    for setting in given:
        key, equals, text = setting.partition("=")
        if not equals or not key:
            raise InputError(f"--set {setting}: write key=value")
        try:
            values[key] = json.loads(text)
        except ValueError:
            values[key] = text
        except RecursionError:
            raise InputError(f"--set {setting:.50}…: the value is nested too deeply") from None
    return values


def root_of(folder: Path | None) -> dict[str, str]:
    """The setting for a data folder."""
    return {} if folder is None else {"data_root": str(folder.resolve())}


def directory_of(name: str, profile: str, values: dict[str, Any]) -> Path:
    """Return the default directory of a run, a different one for each set of settings."""
    from gatelab.errors import InputError

    folder = "-".join([name, profile, *(f"{k}={values[k]}" for k in sorted(values))]).replace("/", "_")
    if len(folder.encode()) > _LONGEST_NAME or "\0" in folder:
        raise InputError("these settings are too long for the name of a directory; choose one with --out")
    return Path("runs") / folder


def perform(
    experiment: "Experiment",
    config: "Config",
    out: Path,
    how: RunOptions,
    *,
    prepare: "Callable[[Any, None, Path, Reporter], Config] | None" = None,
) -> None:
    """Run an experiment, or continue it, write its report, and print what was found.

    ``prepare`` completes the configuration and reports what will be done, before the run is opened.
    """
    from gatelab.cli.progress import reporter, stoppable
    from gatelab.errors import InputError
    from gatelab.lab.report import write_report
    from gatelab.lab.runs import Run, execute
    from gatelab.lab.runs.verify import discard_damaged
    from gatelab.work import Here, connect
    from gatelab.work.connection import check

    check(how.scheduler, how.cluster)
    if how.workers > 1 and (how.scheduler or how.cluster):
        raise InputError("--workers is for processes without Dask; leave it out, or write --cluster local:4")
    for line in discard_damaged(out) if how.redo_damaged else []:
        typer.echo(line, err=True)
    with (
        stoppable(lambda: _finished(out, experiment)),
        reporter() as progress,
        connect(how.scheduler, how.cluster, notify=progress.note) as executor,
    ):
        if prepare is not None:
            config = prepare(config, None, out, progress)
        directory = Run.open(out, experiment.id, config.model_dump(mode="json"))
        dask = None if isinstance(executor, Here) else executor
        execute(directory, config, experiment.cells(config), experiment.work, progress, how.workers, dask)
    path, findings = write_report(directory, experiment)
    _print_findings(findings)
    typer.echo(f"report: {path}")


def _finished(out: Path, experiment: "Experiment") -> str:
    from gatelab.lab.runs import Run

    if not (out / "run.json").exists():
        return "nothing is finished"
    run = Run.read(out)
    return f"{len(run.results())} of {len(experiment.cells(experiment.read(run.config)))} cells are finished"


def _print_findings(findings: "Findings") -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    # A pipe or a file has no width of its own; the tables need about this much to stay readable.
    console = Console(width=None if sys.stdout.isatty() else 130)
    console.print(f"\n[bold]{escape(findings.title)}[/bold]\n", highlight=False)
    console.print(escape(findings.answer), highlight=False)
    for facts in findings.tables:
        table = Table(title=escape(facts.title), title_justify="left")
        for place, column in enumerate(facts.columns):
            table.add_column(escape(column), justify="left" if place == 0 else "right")
        for row in facts.rows:
            table.add_row(*map(escape, row))
        console.print()
        console.print(table)
    claims = Table.grid(padding=(0, 2), pad_edge=True)
    for claim in findings.claims:
        claims.add_row(claim.outcome.value, f"{escape(claim.text)}: {escape(claim.evidence)}")
    console.print(claims)
    console.print()
