"""What checking a theorem yields: numbers, tolerances, a verdict, and the facts of a figure."""

from dataclasses import dataclass
from enum import StrEnum

from gatelab.figures import Picture


class Verdict(StrEnum):
    """Whether every check of a theorem came out as it claims."""

    HOLDS = "holds"
    FAILS = "fails"


@dataclass(frozen=True)
class Check:
    """One measured number that must not exceed its tolerance.

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
        """NaN never holds."""
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
