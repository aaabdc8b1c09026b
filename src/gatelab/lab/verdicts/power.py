"""How many runs a test needs to decide an effect of a given size."""

from dataclasses import dataclass
from math import comb, inf, sqrt
from typing import ClassVar, Protocol, runtime_checkable

import numpy as np
from scipy.special import bdtr, bdtrc, chdtr, ndtr, ndtri, stdtrit

POWER = 0.8
MOST_RUNS = 10_000  # recommending more would not help
_NORMAL = np.linspace(-8, 8, 2001)  # values of a standard normal variable; beyond them lie 1e-15
_DENSITY = np.exp(-(_NORMAL**2) / 2)


@runtime_checkable
class Design(Protocol):
    """A test and the size of an effect: what its power depends on, besides the number of runs.

    Attributes:
        grows: whether every further run adds power.
    """

    grows: ClassVar[bool]

    def power(self, runs: int, level: float) -> float:
        """Probability that the test, one-sided at half the level, decides to the side of the effect."""
        ...


@dataclass(frozen=True)
class Means:
    """T tests of means.

    Args:
        standardised: the distance of the effect from the nearer bound of its region, in standard deviations of one run.
        samples: 1 for differences within runs or a comparison with a constant, 2 for independent samples.
        other: the distance from the other bound, if the decision needs both; ∞ if one bound decides.
    """

    standardised: float
    samples: int
    other: float = inf
    grows: ClassVar[bool] = True

    def power(self, runs: int, level: float) -> float:
        r"""Probability that the tests place the effect on its side of every bound that counts.

        .. math:: P\big(\min(\delta_1 + Z,\ \delta_2 - Z) > t_{\nu, 1 - \alpha/2} \sqrt{\chi^2_\nu / \nu}\big),
            \quad \delta_i = d_i \sqrt{n / s}, \quad \nu = s (n - 1)

        with d₁, d₂ the standardised distances, n runs, s samples, Z a standard normal variable. Without a second bound
        this is the upper tail of the noncentral t distribution. The sum over Z of the probability given Z is exact to
        1e-4.

        Example:
            >>> round(Means(1.0, 2).power(17, 0.05), 2)
            0.81
            >>> round(Means(1.0, 2, other=1.0).power(17, 0.05), 2)
            0.61
        """
        degrees, scale = self.samples * (runs - 1), sqrt(runs / self.samples)
        room = np.minimum(abs(self.standardised) * scale + _NORMAL, self.other * scale - _NORMAL)
        # No estimated standard deviation is 40 times too large, so the cap changes nothing but avoids overflow.
        factor = np.clip(room / -stdtrit(degrees, level / 2), 0, 40)
        return float(np.average(chdtr(degrees, degrees * factor**2), weights=_DENSITY))


@dataclass(frozen=True)
class Share:
    """The binomial test of a probability against a bound.

    Args:
        probability: of a success.
        bound: the probability to be exceeded, or fallen short of.
    """

    probability: float
    bound: float
    grows: ClassVar[bool] = False  # counts are whole numbers: one run more may need one success more

    def power(self, runs: int, level: float) -> float:
        """Probability of a count that the test decides on.

        Example:
            >>> [Share(1.0, 0.5).power(runs, 0.05) for runs in (5, 6)]  # 1/2⁵ > 2.5 % > 1/2⁶
            [0.0, 1.0]
        """
        counts = np.arange(runs + 1)
        if self.probability > self.bound:
            deciding = counts[bdtrc(counts - 1, runs, self.bound) <= level / 2]
            return float(bdtrc(deciding[0] - 1, runs, self.probability)) if len(deciding) else 0.0
        deciding = counts[bdtr(counts, runs, self.bound) <= level / 2]
        return float(bdtr(deciding[-1], runs, self.probability)) if len(deciding) else 0.0


@dataclass(frozen=True)
class Ranks:
    """The rank test of two samples of equal size.

    Args:
        later: the probability that a value of the first is larger than one of the second; equal ones count half.
    """

    later: float
    grows: ClassVar[bool] = True

    def power(self, runs: int, level: float) -> float:
        """Probability of a decision, by the normal approximation of Noether (1987).

        Example:
            >>> round(Ranks(0.75).power(21, 0.05), 2)
            0.8
        """
        if 1 / comb(2 * runs, runs) > level / 2:  # even if all values of one sample are larger
            return 0.0
        if self.later in (0, 1):
            return 1.0
        return float(ndtr(sqrt(6 * runs) * abs(self.later - 0.5) + ndtri(level / 2)))


@dataclass(frozen=True)
class Order:
    """Runs without spread, of which only the order counts: a sign test (1 sample) or a rank test (2)."""

    samples: int
    grows: ClassVar[bool] = True

    def power(self, runs: int, level: float) -> float:
        """1 if so many equal runs decide, else 0.

        Example:
            >>> [Order(1).power(runs, 0.05) for runs in (5, 6)]
            [0.0, 1.0]
        """
        return float(1 / (2**runs if self.samples == 1 else comb(2 * runs, runs)) <= level / 2)


def runs_needed(design: Design, level: float) -> int | None:
    """The least number of runs with a power of 80 %; None if even 10,000 have less.

    Example:
        >>> runs_needed(Means(1.0, 2), 0.05)
        17
    """
    low, high = 1, 2
    while design.power(high, level) < POWER:
        if high == MOST_RUNS:
            return None
        low, high = high, min(2 * high, MOST_RUNS)
    if not design.grows:
        return next(runs for runs in range(2, high + 1) if design.power(runs, level) >= POWER)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if design.power(middle, level) >= POWER else (middle, high)
    return high
