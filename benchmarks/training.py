"""Training many small networks together, convolutional ones with kept gates, and tracking, against ordinary loops."""

from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from multiprocessing import get_context
from time import process_time

import torch
from torch import nn

import gatelab as gl
from benchmarks.timing import Ratio, interleaved
from gatelab.convert import Regime
from gatelab.data import Dataset
from gatelab.lab.team import SingleTeam, StackedTeam
from gatelab.lab.training import TrainConfig, optimiser_of, train_epoch
from gatelab.lab.twins import network, twin
from gatelab.papers.npk.table2 import Arch, Table2Config

STEPS, BATCH, RUNS, PROBES = 40, 32, 5, 200
EPOCH = 60000 // BATCH  # steps of an epoch of MNIST


def data() -> Dataset:
    """As much random data of MNIST's shape as the steps take: speed does not depend on what the images show."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randint(256, (STEPS * BATCH, 1, 28, 28), generator=generator, dtype=torch.uint8)
    y = torch.randint(10, (STEPS * BATCH,), generator=generator)
    return Dataset("random", "random", x, y, x[:100], y[:100], tuple("0123456789"))


def members() -> dict[str, list[nn.Module]]:
    """The networks of Table 2's FC row, by which of them train together."""
    make, seeds, beta = Table2Config().make, range(RUNS), 8.0
    fixed = [twin(make, regime, s, beta) for regime in (Regime.FRNPF_II, Regime.FRNPF_DI) for s in seeds]
    return {
        "ReLU": [network(make, seed) for seed in seeds],
        "fixed": fixed + [twin(make, Regime.FLNPF, s, beta, network(make, s + 9).state_dict()) for s in seeds],
        "DNPFL": [twin(make, Regime.DNPFL, seed, beta) for seed in seeds],
    }


def ordinary(model: nn.Module, examples: Dataset) -> None:
    """A loop as in torch's tutorials, the data in memory."""
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimiser = torch.optim.Adam(parameters, lr=3e-4)
    for batch in torch.randperm(len(examples.train_x)).split(BATCH):
        loss = nn.functional.cross_entropy(model(examples.inputs(examples.train_x[batch])), examples.train_y[batch])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()


CONVOLUTIONAL = Table2Config(arch=Arch.GCONV, channels=0.25, shrink=2)
REGIMES = (None, Regime.FRNPF_II, Regime.FRNPF_DI, Regime.FLNPF, Regime.DNPFL)


def images() -> Dataset:
    """Random data of the shape of CIFAR-10 at 16×16 pixels."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randint(256, (STEPS * BATCH, 3, 16, 16), generator=generator, dtype=torch.uint8)
    y = torch.randint(10, (STEPS * BATCH,), generator=generator)
    return Dataset("random", "random", x, y, x[:100], y[:100], tuple("0123456789"))


def one_regime(regime: Regime | None) -> nn.Module:
    """A network of Table 2's GCONV row, with a quarter of the channels."""
    make = CONVOLUTIONAL.make
    return network(make, 0) if regime is None else twin(make, regime, 0, 8.0, gates_of(regime))


def gates_of(regime: Regime) -> dict[str, torch.Tensor] | None:
    """The weights whose gates a network gets."""
    return network(CONVOLUTIONAL.make, 9).state_dict() if regime is Regime.FLNPF else None


def train_kept(regimes: Sequence[Regime | None]) -> Callable[[], None]:
    """A function that trains networks for an epoch, as a cell of Table 2 does once gates are kept."""
    examples, config = images(), TrainConfig(epochs=1, batch_size=BATCH)
    members = [SingleTeam(one_regime(regime)) for regime in regimes]
    optimisers = [optimiser_of(team, config) for team in members]

    def epoch() -> None:
        for team, optimiser in zip(members, optimisers, strict=True):
            train_epoch(team, optimiser, examples, config, [0], 0)

    epoch()  # computes the gates; their cost is one forward pass, not one for each epoch
    return epoch


def _in_process(run: int) -> None:
    """Train one run's five networks in a worker process; what was prepared there before is used again."""
    torch.set_num_threads(1)
    if run not in _prepared:
        _prepared[run] = train_kept(REGIMES)
    _prepared[run]()


_prepared: dict[int, Callable[[], None]] = {}


def convolutional() -> list[Ratio]:
    """The five regimes of the GCONV row: one run on one core, and two runs on two, each in its own process."""
    examples = images()
    networks = [one_regime(regime) for regime in REGIMES]

    def ordinary_row() -> None:
        for model in networks:
            ordinary(model, examples)

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    kept, plain = interleaved(train_kept(REGIMES), ordinary_row, rounds=3, clock=process_time)
    torch.set_num_threads(max(2, threads))
    with ExitStack() as stack:
        # A pool for each process, so that each always trains the same run.
        pools = [stack.enter_context(ProcessPoolExecutor(1, get_context("spawn"))) for _ in range(2)]

        def both() -> None:
            for work in [pool.submit(_in_process, run) for run, pool in enumerate(pools)]:
                work.result()

        both()  # prepares
        processes, several = interleaved(both, ordinary_row, rounds=3)
    torch.set_num_threads(threads)
    speed = 2 * several / processes
    row = f"GCONV row of Table 2, 16×16, ¼ of the channels, 5 regimes, batch {BATCH}"
    return [
        Ratio(f"{row}, one core", "an ordinary loop, one thread (processor time)", plain / kept, "none", True),
        Ratio(f"{row}, two processes, two runs", "an ordinary loop, two threads", speed, "≥ 2", speed >= 2),
    ]


def run() -> list[Ratio]:
    """Measure."""
    return [*dense(), *convolutional()]


def dense() -> list[Ratio]:
    """The fully connected row."""
    examples, groups, config = data(), members(), TrainConfig(epochs=1, batch_size=BATCH)
    teams = [StackedTeam(models) for models in groups.values()]
    optimisers = [optimiser_of(team, config) for team in teams]

    def together() -> None:
        for team, optimiser in zip(teams, optimisers, strict=True):
            train_epoch(team, optimiser, examples, config, list(range(team.size)), 0)

    def one_after_another() -> None:
        for models in groups.values():
            for model in models[::RUNS]:  # one of five alike
                ordinary(model, examples)

    ours, theirs = interleaved(together, one_after_another, rounds=5)
    speed = theirs * RUNS / ours
    model, probes = groups["ReLU"][0], torch.rand(PROBES, 1, 28, 28)
    tracker = gl.GateTracker(model, probes, torch.ones(PROBES))
    training, tracking = interleaved(lambda: ordinary(model, examples), lambda: tracker.record(0), rounds=5)
    share = tracking / (training / STEPS * EPOCH)
    row = f"FC row of Table 2, 5 regimes × {RUNS} seeds, batch {BATCH}"
    return [
        Ratio(row, "the same networks one after another (throughput)", speed, "≥ 3", speed >= 3),
        Ratio(f"tracking gates, H, K on {PROBES} probes each epoch", "training (time)", share, "≤ 0.1", share <= 0.1),
    ]
