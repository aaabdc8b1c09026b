"""What the units of a layer read: tables of connections, and the filters of weight layers."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

# Products held at a time while the largest is sought. They fit in a cache, which makes a layer of 64 channels and
# 64 × 64 positions three times faster.
RESULTS, PRODUCTS = 2**15, 2**18

Connected = tuple[np.ndarray, np.ndarray]  # the units that one unit reads, and the weights of these connections


@dataclass(frozen=True, eq=False)
class LinkTable:
    """Each unit reads a few units of one layer, given one by one: Σ_t factor[u, t] · signal[index[u, t]].

    Gates, sums, poolings and rearrangements are tables.

    Attributes:
        source: the number of the layer that is read.
        index: the units that each unit reads; −1 where there is none.
        factor: what their signals are multiplied by.
    """

    source: int
    index: Int[Tensor, "units taps"]
    factor: Float[Tensor, "units taps"]

    def largest(self, reach: Float[Tensor, " inputs"]) -> Float[Tensor, " units"]:
        r"""Return max_t \|factor · reach\| for each unit."""
        return (_read(reach, self.index) * self.factor.abs()).amax(1)

    def applied(self, signal: Float[Tensor, " inputs"]) -> Float[Tensor, " units"]:
        """Return the sum of factor · signal for each unit."""
        return (_read(signal, self.index) * self.factor).sum(1)

    def total(self, counts: Float[Tensor, "digits inputs"]) -> Float[Tensor, "digits units"]:
        """Return the sum of ``counts`` over the connections whose factor is not zero."""
        return (_read(counts, self.index) * (self.factor != 0)).sum(2)

    def readers(self, inputs: int) -> Int[Tensor, " inputs"]:
        """Return how many units read each input."""
        return torch.bincount(self.index[self.index >= 0], minlength=inputs)

    def of(self, unit: int) -> Connected:
        """Return the connections of one unit."""
        index, factor = self._arrays
        there = index[unit] >= 0
        return index[unit][there], factor[unit][there]

    @cached_property
    def _arrays(self) -> tuple[np.ndarray, np.ndarray]:
        return self.index.numpy(), self.factor.numpy()


@dataclass(frozen=True, eq=False)
class LinkFilter:
    """A weight layer: every output channel reads its group's channels, at a few positions around its own.

    Attributes:
        source: the number of the layer that is read.
        weight: one row for each output channel; within a row, the taps of one input channel are adjacent.
        inputs: the number of the input unit with this channel and position.
        columns: the position that each output position reads at each tap; −1 outside the image.
        outputs: the number of the output unit with this channel and position.
        groups: the number of groups of channels.
        is_image: whether it is a convolution.
        transposed: whether it is a transposed convolution, whose parameter has the input channels first.
        names: the names of its weight and its bias among the model's parameters; None for one that is not a parameter.
    """

    source: int
    weight: Float[Tensor, "o k"]
    inputs: Int[Tensor, "c p"]
    columns: Int[Tensor, "q taps"]
    outputs: Int[Tensor, "o q"]
    groups: int = 1
    is_image: bool = False
    transposed: bool = False
    names: tuple[str | None, str | None] = (None, None)

    def largest(self, reach: Float[Tensor, " inputs"]) -> Float[Tensor, " units"]:
        r"""Return max \|weight · reach\| over all connections of each unit."""
        read = self._windows(reach[None])[:, 0]  # g, k, q
        weight = self.weight.abs().unflatten(0, (self.groups, -1))  # g, o, k
        parts: list[Tensor] = []
        for chunk in read.split(max(1, RESULTS // len(self.weight)), dim=2):
            best = chunk.new_zeros(*weight.shape[:2], chunk.shape[2])
            step = max(1, PRODUCTS // best.numel())
            for some, signals in zip(weight.split(step, 2), chunk.contiguous().split(step, 1), strict=True):
                best = torch.maximum(best, (some[..., None] * signals[:, None]).amax(2))
            parts.append(best)
        return self._by_unit(torch.cat(parts, 2).flatten(0, 1)[None])[0]

    def total(self, counts: Float[Tensor, "digits inputs"]) -> Float[Tensor, "digits units"]:
        """Return the sum of ``counts`` over the connections whose weight is not zero."""
        read = self._windows(counts)  # g, digits, k, q
        there = (self.weight != 0).to(counts.dtype).unflatten(0, (self.groups, 1, -1))  # g, 1, o, k
        return self._by_unit((there @ read).transpose(0, 1).flatten(1, 2))

    def readers(self, inputs: int) -> Int[Tensor, " inputs"]:
        """Return 1 for each input: this layer records where a path goes, so its readers need not be counted."""
        return torch.ones(inputs, dtype=torch.int64)

    def of(self, unit: int) -> Connected:
        """Return the connections of one unit."""
        return self._of(unit, self._arrays[0])

    def entries_of(self, unit: int) -> Connected:
        """Return the units that one unit reads, and the index of each connection's weight in its parameter."""
        return self._of(unit, self._entries)

    def _of(self, unit: int, weight: np.ndarray) -> Connected:
        _, inputs, columns, place = self._arrays
        output, position = divmod(int(place[unit]), len(columns))
        there = columns[position] >= 0
        size = len(inputs) // self.groups
        first = output // (len(weight) // self.groups) * size
        units = inputs[first : first + size, columns[position][there]]
        return units.ravel(), weight[output].reshape(size, -1)[:, there].ravel()

    def channel_of(self, unit: int) -> int:
        """Return the output channel of a unit, which is the index of its bias in the parameter."""
        return int(self._arrays[3][unit]) // len(self.columns)

    def _windows(self, signals: Float[Tensor, "b inputs"]) -> Float[Tensor, "g b k q"]:
        """What each output position reads, by group."""
        images = signals[:, self.inputs]  # b, c, p
        read = _read(images, self.columns)  # b, c, q, taps
        return read.unflatten(1, (self.groups, -1)).transpose(3, 4).flatten(2, 3).transpose(0, 1)

    def _by_unit(self, values: Float[Tensor, "b o q"]) -> Float[Tensor, "b units"]:
        units = values.new_empty(len(values), self.outputs.numel())
        units[:, self.outputs.flatten()] = values.flatten(1)
        return units

    @cached_property
    def _entries(self) -> np.ndarray:
        numbers = torch.arange(self.weight.numel())
        if self.transposed:  # the parameter has the shape (in, out / groups, taps)
            channels, groups = len(self.inputs) // self.groups, self.groups
            numbers = numbers.view(groups, channels, len(self.weight) // groups, -1).transpose(1, 2)
        return numbers.reshape(self.weight.shape).numpy()

    @cached_property
    def _arrays(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        place = self.outputs.flatten().argsort()  # channel · positions + position, by number of the unit
        return self.weight.numpy(), self.inputs.numpy(), self.columns.numpy(), place.numpy()


@dataclass(frozen=True, eq=False)
class PathLayer:
    """One operation of a network, in terms of paths.

    Attributes:
        name: its module, or its module and its operation.
        shape: the shape of what it returns for one example.
        connections: what its units read.
        constant: the part of their values that does not depend on what they read: biases, and the input itself.
        starts: whether the constants are input nodes.
        landmark: whether the unit passed here is part of a path's description.
        gate: the name of its gates in a GatePattern; None if it has none.
    """

    name: str
    shape: tuple[int, ...]
    connections: tuple[LinkTable | LinkFilter, ...]
    constant: Float[Tensor, " units"]
    starts: bool = False
    landmark: bool = False
    gate: str | None = None

    @property
    def is_image(self) -> bool:
        """Whether the layer is a convolution, whose units have a channel and a position."""
        return any(isinstance(part, LinkFilter) and part.is_image for part in self.connections)


def identity(units: int) -> Int[Tensor, "units 1"]:
    """Return the index of a table in which each unit reads its own number."""
    return torch.arange(units)[:, None]


def table_of(
    units: Int[Tensor, " entries"], inputs: Int[Tensor, " entries"], factors: Float[Tensor, " entries"], count: int
) -> tuple[Int[Tensor, "count taps"], Float[Tensor, "count taps"]]:
    """Return the index and the factors of a table whose connections are given one by one.

    Example:
        >>> index, factor = table_of(torch.tensor([0, 1, 0]), torch.tensor([0, 1, 1]), torch.tensor([2.0, 3.0, 4.0]), 2)
        >>> index.tolist(), factor.tolist()
        ([[0, 1], [1, -1]], [[2.0, 4.0], [3.0, 0.0]])
    """
    order = units.argsort(stable=True)
    units, inputs, factors = units[order], inputs[order], factors[order]
    lengths = torch.bincount(units, minlength=count)
    place = torch.arange(len(units)) - (lengths.cumsum(0) - lengths)[units]
    taps = max(1, int(lengths.max()))
    index, factor = torch.full((count, taps), -1), factors.new_zeros(count, taps)
    index[units, place], factor[units, place] = inputs, factors
    return index, factor


def _read(signals: Float[Tensor, "*b inputs"], index: Int[Tensor, "units taps"]) -> Float[Tensor, "*b units taps"]:
    """Return the signals at an index; 0 where the index is −1."""
    return torch.nn.functional.pad(signals, (0, 1))[..., index]  # −1 is the zero at the end
