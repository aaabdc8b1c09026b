"""Random gates, infinite width and learnt gates on one data subset: npk's FRNPF < CNTK < FLNPF.

FRNPF: fixed random neural path features; CNTK: the convolutional neural tangent kernel at infinite width; FLNPF: fixed
learnt neural path features.
"""

from collections.abc import Mapping
from typing import Literal

import torch
from pydantic import Field
from torch import nn

from gatelab import models
from gatelab.convert import Regime
from gatelab.data import Dataset, load
from gatelab.kernels.infinite_convolution import convolutional_kernels
from gatelab.lab.experiment import DataConfig
from gatelab.lab.findings import Findings, Table
from gatelab.lab.kernel_machines import best_accuracy, ridge_answers
from gatelab.lab.runs import Cell, Context, Result
from gatelab.lab.training_cells import kept_weights, train_cell
from gatelab.lab.twins import learnt_twins, network, twin
from gatelab.lab.verdicts import Claim, Sample, greater
from gatelab.papers.common import (
    accuracies_over_epochs,
    experiment,
    findings,
    flatness,
    last_gain,
    last_loss,
    learning_curves,
    training,
)

# In the order that the paper states, and its accuracies on all of CIFAR-10 at full width.
RANDOM, LIMIT, CNTK = "FRNPF, trained values", "FRNPF at infinite width, ridge regression", "CNTK, ridge regression"
LEARNT, RELU = "FLNPF, trained values", "ReLU"
PUBLISHED = {RANDOM: "67.09", LIMIT: "", CNTK: "77.43", LEARNT: "79.68", RELU: "80.43"}


class CntkConfig(DataConfig):
    """Convolutions, global average pooling and a linear readout, finite or infinitely wide, on the same examples."""

    train_size: int = Field(default=200, ge=20)
    test_size: int = Field(default=500, ge=10)
    shrink: Literal[1, 2, 4] = 4
    convolutions: int = Field(default=2, ge=1)
    width: int = Field(default=64, ge=1)
    epochs: int = Field(default=200, ge=1)
    batch_size: int = Field(default=32, ge=1)
    learning_rate: float = Field(default=3e-3, gt=0)
    ridges: tuple[float, ...] = (1e-4, 1e-3, 1e-2, 1e-1)  # relative to the mean diagonal; chosen on a held-out fifth

    def subset(self, seed: int) -> Dataset:
        """The examples of a run."""
        return load("cifar10", self.data_root).subset(self.train_size, self.test_size, seed=seed).shrunk(self.shrink)

    def make(self, generator: torch.Generator) -> nn.Module:
        """The ReLU network."""
        return models.gconv(channels=[self.width] * self.convolutions, dense=[], generator=generator)


def _cells(config: CntkConfig) -> list[Cell]:
    cells = []
    for run, seed in enumerate(config.seeds()):
        relu = f"relu/{run}"
        cells += [
            Cell(relu, {"kind": "relu", "seed": seed}),
            Cell(f"fixed/{run}", {"kind": "fixed", "seed": seed}, needs=(relu,), weight=2.0),
            Cell(f"kernels/{run}", {"kind": "kernels", "seed": seed}, weight=4.0),
        ]
    return cells


def _work(config: CntkConfig, cell: Cell, context: Context) -> Result:
    kind, seed = cell.parameters["kind"], int(cell.parameters["seed"])
    data, how = config.subset(seed), training(config)
    if kind == "kernels":
        return _kernels(config, data)
    if kind == "relu":
        return train_cell([network(config.make, seed)], [seed], data, how, context, keep={config.epochs})
    (folder,) = context.folders.values()
    gates = kept_weights(folder, config.epochs, 1)
    nets = [twin(config.make, Regime.FRNPF_II, seed, 8.0), *learnt_twins(config.make, [seed], 8.0, gates)]
    return train_cell(nets, [seed] * 2, data, how, context)


def _kernels(config: CntkConfig, data: Dataset) -> Result:
    """The test accuracies of both kernels at infinite width."""
    images, others = (data.inputs(part, torch.float64) for part in (data.train_x, data.test_x))
    options = {"convolutions": config.convolutions, "pooled": True}
    own, cross = convolutional_kernels(images, **options), convolutional_kernels(others, images, **options)
    kernels = {LIMIT: (own.fixed_gates, cross.fixed_gates), CNTK: (own.ntk, cross.ntk)}
    return {name: best_accuracy(*pair, data, ridge_answers, config.ridges)[1] for name, pair in kernels.items()}


def _findings(config: CntkConfig, results: Mapping[str, Result]) -> Findings:
    def runs(kind: str) -> list[Result]:
        return [results[f"{kind}/{run}"] for run in range(config.runs)]

    histories = {
        RANDOM: [result["test_accuracy"][0] for result in runs("fixed")],
        LEARNT: [result["test_accuracy"][1] for result in runs("fixed")],
        RELU: [result["test_accuracy"][0] for result in runs("relu")],
    }
    gains = {name: last_gain(history) for name, history in histories.items()}
    losses = {
        RANDOM: last_loss([result["train_loss"][0] for result in runs("fixed")]),
        LEARNT: last_loss([result["train_loss"][1] for result in runs("fixed")]),
        RELU: last_loss([result["train_loss"][0] for result in runs("relu")]),
    }
    last = {name: Sample.last(history) for name, history in histories.items()}
    last |= {name: Sample(tuple(result[name] for result in runs("kernels"))) for name in (LIMIT, CNTK)}
    return findings(
        f"npk: FRNPF, CNTK and FLNPF on {config.train_size} images of {runs('relu')[0]['data']}",
        f"Random gates reach {last[RANDOM].text()} %, the CNTK {last[CNTK].text()} %, learnt gates "
        f"{last[LEARNT].text()} %, the ReLU network {last[RELU].text()} %.",
        Table(
            "Test accuracy in percent, mean ± standard deviation over runs",
            ("", "ours", "last gain", "training loss", "published, all of CIFAR-10"),
            tuple(
                (name, last[name].text(), gains[name].text() if name in gains else "", losses.get(name, ""), published)
                for name, published in PUBLISHED.items()
            ),
            f"Networks at their last epoch. Every row of a run learns from the same examples. {flatness(gains)}",
        ),
        accuracies_over_epochs(histories),
        learning_curves(histories),
        Claim("The CNTK beats trained values on random gates", greater(last[CNTK], last[RANDOM], paired=True)),
        Claim("Learnt gates beat the CNTK", greater(last[LEARNT], last[CNTK], paired=True)),
        Claim("The CNTK beats fixed random gates at infinite width", greater(last[CNTK], last[LIMIT], paired=True)),
        f"{config.convolutions} convolutions of {config.width} channels and a linear readout after pooling. The "
        f"paper's networks also have hidden dense layers, and {50000 // config.train_size} times the examples.",
        "FLNPF uses the gates of the ReLU network after its last epoch on the same examples.",
    )


EXPERIMENTS = (
    experiment(
        "npk-cntk",
        "Random gates, infinite width and learnt gates on one data subset",
        CntkConfig,
        _cells,
        _work,
        _findings,
        smoke={"runs": 2, "train_size": 30, "test_size": 20, "epochs": 2, "width": 4, "convolutions": 1},
        quick={"runs": 8},
        paper={"runs": 5, "train_size": 5000, "test_size": 10000, "shrink": 1, "convolutions": 4},
    ),
)
