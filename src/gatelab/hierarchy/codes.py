"""Encode several discrete values as one integer; the first value is the most significant digit."""

from collections.abc import Sequence
from math import prod

import torch
from jaxtyping import Int, Shaped
from torch import Tensor

from gatelab.errors import InputError, SupportTooLargeError

# Visiting a million inputs takes about a second; for more, sampling is the better tool.
ENUMERATION_LIMIT = 2**20
_LARGEST_CODE = 2**62


def check_strings(x: Int[Tensor, "n d"], positions: int, values: int) -> None:
    """Raise InputError unless x holds one or more strings of d positions, each with a value from 0 to v − 1."""
    if x.ndim != 2 or x.shape[1] != positions or x.is_floating_point() or x.is_complex() or len(x) == 0:
        raise InputError(f"x has shape {tuple(x.shape)} and dtype {x.dtype}; expected (n, {positions}) whole numbers")
    if int(x.min()) < 0 or int(x.max()) >= values:
        raise InputError(f"x holds values {int(x.min())} … {int(x.max())}; expected 0 … {values - 1} at every position")


def encode(values: Int[Tensor, "n k"], sizes: Sequence[int]) -> Int[Tensor, " n"]:
    """Return the number whose digits are ``values``, in the mixed base ``sizes``.

    Example:
        >>> encode(torch.tensor([[1, 2], [0, 1]]), (2, 3)).tolist()
        [5, 1]
    """
    if prod(sizes) > _LARGEST_CODE:
        raise SupportTooLargeError(
            f"{len(sizes)} values together take {prod(sizes):,} forms, more than a 64-bit code can distinguish; "
            "use smaller regions or coarser variables"
        )
    code = torch.zeros(values.shape[0], dtype=torch.int64, device=values.device)
    for column, size in enumerate(sizes):
        code = code * size + values[:, column]
    return code


def numbered(rows: Shaped[Tensor, "n k"]) -> Int[Tensor, " n"]:
    """Number the different rows from 0, in lexicographic order; unlike :func:`encode` it takes rows of any length.

    Example:
        >>> numbered(torch.tensor([[1, 0], [0, 5], [1, 0]])).tolist()
        [1, 0, 1]
    """
    return torch.unique(rows, dim=0, return_inverse=True)[1]


def places(known: Shaped[Tensor, "m k"], rows: Shaped[Tensor, "n k"]) -> Int[Tensor, " n"]:
    """Return the number of the known row that equals each row, and m where none does; known rows are all different."""
    numbers = numbered(torch.cat([known, rows]))
    table = torch.full((int(numbers.max()) + 1,), len(known), dtype=torch.int64, device=rows.device)
    table[numbers[: len(known)]] = torch.arange(len(known), device=rows.device)
    return table[numbers[len(known) :]]


def decode(codes: Int[Tensor, " n"], sizes: Sequence[int]) -> Int[Tensor, "n k"]:
    """Return the digits of each code: the inverse of :func:`encode`."""
    digits = torch.empty(len(codes), len(sizes), dtype=torch.int64, device=codes.device)
    for column in range(len(sizes) - 1, -1, -1):
        digits[:, column] = codes % sizes[column]
        codes = codes // sizes[column]
    return digits


def n_factors(size: int, place: str) -> int:
    """Return the number of binary factors of a variable with ``size`` values, the first the most significant bit."""
    bits = size.bit_length() - 1
    if bits < 1 or size != 2**bits:
        raise InputError(f"{place} takes {size} values; binary factors need a power of two")
    return bits


def all_values(sizes: Sequence[int], limit: int = ENUMERATION_LIMIT) -> Int[Tensor, "n k"]:
    """Return every combination of values, in the order of their codes; refuse more than ``limit``."""
    count = prod(sizes)
    if count > limit:
        raise SupportTooLargeError(
            f"{len(sizes)} variables take {count:,} values together, more than the limit of {limit:,}; "
            "draw samples instead (inputs.sample, counted_events), or raise the limit"
        )
    return decode(torch.arange(count), sizes)
