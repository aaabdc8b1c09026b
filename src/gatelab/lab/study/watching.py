"""Looks at gates and kernels while a network of the study trains, as exact as there is time for."""

from collections.abc import Callable
from math import ceil
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from gatelab.errors import UnsupportedModelError
from gatelab.kernels import path_features
from gatelab.lab.looks import Look, Looks, gate_looks, moments, with_flips
from gatelab.lab.study.config import StudyConfig, StudyKernels
from gatelab.lab.study.materials import Materials
from gatelab.network import capture_gates

SKETCH_PROBES, SKETCH_FEATURES = 64, 256
LOOKS = 10  # besides the one at the start


def look_step(epochs: int) -> int:
    """The epochs between two looks, so that there are about ten."""
    return ceil(epochs / LOOKS)


def probes(config: StudyConfig, materials: Materials) -> tuple[Float[Tensor, "n ..."], Tensor]:
    """Some test examples and their labels."""
    count = config.probes if config.kernels is not StudyKernels.SKETCH else min(config.probes, SKETCH_PROBES)
    data = materials.data
    return data.inputs(data.test_x[:count]), data.test_y[:count]


def watch(config: StudyConfig, materials: Materials, folder: Path) -> Looks:
    """The looks at the first network of a cell: at the start, about ten times while it trains, and at the end."""
    x, labels = probes(config, materials)
    every = look_step(config.epochs)
    if config.kernels in (StudyKernels.AUTO, StudyKernels.EXACT):
        signs = (labels == labels.mode().values).to(x) * 2 - 1 if not labels.is_floating_point() else labels.to(x)
        return gate_looks(folder, x, signs, epochs=config.epochs, every=every, tangent=True)
    estimate = _cosine if config.kernels is StudyKernels.SKETCH else _nothing
    return Looks(
        folder, moments(config.epochs, every), _gates_and(estimate, folder, x, config.epochs, every), networks=1
    )


def _gates_and(
    estimate: Callable[[nn.Module, Tensor], float | None], folder: Path, x: Tensor, epochs: int, every: int
) -> Callable[[nn.Module, int, int], Look]:
    flipped = with_flips(folder, moments(epochs, every))

    def look(model: nn.Module, epoch: int, _place: int) -> Look:
        gates = capture_gates(model, x)
        seen: dict[str, Any] = {"epoch": epoch, "flipped": flipped(gates, epoch), "active": gates.active_fraction()}
        return {**seen, "cosine": estimate(model, x), "complexity": None, "tangent": {}, "hardening": None}

    return look


def _nothing(_model: nn.Module, _x: Tensor) -> None:
    return None


def _cosine(model: nn.Module, x: Tensor) -> float | None:
    """The mean cosine of the path kernel, from random features whose inner products estimate it."""
    try:
        features = path_features(model, x, dim=SKETCH_FEATURES, generator=torch.Generator().manual_seed(0)).double()
    except UnsupportedModelError:
        return None
    features = features / features.norm(dim=1, keepdim=True).clamp(min=1e-300)
    n = len(x)
    return float((features.sum(dim=0).square().sum() - n) / (n * (n - 1)))
