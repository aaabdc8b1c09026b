"""The table of equations is complete, and everything in it exists."""

import subprocess
import sys
from importlib import import_module
from pkgutil import iter_modules, resolve_name

from gatelab.lab.theorem import Theorem
from gatelab.papers import find_experiment, find_theorems, gdln
from gatelab.papers.gdln import EQUATIONS

NAMES = {target for target in EQUATIONS.values() if target.startswith("gatelab.")}


def test_every_name_resolves():
    for name in NAMES:
        found = resolve_name(name)
        assert callable(found) or isinstance(found, property), name


def test_every_equation_theorem_and_experiment_is_in_the_table():
    assert {f"Eq. {number}" for number in range(1, 33)} <= EQUATIONS.keys()
    modules = [import_module(f"{gdln.__name__}.{module.name}") for module in iter_modules(gdln.__path__)]
    experiments = {held.id for module in modules for held in getattr(module, "EXPERIMENTS", ())}
    theorems = {held.id for module in modules for held in vars(module).values() if isinstance(held, Theorem)}
    assert set(EQUATIONS.values()) - NAMES == experiments | theorems
    assert theorems == {theorem.id for theorem in find_theorems("gdln")}
    assert experiments == {find_experiment(name).id for name in experiments}


def test_the_table_imports_nothing():
    """The package alone, without its parents, leaves torch out."""
    script = "import importlib.util, sys; spec = importlib.util.spec_from_file_location('table', sys.argv[1]); "
    script += "spec.loader.exec_module(importlib.util.module_from_spec(spec)); print('torch' in sys.modules)"
    path = sys.modules["gatelab.papers.gdln"].__file__
    answer = subprocess.run([sys.executable, "-c", script, path], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "False"
