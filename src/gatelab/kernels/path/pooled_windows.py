"""Covariances after a max-pooling, from the channels that take each place of a window.

Channels that take the same two places of two windows read the same covariance, so counting them replaces one read per
channel: K² counts of bits for windows of K places, however many channels there are.
"""

from dataclasses import dataclass
from itertools import product

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from gatelab.gates.bits import pack
from gatelab.kernels.compiled import compiled
from gatelab.kernels.path.bit_products import level
from gatelab.kernels.path.first_fields import FirstField
from gatelab.kernels.path.pairs import LOOPS, Offset, OffsetPairs
from gatelab.kernels.path.signals import Term

# Counting the bits of a word takes about a tenth of the time of one read at a separate position.
COUNTS_PER_READ = 8


@dataclass(frozen=True, eq=False)
class Windows:
    """Which channels of some examples take which place of each window.

    Attributes:
        taken: channels as bits, (examples, places, words, windows).
        places: the place in the window, along each axis.
        reads: the position in the field of each place of each window.
        level: the multiplier of every open channel.
        stride: the step between windows, along each axis.
    """

    taken: np.ndarray
    places: tuple[Offset, ...]
    reads: np.ndarray
    level: float
    stride: tuple[int, ...]

    def of(self, examples: slice) -> np.ndarray:
        """Return the bits of some examples."""
        return self.taken[examples] if len(self.taken) > 1 else self.taken


def windows_of(
    term: Term, held: Int[Tensor, " k"], field_size: tuple[int, ...], size: tuple[int, ...]
) -> Windows | None:
    """Return the windows of a term whose channels each take one place in every window; None for other terms.

    Args:
        term: a field after a max-pooling.
        held: the channels that count.
        field_size: positions of the field, along each axis.
        size: windows along each axis.
    """
    if term.index is None or term.maps is not None or term.reach is None or term.multiplier.shape[3] > 1:
        return None
    words = -(-len(held) // 64)
    candidates = list(product(*(range(reach.low, reach.high + 1) for reach in term.reach)))
    if len(candidates) ** 2 * words > COUNTS_PER_READ * len(held):
        return None
    factor = level(term.multiplier) if term.multiplier.device.type == "cpu" and compiled(LOOPS) is not None else None
    if factor is None:
        return None
    index, multiplier = (
        part[..., 0].expand(-1, len(held), -1) if part.shape[1] == 1 else part[:, held, :, 0]
        for part in (term.index, term.multiplier)
    )
    stride = tuple(reach.stride for reach in term.reach)
    taken, reads = [], []
    for place in candidates:
        position = _positions(place, stride, field_size, size)
        taken.append(_channels_as_bits((index == position) & (multiplier != 0)))
        reads.append(position.clamp(min=0).numpy())
    return Windows(np.stack(taken, axis=1), tuple(candidates), np.stack(reads).astype(np.uint64), factor, stride)


def _positions(
    place: Offset, stride: tuple[int, ...], field_size: tuple[int, ...], size: tuple[int, ...]
) -> Int[Tensor, " windows"]:
    """The position in the field of one place of each window, -1 outside."""
    flat = torch.zeros((), dtype=torch.int64)
    outside = torch.zeros((), dtype=torch.bool)
    for offset, step, length, windows in zip(place, stride, field_size, size, strict=True):
        along = torch.arange(windows) * step + offset
        flat = flat[..., None] * length + along
        outside = outside[..., None] | (along < 0) | (along >= length)
    return flat.masked_fill(outside, -1).flatten()


def _channels_as_bits(chosen: Bool[Tensor, "n k windows"]) -> np.ndarray:
    """(examples, words, windows)."""
    n, channels, windows = chosen.shape
    words = pack(chosen.transpose(1, 2).reshape(-1, channels)).view(n, windows, -1)
    return np.ascontiguousarray(words.transpose(1, 2).numpy()).view(np.uint64)


def between_windows(
    left: Windows,
    right: Windows,
    i: slice,
    j: slice,
    fields: Tensor | FirstField,
    form: OffsetPairs,
    pairs: OffsetPairs,
) -> Float[Tensor, "n m 1 *pairs"]:
    """Sum multiplier · multiplier · covariance over channels, for one group of channels.

    Args:
        left: the windows of the rows.
        right: the windows of the columns.
        i: the rows' examples.
        j: the columns' examples.
        fields: covariances of the field, (examples, examples, 1, offsets, positions), or how to make them.
        form: the offsets of ``fields``.
        pairs: the pairs of windows that are wanted.
    """
    images = (fields.left, fields.right) if isinstance(fields, FirstField) else (fields[:, 0], fields[0])
    n, m = (len(side) for side in images)
    out = images[0].new_empty(n, m, 1, *pairs.shape)
    bits = [np.broadcast_to(side, (count, *side.shape[1:])) for side, count in ((left.of(i), n), (right.of(j), m))]
    bits = [np.ascontiguousarray(side) for side in bits]
    inside = np.where(pairs.inside.numpy(), np.uint64(2**64 - 1), np.uint64(0))
    rest = (left.reads, _numbers(left, right, form, pairs), pairs.shifts, inside, out[:, :, 0].numpy())
    loops = compiled(LOOPS)
    if isinstance(fields, FirstField):
        loops.between_first_windows(*bits, fields.arrays, fields.scratch, np.empty(form.shape, rest[-1].dtype), *rest)
    else:
        loops.between_windows(*bits, fields[:, :, 0].contiguous().numpy(), *rest)
    return out.mul_(left.level * right.level)


def _numbers(left: Windows, right: Windows, form: OffsetPairs, pairs: OffsetPairs) -> np.ndarray:
    """The number in ``form`` of the offset between two places of windows at each offset of ``pairs``."""
    known = {offset: number for number, offset in enumerate(form.offsets)}
    numbers = np.zeros((len(pairs.offsets), len(left.places), len(right.places)), np.uint64)
    for d, offset in enumerate(pairs.offsets):
        for w, place in enumerate(left.places):
            for v, other in enumerate(right.places):
                steps = zip(left.stride, offset, other, place, strict=True)
                # Unknown offsets lie outside the image: no two windows have them.
                numbers[d, w, v] = known.get(tuple(s * o + b - a for s, o, b, a in steps), 0)
    return numbers
