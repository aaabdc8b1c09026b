"""Training inside a cell of a run; checkpoints, observations and the best weights are in the cell's folder."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from math import isfinite
from pathlib import Path

import torch
from jaxtyping import Float
from safetensors.torch import save
from torch import Tensor, nn

from gatelab.data.user_data import Examples
from gatelab.errors import InputError
from gatelab.lab.checkpoint import Checkpoint, TrainingState, part
from gatelab.lab.looks import DIVERGED, Look, Looks, gate_looks
from gatelab.lab.optimisers import can_stack_under
from gatelab.lab.runs import Context, Result
from gatelab.lab.runs.directory import must_be_sealed
from gatelab.lab.team import SingleTeam, StateDict, Team, teams
from gatelab.lab.training import Augment, TrainConfig, train
from gatelab.work.tensors import read_tensors, write_tensors

_BEST = "best.safetensors"
Tell = Callable[[float, str], None]


def train_cell(
    models: Sequence[nn.Module],
    seeds: Sequence[int],
    data: Examples,
    config: TrainConfig,
    context: Context,
    *,
    looks: Looks | None = None,
    keep: Collection[int] = (),
    augment: Augment | None = None,
) -> Result:
    """Train models together if their architecture allows it, otherwise one by one; a single model is trained in place.

    ``seeds`` determine the order of each model's batches. :func:`kept_weights` reads the weights after the epochs in
    ``keep``. The result holds each model's histories and the title of the data, so a report does not need the data.
    """
    groups = teams(models) if can_stack_under(config.optimiser) else [SingleTeam(model) for model in models]
    history: dict[str, list[list[float]]] = {}
    best: list[StateDict] = []
    for number, team in enumerate(groups):
        first = len(best)

        def tell(epochs: float, text: str, number: int = number) -> None:
            which = f"network {number + 1} of {len(groups)}, " if len(groups) > 1 else ""
            context.tell((number + epochs / config.epochs) / len(groups), which + text)

        def on_epoch(state: TrainingState, tell: Tell = tell) -> None:
            tell(state.epoch, f"epoch {state.epoch}/{config.epochs}, {_standing(state)}")

        def on_step(epoch: int, share: float, tell: Tell = tell) -> None:
            tell(epoch + share, f"epoch {epoch + 1}/{config.epochs}")

        def observe(epoch: int, team: Team, first: int = first, tell: Tell = tell) -> None:
            if looks is not None and looks.is_due(epoch, first):
                tell(epoch, f"looking at gates and kernels after epoch {epoch}")
            if epoch in keep:
                for place, weights in enumerate(_members(team.state(), team.size), start=first):
                    write_tensors(_kept_file(context.folder, epoch, place), save(weights))
            if looks is not None:
                looks.at(epoch, team, first)

        checkpoint = Checkpoint(context.folder / f"checkpoint-{number}.safetensors")
        own = seeds[first : first + team.size]
        state = train(
            team,
            data,
            config,
            own,
            augment=augment,
            checkpoint=checkpoint,
            observe=observe,
            on_epoch=on_epoch,
            on_step=on_step,
        )
        for name, epochs in state.history.items():
            history.setdefault(name, []).extend(list(member) for member in zip(*epochs, strict=True))
        best += _members(state.best, team.size)
    named = {f"{place}/{name}": tensor for place, weights in enumerate(best) for name, tensor in weights.items()}
    write_tensors(context.folder / _BEST, save(named))
    return {"data": data.title, "seeds": list(seeds), **history}


def train_and_look(
    models: Sequence[nn.Module],
    seeds: Sequence[int],
    data: Examples,
    config: TrainConfig,
    context: Context,
    epochs: Iterable[int],
    look: Callable[[nn.Module, int, int], Look],
) -> Result:
    """Train like :func:`train_cell` and observe every model at some epochs; the result also has ``seen``."""
    looks = Looks(context.folder, epochs, look, len(models))
    return {**train_cell(models, seeds, data, config, context, looks=looks), "seen": looks.seen()}


def train_and_track(
    models: Sequence[nn.Module],
    seeds: Sequence[int],
    data: Examples,
    config: TrainConfig,
    context: Context,
    probes: tuple[Float[Tensor, "n ..."], Float[Tensor, " n"]],
    *,
    every: int,
    tangent: bool = True,
    keep: Collection[int] = (),
) -> Result:
    """Train like :func:`train_cell` and track the first model's gates; the result also has ``records``.

    ``probes`` are examples and their labels; without ``tangent`` no tangent kernel is computed.

    Raises:
        InputError: the first model diverged.
    """
    looks = gate_looks(context.folder, *probes, epochs=config.epochs, every=every, tangent=tangent)
    result = train_cell(models, seeds, data, config, context, looks=looks, keep=keep)
    records = records_of(looks)
    if len(records) < len(looks.seen()):
        raise InputError(f"the network diverged; give a learning_rate below {config.learning_rate:g}")
    return {**result, "records": records}


def records_of(looks: Looks) -> list[Look]:
    """What was seen of the first network, until it diverged, if it did."""
    first = [entry["members"][0] for entry in looks.seen()]
    return [look for look in first if DIVERGED not in look]


def divergences(results: Mapping[str, Result]) -> list[str]:
    """Name the cells in which a training ended with a loss that is no finite number: one note, or none.

    Example:
        >>> divergences({"a": {"train_loss": [[2.0, 1.0], [2.0, float("nan")]]}, "b": {"train_loss": [[1.0]]}, "c": {}})
        ['Training diverged in the cells a. Their networks count with the score that they ended with.']
    """
    names = [name for name, result in results.items() if has_diverged(result)]
    if not names:
        return []
    return [
        f"Training diverged in the cells {', '.join(names)}. Their networks count with the score that they ended with."
    ]


def has_diverged(result: Result) -> bool:
    """Whether a training of a cell ended with a loss that is no finite number."""
    return not all(isfinite(history[-1]) for history in result.get("train_loss", ()))


def kept_weights(folder: Path, epoch: int, count: int) -> list[StateDict]:
    """The weights of the first ``count`` networks of a cell after an epoch that it kept."""
    files = [_kept_file(folder, epoch, place) for place in range(count)]
    return [read_tensors(file, must_be_sealed=must_be_sealed(folder))[0] for file in files]


def best_weights(folder: Path, count: int) -> list[StateDict]:
    """The weights of the first ``count`` networks of a cell, each after its best epoch."""
    tensors, _ = read_tensors(folder / _BEST, must_be_sealed=must_be_sealed(folder))
    return [part(tensors, f"{place}/") for place in range(count)]


def _kept_file(folder: Path, epoch: int, place: int) -> Path:
    return folder / f"epoch-{epoch}-{place}.safetensors"


def _members(state: StateDict, size: int) -> list[StateDict]:
    """Each member's own tensors."""
    return [
        {name: tensor[member].clone(memory_format=torch.contiguous_format) for name, tensor in state.items()}
        for member in range(size)
    ]


def _standing(state: TrainingState) -> str:
    if "test_score" in state.history:
        return f"best score on the test examples now {max(state.history['test_score'][-1]):.4g}"
    if "test_accuracy" in state.history:
        return f"best test accuracy now {max(state.history['test_accuracy'][-1]):.2%}"
    return f"least test loss now {min(state.history['test_loss'][-1]):.3g}"
