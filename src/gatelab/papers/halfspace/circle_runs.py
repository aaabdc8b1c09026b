"""The observations of the circle experiment, by kind of network, epoch and run.

DLGN: deep linearly gated network.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

import torch
from torch import Tensor

from gatelab.data.circle_data import Regression
from gatelab.lab.looks import Look
from gatelab.lab.runs import Result
from gatelab.lab.verdicts import Sample
from gatelab.papers.common import numbers
from gatelab.papers.halfspace.spectrum import energy_from, inner_energy

KINDS: Mapping[str, str] = {
    "relu": "ReLU",
    "dlgn": "DLGN",
    "frozen": "DLGN, frozen hard gates",
    "frozen-soft": "DLGN, frozen soft gates",
}
LEARNERS = ("relu", "dlgn")
FROZEN = ("frozen", "frozen-soft")
LEARNT = 0.01  # the mean square below which the paper calls the target learnt
EARLY = 0.3  # the mean square at which, according to the paper, features exist already: "from 0.5 to 0.25"


@dataclass(frozen=True)
class CircleRuns:
    """All observations.

    Attributes:
        results: the cells' results.
        data: the circle.
        shown: the start, an early epoch, the end.
        frozen_end: the last epoch of networks with frozen gates.
        rough: the frequency of the rough half.
    """

    results: Mapping[str, Result]
    data: Regression
    shown: tuple[int, int, int]
    frozen_end: int
    rough: int

    def looks(self, kind: str, epoch: int) -> list[Look]:
        """Return the observation of each run at an epoch."""
        return next(seen["members"] for seen in self.results[kind]["seen"] if seen["epoch"] == epoch)

    def end(self, kind: str) -> int:
        """The last epoch of a kind."""
        return max(self.frozen_end, self.shown[2]) if kind in FROZEN else self.shown[2]

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

    def sample(self, kind: str, epoch: int, read: Callable[[Look], float]) -> Sample:
        """Return what ``read`` finds in the observations at an epoch, over runs."""
        return numbers(map(read, self.looks(kind, epoch)))

    def halves(self, kind: str, what: str, epoch: int) -> tuple[Sample, Sample]:
        """Return a quantity on the upper and on the lower half, over runs."""
        upper, lower = (self.sample(kind, epoch, lambda look, half=half: look[what][half]) for half in (0, 1))
        return upper, lower

    def early_paths(self, kind: str) -> tuple[Sample, Sample]:
        """Return active paths on both halves at each run's first look with a mean square below ``EARLY``."""
        found = []
        for run in range(len(self.results[kind]["seeds"])):
            looks = [seen["members"][run] for seen in self.results[kind]["seen"]]
            found += [look["paths"] for look in looks if sum(look["error"]) / 2 < EARLY][:1]
        return numbers(above for above, _ in found), numbers(below for _, below in found)

    def path_ratio(self, kind: str, epoch: int) -> Sample:
        """Return the ratio of active paths on the upper half to those on the lower, over runs."""
        return self.sample(kind, epoch, lambda look: look["paths"][0] / max(look["paths"][1], 1e-9))

    def tilt(self, kind: str, epoch: int, layer: int) -> Sample:
        """Return a layer's tilt: its share of open gates on the upper half minus that on the lower, over runs."""
        return self.sample(kind, epoch, lambda look: look["tilt"][layer])

    def concentration(self, epoch: int, layer: int) -> list[Sample]:
        """Return the concentration of a DLGN layer's half-spaces, and how far they point up, over runs."""
        return [
            self.sample("dlgn", epoch, lambda look, part=part: concentration(look["half_spaces"][layer])[part])
            for part in (0, 1)
        ]

    def artefacts(self, kind: str) -> Sample:
        """Return the error's energy on the smooth half at frequencies of the rough half and above, at the end."""
        return self.sample(kind, self.end(kind), lambda look: energy_from(look["spectrum"], self.rough))

    def inner_artefacts(self, kind: str) -> Sample:
        """Return the same energy without a tenth of the half at each end, from the training points."""

        def energy(look: Look) -> float:
            error = torch.tensor(look["outputs"], dtype=torch.float64) - self.data.train_y
            return inner_energy(error, self.rough)

        return self.sample(kind, self.end(kind), energy)

    def kernels(self, kind: str, what: str, epoch: int) -> list[Tensor]:
        """Return the trace-normalised overlap or tangent kernels of the runs."""
        return [torch.tensor(look[what], dtype=torch.float64) for look in self.looks(kind, epoch)]

    def moved(self, kind: str, what: str, epoch: int) -> Sample:
        """Return how far a kernel is from its start, relative to the start: ‖K − K₀‖ / ‖K₀‖."""
        pairs = zip(self.kernels(kind, what, epoch), self.kernels(kind, what, self.shown[0]), strict=True)
        return numbers(float((now - start).norm() / start.norm()) for now, start in pairs)

    def between_starts(self, kind: str, what: str) -> Sample:
        """Return how far the start of the next run is from the start of a run, relative to the latter."""
        starts = self.kernels(kind, what, self.shown[0])
        others = starts[1:] + starts[:1]
        return numbers(float((b - a).norm() / a.norm()) for a, b in zip(starts, others, strict=True))


def concentration(half_spaces: Sequence[Sequence[float]]) -> tuple[float, float]:
    """Return how concentrated a layer's normals are, and how far they point up, to the smooth half.

    The first number is the length of the mean of the unit normals: 0 if they cancel, 1 if all are one direction. The
    second is that mean's second coordinate. A half-space is (normal, offset); those without a normal are left out.
    """
    normals = torch.tensor(half_spaces, dtype=torch.float64)[:, :2]
    lengths = normals.norm(dim=1)
    if not bool((lengths > 0).any()):
        return 0.0, 0.0
    mean = (normals[lengths > 0] / lengths[lengths > 0, None]).mean(dim=0)
    return float(mean.norm()), float(mean[1])


def times_text(times: Sequence[int | None], horizon: int) -> str:
    """Describe the runs' times; times beyond the horizon are counted, never averaged."""
    known = sorted(time for time in times if time is not None)
    never = len(times) - len(known)
    unknown = f"{never} of {len(times)} not within {horizon:,}"
    if not known:
        return unknown
    middle = median([time if time is not None else float("inf") for time in times])
    told = f"{known[0]}–{known[-1]}" + ("" if middle == float("inf") else f", median {middle:g}")
    return told if not never else f"{told}; {unknown}"
