"""Count and number paths without listing them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod

from gatelab.errors import InputError, TooManyPathsError
from gatelab.network.chain import DenseChain

DEFAULT_LIMIT = 2**22


@dataclass(frozen=True)
class PathIndex:
    """Numbers the paths of a fully connected network: number ↔ units passed.

    A path starts at an input node and passes one unit in each hidden layer, (i₀, i₁, …, i_{d−1}). In a network with
    biases a path may also start at the constant node that feeds layer l, and pass (i_l, …, i_{d−1}). Paths from the
    input come first, then those from constant nodes, by l. Paths with the same start are in lexicographic order; the
    first unit counts most (npk, Figure 1).

    Attributes:
        widths: input dimension and hidden widths, (d_in, w₁, …, w_{d−1}).
        biased: for each of the d weight layers, whether it has a bias.

    Example:
        >>> index = PathIndex((2, 3, 3), (False, False, False))
        >>> index.count, index.units(17), index.number((1, 2, 2))
        (18, (1, 2, 2), 17)
    """

    widths: tuple[int, ...]
    biased: tuple[bool, ...]

    def __post_init__(self) -> None:
        if not self.widths or min(self.widths) < 1 or len(self.biased) != len(self.widths):
            raise InputError(
                f"widths are {self.widths}, biased {self.biased}; give positive widths without the output's, and for "
                "each whether the weight layer that reads it has a bias"
            )

    @classmethod
    def of(cls, chain: DenseChain) -> "PathIndex":
        """Return the numbering of a chain's paths."""
        return cls(chain.widths[:-1], tuple(layer.bias is not None for layer in chain.layers))

    @property
    def starts(self) -> tuple[int, ...]:
        """Where paths can start: 0 is the input, l is the constant node of weight layer l = 1 … d."""
        return (0, *(layer for layer, biased in enumerate(self.biased, 1) if biased))

    @property
    def count(self) -> int:
        """Number of paths to one output, P = d_in w₁ … w_{d−1} without biases."""
        return sum(self.count_from(start) for start in self.starts)

    def count_from(self, start: int) -> int:
        """Return the number of paths with this start."""
        return prod(self.widths[start:])

    def units(self, number: int) -> tuple[int, ...]:
        """Return the units that a path passes."""
        return self.locate(number)[1]

    def locate(self, number: int) -> tuple[int, tuple[int, ...]]:
        """Return the start and the units of a path."""
        if not 0 <= number < self.count:
            raise InputError(f"path {number} does not exist; there are {self.count}")
        start = 0
        for start in self.starts:
            if number < self.count_from(start):
                break
            number -= self.count_from(start)
        digits = []
        for width in reversed(self.widths[start:]):
            number, digit = divmod(number, width)
            digits.append(digit)
        return start, tuple(reversed(digits))

    def number(self, units: Sequence[int], start: int = 0) -> int:
        """Return the number of the path that passes ``units``; the inverse of :meth:`locate`."""
        widths = self.widths[start:]
        if start not in self.starts or len(units) != len(widths):
            raise InputError(f"no path from layer {start} passes {len(units)} units in widths {self.widths}")
        before = sum(self.count_from(other) for other in self.starts if other < start)
        within = 0
        for unit, width in zip(units, widths, strict=True):
            if not 0 <= unit < width:
                raise InputError(f"unit {unit} does not exist; the layer has units 0 to {width - 1}")
            within = within * width + unit
        return before + within

    def __iter__(self) -> Iterator[tuple[int, ...]]:
        return (self.units(number) for number in range(self.count))

    def guard(self, limit: int, instead: str) -> None:
        """Refuse to list more than ``limit`` paths; ``instead`` names the alternative."""
        if not isinstance(limit, int):
            raise InputError(f"limit is {limit!r}; it must be a whole number of paths")
        if self.count > limit:
            raise TooManyPathsError(
                f"widths {self.widths} have {self.count:,} paths, more than the limit of {limit:,}; {instead}, "
                "or raise limit="
            )
