"""What the circle experiment says: tables and claims from what was seen."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from gatelab.data.circle_data import Regression
from gatelab.lab.findings import Table
from gatelab.lab.runs import Result
from gatelab.lab.verdicts import Claim, Sample, Verdict, greater, greater_within_runs, larger_within_runs, readable
from gatelab.papers.halfspace.circle_look import concentration

KINDS: Mapping[str, str] = {"relu": "ReLU", "dlgn": "DLGN", "frozen": "DLGN, frozen gates"}
LEARNT = 0.01  # the mean square at which the paper takes the target for learnt


@dataclass(frozen=True)
class Seen:
    """All that was seen, by kind of network, epoch and run.

    Attributes:
        results: of the cells.
        data: the circle.
        shown: the start, an early epoch, the end.
    """

    results: Mapping[str, Result]
    data: Regression
    shown: tuple[int, int, int]

    def looks(self, kind: str, epoch: int) -> list[dict[str, Any]]:
        """What was seen of each run at an epoch."""
        return next(seen["members"] for seen in self.results[kind]["seen"] if seen["epoch"] == epoch)

    def losses(self, kind: str) -> list[list[float]]:
        """The mean square over epochs, of each run; training's loss has a factor ½."""
        return [[2 * loss for loss in history] for history in self.results[kind]["train_loss"]]

    def epochs_to_learn(self, kind: str) -> list[int | None]:
        """Epochs until the mean square is ``LEARNT``; None if it never is."""
        return [
            next((epoch for epoch, loss in enumerate(history, start=1) if loss < LEARNT), None)
            for history in self.losses(kind)
        ]

    def halves(self, kind: str, what: str, epoch: int) -> tuple[Sample, Sample]:
        """A quantity on the upper and the lower half, over runs."""
        upper, lower = zip(*(look[what] for look in self.looks(kind, epoch)), strict=True)
        return Sample(upper, percent=False), Sample(lower, percent=False)

    def path_ratio(self, kind: str, epoch: int) -> Sample:
        """Active paths on the upper half over those on the lower, of each run."""
        pairs = (look["paths"] for look in self.looks(kind, epoch))
        return Sample(tuple(upper / max(lower, 1e-9) for upper, lower in pairs), percent=False)

    def tilt(self, kind: str, epoch: int, layer: int) -> Sample:
        """How much more of the upper half the gates of a layer are open on, over runs."""
        return Sample(tuple(look["tilt"][layer] for look in self.looks(kind, epoch)), percent=False)

    def concentration(self, epoch: int, layer: int) -> tuple[Sample, Sample]:
        """How much the DLGN's half-spaces of a layer point one way, and how much up; over runs."""
        found = [concentration(look["half_spaces"][layer]) for look in self.looks("dlgn", epoch)]
        one_way, up = zip(*found, strict=True)
        return Sample(one_way, percent=False), Sample(up, percent=False)

    def overlaps(self, kind: str, epoch: int) -> list[Tensor]:
        """The trace-normalised overlap kernels of the runs."""
        return [torch.tensor(look["overlap"], dtype=torch.float64) for look in self.looks(kind, epoch)]


def answer(seen: Seen) -> str:
    """What was found, in a sentence or two."""
    start, _, end = seen.shown
    ratio, frozen = seen.path_ratio("dlgn", end), seen.path_ratio("frozen", start)
    return (
        f"The DLGN opens {ratio.text()} times as many paths on the smooth half of the circle as on the rough half "
        f"after training ({seen.path_ratio('dlgn', start).text()} before); the ReLU network "
        f"{seen.path_ratio('relu', end).text()}. {_learning_time(seen)} Frozen gates stay at {frozen.text()}."
    )


def _learning_time(seen: Seen) -> str:
    told = [f"{name} {_epochs_text(seen.epochs_to_learn(kind))}" for kind, name in KINDS.items()]
    return f"Epochs to a mean square of {LEARNT:g}: {', '.join(told)}."


def _epochs_text(epochs: Sequence[int | None]) -> str:
    return "/".join("never" if epoch is None else str(epoch) for epoch in epochs)


def tables(seen: Seen) -> tuple[Table, ...]:
    """Learning, paths, and half-spaces."""
    start, early, end = seen.shown
    learning, paths = [], []
    for kind, name in KINDS.items():
        errors = [part for epoch in (early, end) for part in seen.halves(kind, "error", epoch)]
        final = Sample(Sample.last(seen.losses(kind)).values, percent=False)
        learning.append((name, *(e.text() for e in errors), final.text(), _epochs_text(seen.epochs_to_learn(kind))))
        paths.append((name, *(seen.path_ratio(kind, epoch).text() for epoch in seen.shown)))
    moments = ("at the start", f"at epoch {early}", f"at epoch {end}")
    layers = range(len(seen.looks("dlgn", start)[0]["tilt"]))
    tilts = tuple(
        (f"{layer + 1}", *(seen.tilt(kind, epoch, layer).text() for kind in ("relu", "dlgn") for epoch in (start, end)))
        for layer in layers
    )
    normals = tuple(
        (f"{layer + 1}", *(part.text() for epoch in (start, end) for part in seen.concentration(epoch, layer)))
        for layer in layers
    )
    return (
        Table(
            "Mean squared error, mean ± standard deviation over runs",
            (
                *("network", f"epoch {early}, smooth half", f"epoch {early}, rough half"),
                *("end, smooth half", "end, rough half", "last epoch's mean", f"epochs to {LEARNT:g}, each run"),
            ),
            tuple(learning),
            "The paper: about 200 epochs for ReLU and DLGN, more than 2000 with frozen gates.",
        ),
        Table("Active paths on the smooth half, over those on the rough half", ("network", *moments), tuple(paths)),
        Table(
            "How much more of the smooth half a gate is open on, by layer",
            ("layer", "ReLU, start", "ReLU, end", "DLGN, start", "DLGN, end"),
            tilts,
            "The share of the smooth half on which a gate is open less that of the rough half, mean over the layer's "
            "gates: 1 is exactly the smooth half, 0 no preference, −1 the rough half.",
        ),
        Table(
            "How much the DLGN's half-spaces point one way, by layer",
            ("layer", "concentration, start", "to the smooth half, start", "concentration, end", "to it, end"),
            normals,
            "Concentration is the length of the mean of a layer's unit normals: 0 if they cancel, 1 if all are one "
            "direction. Next to it is how far that mean points to the middle of the smooth half, −1 to 1.",
        ),
    )


def claims(seen: Seen) -> tuple[Claim, ...]:
    """What the paper says, decided."""
    start, early, end = seen.shown
    more = [
        larger_within_runs(
            f"{KINDS[kind]}: more paths on the smooth half {when}",
            *seen.halves(kind, "paths", epoch),
            f"ratio {seen.path_ratio(kind, epoch).text()}, above 1 in "
            f"{sum(ratio > 1 for ratio in seen.path_ratio(kind, epoch).values)} runs",
        )
        for kind in ("relu", "dlgn")
        for epoch, when in ((early, f"at epoch {early}"), (end, "at the end"))
    ]
    grown = [
        larger_within_runs(
            f"{KINDS[kind]}: the share of paths on the smooth half grows (ratio at the end against the start)",
            seen.path_ratio(kind, end),
            seen.path_ratio(kind, start),
        )
        for kind in ("relu", "dlgn")
    ]
    last = len(seen.looks("dlgn", start)[0]["tilt"]) - 1
    final = seen.tilt("dlgn", end, last)
    return (
        _learn(seen),
        _slow(seen),
        *more,
        *grown,
        *(_early(seen, kind) for kind in ("relu", "dlgn")),
        greater(
            f"DLGN: the smooth half is learnt first (errors at epoch {early}, rough over smooth half)",
            *reversed(seen.halves("dlgn", "error", early)),
        ),
        greater_within_runs(
            "The gates of the DLGN's last layer turn to the smooth half (tilt at the end against the start)",
            final,
            seen.tilt("dlgn", start, last),
        ),
        greater_within_runs(
            "The last layer's more than the first's (tilts at the end)", final, seen.tilt("dlgn", end, 0)
        ),
        greater_within_runs(
            "The half-spaces of the DLGN's last layer gather around one direction (concentration, end against start)",
            seen.concentration(end, last)[0],
            seen.concentration(start, last)[0],
        ),
        greater_within_runs(
            "Those of the last layer more than those of the first (concentration at the end)",
            seen.concentration(end, last)[0],
            seen.concentration(end, 0)[0],
        ),
        greater(
            "Frozen gates leave larger errors on the smooth half at the end",
            seen.halves("frozen", "error", end)[0],
            seen.halves("dlgn", "error", end)[0],
        ),
    )


def _learn(seen: Seen) -> Claim:
    learnt = [epoch is not None for kind in ("relu", "dlgn") for epoch in seen.epochs_to_learn(kind)]
    told = ", ".join(f"{KINDS[kind]} {_epochs_text(seen.epochs_to_learn(kind))}" for kind in ("relu", "dlgn"))
    verdict = Verdict.HOLDS if all(learnt) else Verdict.FAILS
    return Claim(f"ReLU and DLGN bring the mean square below {LEARNT:g} in all runs", verdict, f"epochs: {told}")


def _slow(seen: Seen) -> Claim:
    """Runs that never get there count as the last epoch; where that could be what decides, nothing is decided."""
    limit = seen.shown[2]
    frozen, learnt = (
        Sample(tuple(float(limit if epoch is None else epoch) for epoch in seen.epochs_to_learn(kind)), percent=False)
        for kind in ("frozen", "dlgn")
    )
    ratio = readable(frozen.mean / learnt.mean)
    text = f"Frozen gates take longer to learn: more than ten times as many epochs says the paper, {ratio} times here"
    claim = greater(text, frozen, learnt)
    at_least = {Verdict.HOLDS: "dlgn", Verdict.FAILS: "frozen"}.get(claim.verdict)
    if at_least is not None and None in seen.epochs_to_learn(at_least):
        evidence = f"{claim.evidence}, but {KINDS[at_least]} did not learn in all of them"
        return replace(claim, verdict=Verdict.UNDECIDED, evidence=evidence)
    return claim


def _early(seen: Seen, kind: str) -> Claim:
    """Whether the overlap kernel at the early epoch is nearer to its end than to its start."""
    start, early, end = (seen.overlaps(kind, epoch) for epoch in seen.shown)
    back = Sample(tuple(float((e - s).norm()) for s, e in zip(start, early, strict=True)), percent=False)
    ahead = Sample(tuple(float((e - f).norm()) for e, f in zip(early, end, strict=True)), percent=False)
    text = f"{KINDS[kind]}: at epoch {seen.shown[1]} the overlap kernel is nearer to its end than to its start"
    return greater_within_runs(f"{text} (‖Λ − Λ_start‖ against ‖Λ − Λ_end‖)", back, ahead)
