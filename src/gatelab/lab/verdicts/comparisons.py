"""Claims about means: one is greater, two are equivalent, one is near a number; by t tests with the proper degrees.

Each claim says that an effect lies in an open interval, its *region*: (0, ∞) for "greater", (−m, m) for "equivalent".
With an estimate e, its standard error s and T the t distribution, the one-sided p-values are

    P(as much evidence for the claim | e on its boundary)     = max{P(T > (e − low)/s), P(T < (e − high)/s)}
    P(as much evidence against the claim | e on its boundary) = min{P(T < (e − low)/s), P(T > (e − high)/s)}

For a bounded region the first line is the pair of one-sided tests of Schuirmann (1987).
"""

from dataclasses import dataclass, replace
from math import comb, exp, hypot, inf, isfinite, log, sqrt

from scipy.special import stdtr, stdtrit

from gatelab.errors import InputError
from gatelab.lab.verdicts.power import Means, Order
from gatelab.lab.verdicts.sample import Sample
from gatelab.lab.verdicts.verdict import Verdict, undecided

_ROUNDING = 1e-12  # a spread this small, relative to the values, is rounding


@dataclass(frozen=True)
class _Estimate:
    """An effect, its standard error with degrees of freedom, and the test to use if runs have no spread."""

    effect: float
    error: float
    degrees: float
    deviation: float  # standard deviation of one run
    samples: int
    test: str
    without_spread: tuple[str, float]  # the test that applies if no run differs, and the least p-value it can have


def greater(a: Sample, b: Sample, *, paired: bool = False) -> Verdict:
    """Decide whether the mean of ``a`` exceeds the mean of ``b``.

    Args:
        a: the sample that is claimed to be larger.
        b: the other one.
        paired: whether run i of both shares its seed or its data; then differences within runs are tested.

    Example:
        >>> greater(Sample((3.0, 4.0, 5.0), percent=False), Sample((1.0, 3.5, 2.0), percent=False)).outcome.value
        'not decided'
    """
    return _compared(a, b, (0.0, inf), "", paired=paired)


def not_below(a: Sample, b: Sample, margin: float, *, paired: bool = False) -> Verdict:
    """Decide whether the mean of ``a`` is above the mean of ``b``, or less than ``margin`` below it."""
    if not margin > 0:
        raise InputError(f"the margin is {margin:g}; give a positive one, or use greater(a, b)")
    return _compared(a, b, (-margin, inf), f"; {a.number(margin)} less would do", paired=paired)


def equivalent(a: Sample, b: Sample, margin: float, *, paired: bool = False) -> Verdict:
    """Decide whether two means differ by less than ``margin``: "as good as"."""
    return _compared(a, b, (-margin, margin), f"; as good means within {a.number(margin)}", paired=paired)


def above(sample: Sample, level: float) -> Verdict:
    """Decide whether a mean is above a number."""
    return _judged_alone(sample, level, (level, inf))


def below(sample: Sample, level: float) -> Verdict:
    """Decide whether a mean is below a number."""
    return _judged_alone(sample, level, (-inf, level))


def near(sample: Sample, value: float, margin: float) -> Verdict:
    """Decide whether a mean differs from ``value`` by less than ``margin``."""
    verdict = _judged_alone(sample, value, (value - margin, value + margin))
    return replace(verdict, evidence=f"{verdict.evidence}; near means within {sample.number(margin)}")


def larger_ratio(a: Sample, b: Sample) -> Verdict:
    """Decide whether one positive quantity exceeds another in the same runs, by a t test on log ratios.

    The effect is the geometric mean of a/b.
    """
    evidence = _against(a, b)
    if any(value <= 0 for value in (*a.values, *b.values)):
        return undecided("a run has none at all, and so no ratio", evidence)
    # The ratio itself might not fit in a double.
    first, second = (Sample(tuple(map(log, sample.values)), percent=False) for sample in (a, b))
    # A relative error of a value is an absolute error of its logarithm: 1 is the least scale.
    verdict = _judged(_alone(first.minus(second), "paired t of logarithms"), (0.0, inf), first, second, scale=1.0)
    interval = None if verdict.interval is None else (_exp(verdict.interval[0]), _exp(verdict.interval[1]))
    return replace(verdict, effect=_exp(verdict.effect), interval=interval, evidence=evidence)


def _exp(value: float) -> float:
    return inf if value > 700 else exp(value)  # an interval of two runs may exceed every double


def _against(a: Sample, b: Sample) -> str:
    runs = str(a.runs) if a.runs == b.runs else f"{a.runs} and {b.runs}"
    return f"{a.text()} against {b.text()}, {_runs(runs)}"


def _runs(count: str) -> str:
    return f"{count} run{'' if count == '1' else 's'}"


def _compared(a: Sample, b: Sample, region: tuple[float, float], remark: str, *, paired: bool) -> Verdict:
    estimate = _alone(a.minus(b), "paired t") if paired else _welch(a, b)
    unit = "points" if a.percent else ""
    return replace(_judged(estimate, region, a, b), evidence=_against(a, b) + remark, unit=unit)


def _judged_alone(sample: Sample, level: float, region: tuple[float, float]) -> Verdict:
    evidence = f"{sample.text()} against {sample.number(level)}, {_runs(str(sample.runs))}"
    return replace(_judged(_alone(sample, "one-sample t"), region, sample), evidence=evidence, unit=sample.unit)


def _alone(sample: Sample, test: str) -> _Estimate:
    """The mean of one sample, or of differences within runs."""
    without_spread = ("sign test: no run differs from another", 0.5**sample.runs)
    return _Estimate(sample.mean, sample.error, sample.runs - 1, sample.spread, 1, test, without_spread)


def _welch(a: Sample, b: Sample) -> _Estimate:
    """The difference of two independent means, with Welch's degrees of freedom.

    With different numbers of runs, and few in one sample, Welch's approximation is too bold: without an effect it
    decides in 10 % of comparisons of 2 with 8 runs, and in 6.4 % of 2 with 2 whose spreads differ fifteenfold. The
    smaller sample's degrees of freedom never are.
    """
    error = hypot(a.error, b.error)
    # Shares of the error, since fourth powers of the errors themselves underflow or overflow.
    shares = [((own.error / error) ** 2, own.runs - 1) for own in (a, b) if own.error > 0]
    degrees = sum(x for x, _ in shares) ** 2 / sum(x**2 / n for x, n in shares) if shares else 0.0
    if a.runs != b.runs or a.runs == 2:
        degrees = min(degrees, a.runs - 1, b.runs - 1)
    deviation = hypot(a.spread, b.spread) / sqrt(2)
    without_spread = ("rank test: no run differs from another of its kind", 1 / comb(a.runs + b.runs, a.runs))
    return _Estimate(a.mean - b.mean, error, degrees, deviation, 2, "Welch's t", without_spread)


def _judged(estimate: _Estimate, region: tuple[float, float], *samples: Sample, scale: float = 0.0) -> Verdict:
    """Decide whether an effect lies in a region; ``scale`` is the least size of numbers whose rounding counts."""
    effect, (low, high) = estimate.effect, region
    if not low < high:
        raise InputError(f"the bounds are {low:g} and {high:g}; give a number as level, and a positive margin")
    if min(sample.runs for sample in samples) < 1:
        return undecided("there are no runs", effect=effect)
    if not all(sample.is_finite for sample in samples):
        return undecided("a run gave no finite number", effect=effect)
    if not (isfinite(effect) and isfinite(estimate.error)):
        return undecided("the numbers are too large to be compared", effect=effect)
    if min(sample.runs for sample in samples) < 2:
        return undecided("one run has no error bar", effect=effect)
    scale = max(scale, *(abs(value) for sample in samples for value in sample.values))
    if estimate.error <= _ROUNDING * scale:
        return _without_spread(estimate, region, scale)
    up, down = ((effect - end) / estimate.error for end in region)
    above_low, below_high = (float(stdtr(estimate.degrees, t)) for t in (up, -down))
    by_chance = (max(1 - above_low, 1 - below_high), min(above_low, below_high))
    reach = float(stdtrit(estimate.degrees, 0.975)) * estimate.error
    nearer, other = sorted(abs(effect - end) / estimate.deviation for end in region)
    is_inside = low < effect < high  # then the claim holds only if both bounds are passed
    return Verdict(
        effect,
        (effect - reach, effect + reach),
        by_chance,
        f"{estimate.test}, {estimate.degrees:.3g} degrees of freedom",
        design=Means(nearer, estimate.samples, other if is_inside else inf),
    )


def _without_spread(estimate: _Estimate, region: tuple[float, float], scale: float) -> Verdict:
    """Decide without spread, where a t test has no scale; with many runs their order is still evidence.

    An effect that only rounding separates from a bound is on neither side of it.
    """
    test, chance = estimate.without_spread
    rounding = _ROUNDING * max(scale, *(abs(end) for end in region if isfinite(end)))
    depth = min(estimate.effect - region[0], region[1] - estimate.effect)  # negative outside
    by_chance = (chance if depth > rounding else 1.0, chance if depth < -rounding else 1.0)
    design = Order(estimate.samples) if min(by_chance) < 1 else None
    return Verdict(estimate.effect, None, by_chance, test, design=design)
