"""The path kernel behind max-pooling: conv16 – pool – conv32 – pool – dense 64 on 28×28 images."""

import time

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import gatelab as gl
from benchmarks.timing import Ratio

EXAMPLES = 1000
DIRECT_EXAMPLES = 4  # pairs of them, one after another: a pair takes as long however many there are
# Multiply-adds of one pair: 49 offsets of 784 positions, one product and four tap sums each; 9 offsets of 196 windows,
# 16 pairs of places each; 9 offsets of 196 positions, four tap sums each; 49 windows, 16 pairs of places each.
OPERATIONS = 49 * 784 * 5 + 9 * 196 * (16 + 4) + 49 * 16


def network(*, pooled: bool) -> nn.Sequential:
    """The network with max-pooling, or with strides in its place."""
    torch.manual_seed(0)
    pool, stride = ([nn.MaxPool2d(2)], 1) if pooled else ([], 2)
    first, second = nn.Conv2d(1, 16, 3, stride, 1), nn.Conv2d(16, 32, 3, stride, 1)
    head = (nn.Flatten(), nn.Linear(32 * 49, 64), nn.ReLU(), nn.Linear(64, 10))
    return nn.Sequential(first, nn.ReLU(), *pool, second, nn.ReLU(), *pool, *head).eval()


def direct_kernel(model: nn.Sequential, x: Tensor) -> Tensor:
    """The obvious way: all pairs of positions, nine shifted sums, and every channel read at its own winners."""
    fields, signal = [], x
    for layer in (model[0], model[3]):
        signal, winners = F.max_pool2d(layer(signal).relu(), 2, return_indices=True)
        fields.append(((signal > 0).float().flatten(2), winners.flatten(2)))
    dense = (model[7](signal.flatten(1)) > 0).float()
    kernel = torch.empty(len(x), len(x))
    for i in range(len(x)):
        for j in range(len(x)):
            pairs = torch.einsum("cyx,cvu->yxvu", x[i], x[j])
            for number, (gates, winners) in enumerate(fields):
                fine = _shifted_sums(pairs).flatten(2).flatten(0, 1) / (1.0 if number == 0 else 9 * 16)
                coarse = torch.zeros(gates.shape[2], gates.shape[2])
                for c in range(gates.shape[1]):
                    read = fine[winners[i, c][:, None], winners[j, c][None]]
                    coarse += gates[i, c][:, None] * gates[j, c] * read
                size = pairs.shape[0] // 2
                pairs = coarse.view(size, size, size, size)
            total = pairs.flatten(2).flatten(0, 1).trace() / (32 * 49)
            kernel[i, j] = total * (dense[i] @ dense[j]) / 64
    return kernel


def _shifted_sums(pairs: Tensor) -> Tensor:
    size = pairs.shape[0]
    padded, total = F.pad(pairs, (1, 1) * 4), torch.zeros_like(pairs)
    for dy in range(3):
        for dx in range(3):
            total += padded[dy : dy + size, dx : dx + size, dy : dy + size, dx : dx + size]
    return total


def _seconds(work: object) -> float:
    """CPU seconds of one call: a busy machine hardly changes them."""
    start = time.process_time()
    work()  # pyright: ignore[reportCallIssue]
    return time.process_time() - start


@torch.no_grad()
def run() -> list[Ratio]:
    """Measure."""
    x = torch.randn(EXAMPLES, 1, 28, 28, generator=torch.Generator().manual_seed(0))
    pooled, strided, few = network(pooled=True), network(pooled=False), x[:DIRECT_EXAMPLES]
    torch.testing.assert_close(gl.neural_path_kernel(pooled, few), direct_kernel(pooled, few), rtol=1e-4, atol=1e-6)
    gl.neural_path_kernel(strided, few)
    ours = _seconds(lambda: gl.neural_path_kernel(pooled, x))
    strides = _seconds(lambda: gl.neural_path_kernel(strided, x))
    pairs = EXAMPLES * (EXAMPLES + 1) / 2
    direct = _seconds(lambda: direct_kernel(pooled, few)) / DIRECT_EXAMPLES**2 * pairs
    one, other = torch.randn(2, 8192), torch.randn(2, 8192)  # in the first cache
    rounds = 20_000
    bound = _seconds(lambda: [one.add_(other, alpha=1e-6) for _ in range(rounds)])
    bound *= OPERATIONS * pairs / (rounds * one.numel())
    work = f"path kernel, conv16-pool-conv32-pool-fc64, n = {EXAMPLES} (CPU time)"
    return [
        Ratio(
            work, "direct float32 evaluation of as many pairs (speed-up)", direct / ours, "≥ 100", direct >= 100 * ours
        ),
        Ratio(work, "the same network with strides (time)", ours / strides, "≤ 10", ours <= 10 * strides),
        Ratio(work, "as many multiply-adds in the cache (time)", ours / bound, "none", reached=True),
    ]
