"""The one training loop: configuration and data in, histories and the best and last weights out."""

from collections.abc import Callable, Sequence
from enum import StrEnum
from math import inf

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int64, Num
from pydantic import Field
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from gatelab.data.dataset import Examples
from gatelab.errors import InputError
from gatelab.lab.checkpoint import Checkpoint, TrainingState
from gatelab.lab.experiment import Config
from gatelab.lab.team import Team
from gatelab.work.here import threads_for

_EVALUATION_BATCH = 250  # larger batches of a convolutional network do not fit the cache


class Optimiser(StrEnum):
    """The rule by which weights move."""

    SGD = "sgd"
    ADAM = "adam"
    RMSPROP = "rmsprop"


class Loss(StrEnum):
    """The loss: cross-entropy, or ½(ŷ − y)² with y = ±1 (one output) or one-hot (several)."""

    CROSS_ENTROPY = "cross-entropy"
    SQUARED = "squared"


class TrainConfig(Config):
    """How to train; models, data and seeds are arguments of :func:`train`.

    Args:
        epochs: passes over the data.
        batch_size: examples per step.
        optimiser: the rule by which weights move.
        learning_rate: step size.
        epoch_examples: how many examples an epoch sees, drawn anew each time; None means all.
        momentum: of SGD and RMSprop.
        loss: what to minimise.
        final_beta: steepness of the soft gates in the last epoch; from their own in the first it grows by a constant
            factor each epoch, so that the best weights belong to the steepness of their epoch. None leaves gates as
            they are.

    Example:
        >>> TrainConfig(epochs=20, optimiser="sgd", learning_rate=0.1).batch_size
        32
    """

    epochs: int = Field(ge=1)
    batch_size: int = Field(default=32, ge=1)
    optimiser: Optimiser = Optimiser.ADAM
    learning_rate: float = Field(default=3e-4, gt=0)
    epoch_examples: int | None = Field(default=None, ge=1)
    momentum: float = Field(default=0.0, ge=0, lt=1)
    loss: Loss = Loss.CROSS_ENTROPY
    final_beta: float | None = Field(default=None, gt=0)


def train(
    team: Team,
    data: Examples,
    config: TrainConfig,
    seeds: Sequence[int],
    *,
    checkpoint: Checkpoint | None = None,
    observe: Callable[[int, Team], None] | None = None,
    on_epoch: Callable[[TrainingState], None] | None = None,
) -> TrainingState:
    """Train a team in place; each member ends at its last epoch.

    The order of an epoch's batches depends on seed and epoch alone. Training that was stopped and taken up again
    therefore equals, bit for bit, training that was not.

    Args:
        team: the networks; see :func:`gatelab.lab.team.teams`.
        data: examples to learn from and to be tested on.
        config: how to train.
        seeds: for each member, the seed of the order of its batches.
        checkpoint: keeps the state after every epoch.
        observe: called with the number of epochs done (0 before the first) and the team in evaluation mode.
        on_epoch: called after every epoch, when its checkpoint is written.

    Returns:
        The histories of losses and accuracies, and each member's weights at its best epoch.

    Raises:
        InputError: the number of seeds is not that of the members, or there are no soft gates to steepen.

    Example:
        >>> from gatelab.data import load
        >>> from gatelab.lab.team import teams
        >>> net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10))
        >>> (team,) = teams([net])
        >>> state = train(team, load("digits").subset(100, 50), TrainConfig(epochs=3), seeds=[0])
        >>> state.epoch, len(state.history["test_accuracy"])
        (3, 3)
    """
    if len(seeds) != team.size:
        raise InputError(f"{len(seeds)} seeds for {team.size} networks; give one for each")
    optimiser = make_optimiser(team.parameters(), config)
    state = TrainingState() if checkpoint is None else checkpoint.load(team, optimiser)
    multiplications = _multiplications(team, data) * min(config.batch_size, len(data.train_x))
    steepen = _steepening(team, config)
    if observe is not None and state.epoch == 0:
        team.train(False)
        observe(0, team)
    while state.epoch < config.epochs:
        steepen(state.epoch)
        with threads_for(multiplications):
            team.train(True)
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(_epoch_seed(seeds[0], state.epoch))  # for dropout
                loss = train_epoch(team, optimiser, data, config, seeds, state.epoch)
            team.train(False)
            tested = _evaluate(team, data, config.loss)
        state.epoch += 1
        for name, values in {"train_loss": loss, **tested}.items():
            state.history.setdefault(name, []).append(values.tolist())
        _keep_best(state, tested.get("test_accuracy", -tested["test_loss"]), team)
        # Observers first: a stop before the checkpoint repeats the epoch and its looks, a stop behind it loses neither.
        if observe is not None:
            observe(state.epoch, team)
        if checkpoint is not None:
            checkpoint.save(team, optimiser, state)
        if on_epoch is not None:
            on_epoch(state)
    return state


def train_epoch(
    team: Team, optimiser: torch.optim.Optimizer, data: Examples, config: TrainConfig, seeds: Sequence[int], epoch: int
) -> Float[Tensor, " e"]:
    """Pass once over the training data, each member in its own order; return each member's mean loss."""
    orders = torch.stack([_order(len(data.train_x), seed, epoch)[: config.epoch_examples] for seed in seeds])
    total = torch.zeros(team.size, dtype=torch.float64)
    for batch in orders.split(config.batch_size, dim=1):
        answers = team.training_answers(data, batch)
        losses = _losses(answers, data.train_y[batch], config.loss)
        optimiser.zero_grad()
        losses.sum().backward()  # members share nothing: each gets its own gradient
        optimiser.step()
        total += losses.detach().to(total) * batch.shape[1]
    return total / orders.shape[1]


def _steepening(team: Team, config: TrainConfig) -> Callable[[int], None]:
    """A function that sets the steepness of the team's soft gates for an epoch."""
    final = config.final_beta
    if final is None:
        return lambda _epoch: None
    gates = team.soft_gates()
    if not gates:
        raise InputError(f"final_beta is {final:g}, but the networks have no soft gates σ(βq); give SoftGate() to them")

    def steepen(epoch: int) -> None:
        for gate in gates:
            gate.steepen(final, epoch / max(1, config.epochs - 1))

    return steepen


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
    """Combine two numbers into one seed; epochs stay far below the factor."""
    return seed * 1_000_003 + epoch


def _losses(answers: Float[Tensor, "e b k"], labels: Num[Tensor, "e b"], loss: Loss) -> Float[Tensor, " e"]:
    """Each member's mean loss."""
    if loss is Loss.CROSS_ENTROPY:
        each = F.cross_entropy(answers.flatten(0, 1), labels.flatten(), reduction="none").view(labels.shape)
        return each.mean(dim=1)
    return 0.5 * (answers - _targets(labels, answers.shape[2]).to(answers)).square().sum(dim=2).mean(dim=1)


def _targets(labels: Num[Tensor, "*shape"], outputs: int) -> Tensor:
    """Labels as numbers: ±1 for one output, one-hot for several; real targets unchanged."""
    if labels.is_floating_point():
        return labels.unsqueeze(-1)
    return (2 * labels - 1).unsqueeze(-1) if outputs == 1 else F.one_hot(labels, outputs)


@torch.no_grad()
def _evaluate(team: Team, data: Examples, loss: Loss) -> dict[str, Float[Tensor, " e"]]:
    """Each member's test_loss and, if the test examples have labels, test_accuracy."""
    total, right = torch.zeros(team.size, dtype=torch.float64), torch.zeros(team.size, dtype=torch.float64)
    for rows in torch.arange(len(data.test_x)).split(_EVALUATION_BATCH):
        answers = team.test_answers(data, rows)
        labels = data.test_y[rows].expand(team.size, -1)
        total += _losses(answers, labels, loss).to(total) * len(rows)
        if labels.is_floating_point():
            continue
        classes = (answers[..., 0] > 0).long() if answers.shape[2] == 1 else answers.argmax(dim=2)
        right += (classes == labels).sum(dim=1)
    measured = {"test_loss": total / len(data.test_x)}
    return measured if data.test_y.is_floating_point() else {**measured, "test_accuracy": right / len(data.test_x)}


def _keep_best(state: TrainingState, score: Tensor, team: Team) -> None:
    """Keep each member's parameters at its best test score so far, the first of equals (npk, Section 6)."""
    weights = team.state()
    if not state.best:
        state.best_score, state.best = [-inf] * team.size, {name: t.clone() for name, t in weights.items()}
    for member, value in enumerate(score.tolist()):
        if value > state.best_score[member]:
            state.best_score[member] = value
            for name, tensor in weights.items():
                state.best[name][member] = tensor[member]


def make_optimiser(parameters: Sequence[Tensor], config: TrainConfig) -> torch.optim.Optimizer:
    """The optimiser that the configuration names."""
    rate = config.learning_rate
    if config.optimiser is Optimiser.SGD:
        return torch.optim.SGD(parameters, lr=rate, momentum=config.momentum, fused=True)
    if config.optimiser is Optimiser.RMSPROP:
        return torch.optim.RMSprop(parameters, lr=rate, momentum=config.momentum)
    return torch.optim.Adam(parameters, lr=rate, fused=True)
