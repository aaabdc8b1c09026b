"""Teachers of any depth that the experiments share."""

from collections.abc import Iterable

from torch import Generator

from gatelab.errors import InputError
from gatelab.hierarchy import ReceptiveFields, Teacher, string_fields
from gatelab.hierarchy.rules import from_function, parity, random_table


def windows(length: int, depth: int, first: tuple[int, int] = (2, 1), *, leaf: int = 1) -> ReceptiveFields:
    """Return a string's hierarchy with ``depth`` hidden layers of regions.

    Args:
        length: number of leaves.
        depth: number of hidden layers. A single layer has windows of ``first`` = (kernel, stride); of several, each
            layer joins two neighbours.
        first: kernel and stride of a single layer.
        leaf: positions in each leaf.

    Returns:
        The regions.
    """
    if depth == 1:
        return string_fields(length * leaf, [first[0]], [first[1]], leaf=leaf)
    if depth > length - 2:
        raise InputError(
            f"{length} leaves have at most {length - 2} layers of windows, not {depth}; use more leaves or less depth"
        )
    return string_fields(length * leaf, [2] * depth, [1] * depth, leaf=leaf)


def random_teacher(fields: ReceptiveFields, values: int, classes: int, generator: Generator) -> Teacher:
    """Return a teacher with random tables."""
    return Teacher(fields, random_table(values, generator), top=random_table(classes, generator))


def world(bits: int, depth: int = 1) -> Teacher:
    """Return a teacher whose label is the parity of α, the first positions; γ, the last two, shows its first bit.

    With more than one layer the parity is accumulated: each region below α adds bits to the one before.
    """
    regions: dict[str, Iterable[int]] = {f"x{position}": [position] for position in range(bits + 2)}
    children: dict[str, tuple[str, ...]] = {}
    ends = [round(bits * (layer + 1) / depth) for layer in range(depth)]
    before: tuple[str, int] | None = None
    for layer, end in enumerate(ends):
        name = "alpha" if layer == depth - 1 else f"alpha{layer}"
        start = 0 if before is None else before[1]
        children[name] = (*(() if before is None else (before[0],)), *(f"x{i}" for i in range(start, end)))
        regions[name], before = range(end), (name, end)
    regions |= {"gamma": [bits, bits + 1], "top": range(bits + 2)}
    children |= {"gamma": (f"x{bits}", f"x{bits + 1}"), "top": ("alpha", "gamma")}
    first = from_function(lambda z: z[:, 0], 2)
    sums = {name: parity for name in children if name.startswith("alpha")}
    return Teacher(ReceptiveFields(regions, children), {**sums, "gamma": first, "top": first})
