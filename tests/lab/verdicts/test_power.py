"""Runs needed against simulated experiments, each decided as a report would; and the level that they assume."""

from math import sqrt

import numpy as np
import pytest
from scipy import stats

from gatelab.lab.verdicts import (
    Claim,
    Outcome,
    above,
    all_of,
    any_of,
    decided_together,
    equivalent,
    greater,
    later,
    near,
    share_above,
    undecided,
)
from gatelab.lab.verdicts.power import MOST_RUNS, Means, Order, Ranks, runs_needed
from tests.lab.verdicts.samples import numbers, with_p

EXPERIMENTS = 4000
ERROR = sqrt(0.8 * 0.2 / EXPERIMENTS)  # Monte Carlo error of a share of 80 %: 0.6 %


def test_the_power_is_that_of_a_simulation():
    draws = np.random.default_rng(0).standard_normal((4000, 2, 6)) + np.array([[1.5], [0.0]])
    found = stats.ttest_ind(draws[:, 0], draws[:, 1], axis=1).pvalue < 0.05
    assert Means(1.5, 2).power(6, 0.05) == pytest.approx(found.mean(), abs=0.03)
    assert runs_needed(Means(1.5, 2), 0.05) == 9
    assert runs_needed(Means(0.0, 1), 0.05) is None
    assert runs_needed(Means(100.0, 1), 0.05) == 2


@pytest.mark.parametrize(
    ("effect", "samples", "runs", "level"), [(1, 2, 17, 0.05), (0.03, 1, 9000, 0.05), (2, 1, 4, 1e-3)]
)
def test_one_bound_has_the_power_of_the_noncentral_t_distribution(effect, samples, runs, level):
    degrees = samples * (runs - 1)
    expected = stats.nct.sf(stats.t.isf(level / 2, degrees), degrees, effect * sqrt(runs / samples))
    assert Means(effect, samples).power(runs, level) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize(("effect", "margin"), [(0.0, 1.0), (0.0, 0.5), (0.3, 1.0), (0.9, 1.5), (2.0, 1.0)])
def test_the_number_of_runs_decides_whether_a_mean_is_near_in_80_percent(effect, margin):
    """Exactly what a verdict on three runs recommends, for effects inside and outside the region."""
    needed = near(numbers(effect - 1, effect, effect + 1), 0.0, margin).runs_needed  # the spread is 1
    expected = Outcome.HOLDS if abs(effect) < margin else Outcome.FAILS
    draws = effect + np.random.default_rng(1).standard_normal((EXPERIMENTS, needed))

    def share(runs):
        decided = [near(numbers(*row), 0.0, margin).outcome for row in draws[:, :runs].tolist()]
        return decided.count(expected) / EXPERIMENTS

    assert share(needed) >= 0.8 - 3 * ERROR
    assert share(needed - 1) <= 0.8 + 3 * ERROR


def test_the_number_of_runs_decides_whether_two_means_are_equivalent_in_80_percent():
    needed = equivalent(numbers(-1, 0, 1), numbers(-1, 0, 1), 1.0).runs_needed
    draws = np.random.default_rng(2).standard_normal((EXPERIMENTS, 2, needed)).tolist()
    held = sum(equivalent(numbers(*a), numbers(*b), 1.0).outcome is Outcome.HOLDS for a, b in draws)
    assert 0.8 - 3 * ERROR <= held / EXPERIMENTS <= 0.84 + 3 * ERROR  # one run more adds about 2 %


def test_one_degree_of_freedom_has_little_power_at_a_strict_level():
    """Two runs of 100 standard deviations: P(T > t) ≈ P(|Z| < δ/t), whatever the size of δ."""
    level = 0.05 / 1000
    expected = 2 * stats.norm.cdf(100 * sqrt(2) / stats.t.isf(level / 2, 1)) - 1
    assert Means(100.0, 1).power(2, level) == pytest.approx(expected, rel=1e-3)
    assert runs_needed(Means(100.0, 1), level) > 2


def test_the_largest_recommendation_is_the_limit_itself():
    assert 8192 < runs_needed(Means(0.03, 1), 0.05) <= MOST_RUNS
    assert runs_needed(Means(0.025, 1), 0.05) is None


def test_an_open_claim_says_how_many_runs_it_needs():
    verdict = greater(numbers(1.0, 2.0, 3.0), numbers(0.5, 1.0, 2.0))
    assert verdict.outcome is Outcome.UNDECIDED
    assert verdict.runs_needed == runs_needed(verdict.design, 0.05)
    assert f"about {verdict.runs_needed} runs would decide it" in verdict.text()
    decided = greater(numbers(3.1, 4.0, 5.2, 4.4), numbers(1.0, 2.5, 2.0, 1.2))
    assert decided.runs_needed is None
    assert decided.record()["outcome"] == "holds"
    assert decided.record()["p"] == decided.p


@pytest.mark.parametrize("ps", [(0.6, 0.7, 0.5), (0.04, 0.3, 0.045), (0.001, 0.04, 0.03), (0.012, 0.013, 0.014, 0.3)])
def test_the_level_of_an_open_claim_is_that_at_which_holm_decides_it(ps):
    """5 %/j while j claims are undecided; by trial, with the other p-values as they are."""
    corrected = decided_together([Claim("", with_p(p)) for p in ps])
    still_open = [place for place, claim in enumerate(corrected) if claim.outcome is Outcome.UNDECIDED]
    level = 0.05 / len(still_open)

    def decides(place, p):
        trial = decided_together([Claim("", with_p(p if i == place else q)) for i, q in enumerate(ps)])
        return trial[place].outcome is not Outcome.UNDECIDED

    for place in still_open:
        assert decides(place, 0.999 * level)
        assert not decides(place, 1.001 * level)
        verdict = corrected[place].verdict
        assert verdict.runs_needed == runs_needed(verdict.design, level)


def test_one_of_several_cases_needs_more_runs():
    """A case that must fail alone has a k-th of the level; the weakest of cases that all hold has all of it."""
    leaning = with_p(0.2)
    against = all_of([above(numbers(*(-value for value in range(-3, 7))), 0.0)] * 3)
    assert against.runs_needed == runs_needed(against.design, 0.05 / 3)
    assert all_of([leaning] * 3).runs_needed == leaning.runs_needed
    assert any_of([leaning] * 3).runs_needed == runs_needed(leaning.design, 0.05 / 3)


@pytest.mark.parametrize("join", [all_of, any_of])
@pytest.mark.parametrize("p", [0.2, 0.9])
def test_more_runs_do_not_remove_an_obstacle(join, p):
    joined = join([with_p(p), undecided("a run gave no finite number")])
    assert joined.outcome is Outcome.UNDECIDED
    assert joined.runs_needed is None
    assert "runs would decide" not in joined.text()
    assert "a run gave no finite number" in joined.text()


@pytest.mark.parametrize(
    ("successes", "trials", "level", "expected"), [(2, 2, 0.5, 6), (3, 3, 0.9, 36), (8, 8, 0.75, 13), (8, 10, 0.9, 94)]
)
def test_a_share_needs_as_many_runs_as_its_own_test(successes, trials, level, expected):
    """By hand: 0.9³⁶ < 2.5 % < 0.9³⁵; and by counting all outcomes of 94 and of 93 trials."""
    verdict = share_above(successes, trials, level)
    assert verdict.runs_needed == expected

    def decided(runs):
        outcomes = [share_above(count, runs, level).outcome for count in range(runs + 1)]
        side = Outcome.HOLDS if successes / trials > level else Outcome.FAILS
        chances = stats.binom.pmf(np.arange(runs + 1), runs, successes / trials)
        return sum(chance for chance, outcome in zip(chances, outcomes, strict=True) if outcome is side)

    assert decided(expected) >= 0.8
    assert decided(expected - 1) < 0.8


def test_the_rank_test_decides_in_80_percent():
    """Exponential times with four times the mean: P(a > b) = 4/5. Noether's formula is an approximation."""
    needed = runs_needed(Ranks(0.8), 0.05)
    draws = np.random.default_rng(3).exponential(size=(600, 2, needed)) * np.array([[4.0], [1.0]])
    held = [later(a, b, 1e9).outcome is Outcome.HOLDS for a, b in draws.tolist()]
    assert np.mean(held) == pytest.approx(0.8, abs=0.06)
    assert runs_needed(Ranks(1.0), 0.05) == 4, "2 / (8 over 4) is below 5 %, 2 / (6 over 3) is not"
    assert later([1.0, 5.0, 6.0], [2.0, 3.0, 4.0], 10).runs_needed == runs_needed(Ranks(6 / 9), 0.05)


@pytest.mark.parametrize(("paired", "needed"), [(True, 6), (False, 4)])
def test_runs_without_spread_say_how_many_would_decide(paired, needed):
    verdict = greater(numbers(2, 2), numbers(1, 1), paired=paired)
    assert verdict.outcome is Outcome.UNDECIDED
    assert verdict.runs_needed == needed == runs_needed(Order(1 if paired else 2), 0.05)
    assert greater(numbers(*[2] * needed), numbers(*[1] * needed), paired=paired).outcome is Outcome.HOLDS
    assert "effect 1;" in verdict.text()
    assert greater(numbers(1, 1), numbers(1, 1), paired=paired).runs_needed is None
