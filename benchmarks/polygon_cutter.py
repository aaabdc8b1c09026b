"""A plain NumPy cutter of polygons, as one would write it without Numba: the peer of ``linear_regions_2d``.

Each layer's lines come from one batched matrix product for all polygons; each polygon is then cut by the lines that
cross it, one after another. SplineCam, whose published method is of this kind, is in no package registry.
"""

import numpy as np
from torch import nn


def cut(model: nn.Sequential, bounds: tuple[tuple[float, float], ...]) -> int:
    """Return the number of linear regions of a ReLU network on a rectangle."""
    (left, right), (low, high) = bounds
    polygons = [np.array([[left, low], [right, low], [right, high], [left, high]], dtype=float)]
    weights = np.eye(2)[None]
    biases = np.zeros((1, 2))
    for layer in list(model.children())[:-1:2]:
        assert isinstance(layer, nn.Linear)
        own, bias = layer.weight.detach().double().numpy(), layer.bias.detach().double().numpy()
        slopes, offsets = own @ weights, biases @ own.T + bias  # (polygons, units, 2), (polygons, units)
        parts, parents = [], []
        for number, polygon in enumerate(polygons):
            pieces = _cut(polygon, slopes[number], offsets[number])
            parts += pieces
            parents += [number] * len(pieces)
        polygons, rows = parts, np.array(parents)
        centres = np.stack([polygon.mean(0) for polygon in polygons])
        opened = np.einsum("pud,pd->pu", slopes[rows], centres) + offsets[rows] > 0
        weights, biases = opened[..., None] * slopes[rows], opened * offsets[rows]
    return len(polygons)


def _cut(polygon: np.ndarray, slopes: np.ndarray, offsets: np.ndarray) -> list[np.ndarray]:
    heights = polygon @ slopes.T + offsets
    parts = [polygon]
    for line in np.flatnonzero((heights.min(0) < 0) & (heights.max(0) > 0)):
        after = []
        for part in parts:
            height = part @ slopes[line] + offsets[line]
            if height.min() < 0 < height.max():
                after += [_half(part, height), _half(part, -height)]
            else:
                after.append(part)
        parts = after
    return parts


def _half(polygon: np.ndarray, height: np.ndarray) -> np.ndarray:
    corners = []
    for k in range(len(polygon)):
        if height[k] >= 0:
            corners.append(polygon[k])
        if height[k - 1] * height[k] < 0:
            share = height[k - 1] / (height[k - 1] - height[k])
            corners.insert(len(corners) - int(height[k] >= 0), polygon[k - 1] + share * (polygon[k] - polygon[k - 1]))
    return np.array(corners)
