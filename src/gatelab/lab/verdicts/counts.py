"""Claims about counts and times: shares of runs by the exact binomial test, censored times by an exact rank test."""

from collections.abc import Sequence
from math import inf
from statistics import median

import numpy as np
from jaxtyping import Float64
from numpy import ndarray
from scipy.special import bdtr, bdtrc, betaincinv

from gatelab.errors import InputError
from gatelab.lab.verdicts.power import Ranks, Share
from gatelab.lab.verdicts.verdict import LEVEL, Verdict, undecided

_MANY = 2.0**900  # counts of subsets are divided by it before they overflow


def share_above(successes: int, trials: int, level: float) -> Verdict:
    """Decide whether the probability of a success is above ``level``, by the exact binomial test.

    The interval is Clopper and Pearson's (1934). Few trials decide little, even if all succeed: 2 of 2 against ½ has a
    two-sided p of ½.

    Args:
        successes: trials with the outcome that is claimed to be frequent.
        trials: all trials; they must be independent.
        level: the probability to be exceeded.

    Example:
        >>> share_above(2, 2, 0.5).outcome.value, share_above(10, 10, 0.5).outcome.value
        ('not decided', 'holds')
    """
    if not 0 <= successes <= trials or int(successes) != successes or int(trials) != trials:
        raise InputError(f"{successes} successes of {trials} trials; count each trial once")
    if not 0 <= level <= 1:
        raise InputError(f"the level is {level:g}; give a probability, from 0 to 1")
    evidence = f"{successes} of {trials}, claimed is more than {100 * level:g} %"
    if trials < 1:
        return undecided("there are no runs", evidence)
    share = successes / trials
    at_least = 1.0 if successes == 0 else float(bdtrc(successes - 1, trials, level))
    at_most = float(bdtr(successes, trials, level))
    low = 0.0 if successes == 0 else float(betaincinv(successes, trials - successes + 1, 0.025))
    high = 1.0 if successes == trials else float(betaincinv(successes + 1, trials - successes, 0.975))
    design = Share(share, level) if 0 < level < 1 and share != level else None
    test = "exact binomial test"
    return Verdict(share, (low, high), (at_least, at_most), test, evidence, unit="%", design=design)


def later(a: Sequence[float | None], b: Sequence[float | None], horizon: float) -> Verdict:
    """Decide whether the times of ``a`` are later than the times of ``b``, by an exact rank test.

    Args:
        a: the times that are claimed to be later; None for a run that had not finished at ``horizon``.
        b: the other times.
        horizon: when observation ended. An unknown time is longer than that: it ranks after all known times and ties
            with the other unknown ones.

    The p-values come from the rank sum over all ways to assign the observed times to the two samples (Gehan's test, for
    one common horizon). The effect is the median of all ratios of a time of ``a`` to one of ``b`` (Hodges and Lehmann
    1963), where an unknown time counts as the horizon. The interval holds every factor by which ``b`` could be
    multiplied without a decision, whatever the unknown times are. Equal times make it wider than that, but never let it
    reach beyond 1 to the side that the test excludes.

    Example:
        >>> verdict = later([None, None, None, 9.0], [2.0, 3.0, 1.0, 4.0], 10)
        >>> verdict.outcome.value, round(verdict.effect, 1), [round(end, 1) for end in verdict.interval]
        ('holds', 3.9, [2.2, inf])
    """
    if not 0 <= horizon < inf:
        raise InputError(f"the horizon is {horizon:g}; give the finite time at which observation ended")
    for time in (*a, *b):
        if time is not None and not 0 <= time <= horizon:
            raise InputError(f"a time is {time:g}, the horizon {horizon:g}; give None for a time beyond the horizon")
    evidence = f"{_times(a, horizon)} against {_times(b, horizon)}"
    if min(len(a), len(b)) < 1:
        return undecided("there are no runs", evidence)
    first, second = ([inf if time is None else time for time in times] for times in (a, b))
    pairs = [(x > y) + (x == y) / 2 for x in first for y in second]
    ratios = [_ratio(min(x, horizon), min(y, horizon), 1.0) for x in first for y in second]
    by_chance = rank_sum_chances(first, second)
    return Verdict(
        median(ratios),
        _interval(first, second, horizon, by_chance),
        by_chance,
        "exact rank test",
        evidence,
        design=Ranks(sum(pairs) / len(pairs)) if sum(pairs) != len(pairs) / 2 else None,
    )


def _ratio(x: float, y: float, of_zeros: float) -> float:
    return x / y if y > 0 else inf if x > 0 else of_zeros


def _interval(
    a: Sequence[float], b: Sequence[float], horizon: float, by_chance: tuple[float, float]
) -> tuple[float, float] | None:
    """The factors that the rank test at 5 % does not exclude (Moses): the k-th least and k-th largest ratio of a to b.

    Unknown times (∞) are at least the horizon. The lower end takes each ratio as small as they allow, the upper end as
    large; no factor tells two times of 0 apart. None if even samples that do not overlap decide nothing.

    k is that of times without ties. With ties the test is sharper and may exclude the factor 1, and so all beyond it.
    """
    n = min(len(a), len(b))  # the larger sample's rank sums have the same distribution, but for a constant
    rank_sums = _sums(range(1, len(a) + len(b) + 1), n)[n * (n + 1) // 2 :]  # without ties, from the least one on
    excluded = int(np.searchsorted(rank_sums.cumsum().round(15), LEVEL / 2, side="right"))
    if excluded == 0:
        return None
    least = sorted(0.0 if y == inf else _ratio(min(x, horizon), y, 0.0) for x in a for y in b)
    most = sorted(inf if x == inf else _ratio(x, min(y, horizon), inf) for x in a for y in b)
    low, high = least[excluded - 1], most[-excluded]
    is_later, is_earlier = (chance <= LEVEL / 2 for chance in by_chance)
    return max(low, 1.0) if is_later else low, min(high, 1.0) if is_earlier else high


def _times(times: Sequence[float | None], horizon: float) -> str:
    known = sorted(time for time in times if time is not None)
    shown = [f"{time:g}" for time in known] + [f"≥ {horizon:g}"] * (len(times) - len(known))
    return "/".join(shown)


def rank_sum_chances(a: Sequence[float], b: Sequence[float]) -> tuple[float, float]:
    """Probability of a rank sum of ``a`` at least as large, and at most as large, if a and b are exchangeable.

    Exact for ties as well: the sums of all subsets are counted, rank by rank, in O((n + m)² n m) steps.
    """
    if len(a) > len(b):  # fewer subsets, and one of them is as likely as its complement
        at_least, at_most = rank_sum_chances(b, a)
        return at_most, at_least
    everything = sorted([*a, *b])
    # Twice the mean rank of equal values is an integer.
    double_rank = {value: 2 * everything.index(value) + everything.count(value) + 1 for value in everything}
    shares = _sums([double_rank[value] for value in everything], len(a))
    observed = sum(double_rank[value] for value in a)
    # Rounded, so that a chance of 3 in 120 is at most 2.5 %.
    return round(float(shares[observed:].sum()), 15), round(float(shares[: observed + 1].sum()), 15)


def _sums(numbers: Sequence[int], size: int) -> Float64[ndarray, " sums"]:
    """The share of the subsets of this size with each sum, from 0 on."""
    ways = np.zeros((size + 1, sum(sorted(numbers)[-size:]) + 1))  # by the members chosen and their sum
    ways[0, 0] = 1.0
    for number in numbers:
        ways[1:, number:] += ways[:-1, : ways.shape[1] - number]
        if ways.max() > _MANY:
            ways /= _MANY
    return ways[size] / ways[size].sum()
