"""Looks at gates and kernels while a network of the study trains, as exact as there is time for."""

from math import ceil
from pathlib import Path

from gatelab.data.dataset import evenly
from gatelab.dynamics import Kernels
from gatelab.lab.looks import Looks, gate_looks
from gatelab.lab.study.config import StudyConfig
from gatelab.lab.study.materials import Materials

LOOKS = 10  # besides the one at the start


def look_step(epochs: int) -> int:
    """The epochs between two looks, so that there are about ten."""
    return ceil(epochs / LOOKS)


def watch(config: StudyConfig, materials: Materials, folder: Path) -> Looks:
    """The looks at the first network of a cell: at the start, about ten times while it trains, and at the end."""
    data = materials.data
    rows = evenly(len(data.test_x), config.probes)
    x, every = data.inputs(data.test_x[rows]), look_step(config.epochs)
    kernels = config.kernels or Kernels.EXACT
    return gate_looks(
        folder, x, data.test_y[rows], epochs=config.epochs, every=every, tangent=True, kernels=kernels.value
    )
