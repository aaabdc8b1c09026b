"""Before a study starts: settings that suit the size of the network, and how long it will take."""

import copy
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from gatelab.convert import Regime, to_dgn
from gatelab.dynamics import Kernels
from gatelab.errors import GatelabError
from gatelab.kernels import neural_path_kernel, neural_tangent_kernel
from gatelab.lab.looks import moments
from gatelab.lab.optimisers import can_stack_under
from gatelab.lab.runs import Cell
from gatelab.lab.study.config import StudyConfig
from gatelab.lab.study.materials import Materials
from gatelab.lab.study.rows import PASSES, cells
from gatelab.lab.study.watching import look_step
from gatelab.lab.team import SingleTeam, Team, teams
from gatelab.lab.training import evaluate, optimiser_of, train_epoch
from gatelab.observe import torch_state_kept
from gatelab.work.here import threads_for

# A model of one core: multiplications per second, and seconds that a step takes however small the network is.
_RATE, _STEP = 1e10, 4e-4
_AFFORDABLE = 800.0  # core seconds: some seven minutes on two cores
_ALL: dict[str, Any] = {"stages": (0.0, 0.1, 0.3, 1.0), "dependent": True, "decoupled": True}
_FEW: dict[str, Any] = {"stages": (1.0,), "dependent": False, "decoupled": False}
# From the richest to the barest; the first that is affordable is taken.
_SIZES: tuple[dict[str, Any], ...] = (
    {"runs": 16, "epochs": 15, **_ALL},
    {"runs": 10, "epochs": 15, **_ALL},
    {"runs": 5, "epochs": 15, **_ALL},
    {"runs": 5, "epochs": 8, **_ALL},
    {"runs": 5, "epochs": 8, **_FEW},
    {"runs": 5, "epochs": 5, **_FEW},
    {"runs": 5, "epochs": 3, **_FEW},
    {"runs": 5, "epochs": 2, **_FEW},
    {"runs": 3, "epochs": 2, **_FEW},
)
_KINDS = {"network": "the network", "fixed": "values on fixed gates", "soft": "the decoupled network"}
_TIMED_STEPS = 3
_TIMED_PROBES = 12
_KERNEL_SHARE = 0.1  # of the study's time, that exact kernels may take
_ALWAYS_ALLOWED = 6.0  # core seconds: in a study of a minute nobody minds them


def sized(config: StudyConfig, materials: Materials) -> StudyConfig:
    """Fill in what the user left open: the number of runs, epochs and rows that fit into some minutes.

    The choice depends on the sizes of network and data, not on a clock, so that the same command gives the same study.
    """
    given = config.model_fields_set
    n = len(materials.data.train_x)
    batch = {} if "batch_size" in given else {"batch_size": 32 if n <= 5000 else 64 if n <= 20_000 else 128}
    multiplications = _multiplications(materials)
    config = config.model_copy(update={**batch, **_layer_names(config, materials)})
    sizes = [
        config.model_copy(update={key: value for key, value in size.items() if key not in given}) for size in _SIZES
    ]
    return next((size for size in sizes if _modelled_seconds(size, n, multiplications) <= _AFFORDABLE), sizes[-1])


def _layer_names(config: StudyConfig, materials: Materials) -> dict[str, Any]:
    if not config.layers:
        return {"layer_names": ()}
    from gatelab.network import read  # noqa: PLC0415  needed for this choice only

    return {"layer_names": tuple(read(materials.source.template, materials.two).gates.values())}


def _multiplications(materials: Materials) -> float:
    """Of a forward pass on one example."""
    network = copy.deepcopy(materials.source.template)  # a forward pass may leave a trace in the network
    with torch.no_grad(), torch_state_kept(), FlopCounterMode(display=False) as counter:
        network(materials.two)
    return counter.get_total_flops() / 4  # two examples; torch counts the additions, too


def _modelled_seconds(config: StudyConfig, n: int, multiplications: float) -> float:
    total = 0.0
    for cell in cells(config):
        kind, networks, share = cell.parameters["kind"], cell.parameters["networks"], cell.parameters["share"]
        steps = config.epochs * ceil(n * share / config.batch_size)
        work = config.batch_size * multiplications * PASSES[kind] * config.runs / _RATE
        total += networks * steps * (_STEP * bool(PASSES[kind]) + work)
    return total


class Spent(NamedTuple):
    """Seconds on the clock, and seconds of all cores: those do not depend on what else the machine does."""

    clock: float
    cores: float

    def times(self, factor: float) -> "Spent":
        """As much for each of several."""
        return Spent(self.clock * factor, self.cores * factor)


def _spent(call: Callable[[], object]) -> Spent:
    """The time of the second of two calls; the first one compiles, and fills caches."""
    call()
    clock, cores = time.perf_counter(), time.process_time()
    call()
    return Spent(time.perf_counter() - clock, time.process_time() - cores)


@dataclass(frozen=True)
class TimeEstimate:
    """How long a study should take, from a few steps of each kind of network.

    Attributes:
        training: without kernels.
        kernels: all looks at exact kernels; None if they cannot be computed.
    """

    training: Spent
    kernels: Spent | None


def measured(config: StudyConfig, materials: Materials, tell: Callable[[str], None]) -> TimeEstimate:
    """Run a few steps of each kind of network, and look at a few examples' kernels; ``tell`` hears what is timed."""
    listed = cells(config)
    kinds = sorted({cell.parameters["kind"] for cell in listed} - {"none"})
    per_kind: dict[str, tuple[Spent, Spent]] = {}
    for kind in kinds:
        tell(f"timing a few steps of {_KINDS[kind]}")
        per_kind[kind] = _step_and_test(config, materials, kind)
    parts = [_cell_time(config, materials, cell, per_kind[cell.parameters["kind"]]) for cell in listed
             if cell.parameters["kind"] in per_kind]  # fmt: skip
    training = Spent(sum(part.clock for part in parts), sum(part.cores for part in parts))
    watched = [cell for cell in listed if cell.name in ("network", "decoupled") and cell.parameters["kind"] != "none"]
    if config.kernels is Kernels.OFF or not watched:
        return TimeEstimate(training, Spent(0.0, 0.0))
    tell("timing a look at kernels")
    look = _look(config, materials)
    return TimeEstimate(training, None if look is None else look.times(len(watched) * _looks(config)))


def _looks(config: StudyConfig) -> int:
    return len(moments(config.epochs, look_step(config.epochs)))


def choose_kernels(config: StudyConfig, estimate: TimeEstimate) -> StudyConfig:
    """Sketch the kernels if exact ones would take more than a tenth of the time, or cannot be computed."""
    if config.kernels is not None:
        return config
    allowed = max(_KERNEL_SHARE * estimate.training.cores, _ALWAYS_ALLOWED)
    fits = estimate.kernels is not None and estimate.kernels.cores <= allowed
    return config.model_copy(update={"kernels": Kernels.EXACT if fits else Kernels.SKETCH})


def _cell_time(config: StudyConfig, materials: Materials, cell: Cell, spent: tuple[Spent, Spent]) -> Spent:
    networks, share = cell.parameters["networks"], cell.parameters["share"]
    steps = ceil(len(materials.data.train_x) * share / config.batch_size)
    epochs = config.epochs / max(share, 0.1) if cell.name.startswith("amount/") else config.epochs
    step, test = spent
    return Spent(*(networks * epochs * (steps * a + b) for a, b in zip(step, test, strict=True)))


def _step_and_test(config: StudyConfig, materials: Materials, kind: str) -> tuple[Spent, Spent]:
    """The time of a step, and of a pass over the test examples, of one network for each run."""
    groups = _teams(config, [_network(config, materials, kind, seed) for seed in config.seeds()])
    team, how = groups[0], config.training(materials.task, epochs=1)
    few = materials.data.subset(min(len(materials.data.train_x), config.batch_size * _TIMED_STEPS), 200)
    optimiser, seeds = optimiser_of(team, how), config.seeds()[: team.size]
    with threads_for(int(_multiplications(materials) * config.batch_size * team.size)):
        team.train(True)
        with torch_state_kept():
            steps = _spent(lambda: train_epoch(team, optimiser, few, how, seeds, 0, materials.augment))
        team.train(False)
        test = _spent(lambda: evaluate(team, few, how.loss, how.metric))
    count = ceil(len(few.train_x) / config.batch_size)
    return steps.times(len(groups) / count), test.times(len(groups) * len(materials.data.test_x) / len(few.test_x))


def _teams(config: StudyConfig, networks: Sequence[nn.Module]) -> Sequence[Team]:
    return teams(networks) if can_stack_under(config.optimiser) else [SingleTeam(network) for network in networks]


def _network(config: StudyConfig, materials: Materials, kind: str, seed: int) -> nn.Module:
    source = materials.source
    if kind == "network":
        return source.again(seed)
    regime = Regime.FLNPF if kind == "fixed" else Regime.DNPFL
    return to_dgn(source.fresh(seed), regime, config.beta, source.control(seed), x=materials.two)


def _look(config: StudyConfig, materials: Materials) -> Spent | None:
    """The time of one look at exact kernels, extrapolated from two numbers of examples."""
    data, network = materials.data, materials.source.control(0)
    x = data.inputs(data.test_x[: min(_TIMED_PROBES, config.probes)])
    fewer = max(1, len(x) // 3)
    try:
        few, more = (_spent(lambda n=n: _kernels(network, x[:n])) for n in (fewer, len(x)))
    except GatelabError:
        return None
    # Reading the network takes a time of its own, whatever the number of examples.
    pairs = min(config.probes, len(data.test_x)) ** 2 / (len(x) ** 2 - fewer**2)
    return Spent(*(a + max(0.0, b - a) * pairs for a, b in zip(few, more, strict=True)))


def _kernels(network: nn.Module, x: Tensor) -> None:
    neural_path_kernel(network, x)
    neural_tangent_kernel(network, x)
