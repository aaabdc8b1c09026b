"""halfspace, Tables 1 and 2: DLGNs against ReLU and linear networks on images."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, Literal

import torch
from pydantic import Field
from torch import nn

from gatelab import models
from gatelab.convert import GatedTwin, to_dlgn, to_dln
from gatelab.data import Dataset, load
from gatelab.figures import Curve, Plot
from gatelab.gates import HardGate
from gatelab.kernels import neural_tangent_kernel
from gatelab.lab.experiment import DataConfig, Experiment
from gatelab.lab.findings import FigureFacts, Findings, Table
from gatelab.lab.kernel_machines import best_accuracy, ridge_answers
from gatelab.lab.runs import Cell, Context, Result
from gatelab.lab.training import TrainConfig
from gatelab.lab.training_cells import train_cell
from gatelab.lab.twins import network
from gatelab.lab.verdicts import Claim, Sample, close, greater

NAMES = {
    "relu": "ReLU",
    "dlgn": "DLGN",
    "pwc": "DLGN-PWC",
    "frozen": "DLGN, frozen gates",
    "dln": "DLN",
    "tangent": "linear in NTK features",
}
# Train and test accuracy.
TABLE1 = {"relu": (96.3, 72.17), "dlgn": (85.3, 73.2), "pwc": (84.9, 72.2), "dln": (42.3, 40.79)}
TABLE2 = {
    ("cifar10", 34): {"relu": (100.0, 91.0), "dlgn": (100.0, 86.0)},
    ("cifar100", 34): {"relu": (100.0, 56.68), "dlgn": (100.0, 51.6)},
    ("cifar10", 110): {"relu": (100.0, 94.0), "dlgn": (100.0, 89.0)},
    ("cifar100", 110): {"relu": (100.0, 73.0), "dlgn": (100.0, 67.0)},
}
Published = Mapping[str, tuple[float, float]]


class ImagesConfig(DataConfig, ABC):
    """Networks that learn CIFAR, or a part of it."""

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
        """The data, all or a part."""
        whole = load(self.data, self.data_root)
        return whole.subset(self.train_size, self.test_size, seed=self.seed).shrunk(self.shrink)

    @abstractmethod
    def kinds(self) -> tuple[str, ...]:
        """The networks of the table."""

    @abstractmethod
    def relu(self, generator: torch.Generator) -> nn.Module:
        """The ReLU network from which the others are made."""

    @abstractmethod
    def published(self) -> Published:
        """Train and test accuracy as printed; empty if this is not in the paper."""

    def differences(self) -> tuple[str, ...]:
        """In what this departs from the paper."""
        notes = [f"{self.epochs} epochs of Adam {self.learning_rate:g}; the paper does not say how long it trains."]
        if self.train_size is not None:
            notes.append(f"Only {self.train_size} training and {self.test_size} test examples.")
        if self.shrink != 1:
            notes.append(f"Images are shrunk by {self.shrink}, to {32 // self.shrink} pixels a side.")
        return tuple(notes)


class Table1Config(ImagesConfig):
    """5 convolutions of 26 filters, global average pooling, a dense layer of 64."""

    data: Literal["cifar10"] = "cifar10"  # pyright: ignore[reportIncompatibleVariableOverride]
    layers: int = Field(default=5, ge=1)
    filters: int = Field(default=26, ge=1)
    dense: int = Field(default=64, ge=1)
    kernel_examples: int = Field(default=1000, ge=20)  # from which the linear model on NTK features learns

    def kinds(self) -> tuple[str, ...]:
        """The paper's, and the DLGN with frozen gates, which it has on the circle."""
        return tuple(NAMES)

    def relu(self, generator: torch.Generator) -> nn.Module:
        """The network of the paper's appendix."""
        return models.halfspace_cnn(layers=self.layers, filters=self.filters, dense=self.dense, generator=generator)

    def published(self) -> Published:
        """The paper's Table 1."""
        return TABLE1

    def differences(self) -> tuple[str, ...]:
        """And what the linear model is."""
        kernel = (
            f"The linear model on NTK features is ridge regression with the tangent kernel of the ReLU network at its "
            f"start, on {self.kernel_examples} examples; the paper names it without numbers."
        )
        return (*super().differences(), kernel)


class Table2Config(ImagesConfig):
    """Residual networks."""

    depth: int = Field(default=34, ge=8)
    learning_rate: float = Field(default=1e-3, gt=0)

    def kinds(self) -> tuple[str, ...]:
        """The two of the table."""
        return ("relu", "dlgn")

    def relu(self, generator: torch.Generator) -> nn.Module:
        """The residual network."""
        return models.resnet(self.depth, outputs=10 if self.data == "cifar10" else 100, generator=generator)

    def published(self) -> Published:
        """The paper's Table 2, where it has this network."""
        return TABLE2.get((self.data, self.depth), {})

    def differences(self) -> tuple[str, ...]:
        """And which networks are the paper's."""
        if self.published():
            return super().differences()
        return (*super().differences(), f"ResNet-{self.depth} here; the paper's are ResNet-34 and ResNet-110.")


def _cells(config: ImagesConfig) -> list[Cell]:
    weights = {"dlgn": 2.0, "pwc": 2.0, "frozen": 1.4, "tangent": 0.3}
    return [
        Cell(f"{kind}/run {run}", {"kind": kind, "seed": seed}, weight=weights.get(kind, 1.0))
        for run, seed in enumerate(config.seeds())
        for kind in config.kinds()
    ]


def _work(config: ImagesConfig, cell: Cell, context: Context) -> Result:
    data, kind, seed = config.load(), cell.parameters["kind"], int(cell.parameters["seed"])
    model = network(config.relu, seed)
    if kind == "tangent":
        assert isinstance(config, Table1Config)
        return _linear_model(model, data, config.kernel_examples)
    generator = torch.Generator().manual_seed(seed + 500_009)
    if kind in ("dlgn", "pwc"):
        model = to_dlgn(model, config.beta, kind == "pwc", generator=generator)
    elif kind == "frozen":
        model = _frozen(to_dlgn(model, config.beta, generator=generator))
    elif kind == "dln":
        model = to_dln(model)
    training = TrainConfig(epochs=config.epochs, batch_size=config.batch_size, learning_rate=config.learning_rate)
    result = train_cell([model], [seed], data, training, context)
    return {
        **result,
        "train": _train_accuracy(model, data),  # alone it is trained in place, and ends at its last epoch
        "test": result["test_accuracy"][0][-1],
    }


def _frozen(dlgn: GatedTwin) -> GatedTwin:
    """With hard gates that stay where they are."""
    dlgn.set_gates(HardGate())
    for parameter in dlgn.feature_parameters():
        parameter.requires_grad_(False)
    return dlgn


@torch.no_grad()
def _train_accuracy(model: nn.Module, data: Dataset) -> float:
    model.eval()
    said = torch.cat([model(data.inputs(x)).argmax(dim=1) for x in data.train_x.split(500)])
    return float((said == data.train_y).double().mean())


def _linear_model(model: nn.Module, data: Dataset, examples: int) -> Result:
    part = data.subset(min(examples, len(data.train_x)), min(examples, len(data.test_x)))
    x, others = data.inputs(part.train_x), data.inputs(part.test_x)
    kernel, cross = neural_tangent_kernel(model, x).double(), neural_tangent_kernel(model, others, x).double()
    train, test = best_accuracy(kernel, cross, part, ridge_answers, (1e-6, 1e-4, 1e-2, 1.0))
    return {"data": data.title, "train": train, "test": test}


def _findings(
    config: ImagesConfig,
    results: Mapping[str, Result],
    title: str,
    claims: Callable[[Mapping[str, Sample]], tuple[Claim, ...]],
) -> Findings:
    train, test = (
        {
            kind: Sample(tuple(results[f"{kind}/run {run}"][part] for run in range(config.runs)))
            for kind in config.kinds()
        }
        for part in ("train", "test")
    )
    printed = ("published train", "published test", "difference") if config.published() else ()
    rows = tuple((NAMES[kind], train[kind].text(), test[kind].text(), *_printed(config, kind, test)) for kind in test)
    told = ", ".join(f"{NAMES[kind]} {sample.text()}" for kind, sample in test.items())
    return Findings(
        f"{title}: {results['relu/run 0']['data']}",
        f"Test accuracy in percent at the last epoch: {told}.",
        (
            Table(
                "Accuracy in percent at the last epoch, mean ± standard deviation over runs",
                ("network", "train", "test", *printed),
                rows,
            ),
        ),
        (_figure(config, test),),
        claims(test),
        config.differences(),
    )


def _printed(config: ImagesConfig, kind: str, test: Mapping[str, Sample]) -> tuple[str, ...]:
    """What stands beside our numbers: nothing where the paper has no such table."""
    if not config.published():
        return ()
    if kind not in config.published():
        return ("", "", "")
    train, own = config.published()[kind]
    return (f"{train:g}", f"{own:g}", f"{100 * test[kind].mean - own:+.2f}")


def _table1_claims(test: Mapping[str, Sample]) -> tuple[Claim, ...]:
    return (
        close("DLGN and ReLU are about equally good", test["dlgn"], test["relu"], within=0.03),
        close("DLGN-PWC and ReLU are about equally good", test["pwc"], test["relu"], within=0.03),
        greater("DLGN beats frozen gates", test["dlgn"], test["frozen"]),
        greater("Frozen gates beat the deep linear network", test["frozen"], test["dln"]),
        greater("DLGN beats the deep linear network", test["dlgn"], test["dln"]),
        greater("ReLU beats the linear model on NTK features", test["relu"], test["tangent"]),
        greater("DLGN beats the linear model on NTK features", test["dlgn"], test["tangent"]),
    )


def _table2_claims(test: Mapping[str, Sample]) -> tuple[Claim, ...]:
    return (
        greater("ReLU beats DLGN", test["relu"], test["dlgn"]),
        close("DLGN is only slightly worse (the paper: 5 to 6 points)", test["dlgn"], test["relu"], within=0.08),
    )


def _figure(config: ImagesConfig, test: Mapping[str, Sample]) -> FigureFacts:
    kinds, printed = list(test), config.published()
    aside = 0.08 if printed else 0.0
    ours = Curve(
        f"ours, {config.runs} runs",
        tuple(place - aside for place in range(len(kinds))),
        tuple(100 * test[kind].mean for kind in kinds),
        tuple(100 * test[kind].spread for kind in kinds),
    )
    places = [place for place, kind in enumerate(kinds) if kind in printed]
    theirs = Curve("published", tuple(p + aside for p in places), tuple(printed[kinds[p]][1] for p in places))
    return FigureFacts(
        f"Test accuracy after {config.epochs} epochs",
        Plot(
            "",
            "test accuracy in percent",
            (ours, theirs) if places else (ours,),
            ticks=tuple(NAMES[kind] for kind in kinds),
        ),
        "Bars are standard deviations over runs.",
    )


def _table1(config: Table1Config, results: Mapping[str, Result]) -> Findings:
    return _findings(config, results, "halfspace, Table 1", _table1_claims)


def _table2(config: Table2Config, results: Mapping[str, Result]) -> Findings:
    return _findings(config, results, f"halfspace, Table 2: ResNet-{config.depth}", _table2_claims)


_PART: dict[str, Any] = {"train_size": 10000, "test_size": 2000, "shrink": 2}
_LITTLE: dict[str, Any] = {"runs": 2, "epochs": 1, "train_size": 200, "test_size": 100, "shrink": 4}
EXPERIMENTS = (
    Experiment(
        "halfspace-table1",
        "ReLU, DLGN, DLGN-PWC, deep linear and NTK-linear models on CIFAR-10",
        Table1Config,
        {
            "smoke": {**_LITTLE, "filters": 4, "dense": 8, "kernel_examples": 40},
            "quick": {**_PART, "runs": 2, "epochs": 8, "learning_rate": 1e-3},
            "paper": {},
        },
        _cells,
        _work,
        _table1,
    ),
    Experiment(
        "halfspace-table2",
        "Residual DLGNs against residual ReLU networks on CIFAR-10 and CIFAR-100",
        Table2Config,
        {"smoke": {**_LITTLE, "depth": 8}, "quick": {**_PART, "runs": 2, "epochs": 5, "depth": 20}, "paper": {}},
        _cells,
        _work,
        _table2,
    ),
)
