"""Covariances of random fields, layer by layer: how one weight layer's follows from those before it."""

from collections.abc import Container, Mapping
from dataclasses import dataclass
from itertools import product

import torch
from jaxtyping import Float
from torch import Tensor

from gatelab.kernels.path.terms import INPUT, Signal, Term


@dataclass(frozen=True)
class WeightLayer:
    """A weight layer and the signal that reaches it.

    Attributes:
        inputs: the signal that reaches it, for one set of examples; its channels are those of one group.
        scale: variance of the weights.
        bias: variance of the bias; 0 if no paths start there.
        dense: whether it is a dense layer, which sums over all units.
        kernel, stride, padding, dilation: of a convolution.
        circular: whether the padding wraps around instead of being zero.
    """

    inputs: Signal
    scale: float
    bias: float
    dense: bool
    kernel: tuple[int, int] = (1, 1)
    stride: tuple[int, int] = (1, 1)
    padding: tuple[int, int] = (0, 0)
    dilation: tuple[int, int] = (1, 1)
    circular: bool = False

    @property
    def out_size(self) -> tuple[int, int]:
        """Height and width of a convolution's output."""
        high, wide = (
            (size + 2 * pad - step * (taps - 1) - 1) // stride + 1
            for size, pad, step, taps, stride in zip(
                self.inputs.size, self.padding, self.dilation, self.kernel, self.stride, strict=True
            )
        )
        return high, wide


def plan(layers: list[WeightLayer], output: Signal, known: Container[int]) -> dict[int, bool]:
    """Return the layers whose fields are needed, and whether all pairs of positions are or only equal ones.

    A dense layer has a weight for each unit, so only equal positions count. A convolution needs of its input what is
    needed of its output. A window needs all pairs of positions inside. Layers whose kernel is ``known`` need nothing.
    """
    needed: dict[int, bool] = {}

    def ask(term: Term, all_pairs: bool) -> None:
        if term.origin != INPUT:
            needed[term.origin] = needed.get(term.origin, False) or all_pairs

    for term in output.terms:
        ask(term, term.window != (1, 1))
    for number in reversed(range(len(layers))):
        if number in needed and number not in known:
            for term in layers[number].inputs.terms:
                ask(term, term.window != (1, 1) or (not layers[number].dense and needed[number]))
    return needed


def size_of_pairs(layers: list[WeightLayer], needed: Mapping[int, bool]) -> int:
    """Return the number of entries of the largest covariance, per pair of examples."""
    sizes = [1]
    for layer in (layers[number] for number in needed):
        for term in layer.inputs.terms:
            positions = term.multiplier.shape[2] * term.multiplier.shape[3]
            sizes.append(positions**2 if needed.get(term.origin) or term.window != (1, 1) else positions)
    return max(sizes)


class Covariances:
    """Covariances of all fields between two blocks of examples.

    For equal positions only: (n, m, h, w). For all pairs of positions: (n, m, h, w, h', w').
    """

    def __init__(
        self,
        left: list[WeightLayer],
        right: list[WeightLayer],
        needed: Mapping[int, bool],
        known: Mapping[int, Float[Tensor, "n m"]],
        i: slice,
        j: slice,
    ):
        """Prepare for examples i of ``left`` and j of ``right``; ``known`` are kernels of inputs of dense layers."""
        self._left, self._right, self._needed, self._known = left, right, needed, known
        self._i, self._j = i, j
        self._fields: dict[int, Tensor] = {}

    def run(self) -> None:
        """Compute the covariance of every field, first to last."""
        for number in sorted(self._needed):
            a, b, all_pairs = self._left[number], self._right[number], self._needed[number]
            if a.dense:
                if number in self._known:
                    kernel = self._known[number][self._i, self._j]
                else:
                    kernel = self.of_signals(a.inputs, b.inputs, all_pairs=False).sum(dim=(2, 3))
                kernel = kernel[:, :, None, None]
                kernel = kernel[..., None, None] if all_pairs else kernel
            else:
                pairs = self.of_signals(a.inputs, b.inputs, all_pairs=all_pairs)
                kernel = _convolve(pairs, a, all_pairs=all_pairs)
            self._fields[number] = kernel * a.scale + a.bias

    def of_signals(self, a: Signal, b: Signal, *, all_pairs: bool) -> Tensor:
        """Return the covariance of two signals, summed over channels."""
        total = None
        for left, right in zip(a.terms, b.terms, strict=True):
            part = self._of_terms(left, right, all_pairs=all_pairs)
            total = part if total is None else total + part
        assert total is not None
        return total

    def _of_terms(self, left: Term, right: Term, *, all_pairs: bool) -> Tensor:
        a, b = _rows(left.multiplier, self._i), _rows(right.multiplier, self._j)
        windowed = left.window != (1, 1)
        if all_pairs or windowed:
            pairs = torch.einsum("nchw,mcuv->nmhwuv", a, b)
            if left.origin != INPUT:
                pairs = pairs * self._fields[left.origin]
            pairs = _sum_windows(pairs, left.window)
            return pairs if all_pairs else _equal_positions(pairs)
        equal = torch.einsum("nchw,mchw->nmhw", a, b)
        if left.origin == INPUT:
            return equal
        known = self._fields[left.origin]
        return equal * (known if known.ndim == 4 else _equal_positions(known))


def _rows(multiplier: Float[Tensor, "n c h w"], rows: slice) -> Tensor:
    return multiplier if multiplier.shape[0] == 1 else multiplier[rows]  # 1: the same for all examples


def _sum_windows(pairs: Float[Tensor, "n m h w u v"], window: tuple[int, int]) -> Tensor:
    high, wide = window
    blocks = pairs.unflatten(5, (-1, wide)).unflatten(4, (-1, high)).unflatten(3, (-1, wide)).unflatten(2, (-1, high))
    return blocks.sum(dim=(3, 5, 7, 9))


def _equal_positions(pairs: Float[Tensor, "n m h w h w"]) -> Float[Tensor, "n m h w"]:
    return pairs.diagonal(dim1=3, dim2=5).diagonal(dim1=2, dim2=3).transpose(2, 3)


def _convolve(pairs: Tensor, layer: WeightLayer, *, all_pairs: bool) -> Tensor:
    """Σ over filter taps o of the covariance at (s q + d o − pad, s q' + d o − pad)."""
    padded, out = _pad(pairs, layer), layer.out_size
    total = None
    for offset in product(range(layer.kernel[0]), range(layer.kernel[1])):
        tap = [_tap(layer, axis, offset[axis], out[axis]) for axis in (0, 1)]
        part = padded[(slice(None), slice(None), *tap, *(tap if all_pairs else ()))]
        total = part.clone() if total is None else total.add_(part)
    assert total is not None
    return total


def _pad(pairs: Tensor, layer: WeightLayer) -> Tensor:
    """Pad every pair of position axes, by zeros or circularly."""
    if not layer.circular:
        high, wide = layer.padding
        return torch.nn.functional.pad(pairs, (wide, wide, high, high) * ((pairs.ndim - 2) // 2))
    for axis in range(2, pairs.ndim):
        size, pad = pairs.shape[axis], layer.padding[axis % 2]
        pairs = pairs.index_select(axis, torch.arange(-pad, size + pad, device=pairs.device) % size)
    return pairs


def _tap(layer: WeightLayer, axis: int, offset: int, count: int) -> slice:
    """The positions that one filter tap sees along one axis."""
    start, stride = offset * layer.dilation[axis], layer.stride[axis]
    return slice(start, start + (count - 1) * stride + 1, stride)
