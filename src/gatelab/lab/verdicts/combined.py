"""Several verdicts together: a statement that needs all of them, or one; and the correction over a report."""

from collections.abc import Sequence
from dataclasses import replace

from gatelab.lab.verdicts.verdict import Claim, Verdict, undecided

_CASE = " (the case that decides"  # nested statements name only the innermost case


def all_of(verdicts: Sequence[Verdict]) -> Verdict:
    """Decide a statement that must hold in every case ("throughout"), as one statement.

    It holds if the weakest case holds (an intersection–union test, Berger 1982, which needs no correction). It fails if
    one case fails at the corrected level: with k cases the smallest p-value against it is multiplied by k (Bonferroni).
    The effect and interval belong to the case that decides.
    """
    return _joined(verdicts, "in all", 0)


def any_of(verdicts: Sequence[Verdict]) -> Verdict:
    """Decide a statement that must hold in one case ("somewhere"): the mirror image of :func:`all_of`."""
    return _joined(verdicts, "in one", 1)


def _joined(verdicts: Sequence[Verdict], how: str, strict: int) -> Verdict:
    """Join verdicts; the one-sided p-value at place ``strict`` needs every case, the other needs one."""
    if not verdicts:
        return undecided("there is no case to test")
    count, lenient = len(verdicts), 1 - strict
    weakest = max(verdicts, key=lambda verdict: verdict.by_chance[strict])
    clearest = min(verdicts, key=lambda verdict: verdict.by_chance[lenient])
    chances = {strict: weakest.by_chance[strict], lenient: min(1.0, count * clearest.by_chance[lenient])}
    decisive = weakest if chances[strict] <= chances[lenient] else clearest
    sides = tuple(sum(verdict.by_chance[i] < verdict.by_chance[1 - i] for verdict in verdicts) for i in (0, 1))
    return replace(
        decisive,
        by_chance=(chances[0], chances[1]),
        test=f"{how} of {count} cases: {decisive.test}" if count > 1 else decisive.test,
        evidence=f"{decisive.evidence.split(_CASE)[0]}{_CASE}; {sides[0]} of {count} lean to it, {sides[1]} against)",
        obstacle=next((verdict.obstacle for verdict in verdicts if verdict.obstacle), ""),
    )


def decided_together(claims: Sequence[Claim], *, smoke: bool = False) -> tuple[Claim, ...]:
    """Decide the claims of one report: the chance that any verdict is wrong is at most 5 % (Holm 1979).

    The k-th smallest of m p-values is multiplied by m − k + 1, and never ends below a smaller one. Exact verdicts, and
    those that cannot be given, are left out. A ``smoke`` run only shows that everything works; it decides nothing.
    """
    if smoke:
        return tuple(_silent(claim) for claim in claims)
    tested = [place for place, claim in enumerate(claims) if not (claim.verdict.is_exact or claim.verdict.obstacle)]
    corrected, largest = list(claims), 0.0
    for rank, place in enumerate(sorted(tested, key=lambda place: claims[place].verdict.p)):
        verdict = claims[place].verdict
        largest = max(largest, min(1.0, (len(tested) - rank) * verdict.p))
        corrected[place] = replace(claims[place], verdict=replace(verdict, adjusted=largest))
    return tuple(corrected)


def _silent(claim: Claim) -> Claim:
    return replace(claim, verdict=replace(claim.verdict, design=None, obstacle="a smoke run decides nothing"))
