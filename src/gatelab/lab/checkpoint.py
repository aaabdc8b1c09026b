"""The state of training, in memory and on disk, so that training can continue where it stopped."""

import json
from dataclasses import dataclass, field
from pathlib import Path

import torch
from safetensors.torch import save
from torch import Tensor

from gatelab.errors import RunError
from gatelab.lab.runs.directory import must_be_sealed
from gatelab.lab.team import StateDict, Team
from gatelab.work.tensors import read_tensors, write_tensors


@dataclass
class TrainingState:
    """Everything that a checkpoint holds besides the team and its optimiser.

    The history has, for each epoch and member, train_loss (mean over the epoch), test_loss and, if there are labels,
    test_accuracy. The score is the test accuracy or, without labels, minus the test loss.
    """

    epoch: int = 0  # epochs done
    history: dict[str, list[list[float]]] = field(default_factory=dict)
    best_score: list[float] = field(default_factory=list)  # each member's best so far
    best: StateDict = field(default_factory=dict)  # each member's parameters at its best epoch


class Checkpoint:
    """One safetensors file, replaced as a whole after every epoch."""

    def __init__(self, path: Path):
        self._path = path

    def load(self, team: Team, optimiser: torch.optim.Optimizer) -> TrainingState:
        """Restore team and optimiser from the file; without a file, return a fresh state."""
        if not self._path.exists():
            return TrainingState()
        tensors, metadata = read_tensors(self._path, must_be_sealed=must_be_sealed(self._path.parent))
        try:
            about = json.loads(metadata["progress"])
            team.load(part(tensors, "model/"))
            moments: dict[int, StateDict] = {}
            for name, tensor in part(tensors, "optimiser/").items():
                number, _, key = name.partition("/")
                moments.setdefault(int(number), {})[key] = tensor
            # Learning rate and momentum come from the configuration; a checkpoint holds only what training has changed.
            optimiser.load_state_dict({**optimiser.state_dict(), "state": moments})
            return TrainingState(about["epoch"], about["history"], about["best_score"], part(tensors, "best/"))
        except (KeyError, ValueError, TypeError, RuntimeError) as error:
            raise RunError(
                f"{self._path} is not a checkpoint of this training ({error}); remove it to restart that cell"
            ) from error

    def save(self, team: Team, optimiser: torch.optim.Optimizer, state: TrainingState) -> None:
        """Write the file durably."""
        tensors = {f"model/{name}": tensor for name, tensor in team.state().items()}
        tensors |= {f"best/{name}": tensor for name, tensor in state.best.items()}
        for number, moments in optimiser.state_dict()["state"].items():
            tensors |= {
                f"optimiser/{number}/{name}": value for name, value in moments.items() if isinstance(value, Tensor)
            }
        about = {"epoch": state.epoch, "history": state.history, "best_score": state.best_score}
        content = save({name: t.contiguous() for name, t in tensors.items()}, {"progress": json.dumps(about)})
        write_tensors(self._path, content)


def part(tensors: StateDict, prefix: str) -> StateDict:
    """The tensors whose names begin with a prefix, without it."""
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
