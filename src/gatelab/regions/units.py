"""Naming units: by number, by place in an image, as the steps of a path."""

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

from gatelab.errors import InputError

Unit = int | tuple[int, ...]


def unit_number(unit: Unit, shape: Sequence[int], layer: str) -> int:
    """The place of a unit among all of a layer's, flattened: it is named by that number or by its index.

    Raises:
        InputError: the layer has no such unit.

    Example:
        >>> unit_number((1, 0, 2), (2, 3, 3), "conv"), unit_number(4, (5,), "dense")
        (11, 4)
    """
    if isinstance(unit, int):
        index, sizes = (unit,), (prod(shape),)
    else:
        index, sizes = unit, tuple(shape)
    if len(index) != len(sizes) or not all(0 <= i < size for i, size in zip(index, sizes, strict=True)):
        raise InputError(f"unit {unit} does not exist in layer '{layer}', whose gates are {tuple(shape)}")
    number = 0
    for i, size in zip(index, sizes, strict=True):
        number = number * size + i
    return number


def path_units(path: Any, passed: Sequence[str], known: Sequence[str]) -> dict[str, Unit]:
    """The unit that a path passes in each layer of gates.

    Args:
        path: a unit for each layer of ``passed``; or a mapping from names, for a path that does not pass all of them;
            or one of :func:`gatelab.top_paths`.
        passed: the layers that every path passes, in order.
        known: all layers that may be named.

    Raises:
        InputError: there is no such layer, or there are too few units or too many.
    """
    if isinstance(path, Mapping):
        unknown = [name for name in path if name not in known]
        if unknown or not path:
            raise InputError(f"the path passes {unknown or 'no gates'}; there are {', '.join(known)}")
        return dict(path)
    units, layers = list(getattr(path, "units", path)), list(passed)
    start = getattr(path, "start", None)
    if start == 0:
        units = units[1:]  # a gatelab.Path begins with the input's node
    elif start is not None:
        layers = layers[start - 1 :]  # or at a bias
    if len(units) != len(layers) or not units:
        raise InputError(f"the path passes {len(units)} units, there are {len(layers)} layers of gates: {layers}")
    return dict(zip(layers, units, strict=True))
