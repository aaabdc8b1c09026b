"""Statements and their verdicts: checks of a number, claims about samples, and the rules that decide claims.

A claim is decided only if its margin exceeds two standard errors.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import hypot, log
from statistics import mean, stdev


class Verdict(StrEnum):
    """Whether the measurements support a statement."""

    HOLDS = "holds"
    FAILS = "fails"
    UNDECIDED = "not decided"


@dataclass(frozen=True)
class Claim:
    """A statement, its verdict, and the numbers behind the verdict.

    Args:
        text: the statement.
        verdict: whether the numbers support it.
        evidence: the numbers, as a reader sees them.

    Example:
        >>> Claim("Depth helps", Verdict.HOLDS, "0.98 against 0.95, 5 runs").verdict.value
        'holds'
    """

    text: str
    verdict: Verdict
    evidence: str


@dataclass(frozen=True)
class Check:
    """A number that must not exceed its tolerance; a theorem holds if all its checks hold.

    Args:
        what: the quantity, in a few words.
        value: what was measured.
        tolerance: the largest value with which the theorem stands.
        because: where the tolerance comes from.

    Example:
        >>> Check("relative error", 1e-12, 1e-10, "float64 rounding").holds
        True
    """

    what: str
    value: float
    tolerance: float
    because: str

    @property
    def holds(self) -> bool:
        """Whether the value is within its tolerance; NaN never is."""
        return self.value <= self.tolerance


@dataclass(frozen=True)
class Sample:
    """One quantity over several runs: a share, printed in percent, or with ``percent=False`` a plain number."""

    values: tuple[float, ...]
    percent: bool = True

    @property
    def mean(self) -> float:
        """The mean over runs."""
        return mean(self.values)

    @property
    def spread(self) -> float:
        """The standard deviation over runs; 0 for a single run."""
        return stdev(self.values) if len(self.values) > 1 else 0.0

    @property
    def error(self) -> float:
        """The standard error of the mean."""
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
        """Format a value in the unit of this sample."""
        return f"{100 * value:.2f}" if self.percent else readable(value)


def readable(value: float) -> str:
    """Format a number for people: 14,650 or 0.0123 or 1.25e+09."""
    return f"{value:,.0f}" if 1000 <= abs(value) < 1e7 else f"{value:.3g}"


def standard_error(first: Sample, second: Sample) -> float:
    """Standard error of the difference of two means."""
    return hypot(first.error, second.error)


def share_of_gap(part: Sample, low: Sample, high: Sample) -> tuple[float, float] | None:
    """How much of the gap from ``low`` to ``high`` is closed by ``part``, with its standard error.

    None if the gap is not larger than two standard errors: a share of noise means nothing.
    """
    gap = high.mean - low.mean
    if gap <= 2 * standard_error(high, low):
        return None
    return (part.mean - low.mean) / gap, standard_error(part, low) / gap


def positive(text: str, sample: Sample, evidence: str = "") -> Claim:
    """Decide whether a mean is above zero, such as that of differences within runs."""
    return _decided(text, sample.mean, sample.error, evidence or f"mean {sample.text()}", sample)


def larger_within_runs(text: str, larger: Sample, smaller: Sample, evidence: str = "") -> Claim:
    """Decide whether one positive quantity exceeds another in the same runs, by the logarithms of their ratios."""
    numbers = evidence or f"{larger.text()} against {smaller.text()}"
    if min(*larger.values, *smaller.values) <= 0:
        return Claim(text, Verdict.UNDECIDED, f"{numbers}; a run has none at all, and so no ratio")
    ratios = (log(a / b) for a, b in zip(larger.values, smaller.values, strict=True))
    return positive(text, Sample(tuple(ratios), percent=False), numbers)


def greater(text: str, larger: Sample, smaller: Sample) -> Claim:
    """Decide whether one mean exceeds another; the runs of both are independent."""
    evidence = f"{larger.text()} against {smaller.text()}"
    return _decided(text, larger.mean - smaller.mean, standard_error(larger, smaller), evidence, larger, smaller)


def greater_within_runs(text: str, larger: Sample, smaller: Sample) -> Claim:
    """Decide whether one quantity exceeds another in the same runs, by their differences."""
    gaps = tuple(a - b for a, b in zip(larger.values, smaller.values, strict=True))
    difference = Sample(gaps, larger.percent)
    evidence = f"{larger.text()} against {smaller.text()}, difference within runs {difference.text()}"
    return positive(text, difference, evidence)


def close(text: str, first: Sample, second: Sample, *, within: float) -> Claim:
    """Decide whether two means differ by less than ``within``."""
    gap = abs(first.mean - second.mean)
    evidence = f"{first.text()} and {second.text()}, {first.number(gap)} apart; close means {first.number(within)}"
    return _decided(text, within - gap, standard_error(first, second), evidence, first, second)


def not_below(text: str, first: Sample, second: Sample, *, within: float) -> Claim:
    """Decide whether one mean is above another, or at most ``within`` below it."""
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
        return Claim(text, Verdict.UNDECIDED, f"{evidence}; within two standard errors ({samples[0].number(error)})")
    return Claim(text, Verdict.HOLDS if margin > 0 else Verdict.FAILS, f"{evidence}; {runs} runs")
