"""Var[K]/E[K]² of a deep linear network under ±σ weights, by sampling and by the exact law of npk, Theorem D.1.

``python -m tools.variance_law`` prints the table of docs/papers/npk.md. One input x = 1, all gates open. The sampling
uses NumPy alone: with h_l the signals and b_l the output's derivatives by them, K = Σ_l ‖h_{l−1}‖² ‖b_l‖².
"""

from math import sqrt

import numpy as np
from jaxtyping import Float64
from numpy import ndarray

from gatelab.papers.npk.theorems_limits import open_variance

CASES = {(6, 4): 400_000, (8, 8): 400_000, (12, 18): 200_000, (16, 32): 100_000, (20, 50): 60_000,
         (25, 8): 100_000, (100, 8): 20_000}  # fmt: skip
_ENTRIES = 4_000_000  # weights drawn at a time
_PARTS = 20


def sampled(width: int, depth: int, draws: int, generator: np.random.Generator) -> Float64[ndarray, " draws"]:
    """Draw K of networks with ``depth`` weight layers, σ² = 1/width."""

    def signs(*shape: int) -> ndarray:
        return generator.choice(np.array([-1.0, 1.0], dtype=np.float32), size=(draws, *shape)) / sqrt(width)

    layers = [signs(width, 1), *(signs(width, width) for _ in range(depth - 2)), signs(1, width)]
    signals, behind = [np.ones((draws, 1))], np.ones((draws, 1))
    for layer in layers[:-1]:
        signals.append(np.einsum("nij,nj->ni", layer, signals[-1]))
    kernel = np.zeros(draws)
    for layer, signal in zip(reversed(layers), reversed(signals), strict=True):
        kernel += np.square(signal).sum(1) * np.square(behind).sum(1)
        behind = np.einsum("nij,ni->nj", layer, behind)
    return kernel


def main() -> None:
    """Print the table: sampled with its jackknife error, exact, and how much of the variance few draws make."""
    generator = np.random.default_rng(5)
    print("| w | d | draws | sampled | exact | share of the variance in the largest 0.1 % of the draws |")  # noqa: T201
    print("|---|---|---|---|---|---|")  # noqa: T201
    for (width, depth), draws in CASES.items():
        size = max(200, _ENTRIES // (width * width * depth))
        blocks = [sampled(width, depth, min(size, draws - done), generator) for done in range(0, draws, size)]
        kernel = np.concatenate(blocks)
        parts = np.array_split(kernel, _PARTS)
        without = [np.concatenate(parts[:i] + parts[i + 1 :]) for i in range(_PARTS)]
        ratios = np.array([part.var() / part.mean() ** 2 for part in without])
        error = sqrt((_PARTS - 1) * ratios.var())
        squares = np.sort(np.square(kernel - kernel.mean()))
        largest = squares[-(draws // 1000) :].sum() / squares.sum()
        ratio = f"{kernel.var() / kernel.mean() ** 2:.3g} ± {error:.1g}"
        print(f"| {width} | {depth} | {draws:,} | {ratio} | {open_variance(width, depth):.3g} | {largest:.2f} |")  # noqa: T201


if __name__ == "__main__":
    main()
