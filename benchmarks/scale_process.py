"""Computes one kernel to disk and prints seconds, peak memory and bytes as JSON. Run in a process of its own."""

import json
import sys
import time
from pathlib import Path

import torch

import gatelab as gl
from benchmarks.memory import status
from gatelab.kernels import OverlapKernel, PathKernel, TangentKernel, compute
from gatelab.kernels.disk.engine import TileJob, compute_tile
from gatelab.kernels.disk.layout import Layout
from gatelab.work import Here

KINDS = {"overlap": OverlapKernel, "npk": PathKernel, "ntk": TangentKernel}
WIDTHS = (784, 128, 128, 128, 128, 1)


def digits(n: int) -> torch.Tensor:
    """The first n digits of MNIST, flat."""
    data = gl.data.load("mnist")
    return data.inputs(data.train_x[:n], torch.float32).flatten(1)


def main(kind: str, n: int, memory: str, store: Path) -> None:
    """Compute, then a sample of the same tiles without the disk."""
    x = digits(n)
    network = gl.models.mlp(WIDTHS, bias=True, generator=torch.Generator().manual_seed(0))
    kernel = KINDS[kind](network)
    compute(kernel, x[:64], store=store.with_suffix(".warm"))  # compiles, loads libraries
    start = time.perf_counter()
    made = compute(kernel, x, store=store, memory=memory)
    seconds = time.perf_counter() - start
    peak = status("VmHWM")
    layout: Layout = made._layout
    job = TileJob(kernel.on(x), x, None, layout, layout.grid[0])
    tiles = list(layout.tiles(layout.grid[0]))
    sample = tiles[:: max(1, len(tiles) // 24)]
    for _ in Here().run(compute_tile, job, sample):  # what is kept of the rows is then known
        pass
    start = time.perf_counter()
    for _ in Here().run(compute_tile, job, sample):
        pass
    in_memory = (time.perf_counter() - start) * len(tiles) / len(sample)
    told = {"seconds": seconds, "peak": peak, "in_memory": in_memory}
    print(json.dumps({**told, "tiles": layout.count, "tile_bytes": layout.tile_bytes}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3], Path(sys.argv[4]))
