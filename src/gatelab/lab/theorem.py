"""A theorem that runs and can fail: measured numbers, tolerances, a verdict, and the facts of a figure."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from matplotlib.figure import Figure

from gatelab.figures import draw, save_figure
from gatelab.figures.facts import Picture
from gatelab.lab.verdicts import Check, Outcome, Verdict
from gatelab.lab.verdicts.verdict import exact


@dataclass(frozen=True)
class Measurement:
    """What was measured for a theorem.

    Args:
        checks: the numbers and their tolerances.
        plot: the facts of the figure.
        notes: remarks that the numbers alone do not convey.

    Example:
        >>> from gatelab.figures import Curve, Plot
        >>> plot = Plot("predicted", "measured", (Curve("K", (1.0, 2.0), (1.0, 2.0)),))
        >>> Measurement((Check("relative error", 0.0, 1e-10, "float64 rounding"),), plot).checks[0].holds
        True
    """

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
        """The theorem holds if all checks do; the effect is the number of checks that do not."""
        failing = sum(not check.holds for check in self.measurement.checks)
        return exact(failing == 0, failing, f"{failing} of {len(self.measurement.checks)} checks fail")

    @property
    def outcome(self) -> Outcome:
        """Whether the theorem holds or fails."""
        return self.verdict.outcome

    def draw(self) -> Figure:
        """Draw the figure."""
        return draw(self.measurement.plot, f"{self.name}: {self.outcome.value}\n{self.statement}")

    def save_figure(self, path: Path) -> None:
        """Write the figure; the suffix of ``path`` chooses the format."""
        save_figure(self.draw(), path)


@dataclass(frozen=True)
class Theorem:
    """A statement of a paper and the function that measures it.

    Args:
        id: paper and number, such as "npk-5.1".
        name: what the paper calls it.
        statement: the theorem in one line.
        measure: takes a seed and returns the measurement.

    Example:
        >>> from gatelab.papers import find_theorems
        >>> (theorem,) = find_theorems("npk-2.1")
        >>> theorem.check(seed=0).outcome.value
        'holds'
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
    return partial(Theorem, identifier, name, statement)
