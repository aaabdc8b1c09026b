"""Looking at every member of a team while it trains: what is seen lies in files, so that it survives a stop."""

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from gatelab.experiments.regimes import Watcher
from gatelab.experiments.team import Team
from gatelab.experiments.train import Observer
from gatelab.runs import write_json

Look = dict[str, Any]


class Looks:
    """Calls ``look(model, epoch, place)`` for every network at some epochs and keeps what it returns, plain data."""

    def __init__(self, folder: Path, epochs: Iterable[int], look: Callable[[nn.Module, int, int], Look]):
        """Keep files in ``folder``; ``place`` is a network's number among all that train in a cell."""
        self._folder, self._epochs, self._look = folder, sorted(set(epochs)), look

    def watcher(self) -> Watcher:
        """To be handed to training."""

        def team(place: int) -> Observer:
            def observe(epoch: int, members: Team) -> None:
                if epoch in self._epochs:
                    for number in range(members.size):
                        seen = self._look(members.member(number), epoch, place + number)
                        write_json(self._file(epoch, place + number), seen)

            return observe

        return team

    def seen(self, networks: int) -> list[dict[str, Any]]:
        """What was seen: for each epoch its number and a look for each of so many networks."""
        return [
            {"epoch": epoch, "members": [json.loads(self._file(epoch, k).read_text()) for k in range(networks)]}
            for epoch in self._epochs
        ]

    def _file(self, epoch: int, place: int) -> Path:
        return self._folder / f"seen-{epoch}-{place}.json"


def short(values: Tensor) -> Any:
    """Numbers, or rows of numbers, with four digits: what a picture can show."""
    exact = values.detach().double()
    scale = 10.0 ** (3 - exact.abs().clamp(min=1e-99).log10().floor())
    return ((exact * scale).round() / scale).tolist()
