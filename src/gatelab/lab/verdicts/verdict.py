"""The verdict on a statement: the effect, its interval, the two p-values, the outcome."""

from dataclasses import dataclass
from enum import StrEnum

from gatelab.lab.verdicts.power import Design, runs_needed
from gatelab.lab.verdicts.sample import formatted

LEVEL = 0.05  # share of experiments without an effect in which a verdict may be wrong
EXACT = "no chance involved"


class Outcome(StrEnum):
    """Whether the measurements support a statement."""

    HOLDS = "holds"
    FAILS = "fails"
    UNDECIDED = "not decided"


@dataclass(frozen=True)
class Verdict:
    """How a statement was decided.

    Attributes:
        effect: the estimated quantity of the statement: a difference, a ratio, a share.
        interval: the effect's 95 % confidence interval; None if the runs allow none.
        by_chance: the one-sided p-values: how often chance alone produces as much evidence for the statement, and how
            often as much against it.
        test: the test, with its degrees of freedom.
        evidence: the compared numbers, as text.
        unit: of the effect: "%" for a share, "points" for a difference of shares, empty for a plain number.
        design: what the number of runs needed depends on; None if unknown.
        adjusted: the p-value after Holm's correction over a report.
        level: the level at which the uncorrected p of the deciding case would decide: 5 %, or less if it is one of
            several cases or claims.
        obstacle: why nothing can be decided; empty if a decision is possible.

    Example:
        >>> from gatelab.lab.verdicts import Sample, greater
        >>> verdict = greater(Sample((0.98, 0.985, 0.979)), Sample((0.95, 0.957, 0.949)), paired=True)
        >>> verdict.outcome.value, round(verdict.effect, 3)
        ('holds', 0.029)
    """

    effect: float
    interval: tuple[float, float] | None
    by_chance: tuple[float, float]
    test: str
    evidence: str = ""
    unit: str = ""
    design: Design | None = None
    adjusted: float | None = None
    level: float = LEVEL
    obstacle: str = ""

    @property
    def p(self) -> float:
        """The two-sided p-value: twice the smaller one-sided one, since a statement may hold or fail."""
        return min(1.0, 2 * min(self.by_chance))

    @property
    def outcome(self) -> Outcome:
        """HOLDS or FAILS if p, after Holm's correction, is at most 5 %."""
        p = self.p if self.adjusted is None else self.adjusted
        if self.obstacle or not p <= LEVEL:
            return Outcome.UNDECIDED
        holds, fails = self.by_chance
        return Outcome.HOLDS if holds < fails else Outcome.FAILS

    @property
    def runs_needed(self) -> int | None:
        """Runs with which an effect of the measured size would be decided in 80 % of experiments.

        None if it is decided, if something else prevents a decision, or if the runs do not determine it.
        """
        if self.outcome is not Outcome.UNDECIDED or self.obstacle or self.design is None:
            return None
        return runs_needed(self.design, self.level)

    @property
    def is_exact(self) -> bool:
        """Whether the verdict compares numbers without any randomness."""
        return self.test == EXACT

    def text(self) -> str:
        """The evidence, the effect with its interval, the p-value, and how many runs would decide."""
        parts = [self.evidence] if self.evidence else []
        if not self.is_exact and not self.obstacle:
            unit = f" {self.unit}" if self.unit else ""
            effect = f"effect {self.number(self.effect)}{unit}"
            if self.interval is not None:
                low, high = map(self.number, self.interval)
                effect += f", 95 % interval {low} to {high}{unit}"
            parts.append(effect)
        if not self.is_exact and not self.obstacle:
            corrected = "" if self.adjusted is None else f" (after Holm's correction {p_text(self.adjusted)})"
            parts.append(f"p {p_text(self.p)}{corrected}, {self.test}")
        if self.obstacle:
            parts.append(self.obstacle)
        if self.runs_needed is not None:
            parts.append(f"about {self.runs_needed} runs would decide it")
        return "; ".join(parts)

    def number(self, value: float) -> str:
        """Format a value in the unit of the effect."""
        return formatted(value, percent=bool(self.unit))

    def record(self) -> dict[str, object]:
        """The verdict as plain data."""
        p = None if self.is_exact else self.p
        return {
            "outcome": self.outcome.value,
            "effect": self.effect,
            "interval": self.interval,
            "p": p,
            "p_holm": self.adjusted,
            "test": self.test,
            "runs_needed": self.runs_needed,
        }


def p_text(p: float) -> str:
    """Format a p-value with its relation."""
    return "< 0.001" if p < 0.001 else f"= {p:.2g}"


@dataclass(frozen=True)
class Claim:
    """A statement and its verdict.

    Args:
        text: the statement.
        verdict: how it was decided.

    Example:
        >>> Claim("The formula is exact", within(1e-12, 1e-10, "largest difference")).evidence
        'largest difference 1e-12, at most 1e-10 allowed'
    """

    text: str
    verdict: Verdict

    @property
    def outcome(self) -> Outcome:
        """Whether the measurements support the statement."""
        return self.verdict.outcome

    @property
    def evidence(self) -> str:
        """The numbers behind the verdict, as text."""
        return self.verdict.text()


class Side(StrEnum):
    """On which side of its bound a number must be."""

    AT_MOST = "≤"
    AT_LEAST = "≥"


@dataclass(frozen=True)
class Check:
    """A number and its bound; a theorem holds if all its checks hold.

    Args:
        what: the quantity, in a few words.
        value: what was measured.
        bound: the largest value at which the theorem holds, or the least.
        because: where the bound comes from.
        side: whether the value must be at most the bound, as an error, or at least, as the error of a wrong formula.

    Example:
        >>> Check("relative error", 1e-12, 1e-10, "float64 rounding").holds
        True
        >>> Check("error without the gates", 0.3, 0.01, "some are closed", Side.AT_LEAST).holds
        True
    """

    what: str
    value: float
    bound: float
    because: str
    side: Side = Side.AT_MOST

    @property
    def holds(self) -> bool:
        """Whether the value is on its side of the bound; NaN never is."""
        return self.value <= self.bound if self.side is Side.AT_MOST else self.value >= self.bound


def exact(holds: bool, effect: float, evidence: str) -> Verdict:
    """Return the verdict of a comparison without any randomness."""
    return Verdict(effect, None, (0.0, 1.0) if holds else (1.0, 0.0), EXACT, evidence)


def within(value: float, tolerance: float, what: str) -> Verdict:
    """Decide whether a computed number, such as a rounding error, is at most ``tolerance``; NaN never is."""
    return exact(value <= tolerance, value, f"{what} {value:.2g}, at most {tolerance:.2g} allowed")


def undecided(obstacle: str, evidence: str = "", effect: float = 0.0) -> Verdict:
    """Return a verdict that cannot be given, with the reason."""
    return Verdict(effect, None, (1.0, 1.0), "no test", evidence, obstacle=obstacle)
