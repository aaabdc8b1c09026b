"""Why gates that steepen during training learn badly: it is the length of their steps."""

from collections.abc import Mapping, Sequence

import torch
from pydantic import Field
from torch import Tensor, nn

from gatelab.data import load
from gatelab.lab.findings import Findings, Table
from gatelab.lab.looks import Look, Looks
from gatelab.lab.runs import Cell, Context, Result
from gatelab.lab.team import StateDict
from gatelab.lab.training import TrainConfig
from gatelab.lab.training_cells import kept_weights, train_cell
from gatelab.lab.verdicts import Claim, Sample, greater, not_below
from gatelab.network import capture_gates
from gatelab.papers.common import experiment, findings
from gatelab.papers.halfspace.hardening import HardeningConfig, error_figure
from gatelab.paths import hardening_gap

FIXED, SOME, MUCH, SMALL, SLOWED = "fixed", "some", "much", "small", "slowed"
_MARGIN = 0.01  # as good as a fixed β: at most a point more errors


class StepsConfig(HardeningConfig):
    """DLGN-PWCs learn MNIST while their gates steepen, with one thing about the steps changed at a time."""

    runs: int = Field(default=8, ge=1)
    task: str = Field(default="mnist", pattern="^mnist$")
    width: int = Field(default=64, ge=1)
    epochs: int = Field(default=10, ge=2)
    batch_size: int = Field(default=32, ge=1)
    learning_rate: float = Field(default=1e-3, gt=0)
    train_size: int = Field(default=4000, ge=8)
    some_beta: float = Field(default=100.0, gt=0)
    small_rate: float = Field(default=1e-4, gt=0)

    def ways(self) -> dict[str, str]:
        """The ways to train, by the names of their cells."""
        return {
            FIXED: f"β = {self.beta:g} throughout",
            SOME: f"β grows to {self.some_beta:g}",
            MUCH: f"β grows to {self.final_beta:g}",
            SMALL: f"the same, all steps {self.small_rate:g} instead of {self.learning_rate:g}",
            SLOWED: "the same, gates' steps shrink as 1/β",
        }

    def training(self, way: str) -> TrainConfig:
        """Return how to train."""
        return TrainConfig(
            epochs=self.epochs,
            batch_size=self.batch_size,
            learning_rate=self.small_rate if way == SMALL else self.learning_rate,
            final_beta={FIXED: None, SOME: self.some_beta}.get(way, self.final_beta),
            slow_gates=way == SLOWED,
        )


def share_flipped(config: StepsConfig, before: StateDict, after: StateDict, x: Tensor) -> float:
    """Return the share of hard gates that differ between two states of a network, over units and examples."""
    old, new = (_hard_gates(config, weights, x) for weights in (before, after))
    return float((old != new).double().mean())


def _hard_gates(config: StepsConfig, weights: StateDict, x: Tensor) -> Tensor:
    net = config.make("straight", 0)  # the same layers with hard gates
    net.load_state_dict(weights)
    gates = capture_gates(net, x)
    return torch.cat([gates[name].flatten(1) for name in gates], dim=1)


def _work(config: StepsConfig, cell: Cell, context: Context) -> Result:
    data = load("mnist", config.data_root).subset(config.train_size, config.test_size, seed=config.seed)
    seeds = config.seeds()
    nets = [config.make(cell.name, seed) for seed in seeds]

    def see(model: nn.Module, _epoch: int, _place: int) -> Look:
        gap = hardening_gap(model, data.inputs(data.test_x), data.test_y)
        assert gap.soft_accuracy is not None
        assert gap.hard_accuracy is not None
        return {"trained": 1 - gap.soft_accuracy, "hardened": 1 - gap.hard_accuracy}

    looks = Looks(context.folder, [config.epochs], see, len(nets))
    keep = (config.epochs - 1, config.epochs)
    result = train_cell(nets, seeds, data, config.training(cell.name), context, looks=looks, keep=keep)
    before, after = (kept_weights(context.folder, epoch, len(nets)) for epoch in keep)
    x = data.inputs(data.test_x)
    flips = [share_flipped(config, old, new, x) for old, new in zip(before, after, strict=True)]
    return {**result, "seen": looks.seen(), "flips": flips}


def _findings(config: StepsConfig, results: Mapping[str, Result]) -> Findings:
    soft, hard = (
        {
            way: Sample(tuple(member[what] for member in result["seen"][-1]["members"]))
            for way, result in results.items()
        }
        for what in ("trained", "hardened")
    )
    flipped = {way: Sample(tuple(result["flips"])) for way, result in results.items()}
    ticks = [f"β = {config.beta:g}", f"→ {config.some_beta:g}", f"→ {config.final_beta:g}", "small steps", "slow gates"]
    rows = tuple((text, soft[way].text(), hard[way].text(), flipped[way].text()) for way, text in config.ways().items())
    return findings(
        "Why steepening gates learn badly",
        f"With hard gates {hard[FIXED].text()} % of the test images are wrong if β stays, {hard[MUCH].text()} % if it "
        f"grows to {config.final_beta:g}, and {hard[SLOWED].text()} % if the gates' steps shrink as it grows.",
        Table(
            "Wrong test images and gates flipped in the last epoch, percent, mean ± standard deviation over runs",
            ("training", "wrong, soft gates", "wrong, hard gates", "gates flipped"),
            rows,
        ),
        error_figure(
            "share of wrong classes", {"soft gates": list(soft.values()), "hard gates": list(hard.values())}, ticks
        ),
        *_claims(config, hard, flipped),
        f"DLGN-PWC, {config.layers} hidden layers of {config.width}, Adam {config.learning_rate:g}, batches of "
        f"{config.batch_size}, {config.epochs} epochs, {config.train_size} images, start: {config.start}; β grows by "
        "a constant factor each epoch. Runs of one seed share their start and the order of their batches.",
        "Not in the paper.",
    )


def _claims(config: StepsConfig, hard: Mapping[str, Sample], flipped: Mapping[str, Sample]) -> Sequence[Claim]:
    def more(a: str, b: str) -> Claim:
        texts = config.ways()
        return Claim(
            f"More errors with hard gates: {texts[a]}, against {texts[b]}", greater(hard[a], hard[b], paired=True)
        )

    return [
        more(SOME, FIXED),
        more(MUCH, SOME),
        Claim("Smaller steps of everything lower them", greater(hard[MUCH], hard[SMALL], paired=True)),
        Claim("Steps of the gates that shrink as 1/β lower them", greater(hard[MUCH], hard[SLOWED], paired=True)),
        Claim(
            f"With these, at most {100 * _MARGIN:g} point more than with a fixed β",
            not_below(hard[FIXED], hard[SLOWED], _MARGIN, paired=True),
        ),
        Claim("They flip fewer gates in the last epoch", greater(flipped[MUCH], flipped[SLOWED], paired=True)),
    ]


EXPERIMENTS = (
    experiment(
        "halfspace-hardening-steps",
        "Why steepening gates learn badly: their steps, one thing changed at a time",
        StepsConfig,
        lambda config: [Cell(way) for way in config.ways()],
        _work,
        _findings,
        smoke={"runs": 2, "layers": 2, "width": 6, "epochs": 2, "train_size": 20, "test_size": 50},
        paper={"width": 128, "train_size": 60_000, "test_size": 10_000},
    ),
)
