"""A run of two small trainings, as a program that the tests kill: ``python -m tests.lab.small_run DIRECTORY``."""

import sys
import time
from pathlib import Path

import torch

from gatelab.data.circle_data import Regression
from gatelab.lab.runs import Cell, Result, Run, execute
from gatelab.lab.training import Loss, TrainConfig
from gatelab.lab.training_cells import kept_weights, train_cell
from gatelab.models import mlp
from gatelab.work.progress import Reporter, Silent

CELLS = [Cell("first"), Cell("second", needs=("first",))]
EPOCHS = 10


def train(config, cell, context):
    chance = torch.Generator().manual_seed(0)
    x, y = torch.randn(60, 4, generator=chance), torch.randn(60, generator=chance)
    models = [mlp((4, 8, 1), bias=True, generator=torch.Generator().manual_seed(seed)) for seed in (0, 1)]
    for name, folder in context.folders.items():
        assert len(context.results[name]["train_loss"][0]) == EPOCHS
        for model, weights in zip(models, kept_weights(folder, EPOCHS, 2), strict=True):
            model.load_state_dict(weights)
    data = Regression("points", x[:40], y[:40], x[40:], y[40:])
    how = TrainConfig(epochs=EPOCHS, batch_size=8, loss=Loss.SQUARED)
    return train_cell(models, [0, 1], data, how, context, keep={EPOCHS})


def run(directory: Path, reporter: Reporter) -> dict[str, Result]:
    return execute(Run.open(directory, "small", {"epochs": EPOCHS}), None, CELLS, train, reporter)


class Slow(Silent):
    """Prints each report and waits, so that a signal finds the run at work."""

    def update(self, part: str, fraction: float, text: str) -> None:
        print(part, text, flush=True)  # noqa: T201  the test reads it
        time.sleep(0.05)


if __name__ == "__main__":
    torch.set_num_threads(1)
    run(Path(sys.argv[1]), Slow())
