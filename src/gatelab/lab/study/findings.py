"""What a study found: the answer, the table, figures, claims."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import nan
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from scipy.special import stdtrit

from gatelab.data.tables import import_pandas
from gatelab.errors import InputError
from gatelab.figures import draw
from gatelab.lab.findings import Findings, Table
from gatelab.lab.hardening import hardening_note
from gatelab.lab.objectives import Metric
from gatelab.lab.report.html import page
from gatelab.lab.runs import Result
from gatelab.lab.study.answer import answer, main_claims, surprises, whole
from gatelab.lab.study.closed_form import MOST_TESTED
from gatelab.lab.study.config import StudyConfig, Task
from gatelab.lab.study.figures import dynamics_figures, dynamics_table, row_figures
from gatelab.lab.study.preview import control_text, kernels_text
from gatelab.lab.study.rows import CONTROL, DECOUPLED_ROW, OWN, SETTING, Row, is_watched, rows, stage_name
from gatelab.lab.training_cells import divergences, has_diverged
from gatelab.lab.verdicts import Claim, Sample, decided_together, greater, share_of_gap
from gatelab.work.files import write_durably

_METRICS = {"accuracy": "Test accuracy in percent", "balanced": "Balanced test accuracy in percent", "r2": "Test R²"}


@dataclass(frozen=True)
class RowResult:
    """A row of the table: the metric after the last epoch and after the best one, for each run.

    ``share`` is how much of the network's gain over random gates these gates keep, with its 95 % interval.
    """

    name: str
    regime: str
    last: tuple[float, ...]
    best: tuple[float, ...]
    share: tuple[float, tuple[float, float]] | None = None


@dataclass(frozen=True)
class StudyFindings(Findings):
    """What a study found.

    Attributes:
        metric: what the numbers of the table are.
        results: the rows.
        share: how much of the gain over random gates is in the gates; None if there is no gain to divide.
        interval: its 95 % interval.
        about: the settings, and the machine.
    """

    metric: str = "accuracy"
    results: tuple[RowResult, ...] = ()
    share: float | None = None
    interval: tuple[float, float] | None = None
    about: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def table(self) -> Any:
        """Return the table as a pandas DataFrame, a row for each kind of gates, numbers between 0 and 1.

        Columns: gates, regime, mean, sd, low and high (95 % interval of the mean), best (mean of the best epochs),
        runs, and for fixed gates share, share_low and share_high: how much of the network's gain they keep.

        Raises:
            InputError: pandas is not installed; :meth:`records` needs nothing.
        """
        return import_pandas("a table as a DataFrame").DataFrame(self.records())

    def records(self) -> list[dict[str, Any]]:
        """Return the rows of :meth:`table` as plain dictionaries."""
        return [_record(row) for row in self.results]

    def plot(self) -> Figure:
        """Draw the first figure: all rows beside each other."""
        return draw(self.figures[0].plot, self.figures[0].title)

    def report(self, path: str | Path) -> Path:
        """Write the report as one HTML file that needs no others.

        Raises:
            InputError: the folder does not exist.
        """
        path = Path(path)
        if not path.parent.is_dir():
            raise InputError(f"cannot write {path}: the folder {path.parent} does not exist")
        write_durably(path, page(self, self.about).encode())
        return path


def _record(row: RowResult) -> dict[str, Any]:
    sample, best = Sample(row.last), Sample(row.best)
    reach = float(stdtrit(sample.runs - 1, 0.975)) * sample.error if sample.runs > 1 else nan
    numbers = {"mean": sample.mean, "sd": sample.spread if sample.runs > 1 else nan}
    interval = {"low": sample.mean - reach, "high": sample.mean + reach}
    share, (low, high) = row.share or (nan, (nan, nan))
    kept = {"share": share, "share_low": low, "share_high": high}
    about = {"gates": row.name, "regime": row.regime}
    return {**about, **numbers, **interval, "best": best.mean, "runs": sample.runs, **kept}


def study_findings(config: StudyConfig, results: Mapping[str, Result]) -> StudyFindings:
    """Turn the results of all cells into findings."""
    facts, listed = results[SETTING], rows(config)
    metric = config.training(Task(facts["task"])).metric
    assert metric is not None
    percent = metric != "r2"
    last = {row.name: row.last(results, config.runs, percent=percent) for row in listed}
    own, control, learnt = last[OWN], last[CONTROL], last[stage_name(config, config.epochs)]
    main = main_claims(own, control, learnt)
    claims = decided_together((*main, *_other_claims(last, control)), smoke=config.smoke)
    said = answer(own, control, learnt, claims[: len(main)], config.epochs, trained=config.studies_trained)
    gain = said.share is not None
    kept = tuple(_row_result(row, results, config.runs, last if gain else None) for row in listed)
    return StudyFindings(
        f"How much of what this network knows is in its gates? ({facts['name']} on {facts['data']})",
        said.text,
        (_table(kept, metric.value, percent), *dynamics_table(results)),
        (*row_figures(config, last, _METRICS[metric], gain=gain), *dynamics_figures(results)),
        claims,
        tuple(_notes(config, facts, last, results)),
        decided=said.decided and not config.smoke,
        metric=metric.value,
        results=kept,
        share=said.share,
        interval=said.interval,
    )


def _other_claims(last: Mapping[str, Sample], control: Sample) -> list[Claim]:
    if DECOUPLED_ROW not in last:
        return []
    return [Claim("Decoupled gates beat random gates", greater(last[DECOUPLED_ROW], control, paired=True))]


def _row_result(row: Row, results: Mapping[str, Result], runs: int, last: Mapping[str, Sample] | None) -> RowResult:
    """A row; ``last`` are the samples that shares are taken of, None if there is no gain to divide."""
    histories = row.histories(results, runs)
    ends, best = tuple(h[-1] for h in histories), tuple(max(h) for h in histories)
    share = share_of_gap(last[row.name], last[CONTROL], last[OWN]) if row.is_fixed and last else None
    return RowResult(row.name, row.regime, ends, best, share)


def _table(kept: tuple[RowResult, ...], metric: str, percent: bool) -> Table:
    shares = any(row.share for row in kept)

    def cells(row: RowResult) -> tuple[str, ...]:
        name = f"{row.name} ({row.regime})" if row.regime else row.name
        scores = name, Sample(row.last, percent).text(), Sample(row.best, percent).text()
        return (*scores, _share(row)) if shares else scores

    note = (
        "All value networks start from fresh weights and are trained alike; only the gates differ. The last epoch "
        "decides; the best one, which papers show, is chosen on the test set."
    )
    if shares:
        note += " The share is that of the network's gain over random gates, with its 95 % interval."
    columns = ("gates", "last epoch", "best epoch", *(("share of the gain, %",) if shares else ()))
    return Table(f"{_METRICS[metric]}, mean ± standard deviation over runs", columns, tuple(map(cells, kept)), note)


def _share(row: RowResult) -> str:
    if row.share is None:
        return ""
    share, (low, high) = row.share
    return f"{whole(share)} ({whole(low)} to {whole(high)})"


def _notes(
    config: StudyConfig, facts: Mapping[str, Any], last: Mapping[str, Sample], results: Mapping[str, Result]
) -> list[str]:
    ended = divergences(results)
    notes = [*(ended or _guess(config, facts, last[OWN])), *surprises(config, last, facts["parameters"])]
    if facts["largest_class"] is not None and facts["largest_class"] > 2 / facts["classes"] and config.metric is None:
        notes.append(
            f"Classes are uneven: {facts['largest_class']:.0%} of the training examples are of one class, which sets "
            'how much a guess gets right. metric="balanced" counts every class alike.'
        )
    if config.studies_trained:
        notes.append(
            f"The network was studied as it is. Values were trained for {config.epochs} epochs; if the network itself "
            "was trained longer, or otherwise, that difference counts against its gates. The row of gates_from='seed' "
            "trains the network anew under this study's settings, for comparison."
        )
    notes.append(f"Control: {control_text(facts)}. Runs share seeds: row by row, the values start alike.")
    notes += facts["remarks"]
    if is_watched(config):
        notes.append(f"What is exact: {kernels_text(config.kernels)}. They are measured on the first run's network.")
    if config.refit:
        tested = min(facts["test"], MOST_TESTED)
        notes.append(
            f"Closed form: each path has a value of its own, fitted to {config.refit:,} examples "
            f"with the ridge that does best on a fifth of them, tested on {tested:,}."
        )
    if config.amounts:
        notes.append(
            "With a part of the data, epochs are repeated, at most ten times, to make as many steps as with all."
        )
    return notes + _hardening_notes(results)


def _guess(config: StudyConfig, facts: Mapping[str, Any], own: Sample) -> list[str]:
    """Say so if the network does no better than a constant answer."""
    metric = config.training(Task(facts["task"])).metric
    level = 0.0 if metric is Metric.R2 else facts["largest_class"]
    if metric is Metric.BALANCED:
        level = 1 / facts["classes"]
    if own.mean > level:
        return []
    return [
        f"The network itself, with {own.number(own.mean)}{' %' * own.percent}, is no better than one answer for all "
        f"examples ({own.number(level)}{' %' * own.percent}): it has learnt nothing that gates could hold. Train it "
        "longer (epochs, learning_rate), or check the data."
    ]


def _hardening_notes(results: Mapping[str, Result]) -> list[str]:
    """What hard gates would cost the networks whose gates are soft, on the probes."""
    notes = []
    for cell, name in (("network", OWN), ("decoupled", "the decoupled network")):
        result = results.get(cell, {})
        records = [] if has_diverged(result) else result.get("records", [])
        notes += hardening_note(name, [records[-1].get("hardening")]) if records else []
    return notes
