"""What Tables 1 and 2 of halfspace share: networks of several kinds, made from one ReLU network, learn CIFAR."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import nn

from gatelab.convert import to_dlgn, to_dln
from gatelab.data import Dataset, load
from gatelab.figures import Curve, Plot
from gatelab.gates import HardGate
from gatelab.lab.experiment import DataConfig
from gatelab.lab.findings import FigureFacts, Findings, Table
from gatelab.lab.runs import Cell, Context, Result
from gatelab.lab.training import TrainConfig
from gatelab.lab.training_cells import train_cell
from gatelab.lab.twins import network
from gatelab.lab.verdicts import Claim, Sample

NAMES = {
    "relu": "ReLU",
    "dlgn": "DLGN",
    "pwc": "DLGN-PWC",
    "frozen": "DLGN, frozen gates",
    "dln": "DLN",
    "tangent": "linear in NTK features",
}
Published = Mapping[str, tuple[float, float]]  # train and test accuracy, in percent
QUICK: dict[str, Any] = {"train_size": 10000, "test_size": 2000, "shrink": 2, "runs": 2}
SMOKE: dict[str, Any] = {"runs": 2, "epochs": 1, "train_size": 200, "test_size": 100, "shrink": 4}


class ImagesConfig(DataConfig, ABC):
    """Networks that learn CIFAR, or a part of it."""

    kinds: ClassVar[tuple[str, ...]]  # the rows of the table, by their keys in NAMES
    data: Literal["cifar10", "cifar100"] = "cifar10"
    runs: int = Field(default=3, ge=1)
    epochs: int = Field(default=100, ge=1)
    batch_size: int = Field(default=32, ge=1)
    learning_rate: float = Field(default=2e-4, gt=0)
    beta: float = Field(default=10.0, gt=0)
    train_size: int | None = Field(default=None, ge=1)
    test_size: int | None = Field(default=None, ge=1)
    shrink: Literal[1, 2, 4] = 1  # factor by which images are made smaller

    def load(self) -> Dataset:
        """Load the data, all or a part."""
        whole = load(self.data, self.data_root)
        return whole.subset(self.train_size, self.test_size, seed=self.seed).shrunk(self.shrink)

    @abstractmethod
    def title(self) -> str:
        """The table's name in the paper."""

    @abstractmethod
    def relu(self, generator: torch.Generator) -> nn.Module:
        """Make the ReLU network from which the others are made."""

    @abstractmethod
    def published(self) -> Published:
        """The printed accuracies; empty if the paper does not have this table."""

    @abstractmethod
    def claims(self, test: Mapping[str, Sample]) -> tuple[Claim, ...]:
        """Decide the paper's claims from the test accuracy of each kind."""

    def differences(self) -> tuple[str, ...]:
        """How this run departs from the paper."""
        notes = [f"{self.epochs} epochs of Adam {self.learning_rate:g}; the paper does not say how long it trains."]
        if self.train_size is not None:
            notes.append(f"Only {self.train_size} training and {self.test_size} test examples.")
        if self.shrink != 1:
            notes.append(f"Images are shrunk by {self.shrink}, to {32 // self.shrink} pixels a side.")
        return tuple(notes)


def cells(config: ImagesConfig) -> list[Cell]:
    """Return a cell for every kind and run."""
    weights = {"dlgn": 2.0, "pwc": 2.0, "frozen": 1.4, "tangent": 0.3}
    return [
        Cell(f"{kind}/run {run}", {"kind": kind, "seed": seed}, weight=weights.get(kind, 1.0))
        for run, seed in enumerate(config.seeds())
        for kind in config.kinds
    ]


def work(config: ImagesConfig, cell: Cell, context: Context) -> Result:
    """Train one network; return its accuracies at the last epoch."""
    data, kind, seed = config.load(), cell.parameters["kind"], int(cell.parameters["seed"])
    model = network(config.relu, seed)
    if kind == "dln":
        model = to_dln(model)
    elif kind != "relu":
        generator = torch.Generator().manual_seed(seed + 500_009)  # the gates' weights differ from the values'
        model = to_dlgn(model, config.beta, kind == "pwc", generator=generator)
        if kind == "frozen":
            model.set_gates(HardGate())
            for parameter in model.feature_parameters():
                parameter.requires_grad_(False)
    training = TrainConfig(epochs=config.epochs, batch_size=config.batch_size, learning_rate=config.learning_rate)
    result = train_cell([model], [seed], data, training, context)
    # A single model is trained in place, so it is now at its last epoch.
    return {**result, "train": _train_accuracy(model, data), "test": result["test_accuracy"][0][-1]}


@torch.no_grad()
def _train_accuracy(model: nn.Module, data: Dataset) -> float:
    model.eval()
    answers = torch.cat([model(data.inputs(x)).argmax(dim=1) for x in data.train_x.split(500)])
    return float((answers == data.train_y).double().mean())


def findings(config: ImagesConfig, results: Mapping[str, Result]) -> Findings:
    """Return the table, beside the published numbers, and the claims."""
    train, test = (
        {kind: Sample(tuple(results[f"{kind}/run {run}"][part] for run in range(config.runs))) for kind in config.kinds}
        for part in ("train", "test")
    )
    columns = ("published train", "published test", "difference") if config.published() else ()
    rows = tuple((NAMES[kind], train[kind].text(), test[kind].text(), *_published(config, kind, test)) for kind in test)
    accuracies = ", ".join(f"{NAMES[kind]} {sample.text()}" for kind, sample in test.items())
    return Findings(
        f"{config.title()}: {results['relu/run 0']['data']}",
        f"Test accuracy in percent at the last epoch: {accuracies}.",
        (
            Table(
                "Accuracy in percent at the last epoch, mean ± standard deviation over runs",
                ("network", "train", "test", *columns),
                rows,
            ),
        ),
        (_figure(config, test),),
        config.claims(test),
        config.differences(),
    )


def _published(config: ImagesConfig, kind: str, test: Mapping[str, Sample]) -> tuple[str, ...]:
    """The published columns of a row; none if the paper does not have this table."""
    if kind not in config.published():
        return ("", "", "") if config.published() else ()
    train, printed = config.published()[kind]
    return (f"{train:g}", f"{printed:g}", f"{100 * test[kind].mean - printed:+.2f}")


def _figure(config: ImagesConfig, test: Mapping[str, Sample]) -> FigureFacts:
    kinds, printed = list(test), config.published()
    aside = 0.08 if printed else 0.0
    curves = [
        Curve(
            f"ours, {config.runs} runs",
            tuple(place - aside for place in range(len(kinds))),
            tuple(100 * test[kind].mean for kind in kinds),
            tuple(100 * test[kind].spread for kind in kinds),
        )
    ]
    if printed:
        places = [place for place, kind in enumerate(kinds) if kind in printed]
        accuracies = tuple(printed[kinds[place]][1] for place in places)
        curves.append(Curve("published", tuple(place + aside for place in places), accuracies))
    return FigureFacts(
        f"Test accuracy after {config.epochs} epochs",
        Plot("", "test accuracy in percent", tuple(curves), ticks=tuple(NAMES[kind] for kind in kinds)),
        "Bars are standard deviations over runs.",
    )
