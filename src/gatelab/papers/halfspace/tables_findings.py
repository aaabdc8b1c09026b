"""halfspace, Tables 1 and 2: the tables beside the published numbers, the curves, and whether they are flat.

DLGN: deep linearly gated network; DLGN-PWC: its piecewise constant variant; DLN: deep linear network.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Protocol, runtime_checkable

from gatelab.figures import Curve
from gatelab.lab.findings import FigureFacts, Findings, Table, percent_curve
from gatelab.lab.hardening import hardening_note
from gatelab.lab.runs import Result
from gatelab.lab.training_cells import divergences
from gatelab.lab.verdicts import Claim, Sample
from gatelab.papers.common import dots, figure, findings, flatness, last_gain, learning_curves

NAMES: dict[str, str] = {
    "relu": "ReLU",
    "dlgn": "DLGN",
    "pwc": "DLGN-PWC",
    "frozen": "DLGN, frozen hard gates",
    "frozen-soft": "DLGN, frozen soft gates",
    "dln": "DLN",
    "tangent": "linear on tangent features",
}
FROZEN = ("frozen", "frozen-soft")
SOFT = ("dlgn", "pwc")  # rows that learn with soft gates
Published = Mapping[str, tuple[float, float]]  # train and test accuracy, in percent


@runtime_checkable
class TableConfig(Protocol):
    """The part of a configuration that the findings use."""

    runs: Any
    epochs: Any

    def wanted(self) -> tuple[str, ...]:
        """The rows of the table that were run."""
        ...

    def title(self) -> str:
        """The table's name in the paper."""
        ...

    def published(self) -> Published:
        """The printed accuracies."""
        ...

    def claims(self, test: Mapping[str, Sample]) -> tuple[Claim, ...]:
        """What the paper says about the table."""
        ...

    def differences(self) -> tuple[str, ...]:
        """How this run departs from the paper."""
        ...


def table_findings(config: TableConfig, results: Mapping[str, Result]) -> Findings:
    """Return the table, beside the published numbers, the curves and the claims."""
    kinds = config.wanted()
    train, test = ({kind: _sample(config, results, kind, part) for kind in kinds} for part in ("train", "test"))
    gains = {kind: last_gain(_histories(config, results, kind)) for kind in kinds if kind != "tangent"}
    columns = ("published train", "published test", "difference") if config.published() else ()
    rows = tuple(
        (
            NAMES[kind],
            train[kind].text(),
            test[kind].text(),
            gains[kind].text() if kind in gains else "exact",
            *_published(config, kind, test),
        )
        for kind in test
    )
    accuracies = ", ".join(f"{NAMES[kind]} {sample.text()}" for kind, sample in test.items())
    title = "Accuracy in percent at the last epoch, mean ± standard deviation over runs"
    note = flatness({NAMES[kind]: gain for kind, gain in gains.items()})
    return findings(
        f"{config.title()}: {results[f'{kinds[0]}/run 0']['data']}",
        f"Test accuracy in percent at the last epoch: {accuracies}.",
        Table(title, ("network", "train", "test", "last gain", *columns), rows, note),
        _figure(config, test),
        learning_curves({NAMES[kind]: _histories(config, results, kind) for kind in gains}),
        *config.claims(test),
        *config.differences(),
        *divergences(results),
        *(note for kind in kinds if kind in SOFT for note in hardening_note(NAMES[kind], _gaps(config, kind, results))),
    )


def _gaps(config: TableConfig, kind: str, results: Mapping[str, Result]) -> list[Any]:
    """Return what hard gates would cost each run; None where it was not measured."""
    return [results[f"{kind}/run {run}"].get("hardening") for run in range(config.runs)]


def _sample(config: TableConfig, results: Mapping[str, Result], kind: str, part: str) -> Sample:
    return Sample(tuple(results[f"{kind}/run {run}"][part] for run in range(config.runs)))


def _histories(config: TableConfig, results: Mapping[str, Result], kind: str) -> Iterator[list[float]]:
    return (results[f"{kind}/run {run}"]["test_accuracy"][0] for run in range(config.runs))


def _published(config: TableConfig, kind: str, test: Mapping[str, Sample]) -> tuple[str, ...]:
    """The published columns of a row; none if the paper does not have this table."""
    if kind not in config.published():
        return ("", "", "") if config.published() else ()
    train, printed = config.published()[kind]
    return (f"{train:g}", f"{printed:g}", f"{100 * test[kind].mean - printed:+.2f}")


def _figure(config: TableConfig, test: Mapping[str, Sample]) -> FigureFacts:
    kinds, printed = list(test), config.published()
    aside = 0.08 if printed else 0.0
    ours = percent_curve(f"ours, {config.runs} runs", [k - aside for k in range(len(kinds))], list(test.values()))
    curves: list[Curve] = [ours]
    if printed:
        places = [place for place, kind in enumerate(kinds) if kind in printed]
        curves.append(dots("published", [k + aside for k in places], [printed[kinds[k]][1] for k in places]))
    title, caption = f"Test accuracy after {config.epochs} epochs", "Bars are standard deviations over runs."
    ticks = tuple(NAMES[kind] for kind in kinds)
    return figure(title, "", "test accuracy in percent", curves, caption, ticks=ticks)
