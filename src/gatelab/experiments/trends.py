"""Samples over a scale: as a curve, and the power that fits them; and compared within runs."""

from collections.abc import Sequence
from math import log, nan
from statistics import linear_regression

from gatelab.experiments.findings import Claim, Sample, positive
from gatelab.figures import Curve


def mean_curve(label: str, x: Sequence[float], samples: Sequence[Sample]) -> Curve:
    """Means with their standard errors."""
    return Curve(label, tuple(x), tuple(s.mean for s in samples), tuple(s.error for s in samples), line=True)


def greater_within_runs(text: str, larger: Sample, smaller: Sample) -> Claim:
    """The claim that one thing exceeds another in the same runs: the error is that of the runs' differences."""
    gaps = tuple(a - b for a, b in zip(larger.values, smaller.values, strict=True))
    difference = Sample(gaps, larger.percent)
    evidence = f"{larger.text()} against {smaller.text()}, difference within runs {difference.text()}"
    return positive(text, difference, evidence)


def fitted_power(x: Sequence[float], y: Sequence[float]) -> float:
    """The a of the best fit y = c xᵃ; nan for less than two points.

    Example:
        >>> fitted_power([1, 2, 4], [3, 12, 48])
        2.0
    """
    if len(x) < 2:
        return nan
    smallest = 1e-300  # zeros have no logarithm
    return round(linear_regression([log(v) for v in x], [log(max(v, smallest)) for v in y]).slope, 12)
