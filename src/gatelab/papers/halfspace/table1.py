"""halfspace, Table 1: a convolutional DLGN against ReLU, linear and NTK-linear models on CIFAR-10."""

from collections.abc import Mapping
from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import nn

from gatelab import models
from gatelab.kernels import neural_tangent_kernel
from gatelab.lab.experiment import Experiment
from gatelab.lab.kernel_machines import best_accuracy, ridge_answers
from gatelab.lab.runs import Cell, Context, Result
from gatelab.lab.twins import network
from gatelab.lab.verdicts import Claim, Sample, close, greater
from gatelab.papers.halfspace.images import NAMES, QUICK, SMOKE, ImagesConfig, Published, cells, findings, work

TABLE1 = {"relu": (96.3, 72.17), "dlgn": (85.3, 73.2), "pwc": (84.9, 72.2), "dln": (42.3, 40.79)}


class Table1Config(ImagesConfig):
    """5 convolutions of 26 filters, global average pooling, a dense layer of 64."""

    kinds: ClassVar[tuple[str, ...]] = tuple(NAMES)  # the paper's, and frozen gates, which it has on the circle
    data: Literal["cifar10"] = "cifar10"  # pyright: ignore[reportIncompatibleVariableOverride]
    layers: int = Field(default=5, ge=1)
    filters: int = Field(default=26, ge=1)
    dense: int = Field(default=64, ge=1)
    kernel_examples: int = Field(default=1000, ge=20)  # from which the linear model on NTK features learns

    def title(self) -> str:
        """The table's name."""
        return "halfspace, Table 1"

    def relu(self, generator: torch.Generator) -> nn.Module:
        """Make the network of the paper's appendix."""
        return models.halfspace_cnn(layers=self.layers, filters=self.filters, dense=self.dense, generator=generator)

    def published(self) -> Published:
        """The paper's Table 1."""
        return TABLE1

    def claims(self, test: Mapping[str, Sample]) -> tuple[Claim, ...]:
        """Decide what Section 2.3 says about the table."""
        return (
            close("DLGN and ReLU are about equally good", test["dlgn"], test["relu"], within=0.03),
            close("DLGN-PWC and ReLU are about equally good", test["pwc"], test["relu"], within=0.03),
            greater("DLGN beats frozen gates", test["dlgn"], test["frozen"]),
            greater("Frozen gates beat the deep linear network", test["frozen"], test["dln"]),
            greater("DLGN beats the deep linear network", test["dlgn"], test["dln"]),
            greater("ReLU beats the linear model on NTK features", test["relu"], test["tangent"]),
            greater("DLGN beats the linear model on NTK features", test["dlgn"], test["tangent"]),
        )

    def differences(self) -> tuple[str, ...]:
        """How this run departs from the paper, and what the linear model is."""
        kernel = (
            f"The linear model on NTK features is ridge regression with the tangent kernel of the ReLU network at its "
            f"start, on {self.kernel_examples} examples; the paper mentions it without numbers."
        )
        return (*super().differences(), kernel)


def _work(config: Table1Config, cell: Cell, context: Context) -> Result:
    if cell.parameters["kind"] != "tangent":
        return work(config, cell, context)
    data, model = config.load(), network(config.relu, int(cell.parameters["seed"]))
    part = data.subset(*(min(config.kernel_examples, len(x)) for x in (data.train_x, data.test_x)))
    x, others = data.inputs(part.train_x), data.inputs(part.test_x)
    kernel, cross = neural_tangent_kernel(model, x).double(), neural_tangent_kernel(model, others, x).double()
    train, test = best_accuracy(kernel, cross, part, ridge_answers, (1e-6, 1e-4, 1e-2, 1.0))
    return {"data": data.title, "train": train, "test": test}


EXPERIMENTS = (
    Experiment(
        "halfspace-table1",
        "ReLU, DLGN, DLGN-PWC, deep linear and NTK-linear models on CIFAR-10",
        Table1Config,
        {
            "smoke": {**SMOKE, "filters": 4, "dense": 8, "kernel_examples": 40},
            "quick": {**QUICK, "epochs": 8, "learning_rate": 1e-3},
            "paper": {},
        },
        cells,
        _work,
        findings,
    ),
)
