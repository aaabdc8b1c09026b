"""Samples and verdicts for the tests in this folder."""

import numpy as np
import pytest
from scipy import stats

from gatelab.lab.verdicts import Sample, Verdict, above


def numbers(*values: float) -> Sample:
    """A sample of plain numbers."""
    return Sample(tuple(map(float, values)), percent=False)


def with_p(p: float) -> Verdict:
    """A verdict from ten runs that leans to its statement, with this two-sided p-value."""
    values = np.arange(10.0) - 4.5
    verdict = above(numbers(*values + stats.t.isf(p / 2, 9) * stats.sem(values)), 0.0)
    assert verdict.p == pytest.approx(p)
    return verdict
