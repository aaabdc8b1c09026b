"""Numbers at a bound, numbers that barely fit in a double, and arguments that make no sense."""

from math import inf, isnan, log, nan

import pytest

from gatelab.errors import InputError
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
    exponents,
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
from tests.lab.verdicts.samples import numbers

HOLDS, FAILS, UNDECIDED = Outcome.HOLDS, Outcome.FAILS, Outcome.UNDECIDED


@pytest.mark.parametrize("value", [0.1, 0.3, 0.7, 1e-9, 3e7])
def test_equal_runs_at_a_bound_decide_nothing(value):
    """Their mean is the bound up to rounding, on either side of it."""
    same, third = numbers(*[value] * 6), numbers(*[value / 3 + value / 3 + value / 3] * 6)
    for level in (value, value * (1 + 1e-14), value * (1 - 1e-14)):
        assert above(same, level).outcome is UNDECIDED
        assert below(same, level).outcome is UNDECIDED
    assert greater(third, same, paired=True).outcome is UNDECIDED
    assert greater(same, third).outcome is UNDECIDED
    assert above(same, value * (1 - 1e-9)).outcome is HOLDS
    assert above(same, value * (1 + 1e-9)).outcome is FAILS


@pytest.mark.parametrize("paired", [True, False])
@pytest.mark.parametrize(("a", "b", "margin"), [(0.3, 0.2, 0.1), (0.8, 0.7, 0.1), (0.9, 0.6, 0.3), (1.1, 1.0, 0.1)])
def test_equal_runs_a_margin_apart_decide_nothing(a, b, margin, paired):
    more, less = numbers(*[a] * 6), numbers(*[b] * 6)
    assert equivalent(more, less, margin, paired=paired).outcome is UNDECIDED
    assert not_below(less, more, margin, paired=paired).outcome is UNDECIDED
    assert near(more, b, margin).outcome is UNDECIDED
    assert equivalent(more, less, 1.01 * margin, paired=paired).outcome is HOLDS
    assert equivalent(more, less, 0.99 * margin, paired=paired).outcome is FAILS


def test_a_large_bound_is_rounded_too():
    assert near(numbers(*[0.1] * 6), 1e6, 1e6 - 0.1).outcome is UNDECIDED


@pytest.mark.parametrize("ratio", [1 + 2**-52, 0.3 / (0.1 + 0.2)])
def test_ratios_of_1_up_to_rounding_decide_nothing(ratio):
    assert larger_ratio(numbers(*[ratio] * 6), numbers(*[1.0] * 6)).outcome is UNDECIDED


@pytest.mark.parametrize("scale", [1e-300, 1e-160, 1e-90, 1e90, 1e200, 1e307])
@pytest.mark.parametrize("paired", [True, False])
def test_verdicts_do_not_depend_on_the_unit(scale, paired):
    a, b = (3.1, 4.0, 5.2, 4.4), (1.0, 2.5, 2.0, 1.2)
    plain = greater(numbers(*a), numbers(*b), paired=paired)
    scaled = greater(*(numbers(*(scale * value for value in own)) for own in (a, b)), paired=paired)
    assert scaled.p == pytest.approx(plain.p)
    assert scaled.interval == pytest.approx(tuple(scale * end for end in plain.interval), rel=1e-9, abs=0)
    assert scaled.design.standardised == pytest.approx(plain.design.standardised)


def test_the_mean_of_large_numbers_does_not_overflow():
    assert numbers(1.5e308, 1.7e308).mean == 1.6e308
    assert numbers(1.5e308, 1.7e308).spread == pytest.approx(0.2e308 / 2**0.5)
    assert numbers(0.1, 0.2, 0.4).mean == pytest.approx(0.7 / 3, rel=1e-15)


def test_ratios_beyond_every_double_are_compared():
    small, large = numbers(1e-200, 2e-200, 1.5e-200), numbers(1e200, 2.2e200, 1.4e200)
    assert larger_ratio(small, large).outcome is FAILS
    assert larger_ratio(large, small).outcome is HOLDS
    assert larger_ratio(large, small).effect == inf
    assert larger_ratio(small, large).effect == 0
    ratio = larger_ratio(numbers(2e-200, 5e-200), numbers(1e-200, 2e-200)).effect
    assert log(ratio) == pytest.approx((log(2) + log(2.5)) / 2)


@pytest.mark.parametrize(
    "compare",
    [
        lambda a, b: greater(a, b, paired=True),
        lambda a, b: equivalent(a, b, 1.0, paired=True),
        lambda a, b: not_below(a, b, 1.0, paired=True),
        larger_ratio,
        lambda a, b: a.minus(b),
        lambda a, b: exponents((1, 2), (a, b)),
        lambda a, b: share_of_gap(b, a, numbers(11, 12.5, 13)),
    ],
)
def test_runs_that_belong_together_are_equally_many(compare):
    with pytest.raises(InputError, match=r"samples of .* runs cannot be paired; give the same runs of each"):
        compare(numbers(1, 2, 3), numbers(1, 2, 3, 4))


def test_no_runs_have_no_mean():
    empty = numbers()
    assert empty.text() == "nothing"
    assert all(map(isnan, (empty.mean, empty.spread, empty.error)))


def test_shares_are_compared_with_0_and_1():
    assert share_above(3, 5, 0.0).outcome is HOLDS, "a share of 0 has no successes"
    assert share_above(0, 5, 0.0).outcome is UNDECIDED
    assert share_above(3, 5, 1.0).outcome is FAILS
    assert share_above(5, 5, 1.0).outcome is UNDECIDED
    assert share_above(5, 5, 1.0).runs_needed is None


@pytest.mark.parametrize(("successes", "trials"), [(7, 5), (-1, 5), (0, -1)])
def test_more_successes_than_trials_are_refused(successes, trials):
    with pytest.raises(InputError, match=f"{successes} successes of {trials} trials; count each trial once"):
        share_above(successes, trials, 0.5)


@pytest.mark.parametrize("level", [-0.1, 1.5, float("nan")])
def test_a_share_is_compared_with_a_probability(level):
    with pytest.raises(InputError, match="give a probability, from 0 to 1"):
        share_above(3, 5, level)


def test_an_obstacle_prevents_only_the_side_that_needs_every_case():
    a, b, missing = numbers(3.1, 4.0, 5.2, 4.4), numbers(1.0, 2.5, 2.0, 1.2), undecided("a run gave no finite number")
    yes, no = greater(a, b), greater(b, a)
    failing, holding = all_of([yes, missing, no]), any_of([yes, missing, no])
    assert failing.outcome is FAILS
    assert failing.by_chance == (1.0, pytest.approx(3 * no.by_chance[1]))
    assert holding.outcome is HOLDS
    assert holding.by_chance == (pytest.approx(3 * yes.by_chance[0]), 1.0)
    assert "1 cannot be tested: a run gave no finite number" in failing.text()
    for open_ in (all_of([yes, missing]), any_of([no, missing]), all_of([missing, missing])):
        assert open_.outcome is UNDECIDED
        assert open_.obstacle == missing.obstacle


def test_exact_cases_are_exact_together():
    good, bad = within(1e-12, 1e-10, "error"), within(1.0, 1e-10, "error")
    for joined, outcome in ((all_of([good, good]), HOLDS), (all_of([good, bad]), FAILS), (any_of([good, bad]), HOLDS)):
        assert joined.is_exact
        assert joined.outcome is outcome
        assert joined.record()["p"] is None
        assert decided_together([Claim("", joined)])[0].verdict.adjusted is None
    assert not all_of([good, greater(numbers(1, 2, 3), numbers(2, 1, 2))]).is_exact


@pytest.mark.parametrize("bound", [nan, -0.1, 0.0])
def test_a_margin_is_a_positive_number(bound):
    with pytest.raises(InputError, match="give a number as level, and a positive margin"):
        near(numbers(1, 2, 3), 2.0, bound)
    with pytest.raises(InputError, match="give a number as level"):
        above(numbers(1, 2, 3), nan)


@pytest.mark.parametrize("time", [nan, inf, -1.0, 10.5])
def test_times_lie_before_the_horizon(time):
    with pytest.raises(InputError, match="give None for a time beyond the horizon"):
        later([1.0, time], [2.0, 3.0], 10)


@pytest.mark.parametrize("means", [(0.5, -0.1, 0.1), (0.5, 0.0, 0.1)])
def test_no_power_law_goes_through_zero(means):
    samples = [numbers(*(mean + shift for shift in (-0.01, 0.0, 0.01))) for mean in means]
    verdict = near(exponents((8, 32, 128), samples), -0.5, 0.1)
    assert verdict.outcome is UNDECIDED
    assert verdict.obstacle == "a run gave no finite number"


def test_nothing_is_minus_zero():
    assert Sample((-0.00001,)).text() == "0.00"
    assert above(Sample((0.4,)), 0.5).evidence == "40.00 against 50.00, 1 run"


def test_infinity_has_its_sign():
    assert numbers(inf).text() == "∞"
    assert later([None] * 4, [2, 3, 1, 4], 10).text().count("2.5 to ∞") == 1


@pytest.mark.parametrize("horizon", [-1.0, float("nan"), float("inf")])
def test_a_horizon_is_a_finite_time(horizon):
    with pytest.raises(InputError, match="the horizon is"):
        later([None, None], [None], horizon)


def test_half_a_success_is_refused(unchecked):
    with pytest.raises(InputError, match="count each trial once"):
        share_above(2.5, 3.5, 0.5)


def test_a_margin_is_positive():
    with pytest.raises(InputError, match="the margin is -1"):
        not_below(Sample((1.0, 2.0)), Sample((1.0, 3.0)), -1.0)


def test_the_best_of_a_diverged_training_is_a_number():
    histories = [[0.5, float("nan")], [float("nan"), 0.5], [float("nan")] * 2]
    best = Sample.best(histories).values
    assert best[:2] == (0.5, 0.5)
    assert isnan(best[2])


@pytest.mark.parametrize("fit", [exponents, exponents_of_means])
def test_an_exponent_needs_a_sample_for_each_of_two_sizes(fit):
    for sizes, count in (([16, 32, 64], 2), ([], 0)):
        with pytest.raises(InputError, match="give a sample for each size"):
            fit(sizes, [Sample((1.0, 2.0))] * count)
    for sizes in ([16], [16, 16]):
        assert near(fit(sizes, [Sample((1.0, 2.0))] * len(sizes)), 1.0, 0.5).outcome is UNDECIDED


def test_a_run_without_a_power_law_is_no_number():
    powers = exponents([1, 2], [Sample((1.0, 0.0)), Sample((2.0, 1.0))])
    assert powers.values[0] == 1
    assert isnan(powers.values[1])
