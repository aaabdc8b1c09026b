"""Products with a kernel in blocks, summed in float64, against bare float32 products of the same blocks."""

import torch

from benchmarks.timing import Ratio, interleaved
from gatelab.kernels.solve.blocks import DenseKernel
from gatelab.kernels.solve.products import kernel_times

N, TILE, VECTORS = 6144, 2048, 10  # tiles as on disk


def run() -> list[Ratio]:
    """Measure."""
    generator = torch.Generator().manual_seed(0)
    entries = torch.randn(N, N, generator=generator)
    kernel = DenseKernel(entries + entries.T, symmetric=True, size=TILE)
    vectors = torch.randn(N, VECTORS, generator=generator)
    rows = vectors.T.contiguous()

    def bare() -> None:
        product = torch.zeros(VECTORS, N)
        for i, j, block in kernel.blocks():
            product[:, i] += rows[:, j] @ block.T
            if i != j:
                product[:, j] += rows[:, i] @ block

    ours, bound = interleaved(lambda: kernel_times(kernel, vectors.double()), bare)
    work = f"K V with float32 K, n = {N}, {VECTORS} vectors, sums in float64"
    return [Ratio(work, "bare float32 products of the lower blocks (time)", ours / bound, "≤ 2", ours <= 2 * bound)]
