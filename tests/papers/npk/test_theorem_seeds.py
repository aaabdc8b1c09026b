"""The rows of npk hold for other seeds, too: among these, seeds that once drew dead networks or points near a gate."""

import pytest

from gatelab.lab.verdicts import Outcome, Side
from gatelab.papers import find_theorems

SEEDS = (11, 13, 21, 27, 30, 35)


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("theorem", find_theorems("npk"), ids=lambda theorem: theorem.id)
def test_the_row_holds_and_has_a_contrast(theorem, seed):
    result = theorem.check(seed)
    assert result.outcome is Outcome.HOLDS, [check for check in result.measurement.checks if not check.holds]
    assert any(check.side is Side.AT_LEAST for check in result.measurement.checks)
