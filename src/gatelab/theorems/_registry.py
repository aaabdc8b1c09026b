"""The list of theorems. A paper is a module of this package; each of its theorems is a decorated function."""

import importlib
import pkgutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches

import gatelab.theorems
from gatelab.errors import InputError
from gatelab.theorems._result import Measurement, TheoremResult


@dataclass(frozen=True)
class Theorem:
    """A claim of a paper and the function that measures it, given a seed.

    Attributes:
        id: paper and number, e.g. "npk-5.1".
        name: as the paper calls it.
        statement: in one line.
    """

    id: str
    name: str
    statement: str
    measure: Callable[[int], Measurement]

    def check(self, seed: int = 0) -> TheoremResult:
        """Measure the theorem."""
        start = time.perf_counter()
        measurement = self.measure(seed)
        return TheoremResult(self.id, self.name, self.statement, measurement, seed, time.perf_counter() - start)


_THEOREMS: dict[str, Theorem] = {}


def theorem(
    identifier: str, name: str, statement: str
) -> Callable[[Callable[[int], Measurement]], Callable[[int], Measurement]]:
    """Register the decorated function as the measurement of a theorem."""

    def register(measure: Callable[[int], Measurement]) -> Callable[[int], Measurement]:
        if identifier in _THEOREMS:
            raise ValueError(f"two theorems are called {identifier}")
        _THEOREMS[identifier] = Theorem(identifier, name, statement, measure)
        return measure

    return register


def all_theorems() -> list[Theorem]:
    """Every theorem of every paper, in the papers' order."""
    for module in pkgutil.iter_modules(gatelab.theorems.__path__):
        if not module.name.startswith("_"):
            importlib.import_module(f"gatelab.theorems.{module.name}")
    return list(_THEOREMS.values())


def find(identifier: str) -> list[Theorem]:
    """The theorem of this id, or all theorems of a paper; case does not matter."""
    theorems = {theorem.id.lower(): theorem for theorem in all_theorems()}
    wanted = identifier.lower()
    if wanted in theorems:
        return [theorems[wanted]]
    of_paper = [theorem for key, theorem in theorems.items() if key.split("-")[0] == wanted]
    if of_paper:
        return of_paper
    close = get_close_matches(wanted, theorems, n=3, cutoff=0.4)
    hint = ", ".join(theorems[key].id for key in close) or ", ".join(theorem.id for theorem in theorems.values())
    raise InputError(f"there is no theorem '{identifier}'; perhaps {hint}. `gatelab theorems --list` lists them")
