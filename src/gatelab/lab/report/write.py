"""The report of a run: HTML, results as JSON, tables in three formats."""

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from gatelab.errors import GatelabError, RunError
from gatelab.lab.experiment import Experiment
from gatelab.lab.findings import Findings
from gatelab.lab.report.animation import animation_page
from gatelab.lab.report.drawings import files_of
from gatelab.lab.report.html import page
from gatelab.lab.report.tables import as_csv, as_latex, as_markdown
from gatelab.lab.runs import Run
from gatelab.work.files import refuse_links, write_durably, write_json


def findings_of(run: Run, experiment: Experiment) -> Findings:
    """Return the findings of a run; raise a RunError that names unfinished cells."""
    config = experiment.read(run.config)
    results, cells = run.results(), experiment.cells(config)
    missing = [cell.name for cell in cells if cell.name not in results]
    if missing:
        raise RunError(
            f"{run.path} is not finished: {', '.join(missing)} are still to do; run the same command again to continue"
        )
    in_order = {cell.name: results[cell.name] for cell in cells}  # the journal lists them as they finished
    try:
        return experiment.conclude(config, in_order)
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        if isinstance(error, GatelabError):
            raise
        raise RunError(
            f"{run.path}: the results of the cells do not fit {experiment.id} ({error!r}). They were changed, or "
            "made by another version of the experiment; run it again in another directory"
        ) from error


def write_report(run: Run, experiment: Experiment) -> tuple[Path, Findings]:
    """Write ``report.html``, ``results.json``, ``tables/``, ``figures/`` and animations into the run's directory.

    Args:
        run: the directory of a finished run.
        experiment: the experiment that it belongs to.

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
    findings = findings_of(run, experiment)
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
    for number, table in enumerate(findings.tables, start=1):
        for ending, made in ((".csv", as_csv), (".md", as_markdown), (".tex", as_latex)):
            write_durably(run.path / "tables" / f"table-{number}{ending}", made(table).encode())
    return path, findings
