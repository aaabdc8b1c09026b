"""Receptive fields: regions of the input, ordered by inclusion (hierarchy, Section 2.1), and how to build them."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product
from math import prod
from numbers import Integral

from torch import nn

from gatelab.errors import InputError, UnsupportedModelError
from gatelab.models.init import check_counts

_LOCAL = (nn.Conv1d, nn.Conv2d, nn.AvgPool1d, nn.AvgPool2d, nn.MaxPool1d, nn.MaxPool2d)
_GLOBAL = (nn.Linear, nn.Flatten, nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d)
_PASSING = (nn.ReLU, nn.LeakyReLU, nn.Identity, nn.Dropout, nn.BatchNorm1d, nn.BatchNorm2d)


class ReceptiveFields:
    """Regions of the positions 0 … d−1; α is a parent of β if α ⊋ β and no region lies strictly between them.

    The top region covers everything and has layer number 0; a child's layer number is its parent's plus one. Siblings
    may overlap. Regions without children are leaves; their variables are read from the input.

    Attributes:
        regions: name → positions, ascending.
        bottom_up: names, children before parents.
        top: the name of the region that covers everything.
        n_positions: d.
        leaves: regions without children.
        inner: regions with children, children before parents.
        hidden: inner regions without the top.
        edges: all pairs (parent, child).
        depth: the layer number L of the lowest leaves.

    Args:
        regions: name → positions, in any order.

    Example:
        >>> fields = ReceptiveFields({"a": [0], "b": [1], "c": [2], "ab": [0, 1], "bc": [1, 2], "all": [0, 1, 2]})
        >>> fields.children("all"), fields.parents("b"), fields.layer("b")
        (('ab', 'bc'), ('ab', 'bc'), 2)
    """

    def __init__(self, regions: Mapping[str, Iterable[int]]):
        self.regions = {name: tuple(sorted(set(positions))) for name, positions in regions.items()}
        self._check_regions()
        self.bottom_up = tuple(sorted(self.regions, key=lambda name: (len(self.regions[name]), self.regions[name])))
        self.top = self._find_top()
        self._parents = self._find_parents()
        self._children = {
            name: tuple(sorted((c for c in self._parents if name in self._parents[c]), key=lambda c: self.regions[c]))
            for name in self.regions
        }
        self._check_cover()
        self._layers = self._find_layers()
        self.n_positions = len(self.regions[self.top])
        self.leaves = tuple(name for name in self.bottom_up if not self._children[name])
        self.inner = tuple(name for name in self.bottom_up if self._children[name])
        self.hidden = tuple(name for name in self.inner if name != self.top)
        self.edges = tuple((parent, child) for parent in self.inner for child in self._children[parent])
        self.depth = max(self._layers.values())

    def positions(self, name: str) -> tuple[int, ...]:
        """Return the input positions of a region."""
        return self.regions[self._known(name)]

    def parents(self, name: str) -> tuple[str, ...]:
        """Return the smallest regions that contain this one."""
        return self._parents[self._known(name)]

    def children(self, name: str) -> tuple[str, ...]:
        """Return the largest regions inside this one, ordered by position."""
        return self._children[self._known(name)]

    def layer(self, name: str) -> int:
        """Return the layer number: 0 at the top."""
        return self._layers[self._known(name)]

    def __repr__(self) -> str:
        return (
            f"ReceptiveFields({len(self.regions)} regions, {len(self.leaves)} leaves, "
            f"depth {self.depth}, {self.n_positions} positions)"
        )

    def _known(self, name: str) -> str:
        if name not in self.regions:
            raise InputError(f"there is no region '{name}'; the regions are {', '.join(self.bottom_up)}")
        return name

    def _check_regions(self) -> None:
        if not self.regions:
            raise InputError("no regions were given; a hierarchy needs at least one region")
        names: dict[tuple[int, ...], str] = {}
        for name, positions in self.regions.items():
            if not name or "." in name:
                # Parameters of the student are stored under the region's name, and "." separates modules.
                raise InputError(f"'{name}' cannot name a region; use a name without '.'")
            if not positions:
                raise InputError(f"region '{name}' is empty; give it positions or leave it out")
            if not all(isinstance(position, Integral) for position in positions):
                raise InputError(f"region '{name}': positions are {list(positions)}; give whole numbers 0 … d−1")
            if positions in names:
                raise InputError(
                    f"regions '{names[positions]}' and '{name}' cover the same positions {list(positions)}; "
                    "merge them into one region, whose nodes share one receptive field"
                )
            names[positions] = name

    def _find_top(self) -> str:
        top = self.bottom_up[-1]
        everything = set().union(*self.regions.values())
        missing = everything - set(self.regions[top])
        if missing:
            raise InputError(
                f"no region covers everything: the largest, '{top}', leaves out positions {sorted(missing)}; "
                "add a top region that covers all positions"
            )
        if everything != set(range(len(everything))):
            absent = sorted(set(range(max(everything) + 1)) - everything)
            raise InputError(f"positions {absent} are in no region; number the positions 0 … d−1 without gaps")
        return top

    def _find_parents(self) -> dict[str, tuple[str, ...]]:
        sets = {name: frozenset(self.regions[name]) for name in self.bottom_up}
        parents = {}
        for name in self.bottom_up:
            larger = [other for other in self.bottom_up if sets[name] < sets[other]]
            parents[name] = tuple(other for other in larger if not any(sets[m] < sets[other] for m in larger))
        return parents

    def _check_cover(self) -> None:
        for name, children in self._children.items():
            covered = {position for child in children for position in self.regions[child]}
            uncovered = sorted(set(self.regions[name]) - covered)
            if children and uncovered:
                raise InputError(
                    f"region '{name}': positions {uncovered} are in none of its children {', '.join(children)}, so "
                    "no child can pass them on; add regions for them"
                )

    def _find_layers(self) -> dict[str, int]:
        layers = {self.top: 0}
        for name in reversed(self.bottom_up[:-1]):
            candidates = {parent: layers[parent] + 1 for parent in self._parents[name]}
            if len(set(candidates.values())) > 1:
                listed = ", ".join(f"{layer} below '{parent}'" for parent, layer in candidates.items())
                raise InputError(
                    f"region '{name}' would stand in several layers ({listed}), so it has no layer number; "
                    "add or remove regions until all ways to the top are equally long"
                )
            layers[name] = next(iter(candidates.values()))
        return layers


def string_fields(
    length: int, kernels: Sequence[int], strides: Sequence[int] | None = None, *, leaf: int = 1
) -> ReceptiveFields:
    """Build the hierarchy of a string: one layer for each kernel, and a top region that covers everything.

    Args:
        length: number of positions.
        kernels: how many neighbouring regions each region of the next layer joins, lowest layer first.
        strides: distance between neighbours in each layer; by default the kernels, which makes regions disjoint.
        leaf: positions in each leaf.

    Returns:
        The regions: leaves "x0", "x1", …, layer 1 "h1_0", "h1_1", …, and "top".

    Example:
        >>> fields = string_fields(4, [2])
        >>> fields.bottom_up, fields.children("top")
        (('x0', 'x1', 'x2', 'x3', 'h1_0', 'h1_1', 'top'), ('h1_0', 'h1_1'))
    """
    check_counts(length=length, leaf=leaf)
    if not isinstance(kernels, Sequence):
        raise InputError(f"kernels is {kernels!r}; give a list with one for each layer, such as [2, 2]")
    if length % leaf:
        raise InputError(f"a string of {length} positions does not split into leaves of {leaf}; use a divisor")
    strides = kernels if strides is None else strides
    return _stacked((length // leaf,), [(k,) for k in kernels], [(s,) for s in strides], leaf)


def image_fields(
    height: int,
    width: int,
    kernels: Sequence[int | tuple[int, ...]],
    strides: Sequence[int | tuple[int, ...]] | None = None,
) -> ReceptiveFields:
    """Build the hierarchy of an image whose leaves are its pixels; position = row · width + column.

    Args:
        height: number of rows.
        width: number of columns.
        kernels: window of each layer, a number or (rows, columns), lowest layer first.
        strides: distance between windows in each layer; by default the kernels.

    Returns:
        The regions, named as by :func:`string_fields`.

    Example:
        >>> image_fields(4, 4, [2, 2])
        ReceptiveFields(21 regions, 16 leaves, depth 2, 16 positions)
    """
    check_counts(height=height, width=width)
    kernels, strides = ([(s, s) if isinstance(s, int) else s for s in sizes] for sizes in (kernels, strides or kernels))
    return _stacked((height, width), kernels, strides)


def fields_of(model: nn.Module, shape: Sequence[int]) -> ReceptiveFields:
    """Read the hierarchy off a network of local layers: convolutions and pooling in sequence, then a global head.

    Layers that see no more than the layer below (1×1 convolutions, ReLU, batch norm) add nodes, not regions.

    Args:
        model: an ``nn.Sequential``, possibly nested.
        shape: positions of the input, (length,) or (height, width), without channels.

    Returns:
        The regions, named as by :func:`string_fields`.

    Raises:
        UnsupportedModelError: another kind of layer, or padding, whose smaller windows at the border would lie inside
            their neighbours.

    Example:
        >>> fields_of(nn.Sequential(nn.Conv1d(1, 4, 2, stride=2), nn.ReLU(), nn.Flatten(), nn.Linear(8, 3)), (4,))
        ReceptiveFields(7 regions, 4 leaves, depth 2, 4 positions)
    """
    kernels, strides = [], []
    for name, module in _layers(model):
        if isinstance(module, _PASSING):
            continue
        if isinstance(module, _GLOBAL):
            break  # every node above this layer sees the whole input
        if not isinstance(module, _LOCAL):
            raise UnsupportedModelError(
                f"'{name}' ({type(module).__name__}) is not a local layer that fields_of knows; "
                "pass the regions to ReceptiveFields yourself"
            )
        kernel, stride, padding, dilation = (
            _per_axis(getattr(module, what, default), len(shape), name)
            for what, default in (("kernel_size", 1), ("stride", 1), ("padding", 0), ("dilation", 1))
        )
        if any(padding) or any(d != 1 for d in dilation):
            raise UnsupportedModelError(
                f"'{name}' ({type(module).__name__}) has padding {padding} and dilation {dilation}: windows at the "
                "border, or with holes, do not form a hierarchy by inclusion; use padding=0, dilation=1"
            )
        if prod(kernel) > 1:
            kernels.append(kernel)
            strides.append(stride)
    return _stacked(tuple(shape), kernels, strides)


def _layers(module: nn.Module, prefix: str = "") -> Iterator[tuple[str, nn.Module]]:
    if not isinstance(module, nn.Sequential):
        yield prefix or "the model", module
        return
    for name, child in module.named_children():
        yield from _layers(child, f"{prefix}.{name}" if prefix else name)


def _per_axis(value: int | tuple[int, ...] | str, axes: int, name: str) -> tuple[int, ...]:
    if isinstance(value, str):
        raise UnsupportedModelError(f"'{name}' has padding '{value}'; use padding=0")
    values = (value,) * axes if isinstance(value, int) else tuple(value)
    if len(values) != axes:
        raise InputError(f"'{name}' has {len(values)} axes, the input {axes}; give the shape without channels")
    return values


def _stacked(
    shape: tuple[int, ...], kernels: Sequence[tuple[int, ...]], strides: Sequence[tuple[int, ...]], leaf: int = 1
) -> ReceptiveFields:
    """Join windows of regions layer by layer; ``shape`` is the grid of the leaves, of ``leaf`` positions each."""
    if len(kernels) != len(strides):
        raise InputError(f"there are {len(kernels)} kernels and {len(strides)} strides; give one of each per layer")
    layer = [frozenset(range(index * leaf, (index + 1) * leaf)) for index in range(prod(shape))]
    named = {f"x{index}": region for index, region in enumerate(layer)}
    for number, (kernel, stride) in enumerate(zip(kernels, strides, strict=True), start=1):
        if not len(shape) == len(kernel) == len(stride):
            raise InputError(
                f"layer {number}: kernel {kernel}, stride {stride}; give one for each of {len(shape)} axes"
            )
        for size, k, s in zip(shape, kernel, stride, strict=True):
            whole = isinstance(k, Integral) and isinstance(s, Integral)
            if not whole or k < 1 or s < 1 or k > size or (size - k) % s:
                raise InputError(
                    f"layer {number}: windows of {k} with stride {s} do not fit {size} regions without a rest; "
                    "choose (size − kernel) divisible by the stride"
                )
        grid = tuple((size - k) // s + 1 for size, k, s in zip(shape, kernel, stride, strict=True))
        by_place = dict(zip(product(*map(range, shape)), layer, strict=True))
        layer = []
        for corner in product(*map(range, grid)):
            axes = (range(c * s, c * s + k) for c, s, k in zip(corner, stride, kernel, strict=True))
            layer.append(frozenset().union(*(by_place[place] for place in product(*axes))))
        if len(layer) > 1:
            named |= {f"h{number}_{index}": region for index, region in enumerate(layer)}
        shape = grid
    named["top"] = frozenset().union(*layer)
    return ReceptiveFields(named)
