"""A quantity over several runs, and how it is printed."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import fsum, isfinite, nan, sqrt


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
        """The mean over runs."""
        total = fsum(self.values) if self.is_finite else sum(self.values)  # fsum refuses ∞ − ∞
        return total / len(self.values)

    @property
    def spread(self) -> float:
        """The standard deviation over runs; 0 for a single run, NaN if a run gave no finite number."""
        if not self.is_finite:
            return nan
        mean = self.mean
        return sqrt(fsum((value - mean) ** 2 for value in self.values) / max(1, len(self.values) - 1))

    @property
    def error(self) -> float:
        """The standard error of the mean."""
        return self.spread / len(self.values) ** 0.5

    @property
    def is_finite(self) -> bool:
        """Whether every run gave a finite number."""
        return all(map(isfinite, self.values))

    @classmethod
    def best(cls, histories: Sequence[Sequence[float]]) -> "Sample":
        """The largest value of each run's history."""
        return cls(tuple(max(history) for history in histories))

    @classmethod
    def last(cls, histories: Sequence[Sequence[float]]) -> "Sample":
        """The last value of each run's history."""
        return cls(tuple(history[-1] for history in histories))

    def minus(self, other: "Sample") -> "Sample":
        """The differences within runs."""
        differences = tuple(a - b for a, b in zip(self.values, other.values, strict=True))
        return Sample(differences, self.percent, is_difference=True)

    def text(self) -> str:
        """Mean ± standard deviation."""
        shown = [self.mean] if len(self.values) == 1 else [self.mean, self.spread]
        return " ± ".join(map(self.number, shown))

    def number(self, value: float) -> str:
        """Format a value in the unit of this sample."""
        return formatted(value, percent=self.percent)


def readable(value: float) -> str:
    """Format a number for people: 14,650 or 0.0123 or 1.25e+09."""
    return f"{value:,.0f}" if 1000 <= abs(value) < 1e7 else f"{value:.3g}"


def formatted(value: float, *, percent: bool) -> str:
    """Format a share in percent, or a plain number."""
    return f"{100 * value:.2f}" if percent else readable(value)
