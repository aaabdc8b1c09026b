"""Pairs of positions: all of them, or only those at certain offsets.

A covariance between two examples is needed at pairs of positions (p, p'): at all pairs before a pooling over the whole
image, only at equal positions where images are flattened, and otherwise at a few offsets p' − p.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from math import prod

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from gatelab.kernels.compiled import compiled
from gatelab.kernels.path.axes import Reach
from gatelab.kernels.path.bit_products import bit_products

Offset = tuple[int, ...]

LOOPS = "gatelab.kernels.path.window_loops"


@dataclass(frozen=True)
class Filter:
    """A convolution with zero padding, one number along each axis: taps, stride, padding before, dilation."""

    taps: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Taps:
    """What the taps of a filter read along one axis.

    Attributes:
        reads: the input position of each tap and output position, -1 for zero padding.
        inputs: the number of input positions.
    """

    reads: Int[Tensor, "taps out"]
    inputs: int

    @cached_property
    def is_identity(self) -> bool:
        """Whether one tap reads every position in turn."""
        own = torch.arange(self.inputs, device=self.reads.device)
        return self.reads.shape[0] == 1 and torch.equal(self.reads[0], own)

    @cached_property
    def even(self) -> "EvenTaps | None":
        """The same in numbers, if taps read evenly spaced positions and zeros outside; None if they do not."""
        if not bool((self.reads >= 0).any(dim=1).all()):
            return None
        stride = 1
        for tap in self.reads:
            inside = tap[tap >= 0]
            if len(inside) > 1:
                stride = int(inside[1] - inside[0])
                break
        if stride < 1:
            return None
        steps = torch.arange(self.reads.shape[1], device=self.reads.device) * stride
        first = (self.reads >= 0).int().argmax(dim=1)  # where each tap first reads inside
        starts = self.reads.gather(1, first[:, None])[:, 0] - steps[first]
        wanted = starts[:, None] + steps
        inside = (wanted >= 0) & (wanted < self.inputs)
        if not torch.equal(torch.where(inside, wanted, -1), self.reads):
            return None
        before, after = max(0, -int(wanted.min())), max(0, int(wanted.max()) - (self.inputs - 1))
        return EvenTaps(tuple(starts.tolist()), stride, int(steps[-1]) + 1, before, after)

    def summed(self, shaped: Tensor, axes: tuple[int, ...]) -> Tensor:
        """Sum over taps, along one axis of each position of a pair."""
        if self.is_identity:
            return shaped
        if self.even is None:
            for axis in axes:  # a last line of zeros, which -1 reads
                shaped = torch.cat([shaped, torch.zeros_like(shaped.narrow(axis, 0, 1))], dim=axis)
            parts = (_gathered(shaped, tap, axes) for tap in self.reads)
        else:
            parts = self.even.read(shaped, axes)
        total = None
        for part in parts:
            total = part.clone() if total is None else total.add_(part)
        assert total is not None
        return total


@dataclass(frozen=True)
class EvenTaps:
    """Taps that read evenly spaced positions: slices of the input, padded by zeros.

    Attributes:
        starts: where each tap reads for the first output; negative before the input.
        stride: the step between outputs.
        length: number of positions from the first input that a tap reads to the last, inclusive.
        before: zeros before the input.
        after: zeros after it.
    """

    starts: tuple[int, ...]
    stride: int
    length: int
    before: int
    after: int

    def read(self, shaped: Tensor, axes: tuple[int, ...]) -> Iterator[Tensor]:
        """Yield what each tap reads."""
        pad = [0, 0] * shaped.ndim
        for axis in axes:
            place = 2 * (shaped.ndim - 1 - axis)
            pad[place : place + 2] = [self.before, self.after]
        padded = torch.nn.functional.pad(shaped, pad) if self.before or self.after else shaped
        for start in self.starts:
            place = [slice(None)] * padded.ndim
            for axis in axes:
                place[axis] = slice(start + self.before, start + self.before + self.length, self.stride)
            yield padded[tuple(place)]


@dataclass(frozen=True, eq=False)
class Geometry:
    """Which inputs a convolution reads.

    Attributes:
        taps: what its filter reads along each axis.
        filter: the same in numbers; None for a transposed convolution and for padding that is not zero, where offsets
            between positions do not simply grow by the stride.
    """

    taps: tuple[Taps, ...]
    filter: Filter | None

    @property
    def out_size(self) -> tuple[int, ...]:
        """Positions of the output, along each axis."""
        return tuple(taps.reads.shape[1] for taps in self.taps)


@dataclass(frozen=True)
class AllPairs:
    """All pairs of positions: entries are (p, p')."""

    size: tuple[int, ...]

    @property
    def shape(self) -> tuple[int, int]:
        """Axes of the entries."""
        return prod(self.size), prod(self.size)

    def products(self, left: Float[Tensor, "a c k p"], right: Float[Tensor, "b c k p"]) -> Float[Tensor, "a b c p q"]:
        """Sum products over k."""
        return left.transpose(2, 3)[:, None] @ right[None]

    def convolved(self, entries: Float[Tensor, "a b c p q"], geometry: Geometry) -> Float[Tensor, "a b c u v"]:
        """Sum over filter taps, which move both positions of a pair together."""
        axes = len(self.size)
        shaped = entries.unflatten(4, self.size).unflatten(3, self.size)
        for axis, taps in enumerate(geometry.taps):
            shaped = taps.summed(shaped, (3 + axis, 3 + axes + axis))
        return shaped.flatten(3 + axes).flatten(3, 2 + axes)

    def equal(self, entries: Float[Tensor, "a b c p q"]) -> Float[Tensor, "a b c p"]:
        """Return the entries at equal positions."""
        return entries.diagonal(dim1=3, dim2=4)


@dataclass(frozen=True)
class OffsetPairs:
    """Pairs of positions (p, p + δ) for some offsets δ: entries are (δ, p), unused where p + δ lies outside.

    Attributes:
        size: positions along each axis.
        offsets: the offsets, sorted.
    """

    size: tuple[int, ...]
    offsets: tuple[Offset, ...]

    @property
    def shape(self) -> tuple[int, int]:
        """Axes of the entries."""
        return len(self.offsets), prod(self.size)

    @cached_property
    def partners(self) -> Int[Tensor, "offsets p"]:
        """The position p + δ for each entry, -1 outside."""
        return torch.where(self.inside, torch.arange(prod(self.size)) + torch.from_numpy(self.shifts)[:, None], -1)

    @property
    def inside(self) -> Bool[Tensor, "offsets p"]:
        """Whether p + δ is a position; a byte for each entry, where ``partners`` has eight."""
        found = torch.ones(len(self.offsets), 1, dtype=torch.bool)
        for axis, length in enumerate(self.size):
            moved = torch.arange(length) + torch.tensor([offset[axis] for offset in self.offsets])[:, None]
            found = (found[:, :, None] & ((moved >= 0) & (moved < length))[:, None]).flatten(1)
        return found

    @cached_property
    def shifts(self) -> np.ndarray:
        """How much further in memory p + δ lies than p."""
        flat = np.zeros(len(self.offsets), np.int64)
        for axis, length in enumerate(self.size):
            flat = flat * length + np.array([offset[axis] for offset in self.offsets], np.int64)
        return flat

    def products(self, left: Float[Tensor, "a c k p"], right: Float[Tensor, "b c k p"]) -> Float[Tensor, "a b c d p"]:
        """Sum products over k."""
        counted = bit_products(left, right, self.partners)
        if counted is not None:
            return counted
        partners = self.partners.to(left.device)
        rows = left.permute(1, 3, 0, 2)  # c p a k: one small product for each position
        padded = torch.nn.functional.pad(right, (0, 1)).permute(1, 3, 2, 0)  # c p k b, zero at the end
        parts = [(rows @ padded[:, partner]).permute(2, 3, 0, 1) for partner in partners]
        return torch.stack(parts, dim=3) if len(parts) > 1 else parts[0].unsqueeze(3)

    def convolved(self, entries: Float[Tensor, "a b c d p"], geometry: Geometry) -> Float[Tensor, "a b c d u"]:
        """Sum over filter taps; the offset of the output is the input's, divided by the stride."""
        axes = len(self.size)
        even = entries.device.type == "cpu" and all(taps.even for taps in geometry.taps)
        loops = compiled(LOOPS) if even and len(self.offsets) > 1 else None
        if loops is not None:
            taps = tap_arrays(self.size, geometry)
            out = entries.new_empty(*entries.shape[:4], prod(geometry.out_size))
            scratch = entries.new_empty(2, prod(map(max, zip(self.size, geometry.out_size, strict=True))))
            flat = (part.flatten(0, 3).numpy() for part in (entries.contiguous(), out))
            loops.convolve(next(flat), taps, scratch.numpy(), next(flat))
            return out
        shaped = entries.unflatten(4, self.size) if axes else entries
        for axis, taps in enumerate(geometry.taps):
            shaped = taps.summed(shaped, (4 + axis,))
        return shaped.flatten(4) if axes else shaped

    def equal(self, entries: Float[Tensor, "a b c d p"]) -> Float[Tensor, "a b c p"]:
        """Return the entries at equal positions."""
        return entries[:, :, :, self.offsets.index((0,) * len(self.size))]


Pairs = AllPairs | OffsetPairs


def tap_arrays(size: tuple[int, ...], geometry: Geometry) -> tuple[np.ndarray, ...]:
    """Return even taps as the compiled loops read them: sizes before and after, number of taps, starts, strides."""
    even = [taps.even for taps in geometry.taps]
    counts = np.array([len(taps.starts) for taps in even if taps is not None])
    starts = np.zeros((len(even), counts.max(initial=1)), np.int64)
    for axis, taps in enumerate(even):
        assert taps is not None
        starts[axis, : counts[axis]] = taps.starts
    strides = np.array([taps.stride for taps in even if taps is not None])
    return np.array(size), np.array(geometry.out_size), counts, starts, strides


def _gathered(shaped: Tensor, tap: Int[Tensor, " out"], axes: tuple[int, ...]) -> Tensor:
    for axis in axes:
        shaped = shaped.index_select(axis, torch.where(tap < 0, shaped.shape[axis] - 1, tap))
    return shaped


def offsets_behind(offsets: frozenset[Offset], reach: tuple[Reach, ...], size: tuple[int, ...]) -> frozenset[Offset]:
    """Return the offsets in a field that pairs at some offsets of a node read."""
    found = set()
    for offset in offsets:
        ranges = []
        for step, look, length in zip(offset, reach, size, strict=True):
            spread, middle = look.high - look.low, step * look.stride
            ranges.append(range(max(1 - length, middle - spread), min(length - 1, middle + spread) + 1))
        found.update(product(*ranges))
    return frozenset(found)


def chosen_pairs(size: tuple[int, ...], offsets: frozenset[Offset] | None) -> Pairs:
    """Return the cheaper form that covers some offsets; None means all."""
    if offsets is None or len(offsets) * 2 > prod(size) > 1:
        return AllPairs(size)
    return OffsetPairs(size, tuple(sorted(offsets)))
