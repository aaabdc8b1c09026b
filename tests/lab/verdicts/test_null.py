"""Without an effect, verdicts are rare: simulated experiments, each decided as a report would."""

import numpy as np
import pytest
from tools.verdict_rates import at_margin, paired, ranked, simulated

from gatelab.lab.verdicts import (
    Claim,
    Outcome,
    Sample,
    all_of,
    decided_together,
    exponents,
    exponents_of_means,
    greater,
    near,
    share_above,
)

EXPERIMENTS = 2500  # at a rate of 5 % the standard error is 0.44 %; 6 % is 2.3 of them away


@pytest.mark.parametrize("runs", [2, 3, 5, 8])
@pytest.mark.parametrize("test", [paired, greater, ranked], ids=["paired", "unpaired", "censored"])
def test_equal_means_are_decided_in_at_most_6_percent(test, runs):
    rates = simulated(test, runs, EXPERIMENTS, shared=2.0 if test is paired else 0.0, seed=runs)
    assert rates.decided <= 0.06
    assert abs(rates.holds - rates.fails) <= 4 * rates.error + 0.01, "neither side is preferred"


@pytest.mark.parametrize("spread", [4.0, 15.0])
@pytest.mark.parametrize("runs", [2, 3, 5, 8])
def test_unequal_spreads_do_not_matter(runs, spread):
    """With Welch's own degrees of freedom, 6.4 % of comparisons of two with two runs would be decided at 15."""
    rates = simulated(greater, runs, EXPERIMENTS, spreads=(1.0, spread), seed=runs)
    assert rates.decided <= 0.06


SIZES = (8, 32, 128, 512)


@pytest.mark.parametrize("runs", [2, 3, 5, 8])
def test_exponents_of_runs_that_differ_by_common_factors(runs):
    """The truth, −½, is on the claim's bound; pseudo-values of the mean's logarithm would decide 14 % at 8 runs."""
    generator, decided, experiments = np.random.default_rng(runs), 0, 1500
    for _ in range(experiments):
        factors = np.exp(1.5 * generator.standard_normal(runs))
        samples = [_plain(factors * size**-0.5 * np.exp(0.1 * generator.standard_normal(runs))) for size in SIZES]
        decided += near(exponents(SIZES, samples), -0.6, 0.1).outcome is not Outcome.UNDECIDED
    assert decided / experiments <= 0.06


@pytest.mark.parametrize("runs", [2, 3, 5, 8])
def test_exponents_of_means_that_may_be_zero(runs):
    """Sizes of errors that are normal, and in a few runs 0."""
    generator, decided, experiments = np.random.default_rng(runs), 0, 1500
    for _ in range(experiments):
        samples = [_plain(np.abs(generator.standard_normal(runs).round(1)) * size**-0.5) for size in SIZES]
        decided += near(exponents_of_means(SIZES, samples), -0.6, 0.1).outcome is not Outcome.UNDECIDED
    assert decided / experiments <= 0.06


def _plain(values) -> Sample:
    return Sample(tuple(values.tolist()), percent=False)


@pytest.mark.parametrize("spreads", [(4.0, 1.0), (1.0, 1.0), (1.0, 4.0)])
@pytest.mark.parametrize("few", [2, 3])
def test_unequal_numbers_of_runs_do_not_matter(few, spreads):
    """Welch's own degrees of freedom would decide 9 to 10 % of comparisons of 2 runs with 8."""

    def first_few(a: Sample, b: Sample):
        return greater(Sample(a.values[:few], percent=False), b)

    assert simulated(first_few, 8, EXPERIMENTS, spreads=spreads, seed=few).decided <= 0.06


@pytest.mark.parametrize("runs", [2, 3, 5, 8])
def test_means_a_margin_apart_are_decided_in_at_most_6_percent(runs):
    assert simulated(at_margin, runs, EXPERIMENTS, effect=1.0, seed=runs).decided <= 0.06


def test_the_old_rule_would_have_failed():
    """Two standard errors: the simulation sees what is wrong with it."""

    def two_errors(a: Sample, b: Sample):
        gap = a.minus(b)
        return Claim("", share_above(10**3 * (abs(gap.mean) > 2 * gap.error), 10**3, 0.5)).verdict

    assert simulated(two_errors, 3, 500).holds > 0.12


def test_a_report_without_effects_is_right_in_95_percent():
    """Ten claims, none with an effect; uncorrected, four reports in ten would have a verdict."""
    wrong, plain, reports = 0, 0, 400
    values = iter(_normal(reports * 10 * 5 * 2))
    for _ in range(reports):
        samples = [Sample(tuple(next(values) for _ in range(5)), percent=False) for _ in range(20)]
        claims = [Claim("", greater(a, b)) for a, b in zip(samples[::2], samples[1::2], strict=True)]
        plain += any(claim.outcome is not Outcome.UNDECIDED for claim in claims)
        wrong += any(claim.outcome is not Outcome.UNDECIDED for claim in decided_together(claims))
    assert wrong / reports <= 0.08  # 5 % and three standard errors
    assert plain / reports > 0.25


def test_throughout_is_one_statement():
    """Of 20 looks without an effect, some deviate; the statement about all of them is decided rarely."""
    values, decided, experiments = iter(_normal(200 * 20 * 6)), 0, 200
    for _ in range(experiments):
        looks = [Sample(tuple(next(values) for _ in range(6)), percent=False) for _ in range(20)]
        decided += all_of([greater(look, Sample((0.0,) * 6, percent=False)) for look in looks]).outcome != "not decided"
    assert decided / experiments <= 0.06


def test_effects_are_found():
    assert simulated(paired, 8, 500, effect=2.0).holds > 0.9
    assert simulated(greater, 8, 500, effect=2.0).holds > 0.9
    assert simulated(greater, 8, 500, effect=-2.0).fails > 0.9
    assert simulated(at_margin, 16, 500, effect=0.0).holds > 0.5
    assert simulated(at_margin, 16, 500, effect=2.5).fails > 0.9
    assert simulated(ranked, 8, 500, effect=2.0).holds > 0.6


def _normal(count: int) -> list[float]:
    return np.random.default_rng(7).standard_normal(count).tolist()
