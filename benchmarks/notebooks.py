"""Overlap and path kernel, 4 layers of 512, n = 8000, against NumPy.

npk's public notebooks compute tangent kernels with NumPy, a row of gradients for each example, but no overlap that we
know of. Pair by pair is therefore our own guess at how one would write it there; layer by layer is the strongest NumPy.
"""

import numpy as np
import torch

import gatelab as gl
from benchmarks.timing import Ratio, interleaved

N, WIDTH, LAYERS, INPUTS = 8000, 512, 4, 784
PAIRWISE, PRODUCTS = 150, 2000  # examples that NumPy is timed on; both costs grow with n² and are scaled by it


def pair_by_pair(gates: list[np.ndarray], x: np.ndarray | None) -> np.ndarray:
    """A row for each example, an inner product of gates for each pair and layer, multiplied over layers."""
    n = len(gates[0])
    kernel = np.zeros((n, n))
    for i in range(n):
        for j in range(n):
            paths = 1.0
            for gate in gates:
                paths *= np.dot(gate[i], gate[j])
            kernel[i, j] = paths if x is None else paths * np.dot(x[i], x[j])
    return kernel


def layer_by_layer(gates: list[np.ndarray], x: np.ndarray | None) -> np.ndarray:
    """The best that NumPy can do: one float64 product of matrices for each layer."""
    kernel = np.ones((len(gates[0]),) * 2) if x is None else x @ x.T
    for gate in gates:
        kernel *= gate @ gate.T
    return kernel


def run() -> list[Ratio]:
    """Measure."""
    generator = torch.Generator().manual_seed(0)
    model = gl.models.mlp((INPUTS, *(WIDTH,) * LAYERS, 1), generator=generator).eval()
    x = torch.randn(N, INPUTS, generator=generator)
    pattern = gl.capture_gates(model, x)
    gates = [pattern[name].double().numpy() for name in pattern.layers]
    inputs = x.double().numpy()
    found = []
    for name, seen, kernel in (
        ("overlap kernel", None, lambda: gl.overlap_kernel(pattern)),
        ("path kernel, gates captured anew,", inputs, lambda: gl.neural_path_kernel(model, x)),
    ):
        unit = WIDTH**LAYERS  # ours divides each layer by its width
        expected = torch.from_numpy(pair_by_pair([g[:20] for g in gates], seen)[:20, :20] / unit)
        torch.testing.assert_close(kernel()[:20, :20].double(), expected, rtol=1e-4, atol=1e-4)
        work = f"{name} n = {N}, 4 layers of 512"
        for way, n, rounds, target in ((pair_by_pair, PAIRWISE, 2, 200), (layer_by_layer, PRODUCTS, 2, None)):
            few = [gate[:n] for gate in gates]
            some = None if seen is None else seen[:n]
            torch.testing.assert_close(
                torch.from_numpy(way(few, some))[:20, :20] / unit, expected, rtol=1e-9, atol=1e-9
            )
            ours, theirs = interleaved(kernel, lambda way=way, few=few, some=some: way(few, some), rounds=rounds)
            ratio = theirs * (N / n) ** 2 / ours
            described = way.__name__.replace("_", " ")
            print(f"{work}: ours {ours:.2f} s; NumPy, {described}, {theirs:.2f} s for n = {n}", flush=True)
            found.append(
                Ratio(
                    work,
                    f"NumPy in float64, {described}, n = {n} scaled by n² (speed-up)",
                    ratio,
                    f"≥ {target}" if target else "none",
                    target is None or ratio >= target,
                )
            )
    return found
