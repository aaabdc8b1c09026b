"""Looking at every member of a team while it trains: what is seen lies in files, so that it survives a stop."""

import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from gatelab.data.dataset import Examples
from gatelab.lab.runs import Context, Result
from gatelab.lab.team import Team
from gatelab.lab.training import Observer, TrainConfig
from gatelab.lab.twins import train_cell
from gatelab.work.files import write_json

Look = dict[str, Any]


class Looks:
    """Calls ``look(model, epoch, place)`` for every network at some epochs and keeps what it returns, plain data."""

    def __init__(self, folder: Path, epochs: Iterable[int], look: Callable[[nn.Module, int, int], Look]):
        """Keep files in ``folder``; ``place`` is a network's number among all that train in a cell."""
        self._folder, self._epochs, self._look = folder, sorted(set(epochs)), look

    def team(self, place: int) -> Observer:
        """The looks at the team whose first member stands at ``place``."""

        def observe(epoch: int, team: Team) -> None:
            if epoch in self._epochs:
                for number in range(team.size):
                    seen = self._look(team.member(number), epoch, place + number)
                    write_json(self._file(epoch, place + number), seen)

        return observe

    def seen(self, networks: int) -> list[dict[str, Any]]:
        """What was seen: for each epoch its number and a look for each of so many networks."""
        return [
            {"epoch": epoch, "members": [json.loads(self._file(epoch, k).read_text()) for k in range(networks)]}
            for epoch in self._epochs
        ]

    def _file(self, epoch: int, place: int) -> Path:
        return self._folder / f"seen-{epoch}-{place}.json"


def train_and_look(
    models: Sequence[nn.Module],
    seeds: Sequence[int],
    data: Examples,
    config: TrainConfig,
    context: Context,
    epochs: Iterable[int],
    look: Callable[[nn.Module, int, int], Look],
) -> Result:
    """A cell that trains models and looks at each at some epochs: what training gives, and ``seen``."""
    looks = Looks(context.folder, epochs, look)
    return {**train_cell(models, seeds, data, config, context, [looks.team]), "seen": looks.seen(len(models))}


def short(values: Tensor) -> Any:
    """Numbers, or rows of numbers, with four digits: what a picture can show."""
    exact = values.detach().double()
    scale = 10.0 ** (3 - exact.abs().clamp(min=1e-99).log10().floor())
    return ((exact * scale).round() / scale).tolist()
