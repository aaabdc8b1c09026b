"""What an experiment found, as plain facts: an answer, tables, figures, claims. Nothing is drawn or printed here."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import hypot, log
from statistics import mean, stdev

from gatelab.figures import Curve, Panels
from gatelab.figures.facts import Picture


class Verdict(StrEnum):
    """Whether what was measured bears out a claim."""

    HOLDS = "holds"
    FAILS = "fails"
    UNDECIDED = "not decided"


@dataclass(frozen=True)
class Claim:
    """What a paper says, and what the numbers say to it."""

    text: str
    verdict: Verdict
    evidence: str


@dataclass(frozen=True)
class Table:
    """Rows of cells as text; the first column names the row."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""


@dataclass(frozen=True)
class FigureFacts:
    """A picture with its title and what to see in it."""

    title: str
    plot: Picture
    caption: str


@dataclass(frozen=True)
class Frame:
    """One moment of an animation."""

    label: str
    panels: Panels


@dataclass(frozen=True)
class Animation:
    """Pictures over time, with a title and what to see in them."""

    title: str
    caption: str
    frames: tuple[Frame, ...]


@dataclass(frozen=True)
class Findings:
    """Everything that a report shows.

    Attributes:
        title: of the experiment.
        answer: the finding in a sentence or two.
        tables, figures, claims: the evidence.
        notes: what differs from the paper, and whatever a reader must know.
        animations: each a page of its own beside the report.
    """

    title: str
    answer: str
    tables: tuple[Table, ...] = ()
    figures: tuple[FigureFacts, ...] = ()
    claims: tuple[Claim, ...] = ()
    notes: tuple[str, ...] = ()
    animations: tuple[Animation, ...] = ()


@dataclass(frozen=True)
class Sample:
    """Several runs of one thing: a share, printed in percent, or with ``percent=False`` a plain number."""

    values: tuple[float, ...]
    percent: bool = True

    @property
    def mean(self) -> float:
        """Their mean."""
        return mean(self.values)

    @property
    def spread(self) -> float:
        """Their standard deviation; 0 for a single run."""
        return stdev(self.values) if len(self.values) > 1 else 0.0

    @property
    def error(self) -> float:
        """Standard error of the mean."""
        return self.spread / len(self.values) ** 0.5

    @classmethod
    def best(cls, histories: Sequence[Sequence[float]]) -> "Sample":
        """The largest value of each run's history."""
        return cls(tuple(max(history) for history in histories))

    @classmethod
    def last(cls, histories: Sequence[Sequence[float]]) -> "Sample":
        """The last value of each run's history."""
        return cls(tuple(history[-1] for history in histories))

    def text(self) -> str:
        """Mean ± standard deviation."""
        shown = [self.mean] if len(self.values) == 1 else [self.mean, self.spread]
        return " ± ".join(map(self.number, shown))

    def number(self, value: float) -> str:
        """A value as this sample's are written."""
        return f"{100 * value:.2f}" if self.percent else readable(value)


def readable(value: float) -> str:
    """A number as people write it: 14,650 or 0.0123 or 1.25e+09."""
    return f"{value:,.0f}" if 1000 <= abs(value) < 1e7 else f"{value:.3g}"


def mean_curve(label: str, x: Sequence[float], samples: Sequence[Sample]) -> Curve:
    """Means with their standard errors, over a scale."""
    return Curve(label, tuple(x), tuple(s.mean for s in samples), tuple(s.error for s in samples), line=True)


def standard_error(first: Sample, second: Sample) -> float:
    """Of the difference of two means."""
    return hypot(first.error, second.error)


def share_of_gap(part: Sample, low: Sample, high: Sample) -> tuple[float, float] | None:
    """How far ``part`` has come on the way from ``low`` to ``high``, and the error of that.

    None if the way is not two standard errors long: then there is nothing to have a share of.
    """
    gap = high.mean - low.mean
    if gap <= 2 * standard_error(high, low):
        return None
    return (part.mean - low.mean) / gap, standard_error(part, low) / gap


def positive(text: str, sample: Sample, evidence: str = "") -> Claim:
    """The claim that a mean is above zero; decided if two standard errors from it. For differences within runs."""
    return _decided(text, sample.mean, sample.error, evidence or f"mean {sample.text()}", sample)


def larger_within_runs(text: str, larger: Sample, smaller: Sample, evidence: str = "") -> Claim:
    """The claim that one positive quantity is a larger number than another in the same runs, by their ratios' logs."""
    numbers = evidence or f"{larger.text()} against {smaller.text()}"
    if min(*larger.values, *smaller.values) <= 0:
        return Claim(text, Verdict.UNDECIDED, f"{numbers}; a run has none at all, and so no ratio")
    ratios = (log(a / b) for a, b in zip(larger.values, smaller.values, strict=True))
    return positive(text, Sample(tuple(ratios), percent=False), numbers)


def greater(text: str, larger: Sample, smaller: Sample) -> Claim:
    """The claim that one mean exceeds another; decided if two standard errors apart."""
    evidence = f"{larger.text()} against {smaller.text()}"
    return _decided(text, larger.mean - smaller.mean, standard_error(larger, smaller), evidence, larger, smaller)


def greater_within_runs(text: str, larger: Sample, smaller: Sample) -> Claim:
    """The claim that one thing exceeds another in the same runs: the error is that of the runs' differences."""
    gaps = tuple(a - b for a, b in zip(larger.values, smaller.values, strict=True))
    difference = Sample(gaps, larger.percent)
    evidence = f"{larger.text()} against {smaller.text()}, difference within runs {difference.text()}"
    return positive(text, difference, evidence)


def close(text: str, first: Sample, second: Sample, *, within: float) -> Claim:
    """The claim that two means differ by less than ``within``; decided if two standard errors from it."""
    gap = abs(first.mean - second.mean)
    evidence = f"{first.text()} and {second.text()}, {first.number(gap)} apart; close means {first.number(within)}"
    return _decided(text, within - gap, standard_error(first, second), evidence, first, second)


def not_below(text: str, first: Sample, second: Sample, *, within: float) -> Claim:
    """The claim that one mean is at most ``within`` below another, or above it; decided if two standard errors off."""
    gap = first.mean - second.mean
    allowed = f"{first.number(within)} less would do"
    evidence = f"{first.text()} against {second.text()}, {first.number(gap)} more; {allowed}"
    return _decided(text, gap + within, standard_error(first, second), evidence, first, second)


def _decided(text: str, margin: float, error: float, evidence: str, *samples: Sample) -> Claim:
    runs = min(len(sample.values) for sample in samples)
    if runs < 2:
        return Claim(text, Verdict.UNDECIDED, f"{evidence}; one run has no error bar")
    if margin == 0:
        return Claim(text, Verdict.UNDECIDED, f"{evidence}; no difference at all")
    if abs(margin) < 2 * error:
        told = samples[0].number(error)
        return Claim(text, Verdict.UNDECIDED, f"{evidence}; within two standard errors ({told})")
    return Claim(text, Verdict.HOLDS if margin > 0 else Verdict.FAILS, f"{evidence}; {runs} runs")
