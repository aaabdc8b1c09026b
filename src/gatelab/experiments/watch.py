"""Watching a team train: gates and kernels of its first member, and everybody's weights at some epochs."""

import json
from collections.abc import Set
from math import isfinite
from pathlib import Path
from typing import Any

from jaxtyping import Float
from safetensors.torch import save
from torch import Tensor

from gatelab.dynamics import GateTracker, Record
from gatelab.experiments.team import Team
from gatelab.experiments.train import Observer
from gatelab.gates import GatePattern
from gatelab.runs import write_durably, write_json


def stage_path(folder: Path, epoch: int, place: int) -> Path:
    """Where the weights of the network at a place are kept after an epoch."""
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
        stages: Set[int] = frozenset(),
        tangent: bool = True,
    ):
        """Watch a training of so many epochs on some probes; keep all weights at the epochs ``stages``."""
        self._folder, self._epochs, self._every, self._stages = folder, epochs, every, stages
        self._probes, self._labels, self._tangent = probes, labels, tangent
        self._tracker: GateTracker | None = None

    def team(self, place: int) -> Observer:
        """The watch over the team whose first member stands at ``place``."""

        def observe(epoch: int, team: Team) -> None:
            if epoch in self._stages:
                state = team.state()
                for member in range(team.size):
                    own = {name: tensor[member].contiguous() for name, tensor in state.items()}
                    write_durably(stage_path(self._folder, epoch, place + member), save(own))
            if place == 0 and (epoch % self._every == 0 or epoch == self._epochs):
                self._record(epoch, team)

        return observe

    def records(self) -> list[dict[str, Any]]:
        """What was recorded, as plain data."""
        path = self._folder / "records.json"
        return json.loads(path.read_text()) if path.exists() else []

    def _record(self, epoch: int, team: Team) -> None:
        earlier = [record for record in self.records() if record["epoch"] < epoch]
        model = team.member(0).eval()
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
        "overlap": record.overlap,
        "complexity": record.complexity if record.complexity is None or isfinite(record.complexity) else None,
        "tangent": {name: list(values) for name, values in record.tangent.items()},
    }
