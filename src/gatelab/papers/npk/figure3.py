"""npk, Figure 3: gates at stages of training (left), ν (middle) and tangent kernels (right) while networks learn.

FRNPF: fixed random neural path features; CNTK: convolutional neural tangent kernel.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from math import log10, sqrt
from typing import Literal

import torch
from pydantic import Field
from torch import nn

from gatelab import models
from gatelab.convert import Regime
from gatelab.data import load
from gatelab.lab.experiment import DataConfig, cell_per_run
from gatelab.lab.findings import Findings, Table, percent_curve, percent_level
from gatelab.lab.hardening import hardening_note
from gatelab.lab.runs import Cell, Context, Result
from gatelab.lab.training import Loss, Optimiser
from gatelab.lab.training_cells import kept_weights, train_and_track, train_cell
from gatelab.lab.twins import learnt_twins, network, twin
from gatelab.lab.verdicts import Claim, Sample, all_of, equivalent, greater, larger_ratio, near, readable
from gatelab.models.init import bernoulli_
from gatelab.papers.common import dots, experiment, figure, findings, first_of_each_class, line, numbers, training
from gatelab.papers.npk.table2 import PUBLISHED, Arch, Table2Config

CNTK = 77.43  # Arora et al., as npk quotes it


class StagesConfig(DataConfig):
    """GCONV, its gates frozen at several stages, and values trained from scratch under each."""

    epochs: int = Field(default=60, ge=1)
    value_epochs: int = Field(default=80, ge=1)
    stages: int = Field(default=6, ge=1)
    channels: float = Field(default=1.0, gt=0)
    shrink: Literal[1, 2, 4] = 1
    train_size: int | None = Field(default=None, ge=1)
    test_size: int | None = Field(default=None, ge=1)
    learning_rate: float = Field(default=3e-4, gt=0)
    batch_size: int = Field(default=32, ge=1)

    def base(self) -> Table2Config:
        """The network and data of Table 2."""
        return Table2Config(
            arch=Arch.GCONV,
            channels=self.channels,
            shrink=self.shrink,
            train_size=self.train_size,
            test_size=self.test_size,
            seed=self.seed,
            data_root=self.data_root,
        )

    def epochs_of_stages(self) -> tuple[int, ...]:
        """The epochs after which gates are frozen."""
        return tuple(sorted({max(1, round(self.epochs * (k + 1) / self.stages)) for k in range(self.stages)}))


def _stage_cells(config: StagesConfig) -> list[Cell]:
    """Return the cells of one run after the other: whenever work stops, whole runs are done."""
    values = 1.4 * config.value_epochs / config.epochs
    cells = []
    for run, seed in enumerate(config.seeds()):
        net = f"network/{run}"
        cells += [
            Cell(net, {"kind": "network", "seed": seed}),
            Cell(f"random/{run}", {"kind": "random", "seed": seed}, weight=values),
        ]
        cells += [
            Cell(f"stage {epoch}/{run}", {"kind": "stage", "seed": seed, "epoch": epoch}, needs=(net,), weight=values)
            for epoch in config.epochs_of_stages()
        ]
    return cells


def _stage_work(config: StagesConfig, cell: Cell, context: Context) -> Result:
    base, kind, seed = config.base(), cell.parameters["kind"], int(cell.parameters["seed"])
    data = base.data()
    if kind == "network":
        keep = config.epochs_of_stages()
        return train_cell([network(base.make, seed)], [seed], data, training(config), context, keep=keep)
    if kind == "random":
        nets = [twin(base.make, Regime.FRNPF_II, seed, base.beta)]
    else:
        (folder,) = context.folders.values()
        nets = learnt_twins(base.make, [seed], base.beta, kept_weights(folder, cell.parameters["epoch"], 1))
    return train_cell(nets, [seed], data, training(config, epochs=config.value_epochs), context)


def _stage_findings(config: StagesConfig, results: Mapping[str, Result]) -> Findings:
    epochs = config.epochs_of_stages()
    names = ("network", "random", *(f"stage {epoch}" for epoch in epochs))
    histories = {name: [results[f"{name}/{run}"]["test_accuracy"][0] for run in range(config.runs)] for name in names}
    last, best = ({name: sample(runs) for name, runs in histories.items()} for sample in (Sample.last, Sample.best))
    stages, random, relu = [last[f"stage {epoch}"] for epoch in epochs], last["random"], last["network"]
    published = PUBLISHED["gconv", "adam"]
    # The paper prints the first and the last of its six stages.
    printed = {epochs[0]: "72", epochs[-1]: "79.68"} if len(epochs) == 6 else {}
    rows = (
        ("random gates (FRNPF)", random.text(), best["random"].text(), f"{published[0][0]}"),
        *(
            (f"gates after {e} epochs", last[cell].text(), best[cell].text(), printed.get(e, ""))
            for e, cell in ((e, f"stage {e}") for e in epochs)
        ),
        ("ReLU", relu.text(), best["network"].text(), f"{published[4][0]}"),
    )
    ends = (float(epochs[0]), float(epochs[-1]))
    curves = (
        percent_curve(f"ours, {config.runs} runs", [float(epoch) for epoch in epochs], stages),
        percent_level("ours, ReLU", ends, relu),
        percent_level("ours, random gates", ends, random),
    )
    if config.train_size is None and config.channels == config.shrink == 1:  # else in the table alone
        curves += (
            dots("published, first and last stage", ends, (72.0, 79.68)),
            line("CNTK, published", ends, (CNTK, CNTK)),
        )
    part = "all data" if config.train_size is None else f"{config.train_size} training examples"
    part += "" if config.channels == 1 else f", {config.channels:g} × the channels"
    part += "" if config.shrink == 1 else f", images shrunk by {config.shrink}"
    title, x_label = "Gates know more, stage by stage", f"epochs of training ({part})"
    caption = "Bars are standard deviations over runs. The paper's values are for full width and all of CIFAR-10."
    rising = all_of([greater(b, a, paired=True) for a, b in pairwise(stages)])
    as_good = equivalent(stages[-1], relu, 0.015, paired=True)
    columns = ("gates", "ours, last epoch", "ours, best epoch", "published, best epoch")
    return findings(
        f"npk, Figure 3, left: GCONV on {results['network/0']['data']}",
        f"Values trained from scratch reach {stages[0].text()} % under the gates of the first stage and "
        f"{stages[-1].text()} % under those of the last stage; random gates {random.text()} %, ReLU {relu.text()} %.",
        Table("Test accuracy in percent", columns, rows, "The last epoch decides the claims."),
        figure(title, x_label, "test accuracy, %", curves, caption),
        Claim("Gates of the first stage beat random gates", greater(stages[0], random, paired=True)),
        Claim("Accuracy rises from stage to stage", rising),
        Claim("Gates of the last stage beat those of the first", greater(stages[-1], stages[0], paired=True)),
        Claim("Gates of the last stage are as good as ReLU, within 1.5 points", as_good),
        f"{config.epochs} epochs for the network, {config.value_epochs} for values; the paper: 60, and 80 in its "
        "authors' code.",
        "Gates are those at the end of a stage, as in the paper's text; its authors' code takes the best so far.",
    )


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
    how = training(config, optimiser=Optimiser.RMSPROP, loss=Loss.SQUARED)
    nets, signs = [network(config.make, seed)], (2 * labels - 1).to(probes)
    return train_and_track(nets, [seed], data, how, context, (probes, signs), every=config.every, tangent=False)


def _dynamics_findings(config: DynamicsConfig, results: Mapping[str, Result]) -> Findings:
    curves, rows, ends = [], [], []
    for name, result in results.items():
        records = [record for record in result["records"] if record["complexity"] is not None]
        values = [record["complexity"] for record in records]
        curves.append(line(name, [record["epoch"] for record in records], values))
        ends.append((values[0], values[-1]))
        rows.append((name, readable(values[0]), readable(values[-1]), f"{values[-1] / values[0]:.3f}"))
    first, last = (numbers(part) for part in zip(*ends, strict=True))
    ratios = [after / before for before, after in ends]
    fell = f"{sum(ratio < 1 for ratio in ratios)} of {len(ratios)} runs"
    accuracy = Sample.last([result["test_accuracy"][0] for result in results.values()])
    title, y_label = "Label complexity of the path kernel", f"ν on {2 * config.per_class} examples"
    caption = "The gates are bits. The paper's curve falls as training proceeds; it prints no numbers."
    return findings(
        "npk, Figure 3, middle: ν = yᵀĤ⁻¹y while a network learns 4 from 7",
        f"ν falls in {fell}, to {min(ratios):.2f} of its first value in the best; test accuracy {accuracy.text()} %.",
        Table("ν at the first and last epoch", ("run", "first", "last", "ratio"), tuple(rows)),
        figure(title, "epoch", y_label, curves, caption),
        Claim("ν falls as training proceeds (first over last epoch)", larger_ratio(first, last)),
        f"Width {config.width}, depth {config.depth}; the paper's text says width 100.",
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
    nets, targets = [twin(base.make, Regime.DNPFL, seed, base.beta)], labels.to(probes)
    return train_and_track(nets, [seed], data, training(config), context, (probes, targets), every=config.every)


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
        figures.append(
            figure(title, "epoch", measure, curves, "Of one decoupled network each, with its soft gates σ(8q).")
        )
    looks = zip(*(result["records"][1:] for result in results.values()), strict=True)
    ratios = [[record["tangent"]["feature"][0] / record["tangent"]["value"][0] for record in look] for look in looks]
    low, high = min(map(min, ratios)), max(map(max, ratios))
    scale = all_of([near(numbers(map(log10, look)), 0.0, 1.0) for look in ratios])
    return findings(
        "npk, Figure 3, right: tangent kernels of values and of gates",
        f"Trace K^F over trace K^V lies between {low:.2g} and {high:.2g} over training.",
        _kernels_table(list(results.values())),
        *figures,
        *hardening_note(
            "the decoupled network", [result["records"][-1].get("hardening") for result in results.values()]
        ),
        Claim("K^V and K^F are of the same scale throughout (log₁₀ of the traces' ratio within ±1)", scale),
    )


def _kernels_table(runs: Sequence[Result]) -> Table:
    """Traces and norms of both kernels at each look, the start included."""
    rows = []
    for look in zip(*(run["records"] for run in runs), strict=True):
        kernels = [record["tangent"] for record in look]
        trace_v, trace_f, norm_v, norm_f = (
            numbers(kernel[part][place] for kernel in kernels) for place in (0, 1) for part in ("value", "feature")
        )
        ratios = [f / v for f, v in zip(trace_f.values, trace_v.values, strict=True)]
        between = f"{min(ratios):.2f} to {max(ratios):.2f}"
        row = trace_v.text(), trace_f.text(), between, norm_v.text(), norm_f.text()
        rows.append((str(look[0]["epoch"]), *row))
    columns = ("epoch", "trace K^V", "trace K^F", "K^F over K^V, least to largest", "‖K^V‖", "‖K^F‖")
    return Table("Tangent kernels of values and of gates", columns, tuple(rows))


_SMOKE = {"runs": 1, "epochs": 2, "value_epochs": 1, "stages": 2, "train_size": 200, "test_size": 100}
_QUICK = {"runs": 2, "epochs": 18, "value_epochs": 12, "stages": 3, "train_size": 10000, "test_size": 2000}
_QUICK_IMAGES = {"channels": 0.25, "shrink": 2, "batch_size": 16, "learning_rate": 2e-3}
EXPERIMENTS = (
    experiment(
        "npk-figure3-stages",
        "Gates of a CNN at stages of its training, with fresh values",
        StagesConfig,
        _stage_cells,
        _stage_work,
        _stage_findings,
        smoke={**_SMOKE, "channels": 0.0625},
        quick={**_QUICK, **_QUICK_IMAGES},
    ),
    experiment(
        "npk-figure3-dynamics",
        "ν of the path kernel while a network learns 4 from 7",
        DynamicsConfig,
        cell_per_run,
        _dynamics_work,
        _dynamics_findings,
        smoke={"runs": 2, "epochs": 2, "train_size": 500, "per_class": 10, "width": 32},
        quick={"runs": 3, "epochs": 50},
    ),
    experiment(
        "npk-figure3-kernels",
        "Tangent kernels of values and of gates in a decoupled network",
        KernelsConfig,
        cell_per_run,
        _kernels_work,
        _kernels_findings,
        smoke={"runs": 1, "epochs": 2, "every": 1, "train_size": 500, "per_class": 2, "width": 32},
        quick={"runs": 2, "epochs": 20},
    ),
)
