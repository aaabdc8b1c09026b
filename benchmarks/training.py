"""Training many small networks together, and tracking one, against an ordinary loop."""

import torch
from torch import nn

import gatelab as gl
from benchmarks.timing import Ratio, interleaved
from gatelab.convert import Regime
from gatelab.data import Dataset
from gatelab.lab.team import StackedTeam
from gatelab.lab.training import TrainConfig, optimiser_of, train_epoch
from gatelab.lab.twins import network, twin
from gatelab.papers.npk.table2 import Table2Config

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


def run() -> list[Ratio]:
    """Measure."""
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
