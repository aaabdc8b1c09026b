"""Before a study starts: settings that suit the size of the network, and how long it will take."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from gatelab.convert import Regime, to_dgn
from gatelab.errors import GatelabError
from gatelab.kernels import neural_path_kernel, neural_tangent_kernel
from gatelab.lab.optimisers import can_stack_under
from gatelab.lab.runs import Cell
from gatelab.lab.study.config import Kernels, StudyConfig
from gatelab.lab.study.materials import Materials
from gatelab.lab.study.rows import PASSES, cells
from gatelab.lab.study.watching import LOOKS
from gatelab.lab.team import SingleTeam, Team, teams
from gatelab.lab.training import evaluate, optimiser_of, train_epoch
from gatelab.work.here import threads_for

# A model of one core: multiplications per second, and seconds that a step takes however small the network is.
_RATE, _STEP = 1e10, 4e-4
_AFFORDABLE = 700.0  # core seconds: some six minutes on two cores
_ALL: dict[str, Any] = {"stages": (0.0, 0.1, 0.3, 1.0), "dependent": True, "decoupled": True}
_FEW: dict[str, Any] = {"stages": (1.0,), "dependent": False, "decoupled": False}
# From the richest to the barest; the first that is affordable is taken.
_SIZES: tuple[dict[str, Any], ...] = (
    {"runs": 10, "epochs": 30, **_ALL},
    {"runs": 10, "epochs": 15, **_ALL},
    {"runs": 5, "epochs": 15, **_ALL},
    {"runs": 5, "epochs": 8, **_ALL},
    {"runs": 5, "epochs": 8, **_FEW},
    {"runs": 5, "epochs": 5, **_FEW},
    {"runs": 5, "epochs": 3, **_FEW},
    {"runs": 5, "epochs": 2, **_FEW},
    {"runs": 3, "epochs": 2, **_FEW},
)
_TIMED_STEPS = 3
_TIMED_PROBES = 12
_KERNEL_SHARE = 0.1  # of the study's time, that exact kernels may take


def sized(config: StudyConfig, materials: Materials) -> StudyConfig:
    """Fill in what the user left open: the number of runs, epochs and rows that fit into some minutes.

    The choice depends on the sizes of network and data, not on a clock, so that the same command gives the same study.
    """
    given = config.model_fields_set
    n = len(materials.data.train_x)
    batch = {} if "batch_size" in given else {"batch_size": 32 if n <= 5000 else 64 if n <= 20_000 else 128}
    multiplications = _multiplications(materials)
    config = config.model_copy(update={**batch, **_layer_names(config, materials)})
    for size in _SIZES:
        chosen = config.model_copy(update={key: value for key, value in size.items() if key not in given})
        if _modelled_seconds(chosen, n, multiplications) <= _AFFORDABLE:
            break
    return chosen


def _layer_names(config: StudyConfig, materials: Materials) -> dict[str, Any]:
    if not config.layers:
        return {"layer_names": ()}
    from gatelab.network import read  # noqa: PLC0415  needed for this choice only

    return {"layer_names": tuple(read(materials.source.template, materials.two).gates.values())}


def _multiplications(materials: Materials) -> float:
    """Of a forward pass on one example."""
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        materials.source.start(0)(materials.two)
    return counter.get_total_flops() / 4  # two examples; torch counts the additions, too


def _modelled_seconds(config: StudyConfig, n: int, multiplications: float) -> float:
    total = 0.0
    for cell in cells(config):
        kind, networks, share = cell.parameters["kind"], cell.parameters["networks"], cell.parameters["share"]
        steps = config.epochs * ceil(n * share / config.batch_size)
        work = config.batch_size * multiplications * PASSES[kind] * config.runs / _RATE
        total += networks * steps * (_STEP * bool(PASSES[kind]) + work)
    return total


@dataclass(frozen=True)
class Estimate:
    """How long a study should take, from a few steps of each kind of network.

    Attributes:
        seconds: of each cell.
        kernels: seconds for all looks at exact kernels; None if they cannot be computed.
    """

    seconds: dict[str, float]
    kernels: float | None

    @property
    def training(self) -> float:
        """Seconds without kernels."""
        return sum(self.seconds.values())


def measured(config: StudyConfig, materials: Materials) -> Estimate:
    """Run a few steps of each kind of network, and look at a few examples' kernels once."""
    listed = cells(config)
    kinds = sorted({cell.parameters["kind"] for cell in listed} - {"none"})
    per_kind = {kind: _step_and_test(config, materials, kind) for kind in kinds}
    seconds = {cell.name: _cell_seconds(config, materials, cell, per_kind) for cell in listed}
    watched = [cell for cell in listed if cell.name in ("network", "decoupled") and cell.parameters["kind"] != "none"]
    kernels = _kernel_seconds(config, materials) if watched else 0.0
    return Estimate(seconds, None if kernels is None else kernels * len(watched) * _looks(config))


def _looks(config: StudyConfig) -> int:
    return len({*range(0, config.epochs, max(1, config.epochs // LOOKS)), config.epochs})


def choose_kernels(config: StudyConfig, estimate: Estimate) -> StudyConfig:
    """Sketch the kernels if exact ones would take more than a tenth of the time, or cannot be computed."""
    if config.kernels is not Kernels.AUTO:
        return config
    fits = estimate.kernels is not None and estimate.kernels <= _KERNEL_SHARE * max(estimate.training, 30.0)
    return config.model_copy(update={"kernels": Kernels.EXACT if fits else Kernels.SKETCH})


def _cell_seconds(
    config: StudyConfig, materials: Materials, cell: Cell, per_kind: dict[str, tuple[float, float]]
) -> float:
    kind, networks, share = cell.parameters["kind"], cell.parameters["networks"], cell.parameters["share"]
    if kind not in per_kind:
        return 0.0
    step, test = per_kind[kind]
    steps = ceil(len(materials.data.train_x) * share / config.batch_size)
    epochs = config.epochs / share if cell.name.startswith("amount/") else config.epochs
    return networks * epochs * (steps * step + test)


def _step_and_test(config: StudyConfig, materials: Materials, kind: str) -> tuple[float, float]:
    """Seconds of a step, and of a pass over the test examples, of one network for each run."""
    groups = _teams(config, [_network(config, materials, kind, seed) for seed in config.seeds()])
    team, how = groups[0], config.training(materials.task, epochs=1)
    few = materials.data.subset(min(len(materials.data.train_x), config.batch_size * (_TIMED_STEPS + 1)), 200)  # pyright: ignore[reportAttributeAccessIssue]
    steps = ceil(len(few.train_x) / config.batch_size)
    seeds = config.seeds()[: team.size]
    with threads_for(int(_multiplications(materials) * config.batch_size * team.size)):
        optimiser = optimiser_of(team, how)
        team.train(True)
        with torch.random.fork_rng(devices=[]):
            train_epoch(team, optimiser, few, how, seeds, 0, materials.augment)  # the first steps are slower
            start = time.perf_counter()
            train_epoch(team, optimiser, few, how, seeds, 0, materials.augment)
        step = (time.perf_counter() - start) / steps
        team.train(False)
        start = time.perf_counter()
        evaluate(team, few, how.loss, how.metric)
        test = (time.perf_counter() - start) * len(materials.data.test_x) / len(few.test_x)
    return step * len(groups), test * len(groups)


def _teams(config: StudyConfig, networks: Sequence[nn.Module]) -> Sequence[Team]:
    return teams(networks) if can_stack_under(config.optimiser) else [SingleTeam(network) for network in networks]


def _network(config: StudyConfig, materials: Materials, kind: str, seed: int) -> nn.Module:
    source = materials.source
    if kind == "network":
        return source.again(seed)
    regime = Regime.FLNPF if kind == "fixed" else Regime.DNPFL
    return to_dgn(source.fresh(seed), regime, config.beta, source.control(seed), x=materials.two)


def _kernel_seconds(config: StudyConfig, materials: Materials) -> float | None:
    """Seconds of one look at exact kernels, extrapolated from two numbers of examples."""
    data = materials.data
    x = data.inputs(data.test_x[: min(_TIMED_PROBES, config.probes)])
    network = materials.source.control(0)
    try:
        few, more = (_seconds(lambda n=n: _kernels(network, x[:n])) for n in (len(x) // 3, len(x)))
    except GatelabError:
        return None
    # Reading the network takes a time of its own, whatever the number of examples.
    per_pair = max(0.0, more - few) / (len(x) ** 2 - (len(x) // 3) ** 2)
    return few + per_pair * min(config.probes, len(data.test_x)) ** 2


def _kernels(network: nn.Module, x: Tensor) -> None:
    neural_path_kernel(network, x)
    neural_tangent_kernel(network, x)


def _seconds(call: Callable[[], None]) -> float:
    """The time of a second call; the first one compiles."""
    call()
    start = time.perf_counter()
    call()
    return time.perf_counter() - start
