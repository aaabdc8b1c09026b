"""The overlap kernel, n = 4000, 4 layers of 128, against float32 products of the gates."""

import torch
from torch import Tensor

import gatelab as gl
from benchmarks.timing import Ratio, interleaved

N, WIDTH, LAYERS = 4000, 128, 4


def run() -> list[Ratio]:
    """Measure."""
    generator = torch.Generator().manual_seed(0)
    gates = {str(layer): torch.rand(N, WIDTH, generator=generator) < 0.5 for layer in range(LAYERS)}
    pattern = gl.GatePattern(gates)
    real = [gate.float() for gate in gates.values()]

    def by_products() -> Tensor:
        kernel = real[0] @ real[0].T / WIDTH
        for gate in real[1:]:
            kernel *= (gate @ gate.T).div_(WIDTH)
        return kernel

    ours, theirs = interleaved(lambda: gl.overlap_kernel(pattern), by_products)
    torch.testing.assert_close(gl.overlap_kernel(pattern), by_products())
    ratio = theirs / ours
    work = "overlap kernel, n = 4000, 4 layers of 128"
    return [Ratio(work, "float32 product per layer, Hadamard product (speed-up)", ratio, "≥ 3", ratio >= 3)]
