"""Observations of networks while they train, kept in files so that they survive a stop."""

from collections.abc import Callable, Iterable
from dataclasses import asdict
from math import isfinite
from pathlib import Path
from typing import Any

from jaxtyping import Float, Shaped
from torch import Tensor, nn

from gatelab.dynamics import GateTracker
from gatelab.errors import InputError, RunError
from gatelab.gates import GatePattern
from gatelab.lab.runs.directory import must_be_sealed
from gatelab.lab.team import Team
from gatelab.work.files import read_json, write_json
from gatelab.work.tensors import REMEDY, read_tensors

Look = dict[str, Any]  # plain data that JSON can hold
DIVERGED = "diverged"  # the only entry, beside its epoch, of a look at a network that has diverged: what was refused


class Looks:
    """Calls ``look(model, epoch, place)`` at chosen epochs and keeps what it returns.

    A network's place is its index among all networks that train in a cell; only the first ``networks`` are observed.
    """

    def __init__(self, folder: Path, epochs: Iterable[int], look: Callable[[nn.Module, int, int], Look], networks: int):
        self._folder, self._epochs, self._look, self._networks = folder, sorted(set(epochs)), look, networks

    def is_due(self, epoch: int, first: int) -> bool:
        """Whether a team whose first member has this place is looked at after this epoch."""
        return epoch in self._epochs and first < self._networks

    def at(self, epoch: int, team: Team, first: int) -> None:
        """Observe a team if this is one of the epochs; ``first`` is the place of its first member."""
        if epoch in self._epochs:
            for place in range(first, min(first + team.size, self._networks)):
                write_json(self._file(epoch, place), self._look(team.member(place - first), epoch, place))

    def seen(self) -> list[dict[str, Any]]:
        """Return the observations: for each epoch its number and, as ``members``, one per network."""
        return [
            {"epoch": epoch, "members": [self._read(epoch, place) for place in range(self._networks)]}
            for epoch in self._epochs
        ]

    def _read(self, epoch: int, place: int) -> Look:
        file = self._file(epoch, place)
        if not file.exists():  # the checkpoint is from version 0.1, which used other files
            raise RunError(f"{file} is missing; remove {self._folder} and run again to repeat this cell")
        return read_json(file, REMEDY, must_be_sealed=must_be_sealed(self._folder))

    def _file(self, epoch: int, place: int) -> Path:
        return self._folder / f"seen-{epoch}-{place}.json"


def gate_looks(
    folder: Path,
    probes: Float[Tensor, "n ..."],
    labels: Shaped[Tensor, " n *k"],
    *,
    epochs: int,
    every: int,
    tangent: bool,
    kernels: str = "exact",
) -> Looks:
    """Observe the first network's gates and kernels: at the start, every ``every`` epochs, and at the end.

    The look at a network that has diverged says so instead.
    """
    when = moments(epochs, every)
    files = {epoch: folder / f"gates-{epoch}.safetensors" for epoch in when}

    end = folder / "diverged.json"  # there is nothing to see from here on

    def look(model: nn.Module, epoch: int, _place: int) -> Look:
        if epoch and end.exists():
            return {"epoch": epoch, DIVERGED: read_json(end, REMEDY)[DIVERGED]}
        # The previous gates are read from disk: this process may have taken over after a stop.
        earlier = [files[moment] for moment in when if moment < epoch]
        before = _read_gates(earlier[-1]) if earlier else None
        tracker = GateTracker(model, probes, labels, tangent, before, kernels=kernels)
        try:
            record, gates = tracker.record(epoch), tracker.gates
        except InputError as error:
            if not epoch:
                raise
            # Since the start only the weights have changed: they are no numbers any more, or too large for a kernel.
            write_json(end, {DIVERGED: str(error)})
            return {"epoch": epoch, DIVERGED: str(error)}
        gates.save(files[epoch])
        complexity = record.complexity
        return {
            "epoch": epoch,
            "flipped": record.flip_rate,
            "active": record.active,
            "cosine": record.cosine,
            "complexity": complexity if complexity is None or isfinite(complexity) else None,
            "tangent": {name: list(values) for name, values in record.tangent.items()},
            "gates": gates.kind,
            "hardening": None if record.hardening is None else asdict(record.hardening),
        }

    return Looks(folder, when, look, networks=1)


def moments(epochs: int, every: int) -> list[int]:
    """Return the epochs to observe: the start, every ``every`` epochs, and the end."""
    return sorted({*range(0, epochs, every), epochs})


def _read_gates(file: Path) -> GatePattern:
    read_tensors(
        file, must_be_sealed=must_be_sealed(file.parent)
    )  # a damaged file is an error of the run, with the run's remedy
    return GatePattern.load(file)


def short(values: Tensor) -> Any:
    """Round numbers, or rows of numbers, to the four digits that a picture can show."""
    exact = values.detach().double()
    scale = 10.0 ** (3 - exact.abs().clamp(min=1e-99).log10().floor())
    return ((exact * scale).round() / scale).tolist()
