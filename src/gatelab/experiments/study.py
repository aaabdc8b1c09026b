"""How much of what a network knows is in its gates? The main job, on a user's own network and data."""

import importlib.util
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from pydantic import Field
from torch import nn

from gatelab import models
from gatelab.convert import Regime, to_dgn
from gatelab.data import Dataset, load
from gatelab.dynamics import GateTracker, Record
from gatelab.errors import InputError
from gatelab.experiments.findings import Claim, FigureFacts, Findings, Sample, Table, close, greater
from gatelab.experiments.regimes import BEST, Factory, load_best, save_best, train_cell, twin
from gatelab.experiments.registry import Config, Experiment
from gatelab.experiments.team import State, Team
from gatelab.experiments.train import Loss, Optimiser, TrainConfig
from gatelab.figures import Curve, Plot
from gatelab.runs import Cell, Context, Result

STAGES = "stages.safetensors"


class StudyConfig(Config):
    """What to study, on what, and how long."""

    model: str | None = None  # file.py:factory; an MLP if None
    data: str = "digits"
    runs: int = Field(default=3, ge=1)
    epochs: int = Field(default=30, ge=1)
    batch_size: int = Field(default=32, ge=1)
    optimiser: Optimiser = Optimiser.ADAM
    learning_rate: float = Field(default=1e-3, gt=0)
    beta: float = Field(default=8.0, gt=0)
    stages: tuple[float, ...] = (0.0, 0.1, 0.3, 1.0)  # shares of training after which gates are fixed
    probes: int = Field(default=100, ge=2)
    train_size: int | None = Field(default=None, ge=1)
    test_size: int | None = Field(default=None, ge=1)
    seed: int = 0
    data_root: str | None = None

    def load(self) -> Dataset:
        """The data, all or a part."""
        return load(self.data, self.data_root).subset(self.train_size, self.test_size, seed=self.seed)

    def training(self) -> TrainConfig:
        """How all networks of the study are trained."""
        return TrainConfig(
            epochs=self.epochs,
            batch_size=self.batch_size,
            optimiser=self.optimiser,
            learning_rate=self.learning_rate,
            loss=Loss.CROSS_ENTROPY,
        )

    def stage_epochs(self) -> tuple[int, ...]:
        """The epochs after which gates are taken."""
        return tuple(sorted({round(stage * self.epochs) for stage in self.stages}))


def factory(config: StudyConfig, data: Dataset) -> Factory:
    """What makes the network: the user's function, or an MLP of two hidden layers.

    The user's function takes nothing, or a torch.Generator; without one the global seed is set for it.
    """
    if config.model is None:
        inputs, outputs = data.train_x[0].numel(), len(data.classes)
        return lambda generator: nn.Sequential(
            nn.Flatten(), *models.mlp([inputs, 64, 64, outputs], bias=True, generator=generator)
        )
    function = _user_function(config.model)

    def make(generator: torch.Generator) -> nn.Module:
        seed = int(torch.randint(2**31, (), generator=generator))
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            made = function()
        if not isinstance(made, nn.Module):
            raise InputError(f"{config.model} returned {type(made).__name__}; it must return an nn.Module")
        return made

    return make


def _user_function(place: str) -> Any:
    path, _, name = place.rpartition(":")
    if not path or not name:
        raise InputError(
            f"'{place}' does not name a model; write file.py:factory, the factory being a function or class"
        )
    if not Path(path).is_file():
        raise InputError(f"'{place}': there is no file {path}")
    spec = importlib.util.spec_from_file_location(f"gatelab_user_{Path(path).stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise InputError(f"{path} cannot be imported: {type(error).__name__}: {error}") from error
    if not hasattr(module, name):
        public = [n for n in vars(module) if not n.startswith("_")]
        raise InputError(f"{path} has no '{name}'; it has {', '.join(public[:10]) or 'nothing'}")
    return getattr(module, name)


def check(config: StudyConfig) -> None:
    """Refuse before anything is trained: the network must convert, and take the data."""
    data = config.load()
    model = factory(config, data)(torch.Generator().manual_seed(0)).eval()
    to_dgn(model, Regime.FRNPF_DI)
    x = data.inputs(data.train_x[:2])
    try:
        with torch.no_grad():
            answers = model(x)
    except Exception as error:
        raise InputError(
            f"the network does not take {data.title}: examples of shape {tuple(x.shape[1:])} gave "
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
    seeds = [1000 * config.seed + run for run in range(config.runs)]
    if cell.name == "network":
        return _train_network(config, data, make, seeds, context)
    if cell.name == "random":
        regimes = (Regime.FRNPF_II, Regime.FRNPF_DI)
        nets = [twin(make, regime, seed, config.beta) for regime in regimes for seed in seeds]
        return train_cell(nets, seeds * 2, data, config.training(), context)
    if cell.name == "decoupled":
        nets = [twin(make, Regime.DNPFL, seed, config.beta) for seed in seeds]
        tracked = _Tracked(config, data)
        return {**train_cell(nets, seeds, data, config.training(), context, tracked), "records": tracked.plain()}
    (folder,) = context.folders.values()
    path = folder / f"epoch-{cell.parameters['epoch']}.safetensors"
    nets = [
        twin(make, Regime.FLNPF, seed + 700_001, config.beta, load_best(path, place))
        for place, seed in enumerate(seeds)
    ]
    return train_cell(nets, seeds, data, config.training(), context)


class _Tracked:
    """Tracks the first member of a team at every tenth of training, and keeps members' weights at some epochs."""

    def __init__(self, config: StudyConfig, data: Dataset, keep: Mapping[int, list[State]] | None = None):
        self._config, self._keep = config, keep or {}
        self._probes = data.inputs(data.test_x[: config.probes])
        labels = data.test_y[: config.probes]
        self._labels = (labels == labels.mode().values).double() * 2 - 1  # one class against the rest
        self._every = max(1, config.epochs // 10)
        self._tracker: GateTracker | None = None
        self.records: list[Record] = []

    def __call__(self, epoch: int, team: Team) -> None:
        if epoch in self._keep:
            state = team.state()
            self._keep[epoch].extend(
                {name: tensor[member].clone() for name, tensor in state.items()} for member in range(team.size)
            )
        if epoch % self._every and epoch != self._config.epochs:
            return
        model = team.member(0).eval()
        if self._tracker is None:
            self._tracker = GateTracker(model, self._probes, self._labels)
        self._tracker.model = model
        self.records.append(self._tracker.record(epoch))

    def plain(self) -> list[dict[str, Any]]:
        return [
            {
                "epoch": record.step,
                "flips": sum(record.flips.values()),
                "gates": sum(record.flips.values()) if not record.flips else None,
                "overlap": record.overlap,
                "complexity": record.complexity,
                "tangent": record.tangent,
            }
            for record in self.records
        ]
