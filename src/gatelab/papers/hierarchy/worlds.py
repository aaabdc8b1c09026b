"""Teachers of any depth that the experiments share."""

from torch import Generator

from gatelab.errors import InputError
from gatelab.hierarchy import ReceptiveFields, Teacher, string_fields
from gatelab.hierarchy.rules import random_table


def windows(length: int, depth: int, first: tuple[int, int] = (2, 1), *, leaf: int = 1) -> ReceptiveFields:
    """Return a string's hierarchy with ``depth`` hidden layers of regions.

    Args:
        length: number of leaves.
        depth: hidden layers; the first has windows of ``first`` = (kernel, stride) if it is the only one, and otherwise
            every layer joins two neighbours, one further each time.
        first: kernel and stride of a single layer.
        leaf: positions in each leaf.

    Returns:
        The regions.
    """
    if depth == 1:
        return string_fields(length * leaf, [first[0]], [first[1]], leaf=leaf)
    if depth > length - 2:
        raise InputError(
            f"{length} leaves have at most {length - 2} layers of windows, not {depth}; use more, or depth=…"
        )
    return string_fields(length * leaf, [2] * depth, [1] * depth, leaf=leaf)


def random_teacher(fields: ReceptiveFields, values: int, classes: int, generator: Generator) -> Teacher:
    """Return a teacher with random tables."""
    return Teacher(fields, random_table(values, generator), top=random_table(classes, generator))
