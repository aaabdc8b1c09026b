"""The report of a run: HTML, results as JSON, tables in three formats."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from gatelab.errors import GatelabError, InputError, RunError
from gatelab.lab.experiment import Config, Experiment
from gatelab.lab.findings import Findings
from gatelab.lab.report.animation import animation_page
from gatelab.lab.report.drawings import files_of
from gatelab.lab.report.html import page
from gatelab.lab.report.tables import as_csv, as_latex, as_markdown, claims_table
from gatelab.lab.runs import Cell, Run
from gatelab.work.files import refuse_links, write_durably, write_json


def findings_of(run: Run, experiment: Experiment, runs: int | None = None) -> Findings:
    """Return the findings of a run, or of the first ``runs`` of its repetitions.

    Args:
        run: the directory of the run.
        experiment: the experiment that it belongs to.
        runs: the number of repetitions to conclude from; None means all.

    Raises:
        RunError: a cell that the findings need is not finished, or the findings cannot be computed.
        InputError: the experiment does not repeat its cells run by run, or has fewer runs.
    """
    config = experiment.read(run.config)
    results, cells = run.results(), experiment.cells(config)
    if runs is not None:
        config, cells = _first_runs(experiment, run.config, cells, runs)
    missing = [cell.name for cell in cells if cell.name not in results]
    if missing:
        raise RunError(
            f"{run.path} is not finished: {', '.join(missing)} still to do; run the same command again to continue"
        )
    in_order = {cell.name: results[cell.name] for cell in cells}  # the journal lists them as they finished
    try:
        findings = experiment.conclude(config, in_order)
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        if isinstance(error, GatelabError):
            raise
        raise RunError(
            f"{run.path}: {experiment.id} cannot conclude from its finished cells ({error!r}). The cells are kept. If "
            "another version of gatelab made them, use that version, or run the experiment in another directory. "
            "Otherwise this is a defect of gatelab: report it, and run 'gatelab report' again once it is fixed"
        ) from error
    if runs is None:
        return findings
    part = f"Concluded from the first {runs} of {run.config['runs']} runs; the others are not finished or left out."
    return replace(findings, notes=(part, *findings.notes))


def _first_runs(
    experiment: Experiment, settings: Mapping[str, Any], cells: Sequence[Cell], runs: int
) -> tuple[Config, list[Cell]]:
    """Return the configuration of the first runs alone, and its cells, which must belong to the whole run."""
    whole = settings.get("runs")
    if whole is None:
        raise InputError(f"{experiment.id} does not repeat runs; leave --runs out")
    if runs > whole:
        raise InputError(f"{experiment.id} was started with {whole} runs; ask for at most that many, not {runs}")
    config = experiment.read({**settings, "runs": runs})
    part = experiment.cells(config)
    if not {cell.name: cell.parameters for cell in part}.items() <= {c.name: c.parameters for c in cells}.items():
        raise InputError(f"{experiment.id} trains all runs of a cell together, so none can be concluded alone")
    return config, part


def write_report(run: Run, experiment: Experiment, runs: int | None = None) -> tuple[Path, Findings]:
    """Write ``report.html``, ``results.json``, ``tables/``, ``figures/`` and animations into the run's directory.

    Args:
        run: the directory of a finished run.
        experiment: the experiment that it belongs to.
        runs: conclude only from this many first repetitions; None means all.

    Returns:
        The path of ``report.html``, and the findings.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> from gatelab.lab.runs import execute
        >>> from gatelab.papers import find_experiment
        >>> from gatelab.work.progress import Silent
        >>> spectrum = find_experiment("npk-figure5")
        >>> config = spectrum.configure("smoke", {})
        >>> with TemporaryDirectory() as folder:
        ...     run = Run.open(Path(folder) / "run", spectrum.id, config.model_dump(mode="json"))
        ...     _ = execute(run, config, spectrum.cells(config), spectrum.work, Silent())
        ...     path, findings = write_report(run, spectrum)
        ...     path.name, path.exists(), len(findings.figures) > 0
        ('report.html', True, True)
    """
    refuse_links(run.path)
    findings = findings_of(run, experiment, runs)
    about: dict[str, dict[str, Any]] = {
        "Configuration": {"experiment": run.experiment, **run.config},
        "Environment": run.environment(),
    }
    path = run.path / "report.html"
    named = [f"figures/figure-{number}" for number in range(1, 1 + len(findings.figures))]
    files = f"{named[0]}.svg and .png" + (f" to {named[-1]}.svg and .png" if len(named) > 1 else "") if named else ""
    write_durably(path, page(findings, about, files).encode())
    for name, figure in zip(named, findings.figures, strict=True):
        for file, content in files_of(figure, name):
            write_durably(run.path / file, content)
    for number, animation in enumerate(findings.animations, start=1):
        write_durably(run.path / f"animation-{number}.html", animation_page(animation).encode())
    claims = [{"text": claim.text, "evidence": claim.evidence, **claim.verdict.record()} for claim in findings.claims]
    plain = asdict(replace(findings, animations=(), claims=()))
    write_json(run.path / "results.json", {**plain, "claims": claims, **about})
    tables = {f"table-{number}": table for number, table in enumerate(findings.tables, start=1)}
    if findings.claims:
        tables["claims"] = claims_table(findings.claims)
    for name, table in tables.items():
        for ending, made in ((".csv", as_csv), (".md", as_markdown), (".tex", as_latex)):
            write_durably(run.path / "tables" / f"{name}{ending}", made(table).encode())
    return path, findings
