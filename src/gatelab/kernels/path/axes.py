"""Linear maps of positions that act on each axis by itself: pooling, padding, upsampling, slicing."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from math import prod

import torch
from jaxtyping import Float, Int
from torch import Tensor


@dataclass(frozen=True)
class Reach:
    """What an axis map reads: output position p reads inputs from stride · p + low to stride · p + high."""

    stride: int
    low: int
    high: int

    def after(self, first: "Reach") -> "Reach":
        """Return the reach of this map applied after another."""
        low, high = (first.stride * edge for edge in (self.low, self.high))
        return Reach(first.stride * self.stride, low + first.low, high + first.high)


IDENTITY = Reach(1, 0, 0)


@dataclass(frozen=True, eq=False)
class AxisMaps:
    """A linear map of positions, the product of one matrix for each axis.

    Attributes:
        matrices: for each axis, (outputs, inputs).
    """

    matrices: tuple[Float[Tensor, "_ _"], ...]

    @property
    def size(self) -> tuple[int, ...]:
        """Positions after the map, along each axis."""
        return tuple(matrix.shape[0] for matrix in self.matrices)

    @property
    def in_size(self) -> tuple[int, ...]:
        """Positions before the map, along each axis."""
        return tuple(matrix.shape[1] for matrix in self.matrices)

    def after(self, first: "AxisMaps | None") -> "AxisMaps":
        """Return this map applied after another."""
        if first is None:
            return self
        return AxisMaps(tuple(b @ a for b, a in zip(self.matrices, first.matrices, strict=True)))

    @cached_property
    def owner(self) -> Int[Tensor, " inputs"] | None:
        """The one output that each input reaches, -1 for none; None if an input reaches several."""
        flat = torch.zeros((), dtype=torch.int64, device=self.matrices[0].device)
        lost = torch.zeros((), dtype=torch.bool, device=flat.device)
        for matrix in self.matrices:
            reached = (matrix != 0).sum(dim=0)
            if bool((reached > 1).any()):
                return None
            flat = flat[..., None] * matrix.shape[0] + (matrix != 0).int().argmax(dim=0)
            lost = lost[..., None] | (reached == 0)
        return flat.masked_fill(lost, -1).flatten()

    def taps(self) -> tuple[Int[Tensor, "outputs taps"], Float[Tensor, "outputs taps"]]:
        """Return, for each output, the inputs it reads and their weights; a short row repeats one, of weight zero."""
        index = torch.zeros(1, 1, dtype=torch.int64, device=self.matrices[0].device)
        weight = self.matrices[0].new_ones(1, 1)
        for matrix in self.matrices:
            counts = (matrix != 0).sum(dim=1)
            count = max(1, int(counts.max()))
            order = (matrix != 0).int().argsort(dim=1, descending=True, stable=True)[:, :count]
            order = torch.where(torch.arange(count, device=order.device) < counts[:, None], order, order[:, :1])
            index = (index[:, None, :, None] * matrix.shape[1] + order[None, :, None, :]).flatten(2).flatten(0, 1)
            weights = matrix.gather(1, order) * (torch.arange(count, device=order.device) < counts[:, None])
            weight = (weight[:, None, :, None] * weights[None, :, None, :]).flatten(2).flatten(0, 1)
        return index, weight

    def apply(self, signal: Float[Tensor, "... inputs"]) -> Float[Tensor, "... outputs"]:
        """Map the last axis, which holds all positions."""
        shaped = signal.unflatten(-1, self.in_size)
        for axis, matrix in enumerate(self.matrices, start=-len(self.matrices)):
            shaped = (shaped.movedim(axis, -1) @ matrix.T.to(signal.dtype)).movedim(-1, axis)
        return shaped.flatten(-len(self.matrices))

    @property
    def reach(self) -> tuple[Reach, ...]:
        """What the map reads, along each axis."""
        return tuple(_reach(matrix) for matrix in self.matrices)


def _reach(matrix: Float[Tensor, "out in"]) -> Reach:
    rows = (matrix != 0).any(dim=1).nonzero().flatten()
    if len(rows) == 0:
        return IDENTITY
    opened = (matrix[rows] != 0).int()
    first = opened.argmax(dim=1)
    last = matrix.shape[1] - 1 - opened.flip(1).argmax(dim=1)
    stride = 1
    if len(rows) > 1:
        stride = max(1, round(float((first[-1] - first[0]) / (rows[-1] - rows[0]))))
    return Reach(stride, int((first - stride * rows).min()), int((last - stride * rows).max()))


def probe(run: Callable[[Tensor], Tensor], size: tuple[int, ...], like: Tensor) -> AxisMaps | None:
    """Find the axis maps of an operation that treats every channel alike, by running it on simple images.

    Args:
        run: the operation, on (images, 1, *size).
        size: positions along each axis.
        like: a tensor with the device of the result.

    Returns:
        The maps in float64; None if the operation does not act on each axis by itself.
    """
    options = {"dtype": torch.float64, "device": like.device}
    ones = run(torch.ones(1, 1, *size, **options)).flatten()
    if not bool(ones.abs().max() > 0):
        return None
    shape = run(torch.ones(1, 1, *size, **options)).shape[2:]
    shape = shape if len(shape) == len(size) else (1,) * len(size)
    if prod(shape) != ones.numel():
        return None
    best = torch.unravel_index(ones.abs().argmax(), shape)
    matrices = []
    for axis, length in enumerate(size):
        # Images that are one on a single line across this axis, and zero elsewhere.
        view = [1] * len(size)
        view[axis] = length
        lines = torch.eye(length, **options).view(length, 1, *view).expand(length, 1, *size)
        answers = run(lines.contiguous()).reshape(length, *shape)
        place = tuple(slice(None) if other == axis else int(best[other]) for other in range(len(size)))
        matrix = answers[(slice(None), *place)].T
        matrices.append(matrix if axis == 0 else matrix / ones.view(shape)[tuple(int(b) for b in best)])
    maps = AxisMaps(tuple(matrices))
    chance = torch.rand(2, 1, *size, generator=torch.Generator().manual_seed(0), dtype=torch.float64).to(like.device)
    wanted = run(chance).reshape(2, -1)
    found = maps.apply(chance.flatten(2)).reshape(2, -1)
    return maps if torch.allclose(wanted, found, rtol=1e-9, atol=1e-12) else None
