"""How often verdicts are decided, with and without an effect: the tables of docs/verdicts.md.

``python -m tools.verdict_rates`` prints them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import exp, sqrt

import numpy as np

from gatelab.lab.verdicts import Outcome, Sample, Verdict, equivalent, greater, later

RUNS = (2, 3, 5, 8, 16)
EFFECTS = (0.0, 0.5, 1.0, 2.0, 3.0)  # in standard deviations of one run


@dataclass(frozen=True)
class Rates:
    """Shares of simulated experiments in which a claim holds and fails, and the standard error of their sum."""

    holds: float
    fails: float
    error: float

    @property
    def decided(self) -> float:
        """The share in which the claim is decided either way."""
        return self.holds + self.fails


def simulated(
    decide: Callable[[Sample, Sample], Verdict],
    runs: int,
    experiments: int,
    *,
    effect: float = 0.0,
    spreads: Sequence[float] = (1.0, 1.0),
    shared: float = 0.0,
    seed: int = 0,
) -> Rates:
    """Decide a claim about two normal samples again and again.

    Args:
        decide: the test.
        runs: runs in each sample.
        experiments: how often.
        effect: the difference of the means.
        spreads: the standard deviations of the two samples.
        shared: standard deviation of what run i of both samples has in common.
        seed: seed of the random numbers.
    """
    generator = np.random.default_rng(seed)
    common = shared * generator.standard_normal((experiments, 1, runs))
    drawn = generator.standard_normal((experiments, 2, runs)) * np.reshape(spreads, (2, 1)) + common
    drawn[:, 0] += effect
    outcomes = [decide(*(Sample(tuple(row), percent=False) for row in pair)).outcome for pair in drawn.tolist()]
    holds, fails = (outcomes.count(outcome) / experiments for outcome in (Outcome.HOLDS, Outcome.FAILS))
    share = holds + fails
    return Rates(holds, fails, sqrt(share * (1 - share) / experiments))


def paired(a: Sample, b: Sample) -> Verdict:
    """A comparison within runs."""
    return greater(a, b, paired=True)


def ranked(a: Sample, b: Sample) -> Verdict:
    """A comparison of times whose logarithms were watched until 1; what is later is unknown."""
    first, second = ([exp(value) if value < 1 else None for value in sample.values] for sample in (a, b))
    return later(first, second, exp(1.0))


def at_margin(a: Sample, b: Sample) -> Verdict:
    """A test of equivalence whose margin is one standard deviation of a run."""
    return equivalent(a, b, 1.0)


TESTS = {"paired t": paired, "Welch's t": greater, "rank test, censored at 1": ranked}


def _table(head: str, rows: Sequence[tuple[str, list[str]]]) -> str:
    lines = [f"| {head} | " + " | ".join(f"{runs} runs" for runs in RUNS) + " |", "|---" * (len(RUNS) + 1) + "|"]
    return "\n".join([*lines, *(f"| {name} | " + " | ".join(cells) + " |" for name, cells in rows)])


def main(experiments: int = 4000) -> str:
    """Return all tables."""
    null = [(name, [_percent(simulated(test, runs, experiments)) for runs in RUNS]) for name, test in TESTS.items()]
    unequal = [_percent(simulated(greater, runs, experiments, spreads=(1.0, 4.0))) for runs in RUNS]
    edge = [_percent(simulated(at_margin, runs, experiments, effect=1.0)) for runs in RUNS]
    null += [("Welch's t, spreads 1 and 4", unequal), ("equivalence, at its margin", edge)]
    power = [
        (f"{name}, effect {effect:g}", [_holding(test, runs, effect, experiments) for runs in RUNS])
        for name, test in list(TESTS.items())[:2]
        for effect in EFFECTS[1:]
    ]
    same = [f"{100 * simulated(at_margin, runs, experiments).holds:.0f} %" for runs in RUNS]
    power.append(("equivalence within 1, equal means", same))
    return f"{_table('decided without an effect', null)}\n\n{_table('holds, with an effect', power)}\n"


def _percent(rates: Rates) -> str:
    return f"{100 * rates.decided:.1f} ± {100 * rates.error:.1f} %"


def _holding(test: Callable[[Sample, Sample], Verdict], runs: int, effect: float, experiments: int) -> str:
    # A paired difference has the variance of both runs.
    return f"{100 * simulated(test, runs, experiments, effect=effect).holds:.0f} %"


if __name__ == "__main__":
    print(main())  # noqa: T201
