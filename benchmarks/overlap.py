"""Overlap and path kernel of 4 layers against float32 products of the gates, and against AND + popcount alone."""

import itertools
from concurrent.futures import ThreadPoolExecutor

import numba
import numpy as np
import torch
from torch import Tensor, nn

import gatelab as gl
from benchmarks.timing import Ratio, interleaved
from gatelab.gates.layer import GateKind, GateLayer
from gatelab.kernels.popcount import ctpop, overlap_block

LAYERS, INPUTS = 4, 784
SMALL, LARGE = (4000, 128), (8000, 512)  # examples, width
AGAINST = "float32 product per layer, Hadamard product (speed-up)"


def run() -> list[Ratio]:
    """Measure."""
    return [_narrow(), *_wide(), _soft(), _path_kernel(), _block()]


def _gates(n: int, width: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.rand(n, width, generator=generator) < 0.5 for _ in range(LAYERS)]


def _pattern(gates: list[Tensor]) -> gl.GatePattern:
    return gl.GatePattern({str(number): gate for number, gate in enumerate(gates)})


def _by_products(real: list[Tensor]) -> Tensor:
    width = real[0].shape[1]
    kernel = real[0] @ real[0].T / width
    for gate in real[1:]:
        kernel *= (gate @ gate.T).div_(width)
    return kernel


def _narrow() -> Ratio:
    n, width = SMALL
    gates = _gates(n, width)
    pattern, real = _pattern(gates), [gate.float() for gate in gates]
    torch.testing.assert_close(gl.overlap_kernel(pattern), _by_products(real))
    ours, theirs = interleaved(lambda: gl.overlap_kernel(pattern), lambda: _by_products(real))
    ratio = theirs / ours
    return Ratio(f"overlap kernel, n = {n}, {LAYERS} layers of {width}", AGAINST, ratio, "≥ 3", ratio >= 3)


def _wide() -> list[Ratio]:
    n, width = LARGE
    gates = _gates(n, width)
    pattern, real = _pattern(gates), [gate.float() for gate in gates]
    torch.testing.assert_close(gl.overlap_kernel(pattern), _by_products(real))
    words = n * (n + 1) // 2 * LAYERS * width // 64
    ours, theirs, bare = interleaved(
        lambda: gl.overlap_kernel(pattern), lambda: _by_products(real), lambda: _and_popcount(words), rounds=4
    )
    work = f"overlap kernel, n = {n}, {LAYERS} layers of {width}"
    return [
        Ratio(work, AGAINST, theirs / ours, "≥ 6", theirs / ours >= 6),
        Ratio(
            work, "AND + popcount of as many words for half of the pairs, no result (time)", ours / bare, "none", True
        ),
    ]


def _soft() -> Ratio:
    n, width = LARGE
    generator = torch.Generator().manual_seed(0)
    real = [torch.rand(n, width, generator=generator) for _ in range(LAYERS)]
    pattern = gl.GatePattern({str(i): GateLayer.of(g > 0.5, GateKind.GATED, numbers=g) for i, g in enumerate(real)})
    torch.testing.assert_close(gl.overlap_kernel(pattern), _by_products(real), rtol=1e-4, atol=1e-5)
    ours, bare = interleaved(lambda: gl.overlap_kernel(pattern), lambda: _by_products(real), rounds=4)
    what = f"overlap kernel of soft gates, n = {n}, {LAYERS} layers of {width}"
    return Ratio(what, "float32 product per layer, Hadamard product (time)", ours / bare, "≤ 1.3", ours / bare <= 1.3)


def _path_kernel() -> Ratio:
    n, width = LARGE
    sizes = [INPUTS, *[width] * LAYERS]
    layers = [layer for a, b in itertools.pairwise(sizes) for layer in (nn.Linear(a, b), nn.ReLU())]
    model = nn.Sequential(*layers, nn.Linear(width, 1))
    x = torch.randn(n, INPUTS, generator=torch.Generator().manual_seed(0))
    gates = gl.capture_gates(model, x)
    real = [gates[name].float() for name in gates]

    def by_products() -> Tensor:
        return _by_products(real).mul_(x @ x.T)

    # The sum of 784 products of either sign has its own rounding in either order.
    torch.testing.assert_close(gl.neural_path_kernel(model, x), by_products(), rtol=1e-4, atol=1e-3)
    ours, theirs = interleaved(lambda: gl.neural_path_kernel(model, x), by_products, rounds=3)
    work = f"path kernel, {INPUTS}-{width}⁴-1, n = {n}"
    return Ratio(work, "float32 product per layer and of the inputs (speed-up)", theirs / ours, "none", True)


def _block() -> Ratio:
    """One block of the size of a tile."""
    side, width = 512, LARGE[1]
    words = LAYERS * width // 64
    rows = np.random.default_rng(0).integers(0, 2**64, (side, words), dtype=np.uint64)
    starts, scale = np.arange(LAYERS + 1) * (width // 64), np.full(LAYERS, 1 / width, np.float32)
    offset, plain, columns = np.zeros((LAYERS, side), np.float32), np.ones(LAYERS, bool), np.ascontiguousarray(rows.T)
    ours, bare = interleaved(
        lambda: overlap_block(rows, columns, starts, scale, plain, offset, offset),
        lambda: _and_popcount(side * side * words, threads=1),
        rounds=100,
    )
    work = f"block of the overlap, {side} × {side}, {LAYERS} layers of {width} (one thread)"
    return Ratio(work, "AND + popcount of as many words, no result (time)", ours / bare, "≤ 1", ours <= bare)


def _and_popcount(words: int, threads: int | None = None) -> int:
    """AND + popcount of so many words that are in the nearest cache, on all threads."""
    threads = threads or torch.get_num_threads()
    row, columns = (np.random.default_rng(seed).integers(0, 2**64, 7 * 256, dtype=np.uint64) for seed in (0, 1))
    turns = -(-words // (len(columns) * threads))
    with ThreadPoolExecutor(threads) as pool:
        return sum(pool.map(lambda _: int(_common_bits(row, columns, turns)), range(threads)))


@numba.njit(nogil=True)
def _common_bits(row, columns, turns):
    """Seven words of a row with seven words of each column, summed.

    Carry-save adders make three words of the seven before bits are counted, which takes fewer vector instructions.
    """
    total, m = np.uint64(0), columns.shape[0] // 7
    c0, c1, c2, c3 = columns[:m], columns[m : 2 * m], columns[2 * m : 3 * m], columns[3 * m : 4 * m]
    c4, c5, c6 = columns[4 * m : 5 * m], columns[5 * m : 6 * m], columns[6 * m :]
    for turn in range(turns):
        k = turn % (row.shape[0] - 6)
        r0, r1, r2, r3, r4, r5, r6 = row[k], row[k + 1], row[k + 2], row[k + 3], row[k + 4], row[k + 5], row[k + 6]
        for j in range(np.uint64(m)):
            a, b, one = r0 & c0[j], r1 & c1[j], r2 & c2[j]
            half = a ^ b
            one, two = half ^ one, (a & b) | (half & one)
            a, b = r3 & c3[j], r4 & c4[j]
            half = a ^ b
            one, two_more = half ^ one, (a & b) | (half & one)
            a, b = r5 & c5[j], r6 & c6[j]
            half = a ^ b
            one, two_last = half ^ one, (a & b) | (half & one)
            half = two ^ two_more
            four = (two & two_more) | (half & two_last)
            total += ctpop(one) + (ctpop(half ^ two_last) << np.uint64(1)) + (ctpop(four) << np.uint64(2))
    return total
