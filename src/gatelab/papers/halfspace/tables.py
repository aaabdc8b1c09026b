"""halfspace, Tables 1 and 2: DLGNs and other models, made from one ReLU network, learn CIFAR."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import nn

from gatelab import models
from gatelab.convert import to_dlgn, to_dln
from gatelab.data import Dataset, load
from gatelab.figures import Curve
from gatelab.gates import HardGate
from gatelab.kernels import neural_tangent_kernel
from gatelab.lab.experiment import DataConfig
from gatelab.lab.findings import FigureFacts, Findings, Table, percent_curve
from gatelab.lab.hardening import hardening_look, hardening_note
from gatelab.lab.kernel_machines import best_accuracy, ridge_answers
from gatelab.lab.runs import Cell, Context, Result
from gatelab.lab.training_cells import train_cell
from gatelab.lab.twins import network
from gatelab.lab.verdicts import Claim, Sample, Verdict, equivalent, greater, not_below
from gatelab.papers.common import dots, experiment, figure, findings, training

NAMES = {
    "relu": "ReLU",
    "dlgn": "DLGN",
    "pwc": "DLGN-PWC",
    "frozen": "DLGN, frozen gates",
    "dln": "DLN",
    "tangent": "linear in NTK features",
}
SOFT = ("dlgn", "pwc")  # learn with soft gates
Published = Mapping[str, tuple[float, float]]  # train and test accuracy, in percent
TABLE1 = {"relu": (96.3, 72.17), "dlgn": (85.3, 73.2), "pwc": (84.9, 72.2), "dln": (42.3, 40.79)}
TABLE2 = {
    ("cifar10", 34): {"relu": (100.0, 91.0), "dlgn": (100.0, 86.0)},
    ("cifar100", 34): {"relu": (100.0, 56.68), "dlgn": (100.0, 51.6)},
    ("cifar10", 110): {"relu": (100.0, 94.0), "dlgn": (100.0, 89.0)},
    ("cifar100", 110): {"relu": (100.0, 73.0), "dlgn": (100.0, 67.0)},
}


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
        """Decide what Section 2.3 says about the table, from the test accuracy of each kind."""

    def differences(self) -> tuple[str, ...]:
        """How this run departs from the paper."""
        notes = [f"{self.epochs} epochs of Adam {self.learning_rate:g}; the paper does not say how long it trains."]
        if self.train_size is not None:
            notes.append(f"Only {self.train_size} training and {self.test_size} test examples.")
        if self.shrink != 1:
            notes.append(f"Images are shrunk by {self.shrink}, to {32 // self.shrink} pixels a side.")
        return tuple(notes)


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
        """Compare DLGNs with ReLU, and all models with those that learn no gates."""

        def beats(one: str, other: str) -> Verdict:
            return greater(test[one], test[other], paired=True)

        def as_good(kind: str) -> Verdict:
            return equivalent(test[kind], test["relu"], 0.03, paired=True)

        return (
            Claim("DLGN and ReLU are about equally good", as_good("dlgn")),
            Claim("DLGN-PWC and ReLU are about equally good", as_good("pwc")),
            Claim("DLGN beats frozen gates", beats("dlgn", "frozen")),
            Claim("Frozen gates beat the deep linear network", beats("frozen", "dln")),
            Claim("DLGN beats the deep linear network", beats("dlgn", "dln")),
            Claim("ReLU beats the linear model on NTK features", beats("relu", "tangent")),
            Claim("DLGN beats the linear model on NTK features", beats("dlgn", "tangent")),
        )

    def differences(self) -> tuple[str, ...]:
        """How this run departs from the paper, and what the linear model is."""
        kernel = (
            f"The linear model on NTK features is ridge regression with the tangent kernel of the ReLU network at its "
            f"start, on {self.kernel_examples} examples; the paper mentions it without numbers."
        )
        return (*super().differences(), kernel)


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
        """Compare both networks."""
        worse = "DLGN is at most slightly worse (the paper: 5 to 6 points)"
        return (
            Claim("ReLU beats DLGN", greater(test["relu"], test["dlgn"], paired=True)),
            Claim(worse, not_below(test["dlgn"], test["relu"], 0.08, paired=True)),
        )

    def differences(self) -> tuple[str, ...]:
        """How this run departs from the paper, and which networks are the paper's."""
        if self.published():
            return super().differences()
        return (*super().differences(), f"ResNet-{self.depth} here; the paper's are ResNet-34 and ResNet-110.")


def _cells(config: ImagesConfig) -> list[Cell]:
    weights = {"dlgn": 2.0, "pwc": 2.0, "frozen": 1.4, "tangent": 0.3}
    return [
        Cell(f"{kind}/run {run}", {"kind": kind, "seed": seed}, weight=weights.get(kind, 1.0))
        for run, seed in enumerate(config.seeds())
        for kind in config.kinds
    ]


def _work(config: ImagesConfig, cell: Cell, context: Context) -> Result:
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
    result = train_cell([model], [seed], data, training(config), context)
    # A single model is trained in place, so it is now at its last epoch.
    gap = {"hardening": hardening_look(model, data)} if kind in SOFT else {}
    return {**result, "train": _train_accuracy(model, data), "test": result["test_accuracy"][0][-1], **gap}


def _table1_work(config: Table1Config, cell: Cell, context: Context) -> Result:
    """Train one network, or fit the linear model: ridge regression with the tangent kernel at the start."""
    if cell.parameters["kind"] != "tangent":
        return _work(config, cell, context)
    data, model = config.load(), network(config.relu, int(cell.parameters["seed"]))
    part = data.subset(*(min(config.kernel_examples, len(x)) for x in (data.train_x, data.test_x)))
    x, others = data.inputs(part.train_x), data.inputs(part.test_x)
    kernel, cross = neural_tangent_kernel(model, x).double(), neural_tangent_kernel(model, others, x).double()
    train, test = best_accuracy(kernel, cross, part, ridge_answers, (1e-6, 1e-4, 1e-2, 1.0))
    return {"data": data.title, "train": train, "test": test}


@torch.no_grad()
def _train_accuracy(model: nn.Module, data: Dataset) -> float:
    model.eval()
    answers = torch.cat([model(data.inputs(x)).argmax(dim=1) for x in data.train_x.split(500)])
    return float((answers == data.train_y).double().mean())


def _findings(config: ImagesConfig, results: Mapping[str, Result]) -> Findings:
    """Return the table, beside the published numbers, and the claims."""
    train, test = (
        {kind: Sample(tuple(results[f"{kind}/run {run}"][part] for run in range(config.runs))) for kind in config.kinds}
        for part in ("train", "test")
    )
    columns = ("published train", "published test", "difference") if config.published() else ()
    rows = tuple((NAMES[kind], train[kind].text(), test[kind].text(), *_published(config, kind, test)) for kind in test)
    accuracies = ", ".join(f"{NAMES[kind]} {sample.text()}" for kind, sample in test.items())
    title = "Accuracy in percent at the last epoch, mean ± standard deviation over runs"
    return findings(
        f"{config.title()}: {results['relu/run 0']['data']}",
        f"Test accuracy in percent at the last epoch: {accuracies}.",
        Table(title, ("network", "train", "test", *columns), rows),
        _figure(config, test),
        *config.claims(test),
        *config.differences(),
        *(
            note
            for kind in config.kinds
            if kind in SOFT
            for note in hardening_note(NAMES[kind], _gaps(config, kind, results))
        ),
    )


def _gaps(config: ImagesConfig, kind: str, results: Mapping[str, Result]) -> list[Any]:
    """What hard gates would cost each run; runs of version 0.1 did not look."""
    return [results[f"{kind}/run {run}"].get("hardening") for run in range(config.runs)]


def _published(config: ImagesConfig, kind: str, test: Mapping[str, Sample]) -> tuple[str, ...]:
    """The published columns of a row; none if the paper does not have this table."""
    if kind not in config.published():
        return ("", "", "") if config.published() else ()
    train, printed = config.published()[kind]
    return (f"{train:g}", f"{printed:g}", f"{100 * test[kind].mean - printed:+.2f}")


def _figure(config: ImagesConfig, test: Mapping[str, Sample]) -> FigureFacts:
    kinds, printed = list(test), config.published()
    aside = 0.08 if printed else 0.0
    ours = percent_curve(f"ours, {config.runs} runs", [k - aside for k in range(len(kinds))], list(test.values()))
    curves: list[Curve] = [ours]
    if printed:
        places = [place for place, kind in enumerate(kinds) if kind in printed]
        curves.append(dots("published", [k + aside for k in places], [printed[kinds[k]][1] for k in places]))
    title, caption = f"Test accuracy after {config.epochs} epochs", "Bars are standard deviations over runs."
    ticks = tuple(NAMES[kind] for kind in kinds)
    return figure(title, "", "test accuracy in percent", curves, caption, ticks=ticks)


_QUICK: dict[str, Any] = {"train_size": 10000, "test_size": 2000, "shrink": 2, "runs": 2}
_SMOKE: dict[str, Any] = {"runs": 2, "epochs": 1, "train_size": 200, "test_size": 100, "shrink": 4}
EXPERIMENTS = (
    experiment(
        "halfspace-table1",
        "ReLU, DLGN, DLGN-PWC, deep linear and NTK-linear models on CIFAR-10",
        Table1Config,
        _cells,
        _table1_work,
        _findings,
        smoke={**_SMOKE, "filters": 4, "dense": 8, "kernel_examples": 40},
        quick={**_QUICK, "epochs": 8, "learning_rate": 1e-3},
    ),
    experiment(
        "halfspace-table2",
        "Residual DLGNs against residual ReLU networks on CIFAR-10 and CIFAR-100",
        ResidualConfig,
        _cells,
        _work,
        _findings,
        smoke={**_SMOKE, "depth": 8},
        quick={**_QUICK, "epochs": 5, "depth": 20},
    ),
)
