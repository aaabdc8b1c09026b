"""halfspace, Figures 2–6, 9 and 10: the answer, tables and claims of the circle experiment."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from gatelab.data.circle_data import Regression
from gatelab.lab.findings import Table
from gatelab.lab.looks import Look
from gatelab.lab.runs import Result
from gatelab.lab.verdicts import Claim, Sample, greater, larger_ratio, later, share_above
from gatelab.papers.common import numbers

KINDS: Mapping[str, str] = {"relu": "ReLU", "dlgn": "DLGN", "frozen": "DLGN, frozen gates"}
LEARNT = 0.01  # the mean square below which the paper calls the target learnt


@dataclass(frozen=True)
class CircleRuns:
    """All observations, by kind of network, epoch and run.

    Attributes:
        results: the cells' results.
        data: the circle.
        shown: the start, an early epoch, the end.
    """

    results: Mapping[str, Result]
    data: Regression
    shown: tuple[int, int, int]

    def looks(self, kind: str, epoch: int) -> list[Look]:
        """Return the observation of each run at an epoch."""
        return next(seen["members"] for seen in self.results[kind]["seen"] if seen["epoch"] == epoch)

    @property
    def layers(self) -> int:
        """The number of gated layers."""
        return len(self.looks("dlgn", self.shown[0])[0]["tilt"])

    def losses(self, kind: str) -> list[list[float]]:
        """Return the mean square over epochs, for each run; the training loss has a factor ½."""
        return [[2 * loss for loss in history] for history in self.results[kind]["train_loss"]]

    def epochs_to_learn(self, kind: str) -> list[int | None]:
        """Return the number of epochs until the mean square falls below ``LEARNT``; None if it never does."""
        return [
            next((epoch for epoch, loss in enumerate(history, start=1) if loss < LEARNT), None)
            for history in self.losses(kind)
        ]

    def epochs_text(self, *kinds: str) -> str:
        """The epochs to learn of each run, in words."""
        runs = {kind: map(str, self.epochs_to_learn(kind)) for kind in kinds}
        return ", ".join(f"{KINDS[kind]} {'/'.join(own)}" for kind, own in runs.items()).replace("None", "never")

    def sample(self, kind: str, epoch: int, read: Callable[[Look], float]) -> Sample:
        """Return what ``read`` finds in the observations at an epoch, over runs."""
        return numbers(map(read, self.looks(kind, epoch)))

    def halves(self, kind: str, what: str, epoch: int) -> tuple[Sample, Sample]:
        """Return a quantity on the upper and on the lower half, over runs."""
        upper, lower = (self.sample(kind, epoch, lambda look, half=half: look[what][half]) for half in (0, 1))
        return upper, lower

    def path_ratio(self, kind: str, epoch: int) -> Sample:
        """Return the ratio of active paths on the upper half to those on the lower, over runs."""
        return self.sample(kind, epoch, lambda look: look["paths"][0] / max(look["paths"][1], 1e-9))

    def tilt(self, kind: str, epoch: int, layer: int) -> Sample:
        """Return how much more of the upper half the gates of a layer are open on, over runs."""
        return self.sample(kind, epoch, lambda look: look["tilt"][layer])

    def concentration(self, epoch: int, layer: int) -> list[Sample]:
        """Return how much the DLGN's half-spaces of a layer point one way, and how much up, over runs."""
        return [
            self.sample("dlgn", epoch, lambda look, part=part: concentration(look["half_spaces"][layer])[part])
            for part in (0, 1)
        ]

    def overlaps(self, kind: str, epoch: int) -> list[Tensor]:
        """Return the trace-normalised overlap kernels of the runs."""
        return [torch.tensor(look["overlap"], dtype=torch.float64) for look in self.looks(kind, epoch)]


def concentration(half_spaces: Sequence[Sequence[float]]) -> tuple[float, float]:
    """Return how much the normals of a layer point one way, and how much they point up, to the smooth half.

    The first number is the length of the mean of the unit normals: 0 if they cancel, 1 if all are one direction. The
    second is that mean's second coordinate. A half-space is (normal, offset); those without a normal are left out.
    """
    normals = torch.tensor(half_spaces, dtype=torch.float64)[:, :2]
    lengths = normals.norm(dim=1)
    if not bool((lengths > 0).any()):
        return 0.0, 0.0
    mean = (normals[lengths > 0] / lengths[lengths > 0, None]).mean(dim=0)
    return float(mean.norm()), float(mean[1])


def answer(seen: CircleRuns) -> str:
    """The finding in a few sentences."""
    start, _, end = seen.shown
    before, after = (seen.path_ratio("dlgn", epoch).text() for epoch in (start, end))
    return (
        f"The DLGN opens {after} times as many paths on the smooth half of the circle as on the rough half after "
        f"training ({before} before); the ReLU network {seen.path_ratio('relu', end).text()}. Epochs to a mean square "
        f"of {LEARNT:g}: {seen.epochs_text(*KINDS)}. Frozen gates stay at {seen.path_ratio('frozen', start).text()}."
    )


def tables(seen: CircleRuns) -> tuple[Table, ...]:
    """Learning, paths, and half-spaces."""
    start, early, end = seen.shown
    learning, paths = [], []
    for kind, name in KINDS.items():
        errors = [part.text() for epoch in (early, end) for part in seen.halves(kind, "error", epoch)]
        final = numbers(history[-1] for history in seen.losses(kind))
        learning.append((name, *errors, final.text(), seen.epochs_text(kind).removeprefix(f"{name} ")))
        paths.append((name, *(seen.path_ratio(kind, epoch).text() for epoch in seen.shown)))
    tilts, normals = [], []
    for layer in range(seen.layers):
        samples = [seen.tilt(kind, epoch, layer) for kind in ("relu", "dlgn") for epoch in (start, end)]
        tilts.append((f"{layer + 1}", *(sample.text() for sample in samples)))
        samples = [part for epoch in (start, end) for part in seen.concentration(epoch, layer)]
        normals.append((f"{layer + 1}", *(sample.text() for sample in samples)))
    halves = [f"{when}, {half} half" for when in (f"epoch {early}", "end") for half in ("smooth", "rough")]
    return (
        Table(
            "Mean squared error, mean ± standard deviation over runs",
            ("network", *halves, "last epoch's mean", f"epochs to {LEARNT:g}, each run"),
            tuple(learning),
            "The paper: about 200 epochs for ReLU and DLGN, more than 2000 with frozen gates.",
        ),
        Table(
            "Active paths on the smooth half, over those on the rough half",
            ("network", "at the start", f"at epoch {early}", f"at epoch {end}"),
            tuple(paths),
        ),
        Table(
            "How much more of the smooth half a gate is open on, by layer",
            ("layer", "ReLU, start", "ReLU, end", "DLGN, start", "DLGN, end"),
            tuple(tilts),
            "The share of the smooth half on which a gate is open minus that of the rough half, mean over the layer's "
            "gates: 1 is exactly the smooth half, 0 no preference, −1 the rough half.",
        ),
        Table(
            "How much the DLGN's half-spaces point one way, by layer",
            ("layer", "concentration, start", "to the smooth half, start", "concentration, end", "to it, end"),
            tuple(normals),
            "Concentration is the length of the mean of a layer's unit normals: 0 if they cancel, 1 if all are one "
            "direction. Next to it is how far that mean points to the middle of the smooth half, −1 to 1.",
        ),
        *_hardening_table(seen),
    )


def _hardening_table(seen: CircleRuns) -> tuple[Table, ...]:
    """What hard gates would cost the DLGN, whose half-spaces and paths are those of hard gates."""
    if not all("hardening" in look for epoch in seen.shown for look in seen.looks("dlgn", epoch)):
        return ()  # a run of an earlier version

    def error(epoch: int, part: int) -> str:
        return seen.sample("dlgn", epoch, lambda look: look["hardening"][part]).text()

    table = Table(
        "The DLGN with the soft gates that learnt, and with hard ones: mean squared error",
        ("epoch", "soft gates", "hard gates"),
        tuple((str(epoch), error(epoch, 0), error(epoch, 1)) for epoch in seen.shown),
        "Half-spaces, paths and overlaps are those of the network with hard gates. Where its error is much larger, "
        "they describe another function than the one that was learnt.",
    )
    return (table,)


def claims(seen: CircleRuns) -> tuple[Claim, ...]:
    """Decide the paper's claims."""
    start, early, end = seen.shown
    more, grown = [], []
    for kind in ("relu", "dlgn"):
        for epoch, when in ((early, f"at epoch {early}"), (end, "at the end")):
            text = f"{KINDS[kind]}: more paths on the smooth half {when}"
            more.append(Claim(text, larger_ratio(*seen.halves(kind, "paths", epoch))))
        text = f"{KINDS[kind]}: the share of paths on the smooth half grows (ratio at the end against the start)"
        grown.append(Claim(text, larger_ratio(seen.path_ratio(kind, end), seen.path_ratio(kind, start))))
    last = seen.layers - 1
    tilted, gathered = seen.tilt("dlgn", end, last), seen.concentration(end, last)[0]
    learnt = [epoch is not None for kind in ("relu", "dlgn") for epoch in seen.epochs_to_learn(kind)]
    turn = "The gates of the DLGN's last layer turn to the smooth half (tilt at the end against the start)"
    gather = "The half-spaces of the DLGN's last layer gather around one direction (concentration, end against start)"
    more_gather = "Those of the last layer more than those of the first (concentration at the end)"
    rough_first = f"DLGN: the smooth half is learnt first (errors at epoch {early}, rough over smooth half)"
    frozen, free = (seen.halves(kind, "error", end)[0] for kind in ("frozen", "dlgn"))
    return (
        Claim(
            f"ReLU and DLGN bring the mean square below {LEARNT:g} in more than three runs of four",
            share_above(sum(learnt), len(learnt), 0.75),
        ),
        _slow(seen),
        *more,
        *grown,
        *(_early(seen, kind) for kind in ("relu", "dlgn")),
        Claim(rough_first, larger_ratio(*reversed(seen.halves("dlgn", "error", early)))),
        Claim(turn, greater(tilted, seen.tilt("dlgn", start, last), paired=True)),
        Claim(
            "The last layer's more than the first's (tilts at the end)",
            greater(tilted, seen.tilt("dlgn", end, 0), paired=True),
        ),
        Claim(gather, greater(gathered, seen.concentration(start, last)[0], paired=True)),
        Claim(more_gather, greater(gathered, seen.concentration(end, 0)[0], paired=True)),
        Claim("Frozen gates leave larger errors on the smooth half at the end", larger_ratio(frozen, free)),
    )


def _slow(seen: CircleRuns) -> Claim:
    """Decide whether frozen gates take longer; a run that has not learnt by the end takes longer than that."""
    frozen, learnt = seen.epochs_to_learn("frozen"), seen.epochs_to_learn("dlgn")
    text = "Frozen gates take longer to learn (the paper: more than ten times as many epochs)"
    return Claim(text, later(frozen, learnt, seen.shown[2]))


def _early(seen: CircleRuns, kind: str) -> Claim:
    """Decide whether the overlap kernel at the early epoch is nearer to its end than to its start."""
    triples = list(zip(*(seen.overlaps(kind, epoch) for epoch in seen.shown), strict=True))
    back = numbers(float((early - start).norm()) for start, early, _ in triples)
    ahead = numbers(float((early - end).norm()) for _, early, end in triples)
    text = f"{KINDS[kind]}: at epoch {seen.shown[1]} the overlap kernel is nearer to its end than to its start"
    return Claim(f"{text} (‖Λ − Λ_start‖ against ‖Λ − Λ_end‖)", greater(back, ahead, paired=True))
