"""The study: how much of what a network knows is in its gates? On a user's own network and data."""

from collections.abc import Mapping

import torch
from pydantic import Field
from torch import Tensor, nn

from gatelab import models
from gatelab.convert import Regime, to_dgn
from gatelab.data import Dataset, load
from gatelab.data.dataset import evenly
from gatelab.errors import InputError
from gatelab.figures import Curve, Plot
from gatelab.lab.experiment import DataConfig, Experiment
from gatelab.lab.findings import FigureFacts, Findings, Table, percent_curve, percent_level
from gatelab.lab.hardening import hardening_note
from gatelab.lab.runs import Cell, Context, Result
from gatelab.lab.training import Loss, Optimiser, TrainConfig
from gatelab.lab.training_cells import kept_weights, train_and_track, train_cell
from gatelab.lab.twins import Factory, learnt_twins, network, twin
from gatelab.lab.verdicts import Claim, Sample, equivalent, greater, readable, share_of_gap
from gatelab.models.from_file import factory_from_file, seeded_network


class StudyConfig(DataConfig):
    """The network, the data, and how to train."""

    model: str | None = None  # file.py:factory; an MLP if None
    data: str = "digits"
    runs: int = Field(default=3, ge=1)
    epochs: int = Field(default=30, ge=1)
    batch_size: int = Field(default=32, ge=1)
    optimiser: Optimiser = Optimiser.ADAM
    learning_rate: float = Field(default=1e-3, gt=0)
    beta: float = Field(default=8.0, gt=0)
    stages: tuple[float, ...] = (0.0, 0.1, 0.3, 1.0)  # shares of training after which gates are frozen
    probes: int = Field(default=100, ge=2)
    train_size: int | None = Field(default=None, ge=1)
    test_size: int | None = Field(default=None, ge=1)

    def load(self) -> Dataset:
        """Load the data, all or a part."""
        return load(self.data, self.data_root).subset(self.train_size, self.test_size, seed=self.seed)

    def training(self) -> TrainConfig:
        """The training of all networks of the study."""
        shared = {"epochs", "batch_size", "optimiser", "learning_rate"}
        return TrainConfig(**self.model_dump(include=shared), loss=Loss.CROSS_ENTROPY)

    def stage_epochs(self) -> tuple[int, ...]:
        """The epochs after which gates are frozen."""
        return tuple(sorted({round(stage * self.epochs) for stage in self.stages}))


def factory(config: StudyConfig, data: Dataset) -> Factory:
    """The function that makes the network: the user's, or one for an MLP of two hidden layers.

    The user's function takes no arguments; the global seed is set before each call.
    """
    if config.model is None:
        inputs, outputs = data.train_x[0].numel(), len(data.classes)
        return lambda generator: nn.Sequential(
            nn.Flatten(), *models.mlp([inputs, 64, 64, outputs], bias=True, generator=generator)
        )
    function = factory_from_file(config.model)
    return lambda generator: seeded_network(function, int(torch.randint(2**31, (), generator=generator)))


def check(config: StudyConfig) -> None:
    """Check before any training that the network converts and accepts the data."""
    data = config.load()
    model = factory(config, data)(torch.Generator().manual_seed(0)).eval()
    to_dgn(model, Regime.FRNPF_DI)
    x = data.inputs(data.train_x[:2])
    try:
        with torch.no_grad():
            answers = model(x)
    except Exception as error:
        raise InputError(
            f"the network does not accept {data.title}: examples of shape {tuple(x.shape[1:])} gave "
            f"{type(error).__name__}: {error}"
        ) from error
    if answers.shape != (2, len(data.classes)):
        raise InputError(
            f"the network gives {tuple(answers.shape)} for two examples of {data.title}; it must give (2, "
            f"{len(data.classes)}), a number for each class"
        )


def _cells(config: StudyConfig) -> list[Cell]:
    return [
        Cell("network", {}, weight=1.5),
        Cell("random", {}, weight=3.0),
        *(Cell(f"stage/{epoch}", {"epoch": epoch}, needs=("network",), weight=1.5) for epoch in config.stage_epochs()),
        Cell("decoupled", {}, weight=2.5),
    ]


def _work(config: StudyConfig, cell: Cell, context: Context) -> Result:
    data = config.load()
    make = factory(config, data)
    seeds, training = config.seeds(), config.training()
    every = max(1, config.epochs // 10)  # ten looks
    if cell.name == "network":
        nets, keep = [network(make, seed) for seed in seeds], config.stage_epochs()
        return train_and_track(nets, seeds, data, training, context, _probes(config, data), every=every, keep=keep)
    if cell.name == "random":
        regimes = (Regime.FRNPF_II, Regime.FRNPF_DI)
        nets = [twin(make, regime, seed, config.beta) for regime in regimes for seed in seeds]
        return train_cell(nets, seeds * 2, data, training, context)
    if cell.name == "decoupled":
        nets = [twin(make, Regime.DNPFL, seed, config.beta) for seed in seeds]
        return train_and_track(nets, seeds, data, training, context, _probes(config, data), every=every)
    (folder,) = context.folders.values()
    kept = kept_weights(folder, cell.parameters["epoch"], config.runs)
    return train_cell(learnt_twins(make, seeds, config.beta, kept), seeds, data, training, context)


def _probes(config: StudyConfig, data: Dataset) -> tuple[Tensor, Tensor]:
    """Some test examples, labelled +1 in their most frequent class and −1 in the others."""
    rows = evenly(len(data.test_x), config.probes)
    probes, labels = data.inputs(data.test_x[rows]), data.test_y[rows]
    return probes, (labels == labels.mode().values).to(probes) * 2 - 1


_OWN, _RANDOM = "the network itself", "random gates, independent (FRNPF II)"
_DECOUPLED = "decoupled gates (DNPFL)"


def _stage(config: StudyConfig, epoch: int) -> str:
    return f"gates after {epoch} of {config.epochs} epochs (FLNPF)"


def _findings(config: StudyConfig, results: Mapping[str, Result]) -> Findings:
    n = config.runs
    random = results["random"]["test_accuracy"]
    histories = {
        _OWN: results["network"]["test_accuracy"],
        _RANDOM: random[:n],
        "random gates, the values' own (FRNPF DI)": random[n:],
        **{_stage(config, epoch): results[f"stage/{epoch}"]["test_accuracy"] for epoch in config.stage_epochs()},
        _DECOUPLED: results["decoupled"]["test_accuracy"],
    }
    last = {name: Sample.last(values) for name, values in histories.items()}
    best = {name: Sample.best(values) for name, values in histories.items()}
    own, fixed, learnt = last[_OWN], last[_RANDOM], last[_stage(config, config.stage_epochs()[-1])]
    return Findings(
        f"How much of what this network knows is in its gates? ({_name(config)} on {results['network']['data']})",
        _answer(own, fixed, learnt),
        (
            Table(
                "Test accuracy in percent, mean ± standard deviation over runs",
                ("gates", "last epoch", "best epoch"),
                tuple((name, last[name].text(), best[name].text()) for name in histories),
                "All value networks start from fresh weights and are trained alike; only the gates differ.",
            ),
            _dynamics_table(results),
        ),
        (_stages_figure(config, last), *_dynamics_figures(results)),
        (
            Claim("The network beats value networks with random gates", greater(own, fixed, paired=True)),
            Claim("Its trained gates beat random gates", greater(learnt, fixed, paired=True)),
            Claim(
                "Its trained gates with fresh values are as good as the network",
                equivalent(learnt, own, 0.01, paired=True),
            ),
            Claim("Decoupled gates beat random gates", greater(last[_DECOUPLED], fixed, paired=True)),
        ),
        (
            "The last epoch decides; the best one, which papers show, is chosen on the test set. Runs share seeds.",
            f"Kernels are measured on {config.probes} test examples, of the first run; ν is that of the most frequent "
            "class among them against the rest.",
            *_hardening_notes(results),
        ),
    )


def _hardening_notes(results: Mapping[str, Result]) -> list[str]:
    """What hard gates would cost the networks whose gates are soft, on the probes."""
    named = (("network", "the network itself"), ("decoupled", _DECOUPLED))
    gaps = {name: results[cell]["records"][-1].get("hardening") for cell, name in named}
    return [note for name, gap in gaps.items() for note in hardening_note(name, [gap])]


def _name(config: StudyConfig) -> str:
    return "an MLP of 64 and 64 units" if config.model is None else config.model


def _answer(own: Sample, fixed: Sample, learnt: Sample) -> str:
    share = share_of_gap(learnt, fixed, own)
    numbers = (
        f"With its trained gates and values learnt from scratch it reaches {learnt.text()} %, with random gates "
        f"{fixed.text()} %; the network itself has {own.text()} %."
    )
    if share is None:
        return f"These runs do not show that learning gates gains anything, so the question has no answer. {numbers}"
    part, (low, high) = share
    return (
        f"{part:.0%} (95 % interval {low:.0%} to {high:.0%}) of what training gains over random gates is in the gates. "
        f"{numbers}"
    )


def _stages_figure(config: StudyConfig, last: Mapping[str, Sample]) -> FigureFacts:
    epochs = [float(epoch) for epoch in config.stage_epochs()]
    samples = [last[_stage(config, epoch)] for epoch in config.stage_epochs()]
    curve = percent_curve("values trained on gates of this stage", epochs, samples)
    ends = (epochs[0], epochs[-1])
    lines = (percent_level(_OWN, ends, last[_OWN]), percent_level("independent random gates", ends, last[_RANDOM]))
    return FigureFacts(
        "What the gates know, stage by stage",
        Plot("epochs of training after which the gates were fixed", "test accuracy in percent", (curve, *lines)),
        "Each point is a value network trained from scratch under gates frozen at that stage. A rise from the lower "
        "line to the upper one is knowledge that went into the gates.",
    )


def _dynamics_table(results: Mapping[str, Result]) -> Table:
    rows = tuple(
        (
            str(record["epoch"]),
            "" if record["flipped"] is None else f"{100 * record['flipped']:.2f}",
            "" if record["cosine"] is None else f"{record['cosine']:.3f}",
            "" if record["complexity"] is None else readable(record["complexity"]),
            readable(record["tangent"]["all"][0]),
        )
        for record in results["network"]["records"]
    )
    return Table(
        "The network's gates and kernels while it trains",
        ("epoch", "gates flipped since the row above, %", "mean cosine of H", "ν = yᵀĤ⁻¹y", "trace of K"),
        rows,
    )


def _dynamics_figures(results: Mapping[str, Result]) -> list[FigureFacts]:
    def over_epochs(label: str, records: list[Result], values: list[float]) -> Curve:
        return Curve(label, tuple(float(r["epoch"]) for r in records), tuple(values), line=True)

    figures = []
    records = [r for r in results["network"]["records"] if r["complexity"] is not None]
    if records:
        curve = over_epochs("ν", records, [r["complexity"] for r in records])
        figures.append(
            FigureFacts(
                "How complex the labels are to the path kernel",
                Plot("epoch", "ν = yᵀĤ⁻¹y of the network's gates", (curve,)),
                "ν falls where the path kernel's large directions turn to the labels; npk, Section 6, sees it fall."
                f"{_kind_of_gates(records)}",
            )
        )
    records = [r for r in results["decoupled"]["records"] if {"feature", "value"} <= set(r["tangent"])]
    if records:
        curves = tuple(
            over_epochs(label, records, [r["tangent"][part][0] for r in records])
            for part, label in (("value", "K^V"), ("feature", "K^F"))
        )
        figures.append(
            FigureFacts(
                "Gates and values of the decoupled network both learn",
                Plot("epoch", "trace of the tangent kernel", curves),
                "The tangent kernel of a deep gated network is K^V + K^F: what values and what gates contribute."
                f"{_kind_of_gates(records)}",
            )
        )
    return figures


def _kind_of_gates(records: list[Result]) -> str:
    """Say what the gates behind a figure are; records of version 0.1 do not know."""
    kind = records[-1].get("gates")
    return "" if kind is None else f" The gates are {kind}."


EXPERIMENTS = (
    Experiment(
        "study",
        "How much of what a network knows is in its gates?",
        StudyConfig,
        {
            "smoke": {"runs": 2, "epochs": 2, "train_size": 200, "test_size": 100, "probes": 20},
            "quick": {},
            "paper": {"runs": 5, "epochs": 100},
        },
        _cells,
        _work,
        _findings,
    ),
)
