"""Overlaps of gates as plain products: what the packed kernels must return."""

import numpy as np


def packed(layers: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Pack boolean layers (n, width) side by side into uint64 (n, words); also return the first word of each layer."""
    words = []
    for gates in layers:
        padded = np.zeros((len(gates), -(-gates.shape[1] // 64) * 64), bool)
        padded[:, : gates.shape[1]] = gates
        words.append(np.packbits(padded, axis=1, bitorder="little").view("<u8"))
    return np.concatenate(words, axis=1), np.cumsum([0, *(block.shape[1] for block in words)])


def overlap(left, right, scale, row_offset, column_offset) -> np.ndarray:
    """Return ∏_l (scale_l · common units + offsets), in float64."""
    product = np.ones((len(left[0]), len(right[0])))
    for layer, (a, b) in enumerate(zip(left, right, strict=True)):
        common = a.astype(np.float64) @ b.astype(np.float64).T
        product *= scale[layer] * common + row_offset[layer, :, None] + column_offset[layer]
    return product
