"""How many runs t tests need to decide an effect of a given size."""

from dataclasses import dataclass
from math import inf, sqrt

import numpy as np
from scipy.special import chdtr, stdtrit

POWER = 0.8
MOST_RUNS = 10_000  # recommending more would not help
_NORMAL = np.linspace(-8, 8, 2001)  # values of a standard normal variable; beyond them lie 1e-15
_DENSITY = np.exp(-(_NORMAL**2) / 2)


@dataclass(frozen=True)
class Design:
    """What the power of t tests depends on, besides the number of runs.

    Args:
        standardised: the distance of the effect from the nearer bound of its region, in standard deviations of one run.
        samples: 1 for differences within runs or a comparison with a constant, 2 for independent samples.
        other: the distance from the other bound, if the decision needs both; ∞ if one bound decides.
    """

    standardised: float
    samples: int
    other: float = inf


def power(design: Design, runs: int, level: float) -> float:
    r"""Probability that t tests, one-sided at half the level, place the effect on its side of every bound that counts.

    .. math:: P\big(\min(\delta_1 + Z,\ \delta_2 - Z) > t_{\nu, 1 - \alpha/2} \sqrt{\chi^2_\nu / \nu}\big),
        \quad \delta_i = d_i \sqrt{n / s}, \quad \nu = s (n - 1)

    with d₁, d₂ the standardised distances, n runs, s samples, Z a standard normal variable. Without a second bound this
    is the upper tail of the noncentral t distribution. The sum over Z of the probability given Z is exact to 1e-4.

    Example:
        >>> round(power(Design(1.0, 2), 17, 0.05), 2)
        0.81
        >>> round(power(Design(1.0, 2, other=1.0), 17, 0.05), 2)
        0.61
    """
    degrees, scale = design.samples * (runs - 1), sqrt(runs / design.samples)
    room = np.minimum(abs(design.standardised) * scale + _NORMAL, design.other * scale - _NORMAL)
    # No estimated standard deviation is 40 times too large, so the cap changes nothing but avoids overflow.
    factor = np.clip(room / -stdtrit(degrees, level / 2), 0, 40)
    return float(np.average(chdtr(degrees, degrees * factor**2), weights=_DENSITY))


def runs_needed(design: Design, level: float) -> int | None:
    """The least number of runs with a power of 80 %; None if even 10,000 have less.

    Example:
        >>> runs_needed(Design(1.0, 2), 0.05)
        17
    """
    low, high = 1, 2
    while power(design, high, level) < POWER:
        if high == MOST_RUNS:
            return None
        low, high = high, min(2 * high, MOST_RUNS)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if power(design, middle, level) >= POWER else (middle, high)
    return high
