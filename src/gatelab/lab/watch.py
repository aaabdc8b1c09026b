"""Watching a team train: gates and kernels of its first member; everybody's weights at some epochs."""

import json
from collections.abc import Set
from math import isfinite
from pathlib import Path
from typing import Any

from jaxtyping import Float
from safetensors.torch import load_file, save
from torch import Tensor

from gatelab.dynamics.tracker import GateTracker, Record
from gatelab.gates import GatePattern
from gatelab.lab.team import State, Team
from gatelab.lab.training import Observer
from gatelab.lab.twins import Watcher
from gatelab.work.files import write_durably, write_json


def keep_weights(folder: Path, epochs: Set[int]) -> Watcher:
    """A watcher that keeps everybody's weights, as they are after these epochs; see :func:`kept_weights`."""

    def watcher(place: int) -> Observer:
        def observe(epoch: int, team: Team) -> None:
            if epoch not in epochs:
                return
            for member in range(team.size):
                own = {name: tensor[member].contiguous() for name, tensor in team.state().items()}
                write_durably(_weights_path(folder, epoch, place + member), save(own))

        return observe

    return watcher


def kept_weights(folder: Path, epoch: int, count: int) -> list[State]:
    """The weights of the first ``count`` networks after an epoch."""
    return [load_file(_weights_path(folder, epoch, place)) for place in range(count)]


def _weights_path(folder: Path, epoch: int, place: int) -> Path:
    return folder / f"epoch-{epoch}-{place}.safetensors"


class Watch:
    """What it sees lies in files, so that training that is taken up again goes on with it as if nothing had happened.

    It records at the start, at every ``every``-th epoch, and at the end.
    """

    def __init__(
        self,
        folder: Path,
        probes: Float[Tensor, "n ..."],
        labels: Float[Tensor, " n"],
        *,
        epochs: int,
        every: int,
        tangent: bool = True,
    ):
        """Watch a training of so many epochs on some probes."""
        self._folder, self._epochs, self._every = folder, epochs, every
        self._probes, self._labels, self._tangent = probes, labels, tangent
        self._tracker: GateTracker | None = None

    def team(self, place: int) -> Observer:
        """The watch over the team whose first member stands at ``place``."""

        def observe(epoch: int, team: Team) -> None:
            if place == 0 and (epoch % self._every == 0 or epoch == self._epochs):
                self._record(epoch, team)

        return observe

    def records(self) -> list[dict[str, Any]]:
        """What was recorded, as plain data."""
        path = self._folder / "records.json"
        return json.loads(path.read_text()) if path.exists() else []

    def _record(self, epoch: int, team: Team) -> None:
        earlier = [record for record in self.records() if record["epoch"] < epoch]
        model = team.member(0)
        if self._tracker is None:
            before = GatePattern.load(self._gates(earlier[-1]["epoch"])) if earlier else None
            self._tracker = GateTracker(model, self._probes, self._labels, self._tangent, before)
        self._tracker.model = model
        record = self._tracker.record(epoch)
        self._tracker.gates.save(self._gates(epoch))
        write_json(self._folder / "records.json", [*earlier, _plain(record, self._tracker.gates)])

    def _gates(self, epoch: int) -> Path:
        return self._folder / f"gates-{epoch}.safetensors"


def _plain(record: Record, gates: GatePattern) -> dict[str, Any]:
    count = gates.n * sum(gates.layer(name).units for name in gates.layers)
    return {
        "epoch": record.step,
        "flipped": sum(record.flips.values()) / count if record.flips else None,
        "active": record.active,
        "cosine": record.cosine,
        "complexity": record.complexity if record.complexity is None or isfinite(record.complexity) else None,
        "tangent": {name: list(values) for name, values in record.tangent.items()},
    }
