"""Each test against scipy's own or against counting by hand; samples without spread, single runs, missing numbers."""

from itertools import combinations
from math import inf, isinf, log, nan

import numpy as np
import pytest
from scipy import stats

from gatelab.lab.verdicts import (
    Claim,
    Outcome,
    Sample,
    above,
    all_of,
    any_of,
    below,
    decided_together,
    equivalent,
    exponents_of_means,
    greater,
    larger_ratio,
    later,
    near,
    not_below,
    share_above,
    share_of_gap,
    undecided,
    within,
)
from gatelab.lab.verdicts.counts import rank_sum_chances
from gatelab.lab.verdicts.fits import fitted_power
from tests.lab.verdicts.samples import numbers, with_p

A, B = numbers(3.1, 4.0, 5.2, 4.4), numbers(1.0, 2.5, 2.0, 1.2)
HOLDS, FAILS, UNDECIDED = Outcome.HOLDS, Outcome.FAILS, Outcome.UNDECIDED


def test_t_tests_are_those_of_scipy():
    welch, own = stats.ttest_ind(A.values, B.values, equal_var=False), greater(A, B)
    assert own.p == pytest.approx(welch.pvalue)
    assert own.interval == pytest.approx(tuple(welch.confidence_interval()))
    related, own = stats.ttest_rel(A.values, B.values), greater(A, B, paired=True)
    assert own.p == pytest.approx(related.pvalue)
    assert own.interval == pytest.approx(tuple(related.confidence_interval()))
    alone, own = stats.ttest_1samp(A.values, 4.0), above(A, 4.0)
    assert own.p == pytest.approx(alone.pvalue)
    assert below(A, 4.0).by_chance == pytest.approx(own.by_chance[::-1])


def test_equivalence_is_two_one_sided_tests():
    other = numbers(3.0, 4.2, 5.0, 4.6)
    one = stats.ttest_ind(A.values, [b - 2 for b in other.values], equal_var=False, alternative="greater").pvalue
    two = stats.ttest_ind(A.values, [b + 2 for b in other.values], equal_var=False, alternative="less").pvalue
    verdict = equivalent(A, other, 2.0)
    assert verdict.by_chance[0] == pytest.approx(max(one, two))
    assert verdict.outcome is HOLDS
    assert equivalent(A, other, 0.01).outcome is UNDECIDED
    assert equivalent(A, B, 0.1).outcome is FAILS
    assert not_below(A, B, 0.1).outcome is HOLDS
    assert not_below(B, A, 0.1).outcome is FAILS
    assert near(A, 4.0, 2.0).outcome is HOLDS
    assert near(A, 9.0, 2.0).outcome is FAILS


def test_ratios_are_compared_by_their_logarithms():
    verdict = larger_ratio(numbers(8, 90, 21, 1000), numbers(4, 40, 10, 480))
    assert verdict.outcome is HOLDS
    logs = [log(2), log(2.25), log(2.1), log(1000 / 480)]
    assert log(verdict.effect) == pytest.approx(np.mean(logs))
    assert verdict.p == pytest.approx(stats.ttest_1samp(logs, 0).pvalue)
    assert larger_ratio(numbers(4, 0), numbers(8, 90)).outcome is UNDECIDED


@pytest.mark.parametrize(
    ("verdict", "reason"),
    [
        (greater(numbers(9), numbers(1)), "one run has no error bar"),
        (greater(numbers(9), B), "one run has no error bar"),
        (greater(numbers(9, nan, 8), B), "no finite number"),
        (greater(numbers(9, inf, 8), B), "no finite number"),
        (above(numbers(nan), 0.0), "no finite number"),
        (greater(numbers(1.7e308, 1.6e308), numbers(-1.7e308, -1.6e308)), "too large"),
        (larger_ratio(numbers(inf, 2), numbers(1, 3)), "no finite number"),
        (larger_ratio(numbers(nan, 0), numbers(1, 3)), "no ratio"),
        (above(numbers(), 0.5), "there are no runs"),
        (greater(numbers(), B), "there are no runs"),
        (greater(numbers(), numbers(), paired=True), "there are no runs"),
        (larger_ratio(numbers(), numbers()), "there are no runs"),
        (share_above(0, 0, 0.5), "there are no runs"),
        (later([], [1.0], 3), "there are no runs"),
        (all_of([]), "no case"),
    ],
)
def test_what_cannot_be_decided_says_why(verdict, reason):
    assert verdict.outcome is UNDECIDED
    assert verdict.runs_needed is None
    assert reason in verdict.text()


def test_samples_without_spread_count_only_by_their_number():
    def same(value, runs):
        return numbers(*[value] * runs)

    assert greater(same(6, 2), same(6, 2)).p == 1, "a tie"
    assert greater(same(6, 9), same(6, 9), paired=True).outcome is UNDECIDED
    assert greater(same(7, 2), same(6, 2)).outcome is UNDECIDED
    assert greater(same(7, 2), same(6, 2)).p == pytest.approx(2 / 6)  # 1 of 6 ways to deal them, on either side
    assert greater(same(7, 4), same(6, 4)).outcome is HOLDS
    assert above(same(1, 5), 0.5).p == pytest.approx(2 / 32)
    assert above(same(1, 6), 0.5).outcome is HOLDS
    assert below(same(1, 6), 0.5).outcome is FAILS
    assert greater(same(7, 6), same(6, 6), paired=True).interval is None
    # Differences that are equal up to rounding have no spread either.
    assert greater(numbers(0.98, 0.96), numbers(0.95, 0.93), paired=True).outcome is UNDECIDED
    assert greater(numbers(1, 1, 1, 1), B).p == pytest.approx(stats.ttest_1samp(B.values, 1.0).pvalue)


def test_shares_are_decided_by_the_binomial_distribution():
    for k, n, level in ((2, 2, 0.5), (9, 10, 0.75), (0, 8, 0.3), (62, 64, 0.75)):
        verdict, exact = share_above(k, n, level), stats.binomtest(k, n, level, alternative="greater").pvalue
        assert verdict.by_chance[0] == pytest.approx(exact)
        assert verdict.by_chance[1] == pytest.approx(stats.binomtest(k, n, level, alternative="less").pvalue)
        assert verdict.interval == pytest.approx(tuple(stats.binomtest(k, n).proportion_ci(0.95)))
    assert share_above(2, 2, 0.5).outcome is UNDECIDED
    assert share_above(0, 20, 0.5).outcome is FAILS


@pytest.mark.parametrize(("a", "b"), [((5, 7, 7), (1, 7, 2, 3)), ((1, 2), (1, 2)), ((inf, inf, 4), (inf, 2, 3))])
def test_the_rank_test_counts_all_deals(a, b):
    """The rank sum of every subset, one by one, against the count by sums."""
    everything = [*a, *b]
    ranks = stats.rankdata([1e9 if isinf(value) else value for value in everything])
    observed = ranks[: len(a)].sum()
    sums = [sum(chosen) for chosen in combinations(ranks, len(a))]
    expected = [np.mean([total >= observed for total in sums]), np.mean([total <= observed for total in sums])]
    assert rank_sum_chances(a, b) == pytest.approx(expected)


def test_unknown_times_are_late():
    assert later([None] * 4, [2, 3, 1, 4], 10).outcome is HOLDS
    assert later([2, 3, 1, 4], [None] * 4, 10).outcome is FAILS
    assert later([None] * 4, [None] * 4, 10).outcome is UNDECIDED
    assert "≥ 10" in later([None, 3], [1, 2], 10).text()


def test_all_and_any():
    yes, no, open_ = greater(A, B), greater(B, A), greater(A, A)
    assert all_of([yes, yes]).outcome is HOLDS
    assert all_of([yes, open_]).outcome is UNDECIDED
    assert all_of([yes, no, yes]).outcome is FAILS
    assert all_of([yes, no, yes]).by_chance[1] == pytest.approx(3 * no.by_chance[1])
    assert any_of([no, yes]).outcome is HOLDS
    assert any_of([no, no]).outcome is FAILS
    assert any_of([no, open_]).outcome is UNDECIDED
    assert all_of([yes, undecided("no runs")]).outcome is UNDECIDED


def test_holm_by_hand():
    ps = (0.01, 0.04, 0.03, 0.005)
    claims = [Claim(str(p), with_p(p)) for p in ps]
    exact = Claim("exact", within(1.0, 0.5, "error"))
    corrected = decided_together([*claims, exact])
    assert [claim.verdict.adjusted for claim in corrected[:4]] == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert [claim.outcome for claim in corrected] == [HOLDS, UNDECIDED, UNDECIDED, HOLDS, FAILS]
    silent = decided_together([*claims, exact], smoke=True)
    assert {claim.outcome for claim in silent} == {UNDECIDED}
    assert "smoke" in silent[0].evidence


def test_exponents_of_means_need_no_logarithm_of_a_run():
    sizes, generator = (8, 32, 128), np.random.default_rng(0)
    samples = [Sample(tuple(generator.chisquare(1, 200) / n), percent=False) for n in sizes]
    fitted = exponents_of_means(sizes, samples)
    assert fitted.mean == pytest.approx(fitted_power(sizes, [s.mean for s in samples]), abs=0.02)
    errors = [stats.sem(s.values) / s.mean for s in samples]  # of the logarithms
    x = np.log(sizes) - np.log(sizes).mean()
    assert fitted.error == pytest.approx(np.sqrt(((x * errors) ** 2).sum()) / (x**2).sum(), rel=0.15)
    assert exponents_of_means(sizes, [numbers(2, 0), numbers(1, 0), numbers(0.5, 0)]).runs == 2
    assert near(fitted, -1.0, 0.5).outcome is HOLDS


def test_a_share_needs_a_gap():
    low, middle, high = Sample((0.1, 0.12, 0.11)), Sample((0.2, 0.22, 0.2)), Sample((0.3, 0.33, 0.31))
    share, (least, most) = share_of_gap(middle, low, high) or (0, (0, 0))
    assert share == pytest.approx(0.29 / 0.61, abs=0.01)
    assert least < share < most
    assert share_of_gap(middle, high, low) is None
    assert share_of_gap(middle, low, Sample((0.05, 0.2, 0.3))) is None


def test_the_interval_of_a_ratio_holds_what_the_rank_test_does_not_exclude():
    """Multiply b by factors on both sides of each end: inside, nothing is decided; outside, something is."""
    a, b = [3.1, 4.7, 8.2, 5.5, 9.9], [1.3, 2.2, 1.7, 0.9, 2.9]
    verdict = later(a, b, 100)
    ends = verdict.interval
    assert ends[0] < verdict.effect < ends[1]
    for end, out, in_ in ((ends[0], 0.999, 1.001), (ends[1], 1.001, 0.999)):
        assert later(a, [end * out * time for time in b], 100).outcome is not UNDECIDED
        assert later(a, [end * in_ * time for time in b], 100).outcome is UNDECIDED


def test_the_interval_of_a_ratio_holds_it_in_95_percent_of_experiments():
    draws = np.random.default_rng(4).lognormal(size=(800, 2, 7)) * np.array([[3.0], [1.0]])
    horizon, covered = 4.0, 0
    for times in draws:
        a, b = ([time if time <= horizon else None for time in own] for own in times.tolist())
        low, high = later(a, b, horizon).interval
        covered += low <= 3.0 <= high
    assert covered / 800 >= 0.95 - 3 * (0.05 * 0.95 / 800) ** 0.5


def test_few_times_have_no_interval():
    assert later([5.0, 6.0, 7.0], [1.0, 2.0, 3.0], 10).interval is None
    assert later([None] * 4, [2, 3, 1, 4], 10).interval == (2.5, inf)
    assert later([2, 3, 1, 4], [None] * 4, 10).interval == (0.0, 0.4)


@pytest.mark.parametrize(
    ("a", "b"),
    [([2, 2, 9, 6, 2], [1, 8, 1, 1, 1]), ([None, 4, 6, 9, 13], [3, 16, 2, 1, 1, 2])],
)
def test_the_interval_of_tied_times_does_not_contradict_the_test(a, b):
    """Ties make the test sharper than the interval's count, which would reach down to 0.25 and 0.81."""
    verdict, mirrored = later(a, b, 20), later(b, a, 20)
    assert (verdict.outcome, mirrored.outcome) == (HOLDS, FAILS)
    assert verdict.interval[0] == 1.0 < verdict.interval[1]
    assert mirrored.interval[1] == 1.0 > mirrored.interval[0]


def test_no_factor_tells_times_of_zero_apart():
    assert later([0] * 4, [0] * 4, 5).interval == (0.0, inf)


@pytest.mark.parametrize("many", [8, 1200, 3000])
def test_a_small_sample_against_many(many):
    """Two values below all others: one pair of C(n, 2) has the least rank sum."""
    at_least, at_most = rank_sum_chances([0.0, 1.0], [float(k) for k in range(2, many + 2)])
    assert (at_least, at_most) == pytest.approx((1.0, 2 / ((many + 2) * (many + 1))), rel=1e-6)
    assert rank_sum_chances([float(k) for k in range(2, many + 2)], [0.0, 1.0]) == (at_most, at_least)


def test_a_statement_that_one_exact_case_decides_is_exact():
    """Such a verdict takes no place in Holm's correction."""
    sample = Sample((0.1, 0.2, 0.3, 0.25))
    verdict = all_of([within(2.0, 1.0, "gap"), above(sample, 0.0)])
    assert (verdict.outcome, verdict.is_exact) == (FAILS, True)
    assert not all_of([within(0.5, 1.0, "gap"), above(sample, 0.0)]).is_exact
    assert any_of([within(0.5, 1.0, "gap"), above(sample, 0.0)]).is_exact
