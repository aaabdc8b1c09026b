"""The exact regions of ReLU networks against gate patterns on a grid, a plain polygon cutter, and time limits."""

from functools import partial

import numpy as np
import torch
from torch import nn

import gatelab as gl
from benchmarks.polygon_cutter import cut, cut_at_once
from benchmarks.timing import Ratio, interleaved

GRID = 2000
CHUNK = 2**14  # points at a time: their activations stay in the cache, which is twice as fast as all at once
BOUNDS = ((-3.0, 3.0), (-3.0, 3.0))


def network(*hidden: int, inputs: int = 2) -> nn.Sequential:
    """A ReLU network of two inputs, with biases so that its lines do not all pass the origin."""
    generator = torch.Generator().manual_seed(0)
    model = gl.models.mlp((inputs, *hidden, 1), bias=True, generator=generator)
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


def with_graph(model: nn.Sequential, level: float) -> int:
    """Cut the plane, find all neighbours and one level set; return the number of edges and pieces."""
    partition = gl.regions.linear_regions_2d(model, None, BOUNDS)
    return len(partition.graph) + len(partition.level_set(level))


def against_plain_cutters() -> list[Ratio]:
    """2-256⁴-1 with its graph and a level set, in units of the partition alone and of two plain cutters."""
    model = network(256, 256, 256, 256)
    alone = partial(gl.regions.linear_regions_2d, model, None, BOUNDS)
    found = alone()
    values = found.maps[:, 0, 0] + (found.maps[:, 0, 1:] * found.centres).sum(1)
    level = float(values.median())
    peers = partial(cut, model, BOUNDS), partial(cut_at_once, model, BOUNDS)
    plain, everything, one_by_one, at_once = interleaved(alone, partial(with_graph, model, level), *peers, rounds=2)
    if any(not 0.999 <= peer() / len(found) <= 1.001 for peer in peers):  # without a tolerance, slivers may differ
        raise RuntimeError("a plain cutter finds other regions")
    work = "`linear_regions_2d` with graph and level set, 2-256⁴-1"
    slow, fast = one_by_one / everything, at_once / everything
    return [
        Ratio(work, "the partition alone (time)", everything / plain, "≤ 1.3", everything <= 1.3 * plain),
        Ratio(work, "a NumPy cutter, polygon by polygon, that only counts (speed-up)", slow, "≥ 10", slow >= 10),
        Ratio(work, "the same, many polygons in each NumPy call (speed-up)", fast, "≥ 10", fast >= 10),
    ]


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
    space = network(16, 16, 16, inputs=3)
    (solid,) = interleaved(lambda: gl.regions.linear_regions_3d(space, (BOUNDS[0],) * 3).neighbours, rounds=2)
    work, ratio = "`linear_regions_2d`, 2-64³-1", theirs / ours
    return [
        Ratio(work, "gate patterns on a 2000×2000 grid, labelled (speed-up)", ratio, "≥ 10", ratio >= 10),
        Ratio("`linear_regions_2d`, 2-16⁵-1", "5 seconds (time)", times[0] / 5, "≤ 1", times[0] <= 5),
        Ratio("`linear_regions_2d`, 2-64⁴-1", "one minute (time)", times[1] / 60, "≤ 1", times[1] <= 60),
        Ratio("`linear_regions_3d` with neighbours, 3-16³-1", "one minute (time)", solid / 60, "≤ 1", solid <= 60),
        *against_plain_cutters(),
    ]
