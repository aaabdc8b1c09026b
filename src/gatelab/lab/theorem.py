"""A theorem as something that runs and can fail: numbers, tolerances, a verdict, and the facts of a figure."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from matplotlib.figure import Figure

from gatelab.figures import draw, save_figure
from gatelab.figures.facts import Picture
from gatelab.lab.findings import Verdict


@dataclass(frozen=True)
class Check:
    """One measured number and the largest value it may have.

    Attributes:
        what: the quantity, in a few words.
        value: what was measured.
        tolerance: the largest value with which the theorem stands.
        because: where the tolerance comes from.
    """

    what: str
    value: float
    tolerance: float
    because: str

    @property
    def holds(self) -> bool:
        """Whether the value is within its tolerance; NaN never is."""
        return self.value <= self.tolerance


@dataclass(frozen=True)
class Measurement:
    """What a theorem's function returns."""

    checks: tuple[Check, ...]
    plot: Picture
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class TheoremResult:
    """A theorem, what was measured for it, and the verdict."""

    id: str
    name: str
    statement: str
    measurement: Measurement
    seed: int
    seconds: float

    @property
    def verdict(self) -> Verdict:
        """HOLDS if all checks do."""
        return Verdict.HOLDS if all(check.holds for check in self.measurement.checks) else Verdict.FAILS

    def draw(self) -> Figure:
        """Draw the figure."""
        return draw(self.measurement.plot, f"{self.name}: {self.verdict.value}\n{self.statement}")

    def save_figure(self, path: Path) -> None:
        """Write the figure; the ending of ``path`` chooses the format."""
        save_figure(self.draw(), path)


@dataclass(frozen=True)
class Theorem:
    """A claim of a paper and the function that measures it, given a seed.

    Attributes:
        id: paper and number, e.g. "npk-5.1".
        name: as the paper calls it.
        statement: in one line.
        measure: the function.
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


def theorem(identifier: str, name: str, statement: str) -> Callable[[Callable[[int], Measurement]], Theorem]:
    """Turn the decorated function into a :class:`Theorem`; ``gatelab.papers.catalogue`` lists its module."""

    def register(measure: Callable[[int], Measurement]) -> Theorem:
        return Theorem(identifier, name, statement, measure)

    return register
