"""What hard gates cost a DLGN (deep linearly gated network) trained with soft gates, and ways to close the gap."""

from collections.abc import Mapping, Sequence

import torch
from pydantic import Field
from torch import nn

from gatelab import models
from gatelab.data import circle, load
from gatelab.data.circle_data import Regression
from gatelab.data.dataset import Dataset
from gatelab.figures import Curve
from gatelab.gates import SoftGate, StraightThroughGate
from gatelab.kernels import refit_values
from gatelab.lab.experiment import DataConfig
from gatelab.lab.findings import FigureFacts, Findings, Table
from gatelab.lab.looks import Look
from gatelab.lab.runs import Cell, Context, Result
from gatelab.lab.training import Loss, TrainConfig
from gatelab.lab.training_cells import train_and_look
from gatelab.lab.verdicts import Claim, Sample, greater
from gatelab.models.init import Start, initialise
from gatelab.papers.common import experiment, figure, findings, numbers
from gatelab.paths import hardening_gap

WAYS = {
    "soft": "soft gates, β fixed",
    "annealed": "soft gates, β grows",
    "slowed": "β grows, gates' steps shrink as 1/β",
    "straight": "straight-through gates",
}


_TICKS = {"soft": "β fixed", "annealed": "β grows", "slowed": "β grows, slow gates", "straight": "straight-through"}


class HardeningConfig(DataConfig):
    """DLGN-PWCs learn the circle or MNIST with soft, steepening and straight-through gates."""

    runs: int = Field(default=16, ge=1)
    task: str = Field(default="circle", pattern="^(circle|mnist)$")
    layers: int = Field(default=5, ge=1)
    width: int = Field(default=16, ge=1)
    start: Start = Start.PYTORCH
    beta: float = Field(default=10.0, gt=0)
    final_beta: float = Field(default=1000.0, gt=0)
    epochs: int = Field(default=400, ge=2)
    batch_size: int = Field(default=20, ge=1)
    learning_rate: float = Field(default=3e-3, gt=0)
    train_size: int = Field(default=200, ge=8)  # points of the circle, or images
    test_size: int = Field(default=2000, ge=1)
    refit_size: int = Field(default=2000, ge=1)  # training images that values are fitted to
    ridge: float = Field(default=1e-4, gt=0)

    def load(self) -> Regression | Dataset:
        """The data."""
        if self.task == "circle":
            return circle(self.train_size)
        return load("mnist", self.data_root).subset(self.train_size, self.test_size, seed=self.seed)

    def make(self, way: str, seed: int) -> nn.Module:
        """Make a DLGN-PWC (piecewise constant DLGN) with the gates of one way to train."""
        inputs, outputs = (2, 1) if self.task == "circle" else (784, 10)
        gate = StraightThroughGate(self.beta) if way == "straight" else SoftGate(self.beta)
        net = models.DeepLinearlyGatedNetwork(
            [inputs, *[self.width] * self.layers, outputs],
            gate=gate,
            piecewise_constant=True,
        )
        initialise(net, torch.Generator().manual_seed(seed), self.start)
        return net if self.task == "circle" else nn.Sequential(nn.Flatten(), net)

    def training(self, way: str) -> TrainConfig:
        """Return how to train."""
        return TrainConfig(
            epochs=self.epochs,
            batch_size=self.batch_size,
            learning_rate=self.learning_rate,
            loss=Loss.SQUARED if self.task == "circle" else Loss.CROSS_ENTROPY,
            final_beta=self.final_beta if way in ("annealed", "slowed") else None,
            slow_gates=way == "slowed",
        )


def look(model: nn.Module, data: Regression | Dataset, config: HardeningConfig) -> Look:
    """Return the test error (share of wrong classes, or mean square): as trained, hardened, with values refitted."""
    x, y = data.inputs(data.test_x), data.test_y
    gap = hardening_gap(model, x, y)
    fitted = data.inputs(data.train_x[: config.refit_size])
    targets = data.train_y[: config.refit_size]
    if not targets.is_floating_point():
        targets = torch.nn.functional.one_hot(targets, 10).to(fitted)
    refit = refit_values(model, fitted, targets, config.ridge, gates="hard").predict(x)
    if gap.soft_accuracy is None or gap.hard_accuracy is None:
        refitted = float((refit.flatten() - y).square().mean())
        return {"trained": gap.soft_loss, "hardened": gap.hard_loss, "refitted": refitted}
    refitted = float((refit.argmax(1) != y).double().mean())
    return {"trained": 1 - gap.soft_accuracy, "hardened": 1 - gap.hard_accuracy, "refitted": refitted}


def _work(config: HardeningConfig, cell: Cell, context: Context) -> Result:
    data, seeds = config.load(), config.seeds()
    nets = [config.make(cell.name, seed) for seed in seeds]
    how = config.training(cell.name)

    def see(model: nn.Module, _epoch: int, _place: int) -> Look:
        return look(model, data, config)

    return train_and_look(nets, seeds, data, how, context, [config.epochs], see)


def _findings(config: HardeningConfig, results: Mapping[str, Result]) -> Findings:
    def sample(way: str, what: str) -> Sample:
        return numbers(member[what] for member in results[way]["seen"][-1]["members"])

    columns = {"trained": "as trained", "hardened": "gates made hard", "refitted": "hard gates, values refitted"}
    rows = tuple((name, *(sample(way, what).text() for what in columns)) for way, name in WAYS.items())
    error = "mean squared error" if config.task == "circle" else "share of wrong classes"
    soft, hard = sample("soft", "trained"), sample("soft", "hardened")
    errors = {label: [sample(way, what) for way in WAYS] for what, label in columns.items()}
    refit = f"; values are refitted to {config.refit_size} images" if config.task == "mnist" else ""
    return findings(
        "What hard gates cost a DLGN that learnt with soft ones",
        f"With gates σ({config.beta:g}q) the {error} on {results['soft']['data']} is {soft.text()}; with these gates "
        f"made hard it is {hard.text()}. β that grows to {config.final_beta:g} gives "
        f"{sample('annealed', 'hardened').text()} with hard gates, {sample('slowed', 'hardened').text()} if the gates' "
        f"steps shrink as 1/β, straight-through gates "
        f"{sample('straight', 'hardened').text()}, and values refitted on the hard gates "
        f"{sample('soft', 'refitted').text()}.",
        Table(f"Test {error}, mean ± standard deviation over runs", ("training", *columns.values()), rows),
        error_figure(error, errors, [_TICKS[way] for way in WAYS]),
        Claim("Making gates hard costs a softly trained DLGN", greater(hard, soft, paired=True)),
        Claim("β that grows lowers the cost (error with hard gates)", greater(hard, sample("annealed", "hardened"))),
        Claim("So it does with steps of the gates that shrink as 1/β", greater(hard, sample("slowed", "hardened"))),
        Claim("So do straight-through gates", greater(hard, sample("straight", "hardened"))),
        Claim("So does refitting the values", greater(hard, sample("soft", "refitted"), paired=True)),
        f"DLGN-PWC, {config.layers} hidden layers of {config.width}, Adam {config.learning_rate:g}, batches of "
        f"{config.batch_size}, {config.epochs} epochs, start: {config.start}; β grows by a constant factor each "
        f"epoch{refit}.",
        "Not in the paper, which trains with soft gates and analyses hard ones.",
    )


def error_figure(error: str, samples: Mapping[str, Sequence[Sample]], ways: Sequence[str]) -> FigureFacts:
    """Draw the errors of networks trained in several ways, those with soft and with hard gates beside each other."""
    curves = []
    for place, (label, of_ways) in enumerate(samples.items()):
        beside = tuple(number + 0.12 * (place - 1) for number in range(len(ways)))
        curves.append(Curve(label, beside, tuple(s.mean for s in of_ways), tuple(s.spread for s in of_ways)))
    runs = next(iter(samples.values()))[0].runs
    return figure(
        "What hard gates cost, by how the network was trained",
        "",
        error,
        curves,
        f"Gates as trained, and made hard; bars are standard deviations over {runs} runs.",
        ticks=tuple(ways),
    )


_SMOKE = {"runs": 2, "layers": 2, "width": 6, "epochs": 4, "train_size": 20}
_MNIST = {"task": "mnist", "width": 128, "learning_rate": 1e-3, "batch_size": 32, "train_size": 10_000, "epochs": 10}
EXPERIMENTS = (
    experiment(
        "halfspace-hardening",
        "What hard gates cost a DLGN trained with soft ones, and three ways to close the gap",
        HardeningConfig,
        lambda _config: [Cell(way) for way in WAYS],
        _work,
        _findings,
        smoke=_SMOKE,
    ),
    experiment(
        "halfspace-hardening-mnist",
        "The same on MNIST",
        HardeningConfig,
        lambda _config: [Cell(way) for way in WAYS],
        _work,
        _findings,
        smoke={**_MNIST, **_SMOKE, "test_size": 50},
        quick={**_MNIST, "runs": 8},
        paper={**_MNIST, "train_size": 60_000, "test_size": 10_000},
    ),
)
