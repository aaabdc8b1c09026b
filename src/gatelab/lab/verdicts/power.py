"""How many runs a t test needs to detect an effect of a given size."""

from dataclasses import dataclass
from math import sqrt

from scipy.special import nctdtr, stdtrit

POWER = 0.8
MOST_RUNS = 10_000  # recommending more would not help


@dataclass(frozen=True)
class Design:
    """What the power of a t test depends on, besides the number of runs.

    Args:
        standardised: the effect in standard deviations of one run.
        samples: 1 for differences within runs or a comparison with a constant, 2 for independent samples.
    """

    standardised: float
    samples: int


def power(design: Design, runs: int, level: float) -> float:
    r"""Probability that a two-sided t test decides in the direction of the effect.

    .. math:: P\big(T_{\nu, \delta} > t_{\nu, 1 - \alpha/2}\big), \quad \delta = d \sqrt{n / s}, \quad \nu = s (n - 1)

    with d the standardised effect, n runs, s samples, T the noncentral t variable.

    Example:
        >>> round(power(Design(1.0, 2), 17, 0.05), 2)
        0.81
    """
    degrees = design.samples * (runs - 1)
    noncentrality = abs(design.standardised) * sqrt(runs / design.samples)
    if noncentrality > 30:  # beyond the range of scipy's noncentral t; certain at any level in use here
        return 1.0
    return 1 - float(nctdtr(degrees, noncentrality, stdtrit(degrees, 1 - level / 2)))


def runs_needed(design: Design, level: float) -> int | None:
    """The least number of runs with a power of 80 %; None if even 10,000 have less.

    Example:
        >>> runs_needed(Design(1.0, 2), 0.05)
        17
    """
    low, high = 1, 2
    while power(design, high, level) < POWER:
        low, high = high, 2 * high
        if high > MOST_RUNS:
            return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if power(design, middle, level) >= POWER else (middle, high)
    return high
