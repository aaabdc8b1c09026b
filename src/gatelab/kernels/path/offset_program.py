"""The kernel of networks that pool only once, over the whole image, offset by offset."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from gatelab.gates.bits import pack
from gatelab.kernels.compiled import compiled
from gatelab.kernels.path.bit_products import level
from gatelab.kernels.path.covariances import common_channels
from gatelab.kernels.path.planning import WeightLayer
from gatelab.kernels.path.signals import Signal, Term

LOOPS = "gatelab.kernels.path.offset_loops"
LANES = 16  # pairs of examples that go through the compiled loops side by side
LAYER_COLUMNS = 17  # columns of the table that describes the layers to these loops


@dataclass(frozen=True)
class _Stage:
    """A convolution that the pooled signal depends on.

    Attributes:
        layer: the convolution with the inputs of the left examples.
        other: the same with the inputs of the right examples.
        scale: the product of the strides after it; an offset of the pooled image times this is an offset of its output.
    """

    layer: WeightLayer
    other: WeightLayer
    scale: tuple[int, int]


def pooled_kernel(
    left: list[WeightLayer], right: list[WeightLayer], signal: Signal, other: Signal, *, symmetric: bool
) -> Float[Tensor, "n m"] | None:
    """Return the kernel of a signal that is pooled over its whole image; None where this fast way does not apply.

    It does not apply if another layer pools earlier, if padding is not zero, if branches with different strides meet,
    if channels have groups, or without Numba. The general rules then compute the kernel.
    """
    like = signal.terms[0].multiplier
    compilable = like.device.type == "cpu" and like.dtype in (torch.float32, torch.float64)
    if not compilable or not _is_pooled_once(signal) or compiled(LOOPS) is None:
        return None
    stages = _stages(left, right, signal)
    if stages is None:
        return None
    kernel = torch.empty(_count(left, signal), _count(right, other), dtype=like.dtype)
    program = _Program(stages, _unpooled(signal), _unpooled(other), kernel)
    pairs = np.argwhere(np.tri(*kernel.shape, dtype=bool) if symmetric else np.ones(kernel.shape, dtype=bool))
    groups = [pairs[start : start + LANES] for start in range(0, len(pairs), LANES)]
    with ThreadPoolExecutor(torch.get_num_threads()) as pool:
        for group, values in zip(groups, pool.map(program.run, groups), strict=True):
            rows, columns = torch.from_numpy(group).T
            kernel[rows, columns] = torch.from_numpy(values).to(kernel.dtype)
            if symmetric:
                kernel[columns, rows] = kernel[rows, columns]
    return kernel


def _count(layers: list[WeightLayer], signal: Signal) -> int:
    terms = [*signal.terms, *(term for layer in layers for term in layer.inputs.terms)]
    return max(term.multiplier.shape[0] for term in terms)


def _is_pooled_once(signal: Signal) -> bool:
    """Whether the signal is the mean over all positions of signals that nothing has pooled or moved."""
    if len(signal.size) != 2 or signal.positions != 1:
        return False
    maps = [term.maps for term in signal.terms]
    whole = all(one is not None and bool((one.matrices[0][0, 0] == one.matrices[0]).all()) for one in maps)
    even = whole and all(bool((part == part[0, 0]).all()) for one in maps if one is not None for part in one.matrices)
    sizes = {one.in_size for one in maps if one is not None}
    return even and len(sizes) == 1 and sizes != {(1, 1)} and _plain(_unpooled(signal))


def _plain(signal: Signal) -> bool:
    """Whether all terms are simple, and none share a field in the same channels."""
    pairs = combinations(signal.terms, 2)
    alone = all(not set(a.origins) & set(b.origins) or common_channels(a, b) is None for a, b in pairs)
    return alone and all(term.simple for term in signal.terms)


def _unpooled(signal: Signal) -> Signal:
    terms, size = [], signal.size
    for term in signal.terms:
        assert term.maps is not None
        size = (term.maps.in_size[0], term.maps.in_size[1])
        weight = float(term.maps.matrices[0][0, 0] * term.maps.matrices[1][0, 0])
        terms.append(replace(term.scaled(weight), maps=None))
    return replace(signal, terms=tuple(terms), size=size)


def _stages(left: list[WeightLayer], right: list[WeightLayer], signal: Signal) -> dict[int, _Stage] | None:
    """The convolutions before a signal, first to last; None if the readers of one need different offsets."""
    scales: dict[int, tuple[int, int]] = {}

    def note(terms: tuple[Term, ...], scale: tuple[int, int]) -> bool:
        origins = [origin for term in terms if not term.is_input for origin in term.origins]
        return all(scales.setdefault(origin, scale) == scale for origin in origins)

    if not note(signal.terms, (1, 1)):
        return None
    for number in reversed(range(len(left))):
        if number not in scales:
            continue
        layer, scale = left[number], scales[number]
        plain = None if layer.geometry is None else layer.geometry.filter
        if plain is None or len(layer.size) != 2 or layer.groups != 1 or not _plain(layer.inputs):
            return None
        if not note(layer.inputs.terms, (scale[0] * plain.stride[0], scale[1] * plain.stride[1])):
            return None
    return {number: _Stage(left[number], right[number], scales[number]) for number in sorted(scales)}


class _Program:
    """The tables that the compiled loops read, and the multipliers of all terms in their layout."""

    def __init__(self, stages: dict[int, _Stage], signal: Signal, other: Signal, kernel: Tensor):
        self._kind = kernel.numpy().dtype
        # Real multipliers and bits of the left and the right examples, each (channels and positions, examples).
        self._parts: tuple[list[list[np.ndarray]], list[list[np.ndarray]]] = ([[], []], [[], []])
        self._ends = [0, 0]  # where the next real multipliers and bits go, counted with their lanes
        self._fields: dict[int, int] = {}
        terms: list[list[int]] = []
        gains: list[float] = []
        layers: list[list[int]] = []
        fields, padded, row = 0, 1, signal.size[1]
        for number, stage in stages.items():
            layer, first = stage.layer, len(terms)
            self._add(layer.inputs, stage.other.inputs, terms, gains)
            assert layer.geometry is not None
            plain = layer.geometry.filter
            assert plain is not None
            in_size, out_size = layer.inputs.size, layer.size
            sizes = (*in_size, *out_size, *plain.taps, *plain.stride, *plain.padding, *plain.dilation)
            layers.append([*sizes, *stage.scale, fields, first, len(terms)])
            self._fields[number] = fields
            fields += out_size[0] * out_size[1] * LANES
            height, width = (in_size[axis] + 2 * plain.padding[axis] for axis in (0, 1))
            padded, row = max(padded, height * width), max(row, width)
        scales = [[stage.layer.scale, stage.layer.bias] for stage in stages.values()]
        first_output = len(terms)
        self._add(signal, other, terms, gains)
        self._multipliers = [
            (_side_by_side(real, examples, self._kind), _side_by_side(bits, examples, np.dtype(np.uint64)))
            for (real, bits), examples in zip(self._parts, kernel.shape, strict=True)
        ]
        # An average divides every term by the same number: once at the end, not at each pair of positions.
        self._common = gains[-1]
        gains[first_output:] = [gain / self._common for gain in gains[first_output:]]
        self._tables = (
            np.array(layers, np.int64).reshape(-1, LAYER_COLUMNS),
            np.array(scales, self._kind).reshape(-1, 2),
            np.array(terms, np.int64),
            np.array(gains, self._kind),
            signal.size,
            first_output,
        )
        self._work = (max(1, fields), padded * LANES, 2 * row * LANES)

    def run(self, pairs: np.ndarray) -> np.ndarray:
        """Return the kernel of at most LANES pairs of examples."""
        work = tuple(np.empty(size, self._kind) for size in self._work)
        out = np.empty(LANES)
        # Spare lanes repeat the last pair.
        left, right = (np.pad(side, (0, LANES - len(pairs)), mode="edge") for side in pairs.T)
        (left_real, left_bits), (right_real, right_bits) = self._data(0, left), self._data(1, right)
        compiled(LOOPS).pooled_lanes(*self._tables, (left_bits, right_bits, left_real, right_real), work, out)
        return out[: len(pairs)] * self._common

    def _add(self, signal: Signal, other: Signal, terms: list[list[int]], gains: list[float]) -> None:
        for left, right in zip(_each_field(signal), _each_field(other), strict=True):
            origin = -1 if left.is_input else self._fields[left.origins[0]]
            images = [_images(term, signal.size) for term in (left, right)]
            levels = level(images[0]), level(images[1])
            bits = levels[0] is not None and levels[1] is not None
            sides = [_packed(image) if bits else image.numpy().astype(self._kind) for image in images]
            terms.append([origin, int(bits), sides[0].shape[1], self._ends[bits]])
            gains.append(levels[0] * levels[1] if bits else 1.0)  # pyright: ignore
            self._ends[bits] += sides[0][0].size * LANES
            for store, planes in zip(self._parts, sides, strict=True):
                store[bits].append(planes.reshape(planes.shape[0], -1).T)

    def _data(self, side: int, examples: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Real multipliers and bits of some examples, with the examples on the last axis."""
        real, bits = (np.take(part, examples, axis=1).reshape(-1) for part in self._multipliers[side])
        return real, bits


def _each_field(signal: Signal) -> list[Term]:
    """Terms of one field each: the loops weigh every field by itself."""
    return [replace(term, origins=(origin,)) for term in signal.terms for origin in term.origins]


def _images(term: Term, size: tuple[int, ...]) -> Float[Tensor, "n c h w"]:
    """The multipliers of a simple term as images."""
    return term.multiplier[..., 0].expand(-1, len(term.channels), -1).unflatten(2, size)


def _packed(multiplier: Float[Tensor, "n c h w"]) -> np.ndarray:
    """Channels as bits: (n, words, h, w)."""
    n, channels, height, width = multiplier.shape
    words = pack(multiplier.permute(0, 2, 3, 1).reshape(-1, channels) != 0)
    planes = words.view(n, height, width, -1).permute(0, 3, 1, 2).contiguous()
    return planes.numpy().view(np.uint64)


def _side_by_side(parts: list[np.ndarray], examples: int, kind: np.dtype) -> np.ndarray:
    """Stack all rows; repeat for each example the parts that all examples share."""
    wide = [np.broadcast_to(part, (part.shape[0], examples)) for part in parts]
    return np.concatenate(wide) if wide else np.zeros((1, examples), kind)
