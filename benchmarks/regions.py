"""The exact regions of a 2-64³-1 ReLU network against gate patterns on a 2000×2000 grid."""

from functools import partial

import numpy as np
import torch
from torch import nn

import gatelab as gl
from benchmarks.timing import Ratio, interleaved

GRID = 2000
CHUNK = 2**14  # points at a time: their activations stay in the cache, which is twice as fast as all at once
BOUNDS = ((-3.0, 3.0), (-3.0, 3.0))


def network(*hidden: int) -> nn.Sequential:
    """A ReLU network of two inputs, with biases so that its lines do not all pass the origin."""
    generator = torch.Generator().manual_seed(0)
    model = gl.models.mlp((2, *hidden, 1), bias=True, generator=generator)
    for layer in model[::2]:
        nn.init.normal_(layer.bias, std=0.3, generator=generator)
    return model


@torch.no_grad()
def grid_regions(model: nn.Sequential) -> np.ndarray:
    """The points of a grid, labelled by their gate pattern: float32, packed bits, each pattern hashed to 64 bits."""
    (left, right), (low, high) = BOUNDS
    t, s = torch.meshgrid(torch.linspace(low, high, GRID), torch.linspace(left, right, GRID), indexing="ij")
    points = torch.stack([s.flatten(), t.flatten()], 1)
    odd = np.random.default_rng(0).integers(2**63, size=len(model) // 2, dtype=np.uint64) * np.uint64(2) + np.uint64(1)
    codes = np.zeros(len(points), np.uint64)
    for start in range(0, len(points), CHUNK):
        h = points[start : start + CHUNK]
        for layer, factor in zip(model[:-1:2], odd, strict=True):
            h = layer(h)
            words = np.packbits((h > 0).numpy(), axis=1).view(np.uint64)[:, 0]
            codes[start : start + len(h)] = (codes[start : start + len(h)] ^ words) * factor
            h = h.relu_()
    return np.unique(codes, return_inverse=True)[1].reshape(GRID, GRID)


def run() -> list[Ratio]:
    """Measure."""
    model = network(64, 64, 64)
    exact = partial(gl.regions.linear_regions_2d, model, None, BOUNDS)
    ours, theirs = interleaved(exact, lambda: grid_regions(model), rounds=3)
    found, labels = exact(), grid_regions(model)
    if not 0.9 * len(found) <= labels.max() + 1 <= len(found):  # a grid misses small regions and invents none
        raise RuntimeError(f"{len(found)} exact regions, {labels.max() + 1} on the grid")
    deep = [network(*[16] * 5), network(*[64] * 4)]
    times = interleaved(*(partial(gl.regions.linear_regions_2d, net, None, BOUNDS) for net in deep), rounds=3)
    work, ratio = "`linear_regions_2d`, 2-64³-1", theirs / ours
    return [
        Ratio(work, "gate patterns on a 2000×2000 grid, labelled (speed-up)", ratio, "≥ 10", ratio >= 10),
        Ratio("`linear_regions_2d`, 2-16⁵-1", "5 seconds (time)", times[0] / 5, "≤ 1", times[0] <= 5),
        Ratio("`linear_regions_2d`, 2-64⁴-1", "one minute (time)", times[1] / 60, "≤ 1", times[1] <= 60),
    ]
