"""Several verdicts together: a statement that needs all of them, or one; and the correction over a report."""

from collections.abc import Sequence
from dataclasses import replace

from gatelab.lab.verdicts.verdict import EXACT, LEVEL, Claim, Verdict, undecided

_CASE = " (the case that decides"  # nested statements name only the innermost case


def all_of(verdicts: Sequence[Verdict]) -> Verdict:
    """Decide a statement that must hold in every case ("throughout"), as one statement.

    It holds if the weakest case holds (an intersection–union test, Berger 1982, which needs no correction). It fails if
    one case fails at the corrected level: with k cases the smallest p-value against it is multiplied by k (Bonferroni).
    The effect and interval belong to the case that decides. A case that cannot be tested keeps the statement from
    holding, not from failing.
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
    tested = [verdict for verdict in verdicts if not verdict.obstacle]
    blocked = [verdict for verdict in verdicts if verdict.obstacle]
    if not tested:
        return blocked[0]
    weakest = blocked[0] if blocked else max(tested, key=lambda verdict: verdict.by_chance[strict])
    clearest = min(tested, key=lambda verdict: verdict.by_chance[lenient])
    needs_all = 1.0 if blocked else weakest.by_chance[strict]
    needs_one = min(1.0, count * clearest.by_chance[lenient])
    decisive = weakest if needs_all <= needs_one else clearest
    leans_to_all = decisive.by_chance[strict] < decisive.by_chance[lenient]
    sides = [sum(verdict.by_chance[i] < verdict.by_chance[1 - i] for verdict in tested) for i in (0, 1)]
    tally = f"{sides[0]} of {count} lean to it, {sides[1]} against"
    if blocked and decisive is clearest:
        tally += f", {len(blocked)} cannot be tested: {blocked[0].obstacle}"
    test = f"{how} of {count} cases: {decisive.test}" if count > 1 else decisive.test
    return replace(
        decisive,
        by_chance=(needs_one, needs_all) if strict else (needs_all, needs_one),
        test=EXACT if decisive.is_exact else test,
        evidence=f"{decisive.evidence.split(_CASE)[0]}{_CASE}; {tally})",
        design=None if blocked else decisive.design,
        level=decisive.level if leans_to_all else decisive.level / count,
    )


def decided_together(claims: Sequence[Claim], *, smoke: bool = False) -> tuple[Claim, ...]:
    """Decide the claims of one report: the chance that any verdict is wrong is at most 5 % (Holm 1979).

    The k-th smallest of m p-values is multiplied by m − k + 1, and never ends below a smaller one. While j of them
    are undecided, each would be decided at a level of 5 %/j. Exact verdicts, and those that cannot be given, are left
    out. A ``smoke`` run only shows that everything works; it decides nothing.
    """
    if smoke:
        return tuple(_silent(claim) for claim in claims)
    tested = [place for place, claim in enumerate(claims) if not (claim.verdict.is_exact or claim.verdict.obstacle)]
    adjusted, largest = {}, 0.0
    for rank, place in enumerate(sorted(tested, key=lambda place: claims[place].verdict.p)):
        largest = max(largest, min(1.0, (len(tested) - rank) * claims[place].verdict.p))
        adjusted[place] = largest
    still_open = sum(p > LEVEL for p in adjusted.values())
    corrected = list(claims)
    for place, p in adjusted.items():
        verdict = claims[place].verdict
        level = verdict.level / max(1, still_open)
        corrected[place] = replace(claims[place], verdict=replace(verdict, adjusted=p, level=level))
    return tuple(corrected)


def _silent(claim: Claim) -> Claim:
    return replace(claim, verdict=replace(claim.verdict, design=None, obstacle="a smoke run decides nothing"))
