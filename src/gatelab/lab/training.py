"""The one training loop: a configuration and data in, a history and the best and last weights out."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from math import inf

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int64, Num
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from gatelab.data.dataset import Examples
from gatelab.errors import InputError
from gatelab.lab.team import State, Team
from gatelab.work.here import threads_for

EVALUATION_BATCH = 1000


class Optimiser(StrEnum):
    """How weights move."""

    SGD = "sgd"
    ADAM = "adam"
    RMSPROP = "rmsprop"


class Loss(StrEnum):
    """What is made small: cross-entropy, or ½(ŷ − y)² with y = ±1 (one output) or one-hot."""

    CROSS_ENTROPY = "cross-entropy"
    SQUARED = "squared"


class TrainConfig(BaseModel):
    """Everything that decides what training does, but for the models, the data and the seeds."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    epochs: int = Field(ge=1)
    batch_size: int = Field(default=32, ge=1)
    optimiser: Optimiser = Optimiser.ADAM
    learning_rate: float = Field(default=3e-4, gt=0)
    epoch_examples: int | None = Field(default=None, ge=1)  # how many an epoch sees, drawn anew each time; None: all
    momentum: float = Field(default=0.0, ge=0, lt=1)
    loss: Loss = Loss.CROSS_ENTROPY


@dataclass
class Progress:
    """How far training has come; all that a checkpoint must hold beside optimiser state.

    Attributes:
        epoch: epochs done.
        history: for each epoch and member: train_loss (mean over the epoch), test_loss and, if there are labels,
            test_accuracy.
        best_score: for each member, over epochs: the test accuracy, or minus the test loss.
        best: each member's parameters at its best epoch.
    """

    epoch: int = 0
    history: dict[str, list[list[float]]] = field(default_factory=dict)
    best_score: list[float] = field(default_factory=list)
    best: State = field(default_factory=dict)


class Keeper:
    """Keeps training's state between epochs; this one keeps nothing. See :mod:`gatelab.lab.checkpoint`."""

    def load(self, team: Team, optimiser: torch.optim.Optimizer) -> Progress:
        """Put team and optimiser where they were, and say how far that was."""
        del team, optimiser
        return Progress()

    def save(self, team: Team, optimiser: torch.optim.Optimizer, progress: Progress) -> None:
        """Note where they are."""
        del team, optimiser, progress


Observer = Callable[[int, Team], None]


def train(
    team: Team,
    data: Examples,
    config: TrainConfig,
    seeds: Sequence[int],
    *,
    keeper: Keeper | None = None,
    observe: Observer | None = None,
    on_epoch: Callable[[Progress], None] | None = None,
) -> Progress:
    """Train a team; member i takes its batches in the order of seed i.

    The order of an epoch depends on seed and epoch alone, so that training that was stopped and taken up again is the
    same, bit for bit, as training that was not.

    Args:
        team: the networks; trained in place, they end at their last epoch.
        data: what to learn and to be tested on.
        config: how.
        seeds: one for each member.
        keeper: keeps the state after every epoch.
        observe: called with the number of epochs done (0 before the first) and the team in evaluation mode.
        on_epoch: told after every epoch.
    """
    if len(seeds) != team.size:
        raise InputError(f"{len(seeds)} seeds for {team.size} networks; give one for each")
    keeper = keeper or Keeper()
    optimiser = make_optimiser(team.parameters(), config)
    progress = keeper.load(team, optimiser)
    multiplications = _multiplications(team, data) * min(config.batch_size, len(data.train_x))
    if observe is not None and progress.epoch == 0:
        team.train(False)
        observe(0, team)
    while progress.epoch < config.epochs:
        with threads_for(multiplications):
            team.train(True)
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(_epoch_seed(seeds[0], progress.epoch))  # for dropout
                loss = train_epoch(team, optimiser, data, config, seeds, progress.epoch)
            team.train(False)
            tested = evaluate(team, data, config.loss)
        progress.epoch += 1
        for name, values in {"train_loss": loss, **tested}.items():
            progress.history.setdefault(name, []).append(values.tolist())
        _keep_best(progress, tested.get("test_accuracy", -tested["test_loss"]), team)
        if observe is not None:
            observe(progress.epoch, team)
        keeper.save(team, optimiser, progress)
        if on_epoch is not None:
            on_epoch(progress)
    return progress


def train_epoch(
    team: Team, optimiser: torch.optim.Optimizer, data: Examples, config: TrainConfig, seeds: Sequence[int], epoch: int
) -> Float[Tensor, " e"]:
    """One pass over the training data, each member in its own order; returns each member's mean loss."""
    orders = torch.stack([_order(len(data.train_x), seed, epoch)[: config.epoch_examples] for seed in seeds])
    total = torch.zeros(team.size, dtype=torch.float64)
    for batch in orders.split(config.batch_size, dim=1):
        answers = team.forward(data.inputs(data.train_x[batch]))
        losses = losses_of(answers, data.train_y[batch], config.loss)
        optimiser.zero_grad()
        losses.sum().backward()  # members share nothing: each gets its own gradient
        optimiser.step()
        total += losses.detach().to(total) * batch.shape[1]
    return total / orders.shape[1]


@torch.no_grad()
def _multiplications(team: Team, data: Examples) -> int:
    """Count the multiplications of all members' forward passes on one example each."""
    copy = team.member(0).eval()  # a forward pass may leave a trace in the network itself
    with torch.random.fork_rng(devices=[]), FlopCounterMode(display=False) as counter:
        copy(data.inputs(data.train_x[:1]))
    return team.size * counter.get_total_flops() // 2  # torch counts the additions, too


def _order(n: int, seed: int, epoch: int) -> Int64[Tensor, " n"]:
    return torch.randperm(n, generator=torch.Generator().manual_seed(_epoch_seed(seed, epoch)))


def _epoch_seed(seed: int, epoch: int) -> int:
    """Two numbers in one; epochs stay far below the factor."""
    return seed * 1_000_003 + epoch


def losses_of(answers: Float[Tensor, "e b k"], labels: Num[Tensor, "e b"], loss: Loss) -> Float[Tensor, " e"]:
    """Each member's mean loss."""
    if loss is Loss.CROSS_ENTROPY:
        each = F.cross_entropy(answers.flatten(0, 1), labels.flatten(), reduction="none").view(labels.shape)
        return each.mean(dim=1)
    return 0.5 * (answers - targets(labels, answers.shape[2]).to(answers)).square().sum(dim=2).mean(dim=1)


def targets(labels: Num[Tensor, "*shape"], outputs: int) -> Tensor:
    """Labels as numbers: ±1 for one output, one-hot for several; real targets as they are."""
    if labels.is_floating_point():
        return labels.unsqueeze(-1)
    return (2 * labels - 1).unsqueeze(-1) if outputs == 1 else F.one_hot(labels, outputs)


@torch.no_grad()
def evaluate(team: Team, data: Examples, loss: Loss) -> dict[str, Float[Tensor, " e"]]:
    """Each member's test_loss and, if the test examples have labels, test_accuracy."""
    total, right = torch.zeros(team.size, dtype=torch.float64), torch.zeros(team.size, dtype=torch.float64)
    for rows in torch.arange(len(data.test_x)).split(EVALUATION_BATCH):
        x = data.inputs(data.test_x[rows])
        answers = team.forward(x.expand(team.size, *x.shape))
        labels = data.test_y[rows].expand(team.size, -1)
        total += losses_of(answers, labels, loss).to(total) * len(rows)
        if labels.is_floating_point():
            continue
        said = (answers[..., 0] > 0).long() if answers.shape[2] == 1 else answers.argmax(dim=2)
        right += (said == labels).sum(dim=1)
    found = {"test_loss": total / len(data.test_x)}
    return found if data.test_y.is_floating_point() else {**found, "test_accuracy": right / len(data.test_x)}


def _keep_best(progress: Progress, score: Tensor, team: Team) -> None:
    """Each member's parameters at its best test score so far, the first of equals (npk, Section 6)."""
    state = team.state()
    if not progress.best:
        progress.best_score, progress.best = [-inf] * team.size, {name: t.clone() for name, t in state.items()}
    for member, value in enumerate(score.tolist()):
        if value > progress.best_score[member]:
            progress.best_score[member] = value
            for name, tensor in state.items():
                progress.best[name][member] = tensor[member]


def make_optimiser(parameters: Sequence[Tensor], config: TrainConfig) -> torch.optim.Optimizer:
    """The optimiser that the configuration names."""
    makers: Mapping[Optimiser, Callable[[], torch.optim.Optimizer]] = {
        Optimiser.SGD: lambda: torch.optim.SGD(
            parameters, lr=config.learning_rate, momentum=config.momentum, fused=True
        ),
        Optimiser.ADAM: lambda: torch.optim.Adam(parameters, lr=config.learning_rate, fused=True),
        Optimiser.RMSPROP: lambda: torch.optim.RMSprop(parameters, lr=config.learning_rate, momentum=config.momentum),
    }
    return makers[config.optimiser]()
