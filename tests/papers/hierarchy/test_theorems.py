"""Every equation of the hierarchy paper has a home."""

import pkgutil

from gatelab.lab.verdicts import Outcome
from gatelab.papers import find_experiment, find_theorems
from gatelab.papers.hierarchy import EQUATIONS, theorems_factors

THEOREMS = {theorem.id for theorem in find_theorems("hierarchy")}


def test_every_equation_names_something_that_exists():
    for name in EQUATIONS.values():
        if name.startswith("hierarchy-"):
            assert find_theorems(name) if name in THEOREMS else find_experiment(name)
        else:
            assert callable(pkgutil.resolve_name(name))


def test_renamed_events_still_factorise(monkeypatch):
    right = theorems_factors.factorised
    monkeypatch.setattr(theorems_factors, "factorised", lambda blocks, sets: right(blocks, sets).flip(0))
    (theorem,) = find_theorems("hierarchy-8")
    assert theorem.check(seed=1).outcome is Outcome.HOLDS
