"""Claims about counts and times: shares of runs by the exact binomial test, censored times by an exact rank test."""

from collections import Counter
from collections.abc import Sequence
from math import comb, inf, sqrt
from statistics import median

from scipy.special import bdtr, bdtrc, betaincinv

from gatelab.errors import InputError
from gatelab.lab.verdicts.power import Design
from gatelab.lab.verdicts.verdict import Verdict, undecided


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
    if not 0 <= successes <= trials:
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
    design = Design((share - level) / sqrt(level * (1 - level)), 1) if 0 < level < 1 else None
    test = "exact binomial test"
    return Verdict(share, (low, high), (at_least, at_most), test, evidence, unit="%", design=design)


def later(a: Sequence[float | None], b: Sequence[float | None], horizon: float) -> Verdict:
    """Decide whether the times of ``a`` are later than the times of ``b``, by an exact rank test.

    Args:
        a: the times that are claimed to be later; None for a run that had not finished at ``horizon``.
        b: the other times.
        horizon: when observation ended. An unknown time is longer than that: it ranks after all known times and ties
            with the other unknown ones.

    The effect is the ratio of the medians; with a censored median there is none. The p-values come from the rank sum
    over all ways to assign the observed times to the two samples (Gehan's test, for one common horizon).

    Example:
        >>> later([None, None, None, 9.0], [2.0, 3.0, 1.0, 4.0], 10).outcome.value
        'holds'
    """
    evidence = f"{_times(a, horizon)} against {_times(b, horizon)}"
    if min(len(a), len(b)) < 1:
        return undecided("there are no runs", evidence)
    first, second = ([inf if time is None else time for time in times] for times in (a, b))
    ends = median(first), median(second)
    ratio = ends[0] / ends[1] if ends[0] < inf and 0 < ends[1] < inf else inf
    return Verdict(ratio, None, rank_sum_chances(first, second), "exact rank test", evidence)


def _times(times: Sequence[float | None], horizon: float) -> str:
    known = sorted(time for time in times if time is not None)
    shown = [f"{time:g}" for time in known] + [f"≥ {horizon:g}"] * (len(times) - len(known))
    return "/".join(shown)


def rank_sum_chances(a: Sequence[float], b: Sequence[float]) -> tuple[float, float]:
    """Probability of a rank sum of ``a`` at least as large, and at most as large, if a and b are exchangeable.

    Exact for ties as well: the sums of all subsets are counted, rank by rank. O((n + m)⁴) at worst.
    """
    everything = sorted([*a, *b])
    # Twice the mean rank of equal values is an integer.
    double_rank = {value: 2 * everything.index(value) + everything.count(value) + 1 for value in everything}
    ways: Counter[tuple[int, int]] = Counter({(0, 0): 1})  # (members chosen, their sum) → number of subsets
    for value in everything:
        more = {(size + 1, total + double_rank[value]): n for (size, total), n in ways.items() if size < len(a)}
        ways.update(more)
    observed, subsets = sum(double_rank[value] for value in a), comb(len(everything), len(a))
    sums = [(total, n) for (size, total), n in ways.items() if size == len(a)]
    return (
        sum(n for total, n in sums if total >= observed) / subsets,
        sum(n for total, n in sums if total <= observed) / subsets,
    )
