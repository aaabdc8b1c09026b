"""Fitted quantities as one number per run, so that a t test applies: slopes of each run, or the jackknife.

With θ the estimate from n runs and θ_(i) the one without run i, the jackknife treats the pseudo-values
n θ − (n − 1) θ_(i) as independent estimates (Tukey 1958). They are nearly so for smooth functions of means, such as a
share of a gap, but not for the logarithm of a mean that one run dominates; so an exponent is fitted to each run.
"""

from collections.abc import Callable, Sequence
from math import log, nan
from statistics import linear_regression

from scipy.special import stdtrit

from gatelab.errors import InputError
from gatelab.lab.verdicts.comparisons import greater
from gatelab.lab.verdicts.sample import Sample, paired_runs
from gatelab.lab.verdicts.verdict import Outcome


def fitted_power(x: Sequence[float], y: Sequence[float]) -> float:
    """The a of the best fit y = c xᵃ, by least squares of the logarithms.

    NaN for fewer than two different x, or if a number is not positive: no power law goes through it.

    Example:
        >>> fitted_power([1, 2, 4], [3, 12, 48])
        2.0
    """
    if len(set(x)) < 2 or not all(v > 0 for v in (*x, *y)):
        return nan
    return round(linear_regression([log(v) for v in x], [log(v) for v in y]).slope, 12)


def jackknifed(samples: Sequence[Sample], estimate: Callable[[Sequence[Sample]], float]) -> Sample:
    """Pseudo-values of an estimate from several samples; run i of all of them is left out together."""
    n, whole = paired_runs(*samples), estimate(samples)
    if n < 2:
        return Sample((whole,), percent=False)
    without = (estimate([Sample((*s.values[:i], *s.values[i + 1 :]), s.percent) for s in samples]) for i in range(n))
    return Sample(tuple(n * whole - (n - 1) * part for part in without), percent=False)


def exponents(sizes: Sequence[float], samples: Sequence[Sample]) -> Sample:
    """The a of the best fit y = c sizeᵃ of each run; NaN for a run in which y is not positive throughout.

    Args:
        sizes: the widths, step sizes or numbers of examples.
        samples: the quantity y at each size, with equally many runs.

    Example:
        >>> exponents([1, 2], [Sample((3.0, 5.0)), Sample((6.0, 10.0))]).values
        (1.0, 1.0)
    """
    _check_sizes(sizes, samples)
    paired_runs(*samples)
    runs = zip(*(sample.values for sample in samples), strict=True)
    return Sample(tuple(fitted_power(sizes, run) for run in runs), percent=False)


def exponents_of_means(sizes: Sequence[float], samples: Sequence[Sample]) -> Sample:
    """The a of the best fit mean = c sizeᵃ, as one pseudo-value per run, for quantities that are zero in some runs.

    Use :func:`exponents` where runs are positive: where they differ by large common factors, pseudo-values of the
    logarithm of a mean are too bold.
    """
    _check_sizes(sizes, samples)
    return jackknifed(samples, lambda parts: fitted_power(sizes, [part.mean for part in parts]))


def _check_sizes(sizes: Sequence[float], samples: Sequence[Sample]) -> None:
    if len(sizes) != len(samples) or not sizes:
        raise InputError(f"{len(sizes)} sizes and {len(samples)} samples; give a sample for each size")


def share_of_gap(part: Sample, low: Sample, high: Sample) -> tuple[float, tuple[float, float]] | None:
    """Return the share of the gap from ``low`` to ``high`` that ``part`` closes, with its 95 % interval; paired runs.

    None if the gap itself is not established: a share of noise means nothing.
    """
    if greater(high, low, paired=True).outcome is not Outcome.HOLDS:
        return None
    values = jackknifed((part, low, high), lambda s: (s[0].mean - s[1].mean) / (s[2].mean - s[1].mean))
    reach = float(stdtrit(values.runs - 1, 0.975)) * values.error
    return values.mean, (values.mean - reach, values.mean + reach)
