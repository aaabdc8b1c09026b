"""npk, Figure 3, middle: ν = yᵀĤ⁻¹y while a network learns."""

from collections.abc import Mapping
from math import sqrt

import torch
from pydantic import Field
from torch import Tensor, nn

from gatelab import models
from gatelab.data import Dataset, load
from gatelab.figures import Curve, Plot
from gatelab.lab.experiment import DataConfig, Experiment, cell_per_run
from gatelab.lab.findings import FigureFacts, Findings, Table
from gatelab.lab.runs import Cell, Context, Result
from gatelab.lab.training import Loss, Optimiser, TrainConfig
from gatelab.lab.training_cells import train_and_track
from gatelab.lab.twins import network
from gatelab.lab.verdicts import Claim, Sample, Verdict, readable
from gatelab.models.init import bernoulli_


def first_of_each_class(data: Dataset, count: int) -> tuple[Tensor, Tensor]:
    """The first ``count`` training examples of each class, and their labels."""
    chosen = torch.cat([(data.train_y == label).nonzero()[:count, 0] for label in range(len(data.classes))])
    return data.inputs(data.train_x[chosen]), data.train_y[chosen]


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
    probes, labels = first_of_each_class(data, config.per_class)
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
    curves, first, last = [], [], []
    for name, result in results.items():
        records = [record for record in result["records"] if record["complexity"] is not None]
        values = tuple(record["complexity"] for record in records)
        curves.append(Curve(name, tuple(float(record["epoch"]) for record in records), values, line=True))
        first.append(values[0])
        last.append(values[-1])
    fell = sum(b < a for a, b in zip(first, last, strict=True))
    verdict = Verdict.HOLDS if fell == len(first) else Verdict.FAILS
    accuracy = Sample.best([result["test_accuracy"][0] for result in results.values()])
    rows = tuple(
        (name, readable(a), readable(b), f"{b / a:.3f}") for name, a, b in zip(results, first, last, strict=True)
    )
    return Findings(
        "npk, Figure 3, middle: ν = yᵀĤ⁻¹y while a network learns 4 from 7",
        f"ν falls in {fell} of {len(first)} runs, to {min(b / a for a, b in zip(first, last, strict=True)):.2f} of its "
        f"first value in the best; test accuracy {accuracy.text()} %.",
        (Table("ν at the first and last epoch", ("run", "first", "last", "ratio"), rows),),
        (
            FigureFacts(
                "Label complexity of the path kernel",
                Plot("epoch", f"ν on {2 * config.per_class} examples", tuple(curves)),
                "The paper's curve falls as training proceeds; it prints no numbers.",
            ),
        ),
        (Claim("ν falls as training proceeds", verdict, f"{fell} of {len(first)} runs"),),
        (f"Width {config.width}, depth {config.depth}; the paper's text says width 100.",),
    )


DYNAMICS = Experiment(
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
)
EXPERIMENTS = (DYNAMICS,)
