"""Training one network's gated twins in a team: what Table 2 and a study have in common."""

from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import nn

from gatelab.convert import Regime, to_dgn
from gatelab.data.dataset import Examples
from gatelab.lab.checkpoint import Checkpoint
from gatelab.lab.runs import Context, Result
from gatelab.lab.team import State, Team, teams
from gatelab.lab.training import Observer, Progress, TrainConfig, train

BEST = "best.safetensors"
Factory = Callable[[torch.Generator], nn.Module]
Watcher = Callable[[int], Observer]  # for the place of a team's first member among all models, who watches that team


def network(factory: Factory, seed: int) -> nn.Module:
    """The network of a seed, in evaluation mode."""
    return factory(torch.Generator().manual_seed(seed)).eval()


def twin(factory: Factory, regime: Regime, seed: int, beta: float, gates: State | None = None) -> nn.Module:
    """The network of a seed as a DGN; its gates from ``gates``, or drawn independently of the network's weights."""
    model = network(factory, seed)
    source = None
    if gates is not None:
        source = network(factory, seed)
        source.load_state_dict(gates)
    elif regime is not Regime.FRNPF_DI:
        source = network(factory, seed + 500_009)  # drawn by the same initialiser, from another seed
    return to_dgn(model, regime, beta, source)


def learnt_twins(factory: Factory, seeds: Sequence[int], beta: float, gates: Sequence[State]) -> list[nn.Module]:
    """FLNPF: values drawn afresh, not those with which the gates were learnt, under the gates given."""
    return [twin(factory, Regime.FLNPF, seed + 700_001, beta, state) for seed, state in zip(seeds, gates, strict=True)]


def train_cell(
    models: Sequence[nn.Module],
    seeds: Sequence[int],
    data: Examples,
    config: TrainConfig,
    context: Context,
    watchers: Sequence[Watcher] = (),
) -> Result:
    """Train models together if that can be, else one by one; keeps their best weights in the cell's folder.

    Args:
        models: what to train.
        seeds: of the order of their batches.
        data: what to learn.
        config: how.
        context: where to keep checkpoints, and whom to tell.
        watchers: those who look on.

    Returns:
        For each model: the history of its training loss, test loss and, if there are labels, test accuracy over epochs.
        And the data's title, so that a report can be written where the data are not.
    """
    found = teams(models)
    history: dict[str, list[list[float]]] = {}
    best: list[State] = []
    place = 0
    for number, team in enumerate(found):

        def on_epoch(progress: Progress, number: int = number) -> None:
            done = (number + progress.epoch / config.epochs) / len(found)
            context.tell(done, f"epoch {progress.epoch}/{config.epochs}, {_standing(progress)}")

        observers = [watcher(place) for watcher in watchers]

        def observe(epoch: int, team: Team, observers: Sequence[Observer] = observers) -> None:
            for observer in observers:
                observer(epoch, team)

        keeper = Checkpoint(context.folder / f"checkpoint-{number}.safetensors")
        own = seeds[place : place + team.size]
        progress = train(team, data, config, own, keeper=keeper, observe=observe, on_epoch=on_epoch)
        for name, epochs in progress.history.items():
            history.setdefault(name, []).extend(list(member) for member in zip(*epochs, strict=True))
        best += [{name: t[member].clone() for name, t in progress.best.items()} for member in range(team.size)]
        place += team.size
    save_best(best, context.folder / BEST)
    return {"data": data.title, "seeds": list(seeds), **history}


def _standing(progress: Progress) -> str:
    if "test_accuracy" in progress.history:
        return f"best test accuracy now {max(progress.history['test_accuracy'][-1]):.2%}"
    return f"least test loss now {min(progress.history['test_loss'][-1]):.3g}"


def save_best(states: Sequence[State], path: Path) -> None:
    """Write the models' weights, by their place."""
    tensors = {f"{place}/{name}": tensor for place, state in enumerate(states) for name, tensor in state.items()}
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, path)


def load_best(path: Path, place: int) -> State:
    """The weights of the model at a place."""
    prefix = f"{place}/"
    return {n.removeprefix(prefix): t for n, t in load_file(path).items() if n.startswith(prefix)}
