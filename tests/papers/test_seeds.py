"""Rows hold for other seeds, and each has a contrast: a check of what must not hold."""

import pytest

from gatelab.lab.verdicts import Outcome, Side
from gatelab.papers import find_theorems

# Seeds on which rows once failed on correct code: degenerate draws, slow modes, contrasts that a draw can miss.
SEEDS = (3, 9, 11, 12, 14, 29, 38)
ROWS = [theorem for paper in ("gdln", "hierarchy", "halfspace") for theorem in find_theorems(paper)]


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("theorem", ROWS, ids=lambda theorem: theorem.id)
def test_the_row_holds_and_has_a_contrast(theorem, seed):
    result = theorem.check(seed)
    assert result.outcome is Outcome.HOLDS, [check for check in result.measurement.checks if not check.holds]
    assert any(check.side is Side.AT_LEAST for check in result.measurement.checks)
