"""The covariance of a first convolution at some offsets, computed when it is read.

It is by far the largest covariance of a network with max-pooling: the image at full size, at every offset that windows
reach. Computed for one pair of examples at a time, it stays in the cache.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from gatelab.kernels.compiled import compiled
from gatelab.kernels.path.pairs import LOOPS, OffsetPairs, Pairs, tap_arrays
from gatelab.kernels.path.planning import WeightLayer, largest_covariance, pairs_read
from gatelab.kernels.path.signals import Signal

# Arrays of the size of the largest covariance that exist at a time; of the first one's, two and what is inside.
ARRAYS, ARRAYS_OF_FIRST = 8, 3


@dataclass(frozen=True, eq=False)
class FirstField:
    """The covariance of a first convolution between two blocks of examples.

    Attributes:
        layer: the convolution.
        left: the images of the rows.
        right: the images of the columns.
        inputs: the pairs of input positions that are read.
        form: the pairs of output positions at which the covariance is wanted.
    """

    layer: WeightLayer
    left: Float[Tensor, "n c p"]
    right: Float[Tensor, "m c p"]
    inputs: OffsetPairs
    form: OffsetPairs

    @cached_property
    def entries(self) -> Float[Tensor, "n m 1 offsets q"]:
        """The whole covariance, for readers that do not work by windows."""
        out = self.left.new_empty(len(self.left), len(self.right), 1, *self.form.shape)
        x, y, scale, bias, *rest = self.arrays
        compiled(LOOPS).convolve_products(x, y, *rest, self.scratch, out[:, :, 0].numpy())
        return out.mul_(scale).add_(bias)

    @cached_property
    def arrays(self) -> tuple[Any, ...]:
        """The arguments of the compiled loops: images, scale, bias, offsets in memory, and filter taps."""
        assert self.layer.geometry is not None
        inside = self.inputs.inside.numpy().view(np.uint8)
        images = (self.left.contiguous().numpy(), self.right.contiguous().numpy())
        scale, bias = (images[0].dtype.type(number) for number in (self.layer.scale, self.layer.bias))
        return *images, scale, bias, self.inputs.shifts, inside, tap_arrays(self.inputs.size, self.layer.geometry)

    @property
    def scratch(self) -> np.ndarray:
        """Scratch memory for two images while the axes are convolved one after the other."""
        size, out_size, *_ = self.arrays[-1]
        return np.empty((2, prod(np.maximum(size, out_size).tolist())), self.arrays[0].dtype)


def first_field(layer: WeightLayer, other: WeightLayer, form: Pairs, i: slice, j: slice) -> FirstField | None:
    """Return the covariance of a first convolution between examples i and j, or None if compiled loops cannot make it.

    Args:
        layer: the convolution, with the signals of the rows.
        other: the same, with the signals of the columns.
        form: the pairs of positions at which its covariance is wanted.
        i: the rows.
        j: the columns.
    """
    images = [_images(one.inputs) for one in (layer, other)]
    if layer.groups > 1 or layer.geometry is None or not isinstance(form, OffsetPairs) or len(form.offsets) == 1:
        return None
    inputs = pairs_read(layer, form)
    if images[0] is None or images[1] is None or not isinstance(inputs, OffsetPairs):
        return None
    if compiled(LOOPS) is None or any(taps.even is None for taps in layer.geometry.taps):
        return None
    return FirstField(layer, images[0][i], images[1][j], inputs, form)


def entries_at_once(layers: list[WeightLayer], forms: Mapping[int, Pairs]) -> int:
    """Return how many entries one pair of examples holds at a time; those of a first convolution are made when read."""
    one = slice(0, 1)
    firsts = [number for number, form in forms.items() if first_field(layers[number], layers[number], form, one, one)]
    first = max((prod(forms[number].shape) for number in firsts), default=0)
    return max(ARRAYS * largest_covariance(layers, forms, firsts), ARRAYS_OF_FIRST * first)


def _images(signal: Signal) -> Float[Tensor, "n c p"] | None:
    """The input's images, if the signal is the plain input, on the CPU; None otherwise."""
    term = signal.terms[0]
    whole = signal.is_input and len(signal.terms) == 1 and torch.equal(term.channels, torch.arange(signal.channels))
    return term.multiplier[..., 0] if whole and term.multiplier.device.type == "cpu" else None
