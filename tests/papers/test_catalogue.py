"""The catalogue lists what the modules hold, and every item of a paper leads to code."""

from collections import Counter
from importlib import import_module
from pkgutil import iter_modules, walk_packages

import pytest

import gatelab.papers
from gatelab.lab import Theorem, study
from gatelab.papers import catalogue

PAPERS = [module.name for module in iter_modules(gatelab.papers.__path__) if module.ispkg]
MODULES = [
    import_module(module.name)
    for module in walk_packages(gatelab.papers.__path__, "gatelab.papers.")
    if not module.ispkg and module.name != catalogue.__name__
]


def _listed(table):
    return Counter((f"gatelab.papers.{module}", name) for module, names in table.items() for name in names.split())


def test_the_catalogue_lists_every_theorem_once():
    held = Counter(
        (module.__name__, value.id)
        for module in MODULES
        for value in vars(module).values()
        if isinstance(value, Theorem)
    )
    assert held
    assert _listed(catalogue._THEOREMS) == held


def test_the_catalogue_lists_every_experiment_once():
    held = Counter(
        (module.__name__, experiment.id) for module in MODULES for experiment in getattr(module, "EXPERIMENTS", ())
    )
    assert held
    assert _listed(catalogue._EXPERIMENTS) == held


def test_there_are_four_papers():
    assert PAPERS == ["gdln", "halfspace", "hierarchy", "npk"]


@pytest.mark.parametrize("paper", PAPERS)
def test_every_item_of_a_paper_leads_to_code(paper):
    known = {*catalogue._HOMES_OF_THEOREMS, *catalogue._HOMES_OF_EXPERIMENTS}
    equations = import_module(f"gatelab.papers.{paper}").EQUATIONS
    assert equations
    broken = {item: target for item, target in equations.items() if target not in known and not _resolves(target)}
    assert not broken


@pytest.mark.parametrize("paper", PAPERS)
def test_every_theorem_and_experiment_of_a_paper_is_in_the_catalogue_under_its_name(paper):
    names = [*catalogue._HOMES_OF_THEOREMS.items(), *catalogue._HOMES_OF_EXPERIMENTS.items()]
    own = [name for name, home in names if home.startswith(f"gatelab.papers.{paper}.")]
    assert own
    assert all(name.startswith(f"{paper}-") for name in own)
    assert catalogue._HOMES_OF_EXPERIMENTS["study"] == study.__name__


def _resolves(target):
    """Whether a dotted gatelab name can be imported: the longest module, then attributes."""
    parts = target.split(".")
    if parts[0] != "gatelab":
        return False
    for cut in range(len(parts), 0, -1):
        try:
            value = import_module(".".join(parts[:cut]))
        except ModuleNotFoundError:
            continue
        for part in parts[cut:]:
            value = getattr(value, part, None)
        return value is not None
    return False


def test_names_that_do_not_exist_do_not_resolve():
    """The check above must be able to fail."""
    assert _resolves("gatelab.kernels.overlap_kernel")
    assert not _resolves("gatelab.kernels.overlap_kernels")
    assert not _resolves("gatelab.nowhere.overlap_kernel")
    assert not _resolves("npk-9.9")
