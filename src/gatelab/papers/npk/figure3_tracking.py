"""npk, Figure 3, middle and right: ν and tangent kernels, tracked while a network learns."""

from collections.abc import Mapping
from math import sqrt

import torch
from pydantic import Field
from torch import nn

from gatelab import models
from gatelab.convert import Regime
from gatelab.data import load
from gatelab.lab.experiment import DataConfig, Experiment, cell_per_run
from gatelab.lab.findings import Findings, Table
from gatelab.lab.runs import Cell, Context, Result
from gatelab.lab.training import Loss, Optimiser, TrainConfig
from gatelab.lab.training_cells import train_and_track
from gatelab.lab.twins import network, twin
from gatelab.lab.verdicts import Sample, readable
from gatelab.models.init import bernoulli_
from gatelab.papers.common import decided, figure, first_of_each_class, line
from gatelab.papers.npk.table2 import Table2Config


class DynamicsConfig(DataConfig):
    """A fully connected network learns to distinguish 4 from 7 by squared loss."""

    epochs: int = Field(default=50, ge=1)
    every: int = Field(default=2, ge=1)
    width: int = Field(default=128, ge=1)
    depth: int = Field(default=5, ge=2)
    per_class: int = Field(default=100, ge=2)
    batch_size: int = Field(default=64, ge=1)
    learning_rate: float = Field(default=1e-4, gt=0)
    train_size: int | None = Field(default=None, ge=1)

    def make(self, generator: torch.Generator) -> nn.Module:
        """The network: no biases, weights ±√(2/w)."""
        net = models.mlp([784, *[self.width] * (self.depth - 1), 1], generator=generator)
        for weight in net.parameters():
            bernoulli_(weight, sqrt(2 / self.width), generator)
        return nn.Sequential(nn.Flatten(), *net)


def _dynamics_work(config: DynamicsConfig, cell: Cell, context: Context) -> Result:
    data = load("mnist-4-7", config.data_root).subset(config.train_size, seed=config.seed)
    probes, labels = first_of_each_class(data, data.train_x, data.train_y, config.per_class)
    seed = int(cell.parameters["seed"])
    training = TrainConfig(
        epochs=config.epochs,
        batch_size=config.batch_size,
        optimiser=Optimiser.RMSPROP,
        learning_rate=config.learning_rate,
        loss=Loss.SQUARED,
    )
    nets, signs = [network(config.make, seed)], (2 * labels - 1).to(probes)
    return train_and_track(nets, [seed], data, training, context, (probes, signs), every=config.every, tangent=False)


def _dynamics_findings(config: DynamicsConfig, results: Mapping[str, Result]) -> Findings:
    curves, rows, ratios = [], [], []
    for name, result in results.items():
        records = [record for record in result["records"] if record["complexity"] is not None]
        values = [record["complexity"] for record in records]
        curves.append(line(name, [record["epoch"] for record in records], values))
        ratios.append(values[-1] / values[0])
        rows.append((name, readable(values[0]), readable(values[-1]), f"{ratios[-1]:.3f}"))
    fell = f"{sum(ratio < 1 for ratio in ratios)} of {len(ratios)} runs"
    accuracy = Sample.best([result["test_accuracy"][0] for result in results.values()])
    title, y_label = "Label complexity of the path kernel", f"ν on {2 * config.per_class} examples"
    caption = "The paper's curve falls as training proceeds; it prints no numbers."
    return Findings(
        "npk, Figure 3, middle: ν = yᵀĤ⁻¹y while a network learns 4 from 7",
        f"ν falls in {fell}, to {min(ratios):.2f} of its first value in the best; test accuracy {accuracy.text()} %.",
        (Table("ν at the first and last epoch", ("run", "first", "last", "ratio"), tuple(rows)),),
        (figure(title, "epoch", y_label, curves, caption),),
        (decided("ν falls as training proceeds", all(ratio < 1 for ratio in ratios), fell),),
        (f"Width {config.width}, depth {config.depth}; the paper's text says width 100.",),
    )


class KernelsConfig(DataConfig):
    """A decoupled network on MNIST and its two tangent kernels."""

    epochs: int = Field(default=60, ge=1)
    every: int = Field(default=5, ge=1)
    width: int = Field(default=128, ge=1)
    per_class: int = Field(default=10, ge=1)
    train_size: int | None = Field(default=None, ge=1)


def _kernels_work(config: KernelsConfig, cell: Cell, context: Context) -> Result:
    base = Table2Config(width=config.width, train_size=config.train_size, seed=config.seed, data_root=config.data_root)
    data, seed = base.data(), int(cell.parameters["seed"])
    probes, labels = first_of_each_class(data, data.train_x, data.train_y, config.per_class)
    nets, training = [twin(base.make, Regime.DNPFL, seed, base.beta)], TrainConfig(epochs=config.epochs)
    return train_and_track(nets, [seed], data, training, context, (probes, labels.to(probes)), every=config.every)


def _kernels_findings(config: KernelsConfig, results: Mapping[str, Result]) -> Findings:
    del config
    figures = []
    for place, measure in enumerate(("trace", "Frobenius norm")):
        curves = []
        for part, label in (("value", "K^V"), ("feature", "K^F")):
            for number, result in enumerate(results.values()):
                epochs = [record["epoch"] for record in result["records"]]
                values = [record["tangent"][part][place] for record in result["records"]]
                curves.append(line(f"{label}, run {number}", epochs, values))
        title = f"{measure} of K^V and K^F"
        figures.append(figure(title, "epoch", measure, curves, "Of one decoupled network each."))
    traces = [record["tangent"] for result in results.values() for record in result["records"][1:]]
    ratios = [tangent["feature"][0] / tangent["value"][0] for tangent in traces]
    low, high = min(ratios), max(ratios)
    evidence = f"ratio of traces between {low:.2g} and {high:.2g}; same scale means a factor of ten"
    return Findings(
        "npk, Figure 3, right: tangent kernels of values and of gates",
        f"Trace K^F over trace K^V lies between {low:.2g} and {high:.2g} over training.",
        figures=tuple(figures),
        claims=(decided("K^V and K^F are of the same scale", low > 0.1 and high < 10, evidence),),
    )


EXPERIMENTS = (
    Experiment(
        "npk-figure3-dynamics",
        "ν of the path kernel while a network learns 4 from 7",
        DynamicsConfig,
        {
            "smoke": {"runs": 2, "epochs": 2, "train_size": 500, "per_class": 10, "width": 32},
            "quick": {"runs": 3, "epochs": 50},
            "paper": {},
        },
        cell_per_run,
        _dynamics_work,
        _dynamics_findings,
    ),
    Experiment(
        "npk-figure3-kernels",
        "Tangent kernels of values and of gates in a decoupled network",
        KernelsConfig,
        {
            "smoke": {"runs": 1, "epochs": 2, "every": 1, "train_size": 500, "per_class": 2, "width": 32},
            "quick": {"runs": 2, "epochs": 20},
            "paper": {},
        },
        cell_per_run,
        _kernels_work,
        _kernels_findings,
    ),
)
