"""Counting and numbering paths, without listing them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod

from gatelab.errors import InputError, TooManyPathsError
from gatelab.network import DenseChain

DEFAULT_LIMIT = 2**22


@dataclass(frozen=True)
class PathIndex:
    """Numbers the paths of a fully connected network: index ↔ units passed.

    A path starts at an input node and passes one unit in each hidden layer, (i₀, i₁, …, i_{d−1}). In a network with
    biases a path may also start at the constant node that feeds layer l, passing (i_l, …, i_{d−1}); those are numbered
    behind, by l. Within a start, paths are in lexicographic order, the first unit counting most (npk, Figure 1).

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

    @classmethod
    def of(cls, chain: DenseChain) -> "PathIndex":
        """The numbering of a chain's paths."""
        return cls(chain.widths[:-1], tuple(layer.bias is not None for layer in chain.layers))

    @property
    def starts(self) -> tuple[int, ...]:
        """Where paths can start: 0 for the input, l for the constant node of weight layer l = 1 … d."""
        return (0, *(layer for layer, biased in enumerate(self.biased, 1) if biased))

    @property
    def count(self) -> int:
        """Number of paths to one output, P = d_in w₁ … w_{d−1} without biases."""
        return sum(self.count_from(start) for start in self.starts)

    def units(self, number: int) -> tuple[int, ...]:
        """The units that a path passes."""
        return self.locate(number)[1]

    def start(self, number: int) -> int:
        """Where a path starts."""
        return self.locate(number)[0]

    def locate(self, number: int) -> tuple[int, tuple[int, ...]]:
        """Start and units of a path."""
        if not 0 <= number < self.count:
            raise InputError(f"path {number} does not exist; there are {self.count}")
        for start in self.starts:
            if number < self.count_from(start):
                return start, _digits(number, self.widths[start:])
            number -= self.count_from(start)
        raise AssertionError("unreachable: count bounds the number")

    def number(self, units: Sequence[int], start: int = 0) -> int:
        """The number of the path that passes ``units``; the inverse of :meth:`locate`."""
        widths = self.widths[start:]
        if start not in self.starts or len(units) != len(widths):
            raise InputError(f"no path starts at layer {start} and passes {len(units)} units in widths {self.widths}")
        before = sum(self.count_from(other) for other in self.starts if other < start)
        within = 0
        for unit, width in zip(units, widths, strict=True):
            if not 0 <= unit < width:
                raise InputError(f"unit {unit} is not one of {width}")
            within = within * width + unit
        return before + within

    def __iter__(self) -> Iterator[tuple[int, ...]]:
        return (self.units(number) for number in range(self.count))

    def guard(self, limit: int, instead: str) -> None:
        """Refuse to go on when there are more than ``limit`` paths."""
        if self.count > limit:
            raise TooManyPathsError(
                f"widths {self.widths} have {self.count:,} paths, more than the limit of {limit:,}; {instead}, "
                "or raise limit="
            )

    def count_from(self, start: int) -> int:
        """Number of paths that start there."""
        return prod(self.widths[start:])


def _digits(number: int, widths: Sequence[int]) -> tuple[int, ...]:
    digits = []
    for width in reversed(widths):
        number, digit = divmod(number, width)
        digits.append(digit)
    return tuple(reversed(digits))
