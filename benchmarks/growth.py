"""How the time of the overlap and the tangent kernel grows with examples, width and depth: slopes of log-log lines."""

from collections.abc import Callable
from math import log

import torch

import gatelab as gl
from benchmarks.timing import Ratio, interleaved

EXAMPLES = (500, 1000, 2000, 4000)
WIDTHS = (128, 256, 512, 1024)
DEPTHS = (2, 4, 8, 16)
N, WIDTH, DEPTH, INPUTS = 2000, 256, 4, 64


def overlap(n: int, width: int, depth: int) -> Callable[[], object]:
    """Overlap of random gates."""
    generator = torch.Generator().manual_seed(0)
    pattern = gl.GatePattern({str(layer): torch.rand(n, width, generator=generator) < 0.5 for layer in range(depth)})
    return lambda: gl.overlap_kernel(pattern)


def tangent(n: int, width: int, depth: int) -> Callable[[], object]:
    """Tangent kernel of an MLP with one output."""
    generator = torch.Generator().manual_seed(0)
    model = gl.models.mlp((INPUTS, *(width,) * depth, 1), bias=True, generator=generator)
    x = torch.randn(n, INPUTS, generator=generator)
    return lambda: gl.neural_tangent_kernel(model, x)


def slope(sizes: tuple[int, ...], seconds: list[float]) -> float:
    """Least squares on a log-log line."""
    a, b = [log(size) for size in sizes], [log(second) for second in seconds]
    centre, level = sum(a) / len(a), sum(b) / len(b)
    rise = sum((u - centre) * (v - level) for u, v in zip(a, b, strict=True))
    return rise / sum((u - centre) ** 2 for u in a)


def run() -> list[Ratio]:
    """Measure. What is fixed costs and the kernel's own n² keep the slopes in width and depth below one."""
    found = []
    for name, kernel in (("overlap kernel", overlap), ("tangent kernel of an MLP", tangent)):
        for axis, sizes, made, theory in (
            ("n", EXAMPLES, [kernel(n, WIDTH, DEPTH) for n in EXAMPLES], 2),
            ("width", WIDTHS, [kernel(N, width, DEPTH) for width in WIDTHS], 1),
            ("depth", DEPTHS, [kernel(N, WIDTH, depth) for depth in DEPTHS], 1),
        ):
            seconds = interleaved(*made, rounds=3)
            exponent = slope(sizes, seconds)
            times = ", ".join(f"{size}: {1e3 * second:.0f} ms" for size, second in zip(sizes, seconds, strict=True))
            print(f"{name}, by {axis}: {times}", flush=True)
            work = f"{name}, growth in {axis} from {sizes[0]} to {sizes[-1]}"
            limit = theory + 0.2  # what a busy machine adds to a slope
            found.append(Ratio(work, f"exponent {theory} in theory", exponent, f"≤ {limit}", exponent <= limit))
    return found
