"""halfspace, Table 2: residual DLGNs against residual ReLU networks on CIFAR-10 and CIFAR-100."""

from collections.abc import Mapping
from typing import ClassVar

import torch
from pydantic import Field
from torch import nn

from gatelab import models
from gatelab.lab.experiment import Experiment
from gatelab.lab.verdicts import Claim, Sample, close, greater
from gatelab.papers.halfspace.images import QUICK, SMOKE, ImagesConfig, Published, cells, findings, work

TABLE2 = {
    ("cifar10", 34): {"relu": (100.0, 91.0), "dlgn": (100.0, 86.0)},
    ("cifar100", 34): {"relu": (100.0, 56.68), "dlgn": (100.0, 51.6)},
    ("cifar10", 110): {"relu": (100.0, 94.0), "dlgn": (100.0, 89.0)},
    ("cifar100", 110): {"relu": (100.0, 73.0), "dlgn": (100.0, 67.0)},
}


class ResidualConfig(ImagesConfig):
    """Residual networks."""

    kinds: ClassVar[tuple[str, ...]] = ("relu", "dlgn")
    depth: int = Field(default=34, ge=8)
    learning_rate: float = Field(default=1e-3, gt=0)

    def title(self) -> str:
        """The table's name, and the network."""
        return f"halfspace, Table 2: ResNet-{self.depth}"

    def relu(self, generator: torch.Generator) -> nn.Module:
        """Make the residual network."""
        return models.resnet(self.depth, outputs=10 if self.data == "cifar10" else 100, generator=generator)

    def published(self) -> Published:
        """The paper's Table 2, if it has this network."""
        return TABLE2.get((self.data, self.depth), {})

    def claims(self, test: Mapping[str, Sample]) -> tuple[Claim, ...]:
        """Decide what Section 2.3 says about residual networks."""
        return (
            greater("ReLU beats DLGN", test["relu"], test["dlgn"]),
            close("DLGN is only slightly worse (the paper: 5 to 6 points)", test["dlgn"], test["relu"], within=0.08),
        )

    def differences(self) -> tuple[str, ...]:
        """How this run departs from the paper, and which networks are the paper's."""
        if self.published():
            return super().differences()
        return (*super().differences(), f"ResNet-{self.depth} here; the paper's are ResNet-34 and ResNet-110.")


EXPERIMENTS = (
    Experiment(
        "halfspace-table2",
        "Residual DLGNs against residual ReLU networks on CIFAR-10 and CIFAR-100",
        ResidualConfig,
        {"smoke": {**SMOKE, "depth": 8}, "quick": {**QUICK, "epochs": 5, "depth": 20}, "paper": {}},
        cells,
        work,
        findings,
    ),
)
