"""npk, Figure 3, left: gates of a CNN frozen at stages of its training, with values trained from scratch."""

from collections.abc import Mapping
from itertools import pairwise
from typing import Any, Literal

from pydantic import Field

from gatelab.convert import Regime
from gatelab.lab.experiment import DataConfig, Experiment
from gatelab.lab.findings import Findings, Table, percent_curve, percent_level
from gatelab.lab.runs import Cell, Context, Result
from gatelab.lab.training import TrainConfig
from gatelab.lab.training_cells import kept_weights, train_cell
from gatelab.lab.twins import learnt_twins, network, twin
from gatelab.lab.verdicts import Sample, greater
from gatelab.papers.common import decided, dots, figure, line
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
    stages = [
        Cell(f"stage/{epoch}", {"epoch": epoch}, needs=("network",), weight=1.4 * config.value_epochs / config.epochs)
        for epoch in config.epochs_of_stages()
    ]
    return [Cell("network"), Cell("random", weight=1.4 * config.value_epochs / config.epochs), *stages]


def _stage_work(config: StagesConfig, cell: Cell, context: Context) -> Result:
    base = config.base()
    data, seeds = base.data(), config.seeds()
    options: dict[str, Any] = {"batch_size": config.batch_size, "learning_rate": config.learning_rate}
    if cell.name == "network":
        nets, training = [network(base.make, seed) for seed in seeds], TrainConfig(epochs=config.epochs, **options)
        return train_cell(nets, seeds, data, training, context, keep=config.epochs_of_stages())
    if cell.name == "random":
        nets = [twin(base.make, Regime.FRNPF_II, seed, base.beta) for seed in seeds]
    else:
        (folder,) = context.folders.values()
        kept = kept_weights(folder, cell.parameters["epoch"], config.runs)
        nets = learnt_twins(base.make, seeds, base.beta, kept)
    return train_cell(nets, seeds, data, TrainConfig(epochs=config.value_epochs, **options), context)


def _stage_findings(config: StagesConfig, results: Mapping[str, Result]) -> Findings:
    def best(cell: str) -> Sample:
        return Sample.best(results[cell]["test_accuracy"])

    epochs = config.epochs_of_stages()
    stages, random, relu = [best(f"stage/{epoch}") for epoch in epochs], best("random"), best("network")
    published = PUBLISHED["gconv", "adam"]
    # The paper prints the first and the last of its six stages.
    printed = {epochs[0]: "72", epochs[-1]: "79.68"} if len(epochs) == 6 else {}
    rows = (
        ("random gates (FRNPF)", random.text(), f"{published[0][0]}"),
        *((f"gates after {e} epochs", s.text(), printed.get(e, "")) for e, s in zip(epochs, stages, strict=True)),
        ("ReLU", relu.text(), f"{published[4][0]}"),
    )
    ends = (float(epochs[0]), float(epochs[-1]))
    curves = (
        percent_curve(f"ours, {config.runs} runs", [float(epoch) for epoch in epochs], stages),
        percent_level("ours, ReLU", ends, relu),
        percent_level("ours, random gates", ends, random),
        dots("published, first and last stage", ends, (72.0, 79.68)),
        line("CNTK, published", ends, (CNTK, CNTK)),
    )
    part = "all data" if config.train_size is None else f"{config.train_size} training examples"
    part += "" if config.channels == 1 else f", {config.channels:g} × the channels"
    part += "" if config.shrink == 1 else f", images shrunk by {config.shrink}"
    title, x_label = "Gates know more, stage by stage", f"epochs of training ({part})"
    caption = "Published values are for full width and all of CIFAR-10."
    rising = all(b.mean > a.mean for a, b in pairwise(stages))
    return Findings(
        f"npk, Figure 3, left: GCONV on {results['network']['data']}",
        f"Values trained from scratch reach {stages[0].text()} % under the gates of the first stage and "
        f"{stages[-1].text()} % under those of the last; random gates {random.text()} %, ReLU {relu.text()} %.",
        (Table("Test accuracy in percent, best epoch", ("gates", "ours", "published"), rows),),
        (figure(title, x_label, "test accuracy, %", curves, caption),),
        (
            greater("Gates of the last stage beat random gates", stages[-1], random),
            decided("Accuracy rises from stage to stage", rising, ", ".join(sample.text() for sample in stages)),
        ),
        (
            f"{config.epochs} epochs for the network, {config.value_epochs} for values; the paper: 60 and 80.",
            "Gates are the network's at the end of a stage; the paper takes the best weights up to then.",
        ),
    )


_SMOKE = {"runs": 1, "epochs": 2, "value_epochs": 1, "stages": 2, "train_size": 200, "test_size": 100}
_QUICK = {"runs": 2, "epochs": 18, "value_epochs": 12, "stages": 3, "train_size": 10000, "test_size": 2000}
_QUICK_IMAGES = {"channels": 0.25, "shrink": 2, "batch_size": 16, "learning_rate": 2e-3}
STAGES = Experiment(
    "npk-figure3-stages",
    "Gates of a CNN at stages of its training, with fresh values",
    StagesConfig,
    {"smoke": {**_SMOKE, "channels": 0.0625}, "quick": {**_QUICK, **_QUICK_IMAGES}, "paper": {}},
    _stage_cells,
    _stage_work,
    _stage_findings,
)
EXPERIMENTS = (STAGES,)
