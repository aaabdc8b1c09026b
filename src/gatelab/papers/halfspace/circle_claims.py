"""halfspace, Section 4: the paper's claims about the circle, decided.

DLGN: deep linearly gated network.
"""

from gatelab.lab.verdicts import Claim, all_of, greater, larger_ratio, later, share_above
from gatelab.papers.common import numbers
from gatelab.papers.halfspace.circle_runs import EARLY, FROZEN, KINDS, LEARNERS, LEARNT, CircleRuns

TIMES = 10  # the paper: about 200 epochs against more than 2000


def claims(seen: CircleRuns) -> tuple[Claim, ...]:
    """Decide the paper's claims, in its order."""
    learnt = [epoch is not None for kind in LEARNERS for epoch in seen.epochs_to_learn(kind)]
    return (
        Claim(
            f"ReLU and DLGN bring the mean square below {LEARNT:g} in more than three runs of four",
            share_above(sum(learnt), len(learnt), 0.75),
        ),
        *(slow(seen, kind) for kind in FROZEN),
        *_paths(seen),
        *(_early(seen, kind) for kind in LEARNERS),
        *(_moving(seen, kind) for kind in LEARNERS),
        *(_smooth_first(seen, kind) for kind in LEARNERS),
        *_artefacts(seen),
        *_half_spaces(seen),
    )


def slow(seen: CircleRuns, kind: str) -> Claim:
    """Decide whether frozen gates take more than ten times as long as the DLGN's own.

    Times are censored: a run that has not learnt by its last epoch takes longer than that. A tenth of the frozen
    gates' time is compared with the DLGN's time, up to the smaller of the two horizons.
    """
    horizon = min(seen.end(kind) / TIMES, seen.end("dlgn"))
    frozen = [None if time is None else time / TIMES for time in seen.epochs_to_learn(kind)]
    frozen, learnt = (
        [None if time is None or time > horizon else time for time in times]
        for times in (frozen, seen.epochs_to_learn("dlgn"))
    )
    text = f"{KINDS[kind]}: learning takes more than {TIMES} times as many epochs as the DLGN's (times over {TIMES})"
    return Claim(text, later(frozen, learnt, horizon))


def _paths(seen: CircleRuns) -> list[Claim]:
    start, early, end = seen.shown
    more, grown = [], []
    for kind in LEARNERS:
        for epoch, when in ((early, f"at epoch {early}"), (end, "at the end")):
            text = f"{KINDS[kind]}: more paths on the smooth half {when}"
            more.append(Claim(text, larger_ratio(*seen.halves(kind, "paths", epoch))))
        early_on = seen.early_paths(kind)
        if early_on[0].runs:
            text = f"{KINDS[kind]}: more paths on the smooth half when the mean square first falls below {EARLY:g}"
            more.append(Claim(text, larger_ratio(*early_on)))
        text = f"{KINDS[kind]}: the share of paths on the smooth half grows (ratio at the end against the start)"
        grown.append(Claim(text, larger_ratio(seen.path_ratio(kind, end), seen.path_ratio(kind, start))))
    return [*more, *grown]


def _early(seen: CircleRuns, kind: str) -> Claim:
    """Decide whether the overlap kernel at the early epoch is nearer to its end than to its start."""
    triples = list(zip(*(seen.kernels(kind, "overlap", epoch) for epoch in seen.shown), strict=True))
    back = numbers(float((early - start).norm()) for start, early, _ in triples)
    ahead = numbers(float((early - end).norm()) for _, early, end in triples)
    text = f"{KINDS[kind]}: at epoch {seen.shown[1]} the overlap kernel is nearer to its end than to its start"
    return Claim(f"{text} (‖Λ − Λ_start‖ against ‖Λ − Λ_end‖)", greater(back, ahead, paired=True))


def _moving(seen: CircleRuns, kind: str) -> Claim:
    """Decide whether the tangent kernel is far from stationary: farther from its start than another run's start."""
    text = f"{KINDS[kind]}: the tangent kernel ends farther from its start than another start is (far from stationary)"
    moved, other = seen.moved(kind, "tangent", seen.shown[2]), seen.between_starts(kind, "tangent")
    return Claim(text, larger_ratio(moved, other))


def _smooth_first(seen: CircleRuns, kind: str) -> Claim:
    early = seen.shown[1]
    text = f"{KINDS[kind]}: the smooth half is learnt first (errors at epoch {early}, rough over smooth half)"
    return Claim(text, larger_ratio(*reversed(seen.halves(kind, "error", early))))


def _artefacts(seen: CircleRuns) -> list[Claim]:
    made = []
    for kind in FROZEN:
        text = (
            f"{KINDS[kind]}: artefacts of high frequency stay on the smooth half (energy at frequencies ≥ {seen.rough} "
            f"after {seen.end(kind)} epochs, over the DLGN's after {seen.end('dlgn')})"
        )
        made.append(Claim(text, larger_ratio(seen.artefacts(kind), seen.artefacts("dlgn"))))
    frozen = [seen.halves(kind, "error", seen.shown[2])[0] for kind in FROZEN]
    free = seen.halves("dlgn", "error", seen.shown[2])[0]
    text = f"Frozen gates, hard and soft, leave larger errors on the smooth half at epoch {seen.shown[2]}"
    return [*made, Claim(text, all_of([larger_ratio(one, free) for one in frozen]))]


def _half_spaces(seen: CircleRuns) -> list[Claim]:
    start, _, end = seen.shown
    last = seen.layers - 1
    tilted, gathered = seen.tilt("dlgn", end, last), seen.concentration(end, last)[0]
    turn = "The gates of the DLGN's last layer turn to the smooth half (tilt at the end against the start)"
    gather = "The half-spaces of the DLGN's last layer gather around one direction (concentration, end against start)"
    more_gather = "Those of the last layer more than those of the first (concentration at the end)"
    return [
        Claim(turn, greater(tilted, seen.tilt("dlgn", start, last), paired=True)),
        Claim(
            "The last layer's more than the first's (tilts at the end)",
            greater(tilted, seen.tilt("dlgn", end, 0), paired=True),
        ),
        Claim(gather, greater(gathered, seen.concentration(start, last)[0], paired=True)),
        Claim(more_gather, greater(gathered, seen.concentration(end, 0)[0], paired=True)),
    ]
