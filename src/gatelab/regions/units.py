"""Names of units: a number, an index in an image, the steps of a path."""

from collections.abc import Mapping, Sequence
from math import prod
from operator import index as as_integer
from typing import Any

import numpy as np
from torch import Tensor

from gatelab.errors import InputError

Unit = int | Sequence[int] | np.integer | np.ndarray | Tensor  # arrays and tensors hold integers


def unit_number(unit: Unit, shape: Sequence[int], layer: str) -> int:
    """Return a unit's number among all units of a layer, flattened; the unit is named by that number or by its index.

    Raises:
        InputError: the layer has no such unit.

    Example:
        >>> unit_number((1, 0, 2), (2, 3, 3), "conv"), unit_number(4, (5,), "dense")
        (11, 4)
    """
    index = _integers(unit, layer)
    sizes = (prod(shape),) if isinstance(index, int) else tuple(shape)
    index = (index,) if isinstance(index, int) else index
    if len(index) != len(sizes) or not all(0 <= i < size for i, size in zip(index, sizes, strict=True)):
        raise InputError(f"unit {unit} does not exist in layer '{layer}', whose gates are {tuple(shape)}")
    number = 0
    for i, size in zip(index, sizes, strict=True):
        number = number * size + i
    return number


def path_units(path: Any, passed: Sequence[str], known: Sequence[str]) -> dict[str, Any]:
    """Return the unit that a path passes in each layer of gates.

    Args:
        path: a unit for each layer of ``passed``; or a mapping from names, for a path that does not pass all of them;
            or one of :func:`gatelab.top_paths`.
        passed: the layers that every path passes, in order.
        known: all layers that a mapping may name.

    Raises:
        InputError: a layer does not exist, there are too few or too many units, or ``path`` is not a path.
    """
    if isinstance(path, Mapping):
        unknown = [name for name in path if name not in known]
        if unknown or not path:
            raise InputError(f"the path passes {unknown or 'no gates'}; the layers of gates are {', '.join(known)}")
        return dict(path)
    layers = list(passed)
    try:
        units = list(getattr(path, "units", path))
    except TypeError:  # not iterable
        raise InputError(f"the path is {path}; give a unit for each of {layers}, e.g. {(0,) * len(layers)}") from None
    start = getattr(path, "start", None)
    if start == 0:
        units = units[1:]  # a gatelab.Path begins with the input's node,
    elif start is not None:
        layers = layers[start - 1 :]  # or at a bias, behind some of the layers
    if len(units) != len(layers) or not units:
        raise InputError(f"the path passes {len(units)} units, but there are {len(layers)} layers of gates: {layers}")
    return dict(zip(layers, units, strict=True))


def _integers(unit: Any, layer: str) -> int | tuple[int, ...]:
    """The unit as a Python int, or a tuple of them."""
    several = getattr(unit, "ndim", 1) > 0 and hasattr(unit, "__iter__")  # a tensor without axes has __iter__ too
    try:
        return tuple(map(as_integer, unit)) if several else as_integer(unit)
    except TypeError:
        raise InputError(
            f"unit {unit} of layer '{layer}' is no number; give an integer, or an index (channel, *position) of them"
        ) from None
