"""``gatelab experiments``, ``run``, ``study``, ``runs`` and ``report``."""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gatelab.cli.app import app
from gatelab.cli.options import Cluster, DataRoot, Scheduler

if TYPE_CHECKING:
    from gatelab.lab import Config, Experiment, Findings
    from gatelab.work.dask_executor import DaskExecutor

Workers = Annotated[int, typer.Option(min=1, help="Processes that share the work; each has its part of the threads.")]
Out = Annotated[
    Path | None, typer.Option("--out", help="The run's directory; runs/NAME if left out.", show_default=False)
]


@app.command()
def experiments() -> None:
    """List the experiments and their profiles."""
    from gatelab.papers import all_experiments

    found = all_experiments()
    width = max(len(experiment.id) for experiment in found)
    for experiment in found:
        typer.echo(f"{experiment.id:<{width}}  {experiment.title}  [{', '.join(experiment.profiles)}]")


@app.command()
def run(
    identifier: Annotated[str, typer.Argument(metavar="ID", help="An experiment; see 'gatelab experiments'.")],
    profile: Annotated[str, typer.Option(help="smoke (seconds), quick (minutes) or paper (as published).")] = "quick",
    settings: Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change one value.")] = None,
    out: Out = None,
    workers: Workers = 1,
    scheduler: Scheduler = None,
    cluster: Cluster = None,
    data_root: DataRoot = None,
) -> None:
    """Run an experiment, or go on with one that was stopped, and write its report."""
    from gatelab.papers import find_experiment

    place = _Place(workers, scheduler, cluster)
    experiment = find_experiment(identifier)
    values = _settings(settings or [])
    config = experiment.configure(profile, {**values, **_root(data_root)})
    _execute(experiment, config, out or _directory(experiment.id, profile, values), place)


@app.command()
def study(
    model: Annotated[
        str | None, typer.Argument(metavar="[FILE.PY:FACTORY]", help="Makes your network; an MLP if left out.")
    ] = None,
    data: Annotated[str, typer.Option(help="digits, mnist, fashion-mnist, cifar10, …")] = "digits",
    profile: Annotated[str, typer.Option(help="smoke, quick or paper.")] = "quick",
    settings: Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change one value.")] = None,
    out: Out = None,
    workers: Workers = 1,
    scheduler: Scheduler = None,
    cluster: Cluster = None,
    data_root: DataRoot = None,
) -> None:
    """How much of what this network knows is in its gates?

    Trains it, fixes its gates at several stages, trains fresh values on those, on random and on decoupled gates, and
    writes report.html.
    """
    from gatelab.lab.study import StudyConfig, check
    from gatelab.papers import find_experiment

    place, values, chosen = _Place(workers, scheduler, cluster), _settings(settings or []), {}
    if model is not None:
        path, _, name = model.rpartition(":")
        chosen = {"model": f"{Path(path).resolve()}:{name}" if path else model}
    experiment = find_experiment("study")
    config = experiment.configure(profile, {**values, "data": data, **chosen, **_root(data_root)})
    assert isinstance(config, StudyConfig)
    check(config)
    label = "mlp" if model is None else Path(model.rpartition(":")[0]).stem
    _execute(experiment, config, out or _directory(f"study-{label}-{data}", profile, values), place)


@app.command()
def runs(folder: Annotated[Path, typer.Argument(help="Where to look.")] = Path("runs")) -> None:
    """List runs and how far each has come."""
    from gatelab.lab.runs import runs_in
    from gatelab.papers import find_experiment

    found = runs_in(folder)
    for one in found:
        experiment = find_experiment(one.experiment)
        cells = experiment.cells(experiment.read(one.config))
        done = sum(cell.name in one.results() for cell in cells)
        typer.echo(f"{one.path}  {one.experiment}  {done} of {len(cells)} cells  {one.environment()['started']}")
    if not found:
        typer.echo(f"no runs in {folder}")


@app.command()
def report(directory: Annotated[Path, typer.Argument(help="A run's directory.")]) -> None:
    """Write the report of a finished run again."""
    from gatelab.lab.report import write_report
    from gatelab.lab.runs import Run
    from gatelab.papers import find_experiment

    run = Run.read(directory)
    path, _ = write_report(run, find_experiment(run.experiment))
    typer.echo(str(path))


def _settings(given: list[str]) -> dict[str, Any]:
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
    return values


def _root(folder: Path | None) -> dict[str, str]:
    return {} if folder is None else {"data_root": str(folder.resolve())}


def _directory(name: str, profile: str, values: dict[str, Any]) -> Path:
    """Where a run goes if nobody says: another place for everything that is set otherwise."""
    return Path("runs") / "-".join([name, profile, *(f"{k}={values[k]}" for k in sorted(values))]).replace("/", "_")


@dataclass(frozen=True)
class _Place:
    """Where a run's cells are done."""

    workers: int
    scheduler: str | None
    cluster: str | None

    def __post_init__(self) -> None:
        from gatelab.errors import InputError
        from gatelab.work.connection import check

        check(self.scheduler, self.cluster)
        if self.workers > 1 and (self.scheduler or self.cluster):
            raise InputError("--workers is for processes without Dask; leave it out, or write --cluster local:4")

    @contextmanager
    def open(self, notify: Callable[[str], None]) -> "Iterator[DaskExecutor | None]":
        """Open the cluster, if there is to be one."""
        from gatelab.work import Here, connect

        with connect(self.scheduler, self.cluster, notify=notify) as executor:
            yield None if isinstance(executor, Here) else executor


def _execute(experiment: "Experiment", config: "Config", out: Path, place: _Place) -> None:
    from gatelab.cli.progress import reporter, stoppable
    from gatelab.lab.report import write_report
    from gatelab.lab.runs import Run, execute

    directory = Run.open(out, experiment.id, config.model_dump(mode="json"))
    cells = experiment.cells(config)
    with (
        stoppable(lambda: f"{len(directory.results())} of {len(cells)} cells are finished"),
        reporter() as progress,
        place.open(progress.note) as cluster,
    ):
        execute(directory, config, cells, experiment.work, progress, place.workers, cluster)
    path, findings = write_report(directory, experiment)
    _print_findings(findings)
    typer.echo(f"report: {path}")


def _print_findings(findings: "Findings") -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    console = Console(width=None if sys.stdout.isatty() else 130)
    console.print(f"\n[bold]{escape(findings.title)}[/bold]\n")
    console.print(escape(findings.answer), highlight=False)
    for facts in findings.tables:
        table = Table(title=escape(facts.title), title_justify="left")
        for place, column in enumerate(facts.columns):
            table.add_column(escape(column), justify="left" if place == 0 else "right")
        for row in facts.rows:
            table.add_row(*map(escape, row))
        console.print()
        console.print(table)
    for claim in findings.claims:
        console.print(f"  {claim.verdict.value:<11} {escape(claim.text)}: {escape(claim.evidence)}", highlight=False)
    console.print()
