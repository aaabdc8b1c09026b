"""Naming units: by number, by place in an image, as the steps of a path."""

from collections.abc import Mapping, Sequence
from math import prod
from operator import index as whole
from typing import Any

import numpy as np
from torch import Tensor

from gatelab.errors import InputError

Unit = int | Sequence[int] | np.integer | np.ndarray | Tensor  # of whole numbers


def unit_number(unit: Unit, shape: Sequence[int], layer: str) -> int:
    """The place of a unit among all of a layer's, flattened: it is named by that number or by its index.

    Raises:
        InputError: the layer has no such unit.

    Example:
        >>> unit_number((1, 0, 2), (2, 3, 3), "conv"), unit_number(4, (5,), "dense")
        (11, 4)
    """
    index = _whole_numbers(unit, layer)
    sizes = (prod(shape),) if isinstance(index, int) else tuple(shape)
    index = (index,) if isinstance(index, int) else index
    if len(index) != len(sizes) or not all(0 <= i < size for i, size in zip(index, sizes, strict=True)):
        raise InputError(f"unit {unit} does not exist in layer '{layer}', whose gates are {tuple(shape)}")
    number = 0
    for i, size in zip(index, sizes, strict=True):
        number = number * size + i
    return number


def path_units(path: Any, passed: Sequence[str], known: Sequence[str]) -> dict[str, Any]:
    """The unit that a path passes in each layer of gates, as it was given.

    Args:
        path: a unit for each layer of ``passed``; or a mapping from names, for a path that does not pass all of them;
            or one of :func:`gatelab.top_paths`.
        passed: the layers that every path passes, in order.
        known: all layers that may be named.

    Raises:
        InputError: there is no such layer, there are too few units or too many, or it is no path at all.
    """
    if isinstance(path, Mapping):
        unknown = [name for name in path if name not in known]
        if unknown or not path:
            raise InputError(f"the path passes {unknown or 'no gates'}; there are {', '.join(known)}")
        return dict(path)
    layers = list(passed)
    try:
        units = list(getattr(path, "units", path))
    except TypeError:  # it has no members
        raise InputError(f"the path is {path}; give a unit for each of {layers}, e.g. {(0,) * len(layers)}") from None
    start = getattr(path, "start", None)
    if start == 0:
        units = units[1:]  # a gatelab.Path begins with the input's node
    elif start is not None:
        layers = layers[start - 1 :]  # or at a bias
    if len(units) != len(layers) or not units:
        raise InputError(f"the path passes {len(units)} units, there are {len(layers)} layers of gates: {layers}")
    return dict(zip(layers, units, strict=True))


def _whole_numbers(unit: Any, layer: str) -> int | tuple[int, ...]:
    """The unit in Python's own numbers."""
    several = getattr(unit, "ndim", 1) > 0 and hasattr(unit, "__iter__")  # a tensor without an axis has __iter__ too
    try:
        return tuple(map(whole, unit)) if several else whole(unit)
    except TypeError:
        raise InputError(
            f"unit {unit} of layer '{layer}' is no number and no index (channel, *position) of whole numbers"
        ) from None
