"""The hundred largest paths of 784-128⁴-10, in seconds: there is no peer that does not enumerate."""

import torch

import gatelab as gl
from benchmarks.timing import Ratio, interleaved


def run() -> list[Ratio]:
    """Measure."""
    generator = torch.Generator().manual_seed(0)
    model = gl.models.mlp((784, 128, 128, 128, 128, 10), bias=True, generator=generator)
    x = torch.randn(784, generator=generator)
    (seconds,) = interleaved(lambda: gl.top_paths(model, x, 100), rounds=3)
    return [Ratio("top_paths, 784-128⁴-10, k = 100", "one second (time)", seconds, "≤ 1", seconds <= 1)]
