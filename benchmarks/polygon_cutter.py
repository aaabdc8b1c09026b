"""Two plain NumPy cutters of polygons, the peers of ``linear_regions_2d``: polygon by polygon, and all at once.

Both find the regions of a ReLU network of dense layers on a rectangle and count them. They know no output, no
neighbours, no level set, no bound of rounding errors and no exact signs. SplineCam, whose published method goes polygon
by polygon in Python, is in no package registry.
"""

import numpy as np
from torch import nn

CHUNK = 256  # polygons at a time; with 1024 or 4096 it is slower, as their heights leave the cache


def _layers(model: nn.Sequential) -> list[tuple[np.ndarray, np.ndarray]]:
    hidden = [layer for layer in list(model.children())[:-1] if isinstance(layer, nn.Linear)]
    return [(layer.weight.detach().double().numpy(), layer.bias.detach().double().numpy()) for layer in hidden]


def _rectangle(bounds: tuple[tuple[float, float], ...]) -> np.ndarray:
    (left, right), (low, high) = bounds
    return np.array([[left, low], [right, low], [right, high], [left, high]], dtype=float)


def cut(model: nn.Sequential, bounds: tuple[tuple[float, float], ...]) -> int:
    """Return the number of linear regions of a ReLU network on a rectangle, polygon by polygon."""
    polygons = [_rectangle(bounds)]
    weights = np.eye(2)[None]
    biases = np.zeros((1, 2))
    for own, bias in _layers(model):
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


def cut_at_once(model: nn.Sequential, bounds: tuple[tuple[float, float], ...]) -> int:
    """Return the number of linear regions of a ReLU network on a rectangle, many polygons in each NumPy call."""
    layers = _layers(model)
    todo = [(_rectangle(bounds), np.array([0, 4]), np.eye(3)[None, :, 1:], 0)]
    regions = 0
    while todo:  # depth first, so that little memory is held
        corners, starts, functions, level = todo.pop()
        if level == len(layers):
            regions += len(starts) - 1
            continue
        weight, bias = layers[level]
        lines = (functions.reshape(-1, weight.shape[1]) @ weight.T).reshape(len(functions), 3, -1)
        lines[:, 0] += bias
        corners, starts, parents = _cut_all(corners, starts, lines)
        x, y = (np.add.reduceat(corners, starts[:-1]) / np.diff(starts)[:, None]).T
        for first in range(0, len(parents), CHUNK):
            rows = slice(first, min(first + CHUNK, len(parents)))
            own = lines[parents[rows]]
            own *= (own[:, 0] + own[:, 1] * x[rows, None] + own[:, 2] * y[rows, None] > 0)[:, None]
            here = starts[rows.start : rows.stop + 1]
            todo.append((corners[here[0] : here[-1]], here - here[0], own, level + 1))
    return regions


def _cut_all(corners: np.ndarray, starts: np.ndarray, lines: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Cut each polygon by its first line, the parts by the second, and so on; return also the polygon of each part."""
    owner = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    heights = lines[owner, 0] + lines[owner, 1] * corners[:, :1] + lines[owner, 2] * corners[:, 1:]
    crossing = np.minimum.reduceat(heights, starts[:-1]) < 0
    crossing &= np.maximum.reduceat(heights, starts[:-1]) > 0
    counts, order = crossing.sum(1), np.argsort(~crossing, axis=1, kind="stable")  # crossing lines first
    parents = np.arange(len(starts) - 1)
    for turn in range(counts.max()):
        which = parents[np.repeat(np.arange(len(parents)), np.diff(starts))]
        active, k = counts[which] > turn, order[which, min(turn, order.shape[1] - 1)]
        line = lines[which, :, k]
        height = np.where(active, line[:, 0] + line[:, 1] * corners[:, 0] + line[:, 2] * corners[:, 1], 1.0)
        cuts = (np.minimum.reduceat(height, starts[:-1]) < 0) & (np.maximum.reduceat(height, starts[:-1]) > 0)
        corners, starts, parents = _cut_some(corners, starts, parents, height, cuts)
    return corners, starts, parents


def _cut_some(
    corners: np.ndarray, starts: np.ndarray, parents: np.ndarray, height: np.ndarray, cuts: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Divide some of the polygons in two, the others stay; the parts of a polygon stay together."""
    following = np.arange(1, len(corners) + 1)
    following[starts[1:] - 1] = starts[:-1]
    cut_corner = np.repeat(cuts, np.diff(starts))
    crossed = cut_corner & (height * height[following] < 0)
    share = height / np.where(crossed, height - height[following], 1.0)
    points = np.stack([corners, corners + share[:, None] * (corners[following] - corners)], 1)
    upper = np.stack([(height >= 0) | ~cut_corner, crossed], 1)
    lower = np.stack([(height <= 0) & cut_corner, crossed], 1)
    sizes = np.stack([np.add.reduceat(side.sum(1), starts[:-1]) for side in (upper, lower)], 1)  # (polygons, 2)
    kept = sizes > 0
    both, flat = np.concatenate([points[upper], points[lower]]), sizes.T.ravel()
    first = (np.cumsum(flat) - flat).reshape(2, -1).T[kept]  # where each part begins in ``both``
    lengths = sizes[kept]
    ends = np.concatenate([[0], np.cumsum(lengths)])
    index = np.arange(ends[-1]) + np.repeat(first - ends[:-1], lengths)
    return both[index], ends, np.repeat(parents, kept.sum(1))
