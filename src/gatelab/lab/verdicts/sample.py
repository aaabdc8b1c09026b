"""A quantity over several runs, and how it is printed."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import frexp, fsum, hypot, inf, isfinite, isinf, isnan, ldexp, nan, sqrt

from gatelab.errors import InputError


@dataclass(frozen=True)
class Sample:
    """One quantity over several runs: a share, printed in percent, or with ``percent=False`` a plain number.

    Example:
        >>> Sample((0.95, 0.97)).text()
        '96.00 ± 1.41'
    """

    values: tuple[float, ...]
    percent: bool = True
    is_difference: bool = False  # of two shares, whose unit is points

    @property
    def unit(self) -> str:
        """The unit in which values are printed; empty for a plain number."""
        return ("points" if self.is_difference else "%") if self.percent else ""

    @property
    def runs(self) -> int:
        """The number of runs."""
        return len(self.values)

    @property
    def mean(self) -> float:
        """The mean over runs; NaN if there are none."""
        if not self.values:
            return nan
        if not self.is_finite:
            return sum(self.values) / len(self.values)  # fsum refuses ∞ − ∞
        # A power of two scales without rounding, and scaled values have no sum that overflows.
        exponent = frexp(max(map(abs, self.values)))[1]
        return ldexp(fsum(ldexp(value, -exponent) for value in self.values) / len(self.values), exponent)

    @property
    def spread(self) -> float:
        """The standard deviation over runs; 0 for a single run, NaN without runs or if one gave no finite number."""
        if not self.values or not self.is_finite:
            return nan
        mean = self.mean
        return hypot(*(value - mean for value in self.values)) / sqrt(max(1, len(self.values) - 1))

    @property
    def error(self) -> float:
        """The standard error of the mean."""
        return self.spread / sqrt(max(1, len(self.values)))

    @property
    def is_finite(self) -> bool:
        """Whether every run gave a finite number."""
        return all(map(isfinite, self.values))

    @classmethod
    def best(cls, histories: Sequence[Sequence[float]]) -> "Sample":
        """The largest value of each run's history; NaN, after a training diverged, is not larger than a number."""
        return cls(tuple(max(history, key=lambda value: -inf if isnan(value) else value) for history in histories))

    @classmethod
    def last(cls, histories: Sequence[Sequence[float]]) -> "Sample":
        """The last value of each run's history."""
        return cls(tuple(history[-1] for history in histories))

    def minus(self, other: "Sample") -> "Sample":
        """The differences within runs."""
        paired_runs(self, other)
        differences = tuple(a - b for a, b in zip(self.values, other.values, strict=True))
        return Sample(differences, self.percent, is_difference=True)

    def text(self) -> str:
        """Mean ± standard deviation."""
        if not self.values:
            return "nothing"
        shown = [self.mean] if len(self.values) == 1 else [self.mean, self.spread]
        return " ± ".join(map(self.number, shown))

    def number(self, value: float) -> str:
        """Format a value in the unit of this sample."""
        return formatted(value, percent=self.percent)


def paired_runs(*samples: Sample) -> int:
    """The number of runs of samples whose runs belong together; an error if they have different numbers."""
    counts = [sample.runs for sample in samples]
    if len(set(counts)) > 1:
        raise InputError(
            f"samples of {' and '.join(map(str, counts))} runs cannot be paired; give the same runs of each, "
            "or compare independent samples with paired=False"
        )
    return counts[0]


def readable(value: float) -> str:
    """Format a number for people: 14,650 or 0.0123 or 1.25e+09."""
    if isinf(value):
        return "∞" if value > 0 else "−∞"
    return f"{value:,.0f}" if 1000 <= abs(value) < 1e7 else f"{value:.3g}"


def formatted(value: float, *, percent: bool) -> str:
    """Format a share in percent, or a plain number."""
    return f"{round(100 * value, 2) + 0.0:.2f}" if percent else readable(value)  # + 0.0: minus zero is no number
