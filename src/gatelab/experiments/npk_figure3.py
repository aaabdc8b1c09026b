"""npk, Figure 3: gates stage by stage (left), ν while a network trains (middle), K^V and K^F (right)."""

from collections.abc import Mapping
from itertools import pairwise
from math import sqrt
from typing import Any

import torch
from pydantic import Field
from safetensors.torch import load_file
from torch import Tensor, nn

from gatelab import models
from gatelab.convert import Regime
from gatelab.data import Dataset, load
from gatelab.experiments.findings import Claim, Decision, FigureFacts, Findings, Sample, Table, greater, readable
from gatelab.experiments.npk_table2 import PUBLISHED, Arch, Table2Config
from gatelab.experiments.regimes import network, train_cell, twin
from gatelab.experiments.registry import Config, Experiment
from gatelab.experiments.train import Loss, Optimiser, TrainConfig
from gatelab.experiments.watch import Watch, stage_path
from gatelab.figures import Curve, Plot
from gatelab.models.init import bernoulli_
from gatelab.runs import Cell, Context, Result

CNTK = 77.43  # Arora et al., as npk quotes it


def _per_class(data: Dataset, count: int) -> tuple[Tensor, Tensor]:
    """The first ``count`` training examples of each class, and their labels."""
    chosen = torch.cat([(data.train_y == label).nonzero()[:count, 0] for label in range(len(data.classes))])
    return data.inputs(data.train_x[chosen]), data.train_y[chosen]


# --- left: stages


class StagesConfig(Config):
    """GCONV, its gates at several stages, and fresh values on each."""

    runs: int = Field(default=5, ge=1)
    epochs: int = Field(default=60, ge=1)
    value_epochs: int = Field(default=80, ge=1)
    stages: int = Field(default=6, ge=1)
    channels: float = Field(default=1.0, gt=0)
    train_size: int | None = Field(default=None, ge=1)
    test_size: int | None = Field(default=None, ge=1)
    learning_rate: float = Field(default=3e-4, gt=0)
    batch_size: int = Field(default=32, ge=1)
    seed: int = 0
    data_root: str | None = None

    def base(self) -> Table2Config:
        """The network and data, as Table 2 has them."""
        return Table2Config(
            arch=Arch.GCONV,
            channels=self.channels,
            train_size=self.train_size,
            test_size=self.test_size,
            seed=self.seed,
            data_root=self.data_root,
        )

    def epochs_of_stages(self) -> tuple[int, ...]:
        """After which epochs gates are taken."""
        return tuple(sorted({max(1, round(self.epochs * (k + 1) / self.stages)) for k in range(self.stages)}))


def _stage_cells(config: StagesConfig) -> list[Cell]:
    stages = [
        Cell(f"stage/{epoch}", {"epoch": epoch}, needs=("network",), weight=1.4 * config.value_epochs / config.epochs)
        for epoch in config.epochs_of_stages()
    ]
    return [Cell("network"), Cell("random", weight=1.4 * config.value_epochs / config.epochs), *stages]


def _stage_work(config: StagesConfig, cell: Cell, context: Context) -> Result:
    base = config.base()
    data, seeds = base.data(), [1000 * config.seed + run for run in range(config.runs)]
    options: dict[str, Any] = {"batch_size": config.batch_size, "learning_rate": config.learning_rate}
    if cell.name == "network":
        stages = set(config.epochs_of_stages())
        probes = data.inputs(data.test_x[:2])  # the weights are what is kept; two probes are soon looked at
        watch = Watch(
            context.folder,
            probes,
            torch.ones(2),
            epochs=config.epochs,
            every=config.epochs,
            stages=stages,
            tangent=False,
        )
        nets = [network(base.make, seed) for seed in seeds]
        return train_cell(nets, seeds, data, TrainConfig(epochs=config.epochs, **options), context, watch.team)
    if cell.name == "random":
        nets = [twin(base.make, Regime.FRNPF_II, seed, base.beta) for seed in seeds]
    else:
        (folder,) = context.folders.values()
        kept = [load_file(stage_path(folder, cell.parameters["epoch"], place)) for place in range(config.runs)]
        nets = [twin(base.make, Regime.FLNPF, s + 700_001, base.beta, g) for s, g in zip(seeds, kept, strict=True)]
    return train_cell(nets, seeds, data, TrainConfig(epochs=config.value_epochs, **options), context)


def _stage_findings(config: StagesConfig, results: Mapping[str, Result]) -> Findings:
    def best(cell: str) -> Sample:
        return Sample(tuple(max(history) for history in results[cell]["test_accuracy"]))

    epochs = config.epochs_of_stages()
    stages, random, relu = [best(f"stage/{epoch}") for epoch in epochs], best("random"), best("network")
    theirs = PUBLISHED["gconv", "adam"]
    rows = [("random gates (FRNPF)", random.text(), f"{theirs[0][0]}")]
    said = {0: "72", len(epochs) - 1: "79.68"} if len(epochs) == 6 else {}  # the paper prints its ends
    rows += [
        (f"gates after {e} epochs", s.text(), said.get(k, ""))
        for k, (e, s) in enumerate(zip(epochs, stages, strict=True))
    ]
    rows.append(("ReLU", relu.text(), f"{theirs[4][0]}"))
    ends = (float(epochs[0]), float(epochs[-1]))
    curves = (
        Curve(
            f"ours, {config.runs} runs",
            tuple(map(float, epochs)),
            tuple(100 * s.mean for s in stages),
            tuple(100 * s.spread for s in stages),
        ),
        Curve("ours, ReLU", ends, (100 * relu.mean,) * 2, line=True),
        Curve("ours, random gates", ends, (100 * random.mean,) * 2, line=True),
        Curve("published, first and last stage", ends, (72.0, 79.68)),
        Curve("CNTK, published", ends, (CNTK, CNTK), line=True),
    )
    part = "all data" if config.train_size is None else f"{config.train_size} training examples"
    rising = all(b.mean > a.mean for a, b in pairwise(stages))
    return Findings(
        f"npk, Figure 3, left: GCONV on {config.base().data().title}",
        f"Values trained from scratch reach {stages[0].text()} % under the gates of the first stage and "
        f"{stages[-1].text()} % under those of the last; random gates {random.text()} %, ReLU {relu.text()} %.",
        (Table("Test accuracy in percent, best epoch", ("gates", "ours", "published"), tuple(rows)),),
        (
            FigureFacts(
                "Gates know more, stage by stage",
                Plot(f"epochs of training ({part}, {config.channels:g} × the channels)", "test accuracy, %", curves),
                "Published values are for full width and all of CIFAR-10.",
            ),
        ),
        (
            greater("Gates of the last stage beat random gates", stages[-1], random),
            Claim(
                "Accuracy rises from stage to stage",
                Decision.HOLDS if rising else Decision.FAILS,
                ", ".join(sample.text() for sample in stages),
            ),
        ),
        (f"{config.epochs} epochs for the network, {config.value_epochs} for values; the paper: 60 and 80.",),
    )


STAGES = Experiment(
    "npk-figure3-stages",
    "Gates of a CNN at stages of its training, with fresh values",
    StagesConfig,
    {
        "smoke": {
            "runs": 1,
            "epochs": 2,
            "value_epochs": 1,
            "stages": 2,
            "train_size": 200,
            "test_size": 100,
            "channels": 0.0625,
        },
        "quick": {
            "runs": 2,
            "epochs": 12,
            "value_epochs": 8,
            "stages": 3,
            "train_size": 4000,
            "test_size": 2000,
            "channels": 0.25,
        },
        "paper": {},
    },
    _stage_cells,
    _stage_work,
    _stage_findings,
)


# --- middle: ν


class DynamicsConfig(Config):
    """A fully connected network learns to tell 4 from 7 by squared loss."""

    runs: int = Field(default=5, ge=1)
    epochs: int = Field(default=50, ge=1)
    every: int = Field(default=2, ge=1)
    width: int = Field(default=128, ge=1)
    depth: int = Field(default=5, ge=2)
    per_class: int = Field(default=100, ge=2)
    batch_size: int = Field(default=64, ge=1)
    learning_rate: float = Field(default=1e-4, gt=0)
    train_size: int | None = Field(default=None, ge=1)
    seed: int = 0
    data_root: str | None = None

    def make(self, generator: torch.Generator) -> nn.Module:
        """No biases, weights ±√(2/w)."""
        net = models.mlp([784, *[self.width] * (self.depth - 1), 1], generator=generator)
        for weight in net.parameters():
            bernoulli_(weight, sqrt(2 / self.width), generator)
        return nn.Sequential(nn.Flatten(), *net)


def _dynamics_work(config: DynamicsConfig, cell: Cell, context: Context) -> Result:
    data = load("mnist-4-7", config.data_root).subset(config.train_size, seed=config.seed)
    probes, labels = _per_class(data, config.per_class)
    watch = Watch(
        context.folder,
        probes,
        (2 * labels - 1).to(probes),
        epochs=config.epochs,
        every=config.every,
        tangent=False,
    )
    seed = int(cell.parameters["seed"])
    training = TrainConfig(
        epochs=config.epochs,
        batch_size=config.batch_size,
        optimiser=Optimiser.RMSPROP,
        learning_rate=config.learning_rate,
        loss=Loss.SQUARED,
    )
    result = train_cell([network(config.make, seed)], [seed], data, training, context, watch.team)
    return {**result, "records": watch.records()}


def _dynamics_findings(config: DynamicsConfig, results: Mapping[str, Result]) -> Findings:
    curves, first, last = [], [], []
    for name, result in results.items():
        records = [record for record in result["records"] if record["complexity"] is not None]
        values = tuple(record["complexity"] for record in records)
        curves.append(Curve(name, tuple(float(record["epoch"]) for record in records), values, line=True))
        first.append(values[0])
        last.append(values[-1])
    fell = sum(b < a for a, b in zip(first, last, strict=True))
    decision = Decision.HOLDS if fell == len(first) else Decision.FAILS
    accuracy = Sample(tuple(max(result["test_accuracy"][0]) for result in results.values()))
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
        (Claim("ν falls as training proceeds", decision, f"{fell} of {len(first)} runs"),),
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
    lambda config: [Cell(f"run {run}", {"seed": 1000 * config.seed + run}) for run in range(config.runs)],
    _dynamics_work,
    _dynamics_findings,
)


# --- right: K^V and K^F


class KernelsConfig(Config):
    """A decoupled network on MNIST, its two tangent kernels."""

    runs: int = Field(default=5, ge=1)
    epochs: int = Field(default=60, ge=1)
    every: int = Field(default=5, ge=1)
    width: int = Field(default=128, ge=1)
    per_class: int = Field(default=10, ge=1)
    train_size: int | None = Field(default=None, ge=1)
    seed: int = 0
    data_root: str | None = None


def _kernels_work(config: KernelsConfig, cell: Cell, context: Context) -> Result:
    base = Table2Config(width=config.width, train_size=config.train_size, seed=config.seed, data_root=config.data_root)
    data, seed = base.data(), int(cell.parameters["seed"])
    probes, labels = _per_class(data, config.per_class)
    watch = Watch(context.folder, probes, labels.to(probes), epochs=config.epochs, every=config.every)
    nets = [twin(base.make, Regime.DNPFL, seed, base.beta)]
    result = train_cell(nets, [seed], data, TrainConfig(epochs=config.epochs), context, watch.team)
    return {**result, "records": watch.records()}


def _kernels_findings(config: KernelsConfig, results: Mapping[str, Result]) -> Findings:
    del config
    figures, ratios = [], []
    for place, measure in enumerate(("trace", "Frobenius norm")):
        curves = []
        for part, label in (("value", "K^V"), ("feature", "K^F")):
            for number, result in enumerate(results.values()):
                epochs = tuple(float(record["epoch"]) for record in result["records"])
                values = tuple(record["tangent"][part][place] for record in result["records"])
                curves.append(Curve(f"{label}, run {number}", epochs, values, line=True))
        figures.append(
            FigureFacts(
                f"{measure} of K^V and K^F", Plot("epoch", measure, tuple(curves)), "Of one decoupled network each."
            )
        )
    for result in results.values():
        ratios += [record["tangent"]["feature"][0] / record["tangent"]["value"][0] for record in result["records"][1:]]
    low, high = min(ratios), max(ratios)
    return Findings(
        "npk, Figure 3, right: tangent kernels of values and of gates",
        f"Trace K^F over trace K^V lies between {low:.2g} and {high:.2g} over training.",
        (),
        tuple(figures),
        (
            Claim(
                "K^V and K^F are of the same scale",
                Decision.HOLDS if low > 0.1 and high < 10 else Decision.FAILS,
                f"ratio of traces between {low:.2g} and {high:.2g}; same scale means a factor of ten",
            ),
        ),
    )


KERNELS = Experiment(
    "npk-figure3-kernels",
    "Tangent kernels of values and of gates in a decoupled network",
    KernelsConfig,
    {
        "smoke": {"runs": 1, "epochs": 2, "every": 1, "train_size": 500, "per_class": 2, "width": 32},
        "quick": {"runs": 2, "epochs": 20},
        "paper": {},
    },
    lambda config: [Cell(f"run {run}", {"seed": 1000 * config.seed + run}) for run in range(config.runs)],
    _kernels_work,
    _kernels_findings,
)
EXPERIMENTS = (STAGES, DYNAMICS, KERNELS)
