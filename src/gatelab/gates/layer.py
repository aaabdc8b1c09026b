"""GateLayer: the gates of one operation, as packed bits and, where they are soft, as numbers."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from math import prod

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from gatelab.gates.bits import pack, unpack

Slope = float | tuple[float, ...]  # what closed gates pass: one number, or one for each channel (PReLU)


class GateKind(StrEnum):
    """The operation that opens and closes a gate."""

    RELU = "relu"
    LEAKY_RELU = "leaky_relu"
    MAX_POOL = "max_pool"
    GATED = "gated"
    BOUNDED = "bounded"  # open between two bounds, constant outside: ReLU6, Hardtanh, clamp(min, max)
    ACTIVATION = "activation"  # a number for each unit: SiLU, GELU and their kin
    FACTOR = "factor"  # another signal: the sigmoid of squeeze-and-excitation, the gate of a GLU

    @property
    def is_relu(self) -> bool:
        """Whether this is the gate of a ReLU, with or without a slope."""
        return self in (GateKind.RELU, GateKind.LEAKY_RELU)


@dataclass(frozen=True)
class GateLayer:
    """The gates of one operation for all examples.

    Attributes:
        kind: the kind of gate.
        shape: axes after the examples: (w,) for dense layers, (c, height, width) for convolutional ones,
            (c, *positions, taps) for max-pooling, where the winning tap of each window is open.
        words: one bit per gate, 1 if it is open, packed row by row.
        slope: the share that a closed gate still passes (LeakyReLU), by channel for a PReLU; 0 otherwise.
        numbers: the factor of each gate, if gates are soft; an axis of length 1 means the same factor along that axis.
    """

    kind: GateKind
    shape: tuple[int, ...]
    words: Int64[Tensor, "n words"]
    slope: Slope = 0.0
    numbers: Float[Tensor, "n ..."] | None = None

    @classmethod
    def of(
        cls,
        gates: Bool[Tensor, "n ..."],
        kind: GateKind = GateKind.RELU,
        slope: Slope = 0.0,
        numbers: Float[Tensor, "n ..."] | None = None,
    ) -> "GateLayer":
        """Pack boolean gates; ``numbers`` are their factors, if they are soft."""
        return cls(kind, tuple(gates.shape[1:]), pack(gates.flatten(1)), slope, numbers)

    @property
    def units(self) -> int:
        """Number of gates for one example."""
        return prod(self.shape)

    def gates(self) -> Bool[Tensor, " n *shape"]:
        """Return the gates as booleans."""
        return unpack(self.words, self.units).view(-1, *self.shape)

    def factors(self, dtype: torch.dtype) -> Float[Tensor, " n *shape"]:
        """Return the factor of each gate: its number if it is soft, else 1 if open and the slope if closed."""
        if self.numbers is not None:
            return self.numbers.to(dtype).expand(-1, *self.shape)
        return factors_of(self.gates(), self.slope, dtype)

    def hard(self) -> "GateLayer":
        """Return the layer with bits in place of numbers."""
        return replace(self, numbers=None)

    def changed(self, change: Callable[[Tensor], Tensor]) -> "GateLayer":
        """Return the layer with ``change``, a function of rows, applied to each of its tensors."""
        return replace(self, words=change(self.words), numbers=None if self.numbers is None else change(self.numbers))


def joined(layers: Sequence[GateLayer]) -> GateLayer:
    """Return the gates of several sets of examples as one layer."""
    first, numbers = layers[0], [layer.numbers for layer in layers if layer.numbers is not None]
    return replace(
        first,
        words=torch.cat([layer.words for layer in layers]),
        numbers=None if first.numbers is None else torch.cat(numbers),
    )


def factors_of(gates: Bool[Tensor, "n ..."], slope: Slope, dtype: torch.dtype) -> Float[Tensor, "n ..."]:
    """Return 1 for an open gate and the slope for a closed one; slopes by channel belong to the first axis of units.

    Example:
        >>> factors_of(torch.tensor([[True, False]]), 0.25, torch.float64).tolist()
        [[1.0, 0.25]]
    """
    numbers = gates.to(dtype)
    if not slope:
        return numbers
    closed = torch.tensor(slope, dtype=dtype, device=gates.device)
    return numbers + closed.view(-1, *[1] * (gates.ndim - 2)) * (1 - numbers)
