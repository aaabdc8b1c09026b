"""Fitting a power law."""

from collections.abc import Sequence
from math import log, nan
from statistics import linear_regression

_SMALLEST = 1e-300  # zeros have no logarithm


def fitted_power(x: Sequence[float], y: Sequence[float]) -> float:
    """The a of the best fit y = c xᵃ, by least squares of the logarithms; nan for less than two points.

    Example:
        >>> fitted_power([1, 2, 4], [3, 12, 48])
        2.0
    """
    if len(x) < 2:
        return nan
    return round(linear_regression([log(v) for v in x], [log(max(v, _SMALLEST)) for v in y]).slope, 12)
