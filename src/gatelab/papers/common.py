"""What the papers' experiments and theorems share: samples, claims, cells, training, figures, checks."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, TypeVar

import torch
from torch import Tensor

from gatelab.data import Dataset
from gatelab.errors import InputError
from gatelab.figures import Curve, Plot
from gatelab.figures.facts import Picture
from gatelab.lab.experiment import Config, Experiment, SeededConfig
from gatelab.lab.findings import Animation, FigureFacts, Findings, Table
from gatelab.lab.measure import against, identity, relative_error
from gatelab.lab.runs import Cell, Result
from gatelab.lab.runs.cells import Work
from gatelab.lab.theorem import Measurement
from gatelab.lab.training import TrainConfig
from gatelab.lab.verdicts import Check, Claim, Sample, Side, readable
from gatelab.lab.verdicts.fits import fitted_power

FLAT = 0.01  # a curve of accuracies is flat if its last fifth gains less than this over the fifth before
Profile = Mapping[str, Any] | Callable[[Mapping[str, Any]], Mapping[str, Any]]
T = TypeVar("T")


def experiment(
    identifier: str,
    title: str,
    config: type[Config],
    cells: Callable[[Any], list[Cell]],
    work: Work,
    findings: Callable[[Any, Mapping[str, Result]], Findings],
    *,
    smoke: Profile,
    quick: Profile | None = None,
    paper: Profile | None = None,
) -> Experiment:
    """Make an experiment with the three profiles; a profile that is not given uses the configuration's defaults."""
    profiles = {"smoke": smoke, "quick": quick or {}, "paper": paper or {}}
    return Experiment(identifier, title, config, profiles, cells, work, findings)


def numbers(values: Iterable[float]) -> Sample:
    """Make a sample with one plain number per run, not a share in percent."""
    return Sample(tuple(values), percent=False)


def cells_per_kind(config: SeededConfig, *kinds: str, weight: float = 1.0) -> list[Cell]:
    """One independent cell for each kind and run: "kind, run 0" with the parameters ``kind`` and ``seed``."""
    return [
        Cell(f"{kind}, run {run}", {"kind": kind, "seed": seed}, weight=weight)
        for kind in kinds
        for run, seed in enumerate(config.seeds())
    ]


def runs_of(kind: str, results: Mapping[str, Result]) -> list[Result]:
    """The results of the cells of a kind, one per run."""
    return [result for name, result in results.items() if name.startswith(f"{kind}, run ")]


def over(runs: Sequence[Any], count: int, read: Callable[[Any, int], float]) -> list[Sample]:
    """Make samples of ``read(run, place)``, a plain number per run, for each of ``count`` places."""
    return [numbers(read(run, place) for run in runs) for place in range(count)]


def training(config: Config, **options: Any) -> TrainConfig:
    """Return how an experiment trains: from its settings that :class:`TrainConfig` shares, and from ``options``."""
    shared = {name: getattr(config, name) for name in TrainConfig.model_fields if name in type(config).model_fields}
    return TrainConfig(**shared | options)


def first_suitable(drawn: Iterable[T], suitable: Callable[[T], bool], what: str, most: int = 1000) -> T:
    """Return the first suitable draw.

    Raises:
        InputError: none of the first ``most`` draws is, so the code that draws or judges must be wrong.
    """
    for candidate in islice(drawn, most):
        if suitable(candidate):
            return candidate
    raise InputError(f"none of {most} draws is {what}; check the code that makes or judges them")


def first_of_each_class(data: Dataset, images: Tensor, labels: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return the first ``count`` examples of each class, class by class, and their labels."""
    chosen = torch.cat([(labels == label).nonzero()[:count, 0] for label in range(len(data.classes))])
    return data.inputs(images[chosen]), labels[chosen]


def last_gain(histories: Iterable[Sequence[float]]) -> Sample:
    """Return, for each run's curve over epochs, the mean of its last fifth minus the mean of the fifth before."""

    def gain(history: Sequence[float]) -> float:
        part = max(1, len(history) // 5)
        last, before = history[-part:], history[-2 * part : -part] or history[:1]
        return sum(last) / len(last) - sum(before) / len(before)

    return Sample(tuple(gain(history) for history in histories))


def last_loss(histories: Iterable[Sequence[float]]) -> str:
    """Format the mean over runs of the training loss at the last epoch, from each run's curve."""
    return readable(numbers(history[-1] for history in histories).mean)


def learning_curves(histories: Mapping[str, Iterable[Sequence[float]]]) -> FigureFacts:
    """Draw the test accuracy of each kind of network over epochs, from the curves of its runs."""
    curves = []
    for name, runs in histories.items():
        samples = [Sample(values) for values in zip(*runs, strict=True)]
        low, mean, high = (tuple(100 * (s.mean + side * s.spread) for s in samples) for side in (-1, 0, 1))
        curves.append(Curve(name, tuple(range(1, len(samples) + 1)), mean, line=True, band=(low, high)))
    caption = "Means over runs; bands are one standard deviation to each side."
    return figure("Test accuracy over epochs", "epoch", "test accuracy in percent", curves, caption)


def accuracies_over_epochs(histories: Mapping[str, Sequence[Sequence[float]]], looks: int = 6) -> Table:
    """Tabulate the mean test accuracy of each kind of network after the first epoch, some in between, and the last."""
    epochs = min(len(run) for runs in histories.values() for run in runs)
    shown = sorted({1 + round((epochs - 1) * place / (looks - 1)) for place in range(looks)})
    rows = tuple(
        (name, *(f"{100 * Sample(tuple(run[epoch - 1] for run in runs)).mean:.1f}" for epoch in shown))
        for name, runs in histories.items()
    )
    return Table("Test accuracy in percent over epochs, means over runs", ("epoch", *map(str, shown)), rows)


def flatness(gains: Mapping[str, Sample]) -> str:
    """Say what a column of last gains in test accuracy means, and which curves are not flat yet."""
    moving = [name for name, gain in gains.items() if abs(gain.mean) >= FLAT]
    said = (
        f"Not flat yet (a change of {100 * FLAT:g} point or more): {', '.join(moving)}."
        if moving
        else f"All curves are flat: they change by less than {100 * FLAT:g} point."
    )
    what = (
        "Last gain: the mean test accuracy of the last fifth of the epochs minus that of the fifth before, in points."
    )
    return f"{what} {said}"


def line(label: str, x: Iterable[float] | Tensor, y: Iterable[float] | Tensor) -> Curve:
    """Make a curve whose points are joined by a line."""
    return Curve(label, _floats(x), _floats(y), line=True)


def dots(label: str, x: Iterable[float] | Tensor, y: Iterable[float] | Tensor) -> Curve:
    """Make a curve of separate points, such as predicted against measured values."""
    return Curve(label, _floats(x), _floats(y))


def _floats(values: Iterable[float] | Tensor) -> tuple[float, ...]:
    return tuple(values.flatten().tolist() if isinstance(values, Tensor) else map(float, values))


Part = Table | FigureFacts | Claim | Animation | str


def findings(title: str, answer: str, *parts: Part) -> Findings:
    """Make findings from their parts, which keep their order within each kind; a plain text is a note."""

    def of(kind: type) -> tuple[Any, ...]:
        return tuple(part for part in parts if isinstance(part, kind))

    return Findings(title, answer, of(Table), of(FigureFacts), of(Claim), of(str), of(Animation))


def figure(
    title: str, x_label: str, y_label: str, curves: Iterable[Curve], caption: str = "", **axes: Any
) -> FigureFacts:
    """Make a figure with one pair of axes; ``axes`` are further options of :class:`gatelab.figures.Plot`."""
    return FigureFacts(title, Plot(x_label, y_label, tuple(curves), **axes), caption)


def power_law(x_label: str, y_label: str, x: Sequence[float], y: Sequence[float], exponent: float, name: str) -> Plot:
    """Plot measured values with their fitted power, and the power law ``exponent``, named ``name``, from the first."""
    fitted = dots(f"measured, exponent {fitted_power(x, y):.2f}", x, y)
    ideal = line(name, x, [y[0] * (size / x[0]) ** exponent for size in x])
    return Plot(x_label, y_label, (fitted, ideal), log=True)


def measurement(plot: Picture, *checks: Check, note: str = "") -> Measurement:
    """Make the measurement of a theorem: a picture, the checks, and an optional note."""
    return Measurement(checks, plot, (note,) if note else ())


def equality(what: str, found: Tensor, predicted: Tensor, label: str, note: str = "") -> Measurement:
    """Measure a theorem that is one identity: two ways to compute a quantity agree to rounding."""
    return measurement(against(found, predicted, label), identity(what, found, predicted), note=note)


def agrees(what: str, found: Tensor, predicted: Tensor, tolerance: float, because: str) -> Check:
    """Check that two quantities agree to a tolerance that ``because`` justifies; for identities use ``identity``."""
    return Check(f"{what}, rel. error", relative_error(found, predicted), tolerance, because)


def at_least(what: str, value: float, least: float, because: str) -> Check:
    """Check that a value is at least ``least``: mostly a contrast that shows that the theorem was really tested."""
    return Check(what, value, least, because, Side.AT_LEAST)
