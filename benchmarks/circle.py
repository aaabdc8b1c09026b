"""An epoch of the circle experiment with all that is tracked."""

import torch

from benchmarks.timing import Ratio, interleaved
from gatelab.lab.team import StackedTeam
from gatelab.lab.training import Loss, TrainConfig, optimiser_of, train_epoch
from gatelab.papers.halfspace.circle import CircleConfig, look
from gatelab.regions import RegionPlan

LIMIT = 0.030


def run() -> list[Ratio]:
    """Measure one epoch of all runs of a kind, and a look at the first: outputs, paths, overlap kernel, half-spaces."""
    config, found = CircleConfig(), []
    data, training = config.data(), TrainConfig(epochs=1, batch_size=20, learning_rate=3e-3, loss=Loss.SQUARED)
    for kind in ("relu", "dlgn"):
        team = StackedTeam([config.make(kind, seed) for seed in config.seeds()])
        optimiser, plan = optimiser_of(team, training), RegionPlan(team.member(0))

        def epoch(
            team: StackedTeam = team, optimiser: torch.optim.Optimizer = optimiser, plan: RegionPlan = plan
        ) -> None:
            train_epoch(team, optimiser, data, training, config.seeds(), 0)
            look(team.member(0), data, config.kernel_points, tangent=False, plan=plan)

        ratio = interleaved(epoch, rounds=20)[0] / LIMIT
        work = f"tracked epoch of the circle, {config.runs} runs, {kind}"
        found.append(Ratio(work, "30 ms (time)", ratio, "≤ 1", ratio <= 1))
    return found
