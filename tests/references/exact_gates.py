"""Gates of small ReLU networks in rational arithmetic, point by point."""

from fractions import Fraction

import torch
from torch import nn


def exact_patterns(model: nn.Sequential, points: torch.Tensor) -> list[tuple[bool, ...]]:
    """The gates of a chain of Linear and ReLU at some points; every float64 number is taken as it is."""
    found = []
    for point in points.double().tolist():
        signal, pattern = [Fraction(value) for value in point], []
        for layer in [layer for layer in model if isinstance(layer, nn.Linear)][:-1]:
            bias = [0.0] * layer.out_features if layer.bias is None else layer.bias.double().tolist()
            rows = zip(layer.weight.double().tolist(), bias, strict=True)
            q = [sum((Fraction(w) * h for w, h in zip(row, signal, strict=True)), Fraction(b)) for row, b in rows]
            pattern += [value > 0 for value in q]
            signal = [max(value, Fraction(0)) for value in q]
        found.append(tuple(pattern))
    return found
