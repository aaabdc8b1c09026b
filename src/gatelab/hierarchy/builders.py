"""Hierarchies of strings and images, from kernel sizes and strides or from a network of local layers."""

from collections.abc import Iterator, Sequence
from itertools import product
from math import prod

from torch import nn

from gatelab.errors import InputError, UnsupportedModelError
from gatelab.hierarchy.fields import ReceptiveFields

Region = frozenset[int]
Pair = int | tuple[int, ...]

_LOCAL = (nn.Conv1d, nn.Conv2d, nn.AvgPool1d, nn.AvgPool2d, nn.MaxPool1d, nn.MaxPool2d)
_GLOBAL = (nn.Linear, nn.Flatten, nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d)
_PASSING = (nn.ReLU, nn.LeakyReLU, nn.Identity, nn.Dropout, nn.BatchNorm1d, nn.BatchNorm2d)


def string_fields(
    length: int, kernels: Sequence[int], strides: Sequence[int] | None = None, *, leaf: int = 1
) -> ReceptiveFields:
    """The hierarchy of a string, one layer for each kernel, and a region for everything at the top.

    Args:
        length: number of positions.
        kernels: how many neighbouring regions each region of the next layer joins, from below.
        strides: distance between neighbours in each layer; the kernels themselves make disjoint regions.
        leaf: positions in each leaf.

    Example:
        >>> fields = string_fields(4, [2])
        >>> fields.bottom_up, fields.children("top")
        (('x0', 'x1', 'x2', 'x3', 'h1_0', 'h1_1', 'top'), ('h1_0', 'h1_1'))
    """
    if length < 1 or leaf < 1 or length % leaf:
        raise InputError(f"a string of {length} positions does not split into leaves of {leaf}; use a divisor")
    leaves = [frozenset(range(start, start + leaf)) for start in range(0, length, leaf)]
    return _stacked(leaves, (len(leaves),), [(k,) for k in kernels], _tuples(strides, kernels))


def image_fields(
    height: int, width: int, kernels: Sequence[Pair], strides: Sequence[Pair] | None = None
) -> ReceptiveFields:
    """The hierarchy of an image, position = row · width + column; kernels and strides as numbers or (rows, columns).

    Example:
        >>> image_fields(4, 4, [2, 2])
        ReceptiveFields(21 regions, 16 leaves, depth 2, 16 positions)
    """
    leaves = [frozenset({position}) for position in range(height * width)]
    return _stacked(leaves, (height, width), [_pair(k) for k in kernels], [_pair(s) for s in strides or kernels])


def fields_of(model: nn.Module, shape: Sequence[int]) -> ReceptiveFields:
    """The hierarchy of a network of local layers: convolutions and pooling in sequence, then a head that sees all.

    Layers that see no more than the layer below (1×1 convolutions, ReLU, batch-norm) add nodes, not regions.

    Args:
        model: an ``nn.Sequential``, possibly of sequences.
        shape: positions of the input, (length,) or (height, width), without channels.

    Raises:
        UnsupportedModelError: another kind of layer, or padding, whose smaller windows at the border would lie inside
            their neighbours.
    """
    kernels, strides = [], []
    for name, module in _layers(model):
        if isinstance(module, _PASSING):
            continue
        if isinstance(module, _GLOBAL):
            break  # from here on every node sees everything
        if not isinstance(module, _LOCAL):
            raise UnsupportedModelError(
                f"'{name}' ({type(module).__name__}) is no local layer that fields_of knows; "
                "give the regions to ReceptiveFields yourself"
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
    return _stacked([frozenset({p}) for p in range(prod(shape))], tuple(shape), kernels, strides)


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


def _pair(value: Pair) -> tuple[int, ...]:
    return (value, value) if isinstance(value, int) else value


def _tuples(strides: Sequence[int] | None, kernels: Sequence[int]) -> list[tuple[int, ...]]:
    return [(stride,) for stride in (kernels if strides is None else strides)]


def _stacked(
    leaves: list[Region],
    shape: tuple[int, ...],
    kernels: Sequence[tuple[int, ...]],
    strides: Sequence[tuple[int, ...]],
) -> ReceptiveFields:
    if len(kernels) != len(strides):
        raise InputError(f"there are {len(kernels)} kernels and {len(strides)} strides; give one of each per layer")
    named = {f"x{index}": region for index, region in enumerate(leaves)}
    layer = leaves
    for number, (kernel, stride) in enumerate(zip(kernels, strides, strict=True), start=1):
        for size, k, s in zip(shape, kernel, stride, strict=True):
            if k < 1 or s < 1 or k > size or (size - k) % s:
                raise InputError(
                    f"layer {number}: windows of {k} with stride {s} do not fit {size} regions without a rest; "
                    "choose (size − kernel) divisible by the stride"
                )
        grid = tuple((size - k) // s + 1 for size, k, s in zip(shape, kernel, stride, strict=True))
        layer = [
            frozenset().union(*(layer[index] for index in _window(corner, kernel, stride, shape)))
            for corner in product(*map(range, grid))
        ]
        if len(layer) > 1:
            named |= {f"h{number}_{index}": region for index, region in enumerate(layer)}
        shape = grid
    named["top"] = frozenset().union(*layer)
    return ReceptiveFields(named)


def _window(
    corner: tuple[int, ...], kernel: tuple[int, ...], stride: tuple[int, ...], shape: tuple[int, ...]
) -> Iterator[int]:
    for offset in product(*map(range, kernel)):
        index = 0
        for c, o, s, size in zip(corner, offset, stride, shape, strict=True):
            index = index * size + c * s + o
        yield index
