"""Regions by brute force: every gate pattern on a grid, every sign vector by a linear programme."""

from itertools import product

import torch
from torch import Tensor, nn

import gatelab as gl
from gatelab.regions import Polyhedron, RegionPlan


def patterns_on_grid(model: nn.Module, x: Tensor) -> set[tuple[bool, ...]]:
    """The gate patterns that occur among some inputs."""
    pattern = gl.capture_gates(model, x)
    bits = torch.cat([pattern[name].flatten(1) for name in pattern], 1)
    return set(map(tuple, bits.tolist()))


def nonempty_paths(model: nn.Module, bounds) -> int:
    """Paths of a DLGN whose region meets a box, one linear programme each."""
    plan = RegionPlan(model)
    layers = list(gl.half_spaces(model, plan=plan).values())
    return sum(
        not gl.active_region(model, path, plan=plan).within(bounds).is_empty()
        for path in product(*(range(layer.shape[0]) for layer in layers))
    )


def cells_of_an_arrangement(normals: Tensor, offsets: Tensor, bounds) -> int:
    """Cells into which lines cut a box: every sign vector, one linear programme each."""
    count = 0
    for signs in product((-1.0, 1.0), repeat=len(offsets)):
        sign = torch.tensor(signs)
        cell = Polyhedron(-sign[:, None] * normals, sign * offsets)
        count += not cell.within(bounds).is_empty()
    return count


def open_image_paths(first: Tensor, second: Tensor, kernel: int, padding: int, pool: int) -> int:
    """Paths through two layers of an image's gates, (c, h, w) each, one by one.

    Behind the first layer windows of ``pool`` × ``pool`` are averaged; then a convolution leads to the second.
    """
    count = 0
    for (_, i, j), (_, k, m) in product(first.nonzero().tolist(), second.nonzero().tolist()):
        row, column = i // pool - (k - padding), j // pool - (m - padding)
        count += 0 <= row < kernel and 0 <= column < kernel
    return count
