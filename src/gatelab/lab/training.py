"""The one training loop: configuration and data in, histories and the best and last weights out."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from math import inf

import torch
from jaxtyping import Float, Int64
from pydantic import Field, model_validator
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from gatelab.data.user_data import Examples
from gatelab.errors import InputError
from gatelab.lab.checkpoint import Checkpoint, TrainingState
from gatelab.lab.experiment import Config
from gatelab.lab.objectives import Loss, Metric, Score, losses
from gatelab.lab.optimisers import Optimiser, Schedule, make_optimiser
from gatelab.lab.team import Team
from gatelab.observe import torch_state_kept
from gatelab.work.here import threads_for

_EVALUATION_BATCH = 250  # larger batches of a convolutional network do not fit the cache
_SECONDS_BETWEEN_STEPS = 1.0


Augment = Callable[[Tensor], Tensor]  # a batch of examples (b, …) as numbers; returns a batch of the same shape


class TrainConfig(Config):
    """How to train; models, data and seeds are arguments of :func:`train`.

    Args:
        epochs: passes over the data.
        batch_size: examples per step.
        optimiser: the optimiser's name.
        learning_rate: step size.
        epoch_examples: how many examples an epoch uses, redrawn each time; None means all.
        momentum: of SGD and RMSprop.
        loss: what to minimise.
        optimiser_options: further arguments of torch's optimiser, such as ``weight_decay``.
        schedule: how the step size changes.
        warm_up: the share of training in which the step size rises to the learning rate.
        metric: the criterion for the best epoch; None means the accuracy or, without labels, the test loss.
        final_beta: steepness of the soft gates in the last epoch. It starts at the gates' own steepness and grows by a
            constant factor each epoch, so the best weights belong to the steepness of their epoch. None leaves gates
            unchanged.
        slow_gates: while gates steepen, the steps of their parameters shrink as 1/β. The gradient of σ(βq) grows with
            β, so with equal steps gates would flip faster than values can follow.

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
    optimiser_options: dict[str, float] = Field(default_factory=dict)
    schedule: Schedule = Schedule.CONSTANT
    warm_up: float = Field(default=0.0, ge=0, lt=1)
    metric: Metric | None = None
    final_beta: float | None = Field(default=None, gt=0)
    slow_gates: bool = False

    @model_validator(mode="after")
    def _slow_gates_steepen(self) -> "TrainConfig":
        if self.slow_gates and self.final_beta is None:
            raise ValueError("slow_gates applies to gates that steepen; set final_beta as well")
        if self.slow_gates and (self.schedule is not Schedule.CONSTANT or self.warm_up):
            raise ValueError("slow_gates changes the step sizes itself; leave schedule and warm_up out")
        return self


def train(
    team: Team,
    data: Examples,
    config: TrainConfig,
    seeds: Sequence[int],
    *,
    augment: Augment | None = None,
    checkpoint: Checkpoint | None = None,
    observe: Callable[[int, Team], None] | None = None,
    on_epoch: Callable[[TrainingState], None] | None = None,
    on_step: Callable[[int, float], None] | None = None,
) -> TrainingState:
    """Train a team in place; each member ends at its last epoch.

    The order of an epoch's batches depends only on seed and epoch. Training that was stopped and continued therefore
    equals uninterrupted training, bit for bit.

    Args:
        team: the networks; see :func:`gatelab.lab.team.teams`.
        data: examples to learn from and to be tested on.
        config: how to train.
        seeds: for each member, the seed of the order of its batches.
        augment: changes a batch of training examples, at random or not; test examples stay unchanged.
        checkpoint: keeps the state after every epoch.
        observe: called with the number of epochs done (0 before the first) and the team in evaluation mode.
        on_epoch: called after every epoch, when its checkpoint is written.
        on_step: called with the number of epochs done and the share of the next one, about once a second.

    Returns:
        The histories of losses and accuracies, and each member's weights at its best epoch.

    Raises:
        InputError: the numbers of seeds and members differ, or there are no soft gates to steepen.

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
    optimiser = optimiser_of(team, config)
    state = TrainingState() if checkpoint is None else checkpoint.load(team, optimiser)
    multiplications = _multiplications(team, data) * min(config.batch_size, len(data.train_x))
    steepen = _steepening(team, config, optimiser)
    draws = augment is not None or _draws_in_training(team, data)
    if observe is not None and state.epoch == 0:
        team.train(False)
        observe(0, team)
    while state.epoch < config.epochs:
        steepen(state.epoch)
        with threads_for(multiplications):
            team.train(True)
            with _seeded(_epoch_seed(seeds[0], state.epoch)) if draws else nullcontext():
                loss = train_epoch(team, optimiser, data, config, seeds, state.epoch, augment, on_step)
            team.train(False)
            tested = evaluate(team, data, config.loss, config.metric)
        state.epoch += 1
        for name, values in {"train_loss": loss, **tested}.items():
            state.history.setdefault(name, []).append(values.tolist())
        _keep_best(state, tested.get("test_score", tested.get("test_accuracy", -tested["test_loss"])), team)
        # Observe first: a stop before the checkpoint repeats epoch and observation, a stop after it loses neither.
        if observe is not None:
            observe(state.epoch, team)
        if checkpoint is not None:
            checkpoint.save(team, optimiser, state)
        if on_epoch is not None:
            on_epoch(state)
    return state


def train_epoch(
    team: Team,
    optimiser: torch.optim.Optimizer,
    data: Examples,
    config: TrainConfig,
    seeds: Sequence[int],
    epoch: int,
    augment: Augment | None = None,
    on_step: Callable[[int, float], None] | None = None,
) -> Float[Tensor, " e"]:
    """Pass once over the training data, each member in its own order; return each member's mean loss."""
    orders = torch.stack([_order(len(data.train_x), seed, epoch)[: config.epoch_examples] for seed in seeds])
    batches, told = orders.split(config.batch_size, dim=1), time.monotonic()
    total = torch.zeros(team.size, dtype=torch.float64)
    for place, batch in enumerate(batches):
        _set_rate(optimiser, config, (epoch + place / len(batches)) / config.epochs)
        answers = _answers(team, data, batch, augment)
        batch_losses = losses(answers, data.train_y[batch], config.loss)
        optimiser.zero_grad()
        batch_losses.sum().backward()  # members share no parameters, so each gets its own gradient
        optimiser.step()
        total += batch_losses.detach().to(total) * batch.shape[1]
        if on_step is not None and time.monotonic() - told > _SECONDS_BETWEEN_STEPS:
            told = time.monotonic()
            on_step(epoch, (place + 1) / len(batches))
    return total / orders.shape[1]


def optimiser_of(team: Team, config: TrainConfig) -> torch.optim.Optimizer:
    """Return the configured optimiser; the parameters of gates that slow down are its last group."""
    gates = team.gate_parameters() if config.slow_gates else []
    own = {id(parameter) for parameter in gates}
    rest = [parameter for parameter in team.parameters() if id(parameter) not in own]
    groups = [{"params": part} for part in (rest, gates) if part]
    rate, options = config.learning_rate, config.optimiser_options
    return make_optimiser(groups, config.optimiser, rate, config.momentum, options)


def _set_rate(optimiser: torch.optim.Optimizer, config: TrainConfig, share: float) -> None:
    if config.schedule is Schedule.CONSTANT and not config.warm_up:
        return
    for group in optimiser.param_groups:
        group["lr"] = config.learning_rate * config.schedule.factor(share, config.warm_up)


def _answers(
    team: Team, data: Examples, batch: Int64[Tensor, "e b"], augment: Augment | None
) -> Float[Tensor, "e b k"]:
    if augment is None:
        return team.training_answers(data, batch)
    # Augmented examples have other gates, so none can be kept.
    return team.forward(_augmented(data.inputs(data.train_x[batch]), augment))


def _augmented(x: Float[Tensor, "e b ..."], augment: Augment) -> Float[Tensor, "e b ..."]:
    batch = x.flatten(0, 1)
    try:
        changed = augment(batch)
    except Exception as error:
        raise InputError(
            f"augment failed on a batch of shape {tuple(batch.shape)}: {type(error).__name__}: {error}; it must "
            "work on any batch of training examples"
        ) from error
    if not isinstance(changed, Tensor) or changed.shape != batch.shape:
        got = tuple(changed.shape) if isinstance(changed, Tensor) else type(changed).__name__
        raise InputError(
            f"augment returned {got} for a batch of shape {tuple(batch.shape)}; make it return the same shape"
        )
    return changed.view(x.shape)


def _steepening(team: Team, config: TrainConfig, optimiser: torch.optim.Optimizer) -> Callable[[int], None]:
    """Return a function that sets the steepness of the team's soft gates for an epoch and, optionally, their steps."""
    final = config.final_beta
    if final is None:
        return lambda _epoch: None
    gates = team.soft_gates()
    if not gates:
        raise InputError(f"final_beta is {final:g}, but the networks have no soft gates σ(βq); use SoftGate()")

    def steepen(epoch: int) -> None:
        share = epoch / max(1, config.epochs - 1)
        for gate in gates:
            gate.steepen(final, share)
        if config.slow_gates:
            optimiser.param_groups[-1]["lr"] = config.learning_rate * (gates[0].start.beta / final) ** share

    return steepen


@torch.no_grad()
def _multiplications(team: Team, data: Examples) -> int:
    """Count the multiplications of all members' forward passes on one example each."""
    copy = team.member(0).eval()  # a forward pass may leave a trace in the network itself
    with torch_state_kept(), FlopCounterMode(display=False) as counter:
        copy(data.inputs(data.train_x[:1]))
    return team.size * counter.get_total_flops() // 2  # torch also counts the additions


@torch.no_grad()
def _draws_in_training(team: Team, data: Examples) -> bool:
    """Whether a forward pass in training draws from torch's generator, as dropout does; True if it cannot be told."""
    copy, before = team.member(0).train(), torch.get_rng_state()
    with torch_state_kept():
        try:
            copy(data.inputs(data.train_x[:2]))
        except Exception:  # the user's network may refuse two examples
            return True
        return not torch.equal(before, torch.get_rng_state())


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Seed torch's global generator, the only one that dropout knows, and put its state back."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield


def _order(n: int, seed: int, epoch: int) -> Int64[Tensor, " n"]:
    return torch.randperm(n, generator=torch.Generator().manual_seed(_epoch_seed(seed, epoch)))


def _epoch_seed(seed: int, epoch: int) -> int:
    """Combine two numbers into one seed; epochs stay far below the factor."""
    return seed * 1_000_003 + epoch


@torch.no_grad()
def evaluate(team: Team, data: Examples, loss: Loss, metric: Metric | None = None) -> dict[str, Float[Tensor, " e"]]:
    """Each member's test_loss; test_accuracy if the test examples have labels; test_score if a metric is asked for."""
    total = torch.zeros(team.size, dtype=torch.float64)
    has_classes = not data.test_y.is_floating_point()
    scores = {"test_accuracy": Score(Metric.ACCURACY, team.size)} if has_classes else {}
    if metric is not None:
        scores["test_score"] = Score(metric, team.size)
    for rows in torch.arange(len(data.test_x)).split(_EVALUATION_BATCH):
        answers, labels = team.test_answers(data, rows), data.test_y[rows]
        total += losses(answers, labels.expand(team.size, *labels.shape), loss).to(total) * len(rows)
        for score in scores.values():
            score.add(answers, labels)
    return {"test_loss": total / len(data.test_x), **{name: score.value() for name, score in scores.items()}}


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
