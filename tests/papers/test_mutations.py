"""Every theorem can fail for what it names: each mutation of the code turns its rows red."""

import pytest

from gatelab.lab.verdicts import Outcome
from gatelab.papers import all_theorems, find_theorems
from tests.papers.mutations import MUTATIONS, PAGE, page

PAIRS = [(mutation, row) for mutation in MUTATIONS for row in mutation.rows]
LONG = frozenset({"npk-C-sketch", "npk-Eq2", "npk-Eq2-printed"})  # more than six seconds each
# A third of the pairs in the fast suite; all of them are in the slow one, and whoever writes the page runs them.
MARKED = [
    pytest.param(*pair, marks=[pytest.mark.slow] * (pair[1] in LONG or number % 3 > 0))
    for number, pair in enumerate(PAIRS)
]


@pytest.mark.parametrize(("mutation", "row"), MARKED, ids=lambda part: getattr(part, "what", part))
def test_the_row_turns_red(monkeypatch, mutation, row):
    (theorem,) = find_theorems(row)
    mutation.apply(monkeypatch)
    assert theorem.check(seed=1).outcome is Outcome.FAILS


def test_every_row_has_a_mutation():
    assert {row for _, row in PAIRS} == {theorem.id for theorem in all_theorems()}


def test_the_page_is_current():
    assert PAGE.read_text() == page(), "run `python -m tests.papers.mutations`"
