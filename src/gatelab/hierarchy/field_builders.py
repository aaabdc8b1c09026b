"""Build receptive fields: of strings, of images, and of networks of local layers."""

from collections.abc import Iterator, Sequence
from itertools import product
from math import prod
from numbers import Integral

from torch import nn

from gatelab.errors import InputError, UnsupportedModelError
from gatelab.hierarchy.fields import ReceptiveFields
from gatelab.models.init import check_counts
from gatelab.network.operations import TRANSPOSED, Kind, module_operation, operation

_PASSING = frozenset({Kind.GATE, Kind.PASSING, Kind.DROPOUT, Kind.NORMALISATION})
_WITH_WINDOWS = frozenset({Kind.WEIGHT, Kind.SPATIAL, Kind.SELECTION})


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
    """Read the hierarchy from a network of local layers: convolutions and pooling in sequence, then a global head.

    Layers that see no more than the layer below (1×1 convolutions, ReLU, batch norm) add nodes, not regions. With
    padding or dilation, a window need not contain exactly the windows it is computed from; children then follow the
    layers, not inclusion.

    Args:
        model: an ``nn.Sequential``, possibly nested.
        shape: positions of the input, (length,) or (height, width), without channels.

    Returns:
        The regions, named as by :func:`string_fields`.

    Raises:
        UnsupportedModelError: another kind of layer.

    Example:
        >>> fields_of(nn.Sequential(nn.Conv1d(1, 4, 2, stride=2), nn.ReLU(), nn.Flatten(), nn.Linear(8, 3)), (4,))
        ReceptiveFields(7 regions, 4 leaves, depth 2, 4 positions)
    """
    kernels, strides, paddings, dilations = [], [], [], []
    for name, module in _layers(model):
        operation_name = module_operation(module)
        kind = operation(operation_name).kind
        if kind in _PASSING:
            continue
        local = hasattr(module, "kernel_size")
        adaptive = kind is Kind.SPATIAL and hasattr(module, "output_size")
        if adaptive or operation_name == "flatten" or (kind is Kind.WEIGHT and not local):
            break  # every node above this layer sees the whole input
        if not local or kind not in _WITH_WINDOWS or operation_name in TRANSPOSED:
            raise UnsupportedModelError(
                f"'{name}' ({type(module).__name__}) is not a local layer that fields_of knows; "
                "pass the regions to ReceptiveFields yourself"
            )
        kernel, stride, dilation = (
            _per_axis(getattr(module, what, default), len(shape), name)
            for what, default in (("kernel_size", 1), ("stride", 1), ("dilation", 1))
        )
        padding = getattr(module, "padding", 0)
        if isinstance(padding, str):
            both = [d * (k - 1) if padding == "same" else 0 for k, d in zip(kernel, dilation, strict=True)]
            padding = tuple(total // 2 for total in both)
            if any(total % 2 for total in both):
                raise UnsupportedModelError(f"'{name}' pads more on one side ('same', even kernel); use an odd kernel")
        if prod(kernel) > 1:
            kernels.append(kernel)
            strides.append(stride)
            paddings.append(_per_axis(padding, len(shape), name))
            dilations.append(dilation)
    if any(map(any, paddings)) or any(d != 1 for dilation in dilations for d in dilation):
        return _padded(tuple(shape), kernels, strides, paddings, dilations)
    return _stacked(tuple(shape), kernels, strides)


def _padded(
    shape: tuple[int, ...],
    kernels: Sequence[tuple[int, ...]],
    strides: Sequence[tuple[int, ...]],
    paddings: Sequence[tuple[int, ...]],
    dilations: Sequence[tuple[int, ...]],
) -> ReceptiveFields:
    """Join windows layer by layer, cut off at the border; parents follow the layers."""
    names = {place: f"x{index}" for index, place in enumerate(product(*map(range, shape)))}
    regions = {name: frozenset([index]) for index, name in enumerate(names.values())}
    children: dict[str, tuple[str, ...]] = {}
    for number, (kernel, stride, padding, dilation) in enumerate(
        zip(kernels, strides, paddings, dilations, strict=True), start=1
    ):
        axes = zip(shape, kernel, stride, padding, dilation, strict=True)
        grid = tuple((size + 2 * pad - d * (k - 1) - 1) // s + 1 for size, k, s, pad, d in axes)
        if min(grid) < 1:
            raise InputError(f"layer {number}: windows of {kernel} do not fit {shape} regions; use a larger image")
        above = {}
        for index, corner in enumerate(product(*map(range, grid))):
            steps = zip(corner, kernel, stride, padding, dilation, strict=True)
            window = product(*(range(c * s - pad, c * s - pad + d * k, d) for c, k, s, pad, d in steps))
            name = f"h{number}_{index}"
            children[name] = tuple(names[place] for place in window if place in names)
            regions[name] = frozenset().union(*(regions[child] for child in children[name]))
            above[corner] = name
        names, shape = above, grid
    children["top"] = tuple(names.values())
    regions["top"] = frozenset().union(*(regions[child] for child in children["top"]))
    unused = set(regions) - {child for below in children.values() for child in below} - {"top"}
    if unused:
        raise InputError(f"strides step over regions {', '.join(sorted(unused)[:5])}; use a stride up to the kernel")
    return ReceptiveFields(regions, children)


def _layers(module: nn.Module, prefix: str = "") -> Iterator[tuple[str, nn.Module]]:
    if not isinstance(module, nn.Sequential):
        yield prefix or "the model", module
        return
    for name, child in module.named_children():
        yield from _layers(child, f"{prefix}.{name}" if prefix else name)


def _per_axis(value: int | tuple[int, ...], axes: int, name: str) -> tuple[int, ...]:
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
                    f"layer {number}: windows of {k} with stride {s} do not tile {size} regions exactly; "
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
