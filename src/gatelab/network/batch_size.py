"""The number of examples, as an integer that remembers which multiple of n it is."""

from typing import Any


class BatchSize(int):
    """A whole number that is a fixed multiple of the number of examples.

    A record is made with one batch size but must run with any. Sizes that the model reads from its signals are
    therefore of this type: torch accepts them as ordinary integers, and the record writes them as ``factor · n``.

    Example:
        >>> n = BatchSize(2, factor=1)
        >>> n * 3, (n * 3).factor, (n * 6 // 2).factor
        (6, 3, 3)
    """

    factor: int

    def __new__(cls, value: int, factor: int) -> "BatchSize":
        """Return ``value``, which is ``factor`` times the number of examples."""
        number = super().__new__(cls, value)
        number.factor = factor
        return number

    def __mul__(self, other: Any) -> Any:
        """Multiply; the product with a plain integer is again a multiple."""
        product = int(self) * other
        plain = isinstance(other, int) and not isinstance(other, BatchSize)
        return BatchSize(product, self.factor * other) if plain else product

    __rmul__ = __mul__

    def __floordiv__(self, other: Any) -> Any:
        """Divide; the quotient is a multiple if the factor is divisible."""
        quotient = int(self) // other
        divides = isinstance(other, int) and not isinstance(other, BatchSize) and other and self.factor % other == 0
        return BatchSize(quotient, self.factor // other) if divides else quotient

    def __reduce__(self) -> tuple[type[int], tuple[int]]:
        """Copies and pickles are plain integers."""
        return int, (int(self),)


def holds_batch_size(value: Any) -> bool:
    """Whether an argument, or something inside it, depends on the number of examples."""
    if isinstance(value, BatchSize):
        return True
    if isinstance(value, dict):
        value = tuple(value.values())
    return isinstance(value, tuple | list) and any(holds_batch_size(part) for part in value)
