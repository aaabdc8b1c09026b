"""Training's state on disk, so that it can be taken up where it was left."""

import json
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from gatelab.errors import RunError
from gatelab.lab.team import Team
from gatelab.lab.training import Keeper, Progress
from gatelab.work.files import write_durably


class Checkpoint(Keeper):
    """One safetensors file, replaced as a whole after every epoch."""

    def __init__(self, path: Path):
        """Keep the state at ``path``."""
        self._path = path

    def load(self, team: Team, optimiser: torch.optim.Optimizer) -> Progress:
        """Take up what the file holds; a fresh start if there is none."""
        if not self._path.exists():
            return Progress()
        try:
            with safe_open(self._path, framework="pt") as file:
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  no mapping
                about = json.loads((file.metadata() or {})["progress"])
        except (SafetensorError, KeyError, ValueError) as error:
            raise RunError(f"{self._path} is not a checkpoint ({error}); remove it to start that cell anew") from error
        team.load(_part(tensors, "model/"))
        _load_optimiser(optimiser, _part(tensors, "optimiser/"))
        return Progress(about["epoch"], about["history"], about["best_score"], _part(tensors, "best/"))

    def save(self, team: Team, optimiser: torch.optim.Optimizer, progress: Progress) -> None:
        """Write the file under another name, to the disk, and rename it."""
        tensors = {f"model/{name}": tensor for name, tensor in team.state().items()}
        tensors |= {f"best/{name}": tensor for name, tensor in progress.best.items()}
        for number, state in optimiser.state_dict()["state"].items():
            tensors |= {
                f"optimiser/{number}/{name}": value for name, value in state.items() if isinstance(value, Tensor)
            }
        about = {"epoch": progress.epoch, "history": progress.history, "best_score": progress.best_score}
        content = save({name: t.contiguous() for name, t in tensors.items()}, {"progress": json.dumps(about)})
        write_durably(self._path, content)


def _part(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def _load_optimiser(optimiser: torch.optim.Optimizer, tensors: dict[str, Tensor]) -> None:
    state: dict[int, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        number, _, key = name.partition("/")
        state.setdefault(int(number), {})[key] = tensor
    optimiser.load_state_dict({**optimiser.state_dict(), "state": state})
