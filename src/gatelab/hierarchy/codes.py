"""Several discrete values as one number, the first value being the most significant digit."""

from collections.abc import Sequence
from math import prod

import torch
from jaxtyping import Int
from torch import Tensor

from gatelab.errors import SupportTooLargeError

# Visiting a million inputs takes about a second; beyond, sampling is the better tool.
ENUMERATION_LIMIT = 2**20
_LARGEST_CODE = 2**62


def encode(values: Int[Tensor, "n k"], sizes: Sequence[int]) -> Int[Tensor, " n"]:
    """The number whose digits are ``values``, in the mixed base ``sizes``.

    Example:
        >>> encode(torch.tensor([[1, 2], [0, 1]]), (2, 3)).tolist()
        [5, 1]
    """
    if prod(sizes) > _LARGEST_CODE:
        raise SupportTooLargeError(
            f"{len(sizes)} values together take {prod(sizes):,} forms, more than a code of 64 bits can tell apart; "
            "use smaller regions or coarser variables"
        )
    code = torch.zeros(values.shape[0], dtype=torch.int64, device=values.device)
    for column, size in enumerate(sizes):
        code = code * size + values[:, column]
    return code


def decode(codes: Int[Tensor, " n"], sizes: Sequence[int]) -> Int[Tensor, "n k"]:
    """The digits of each code: the inverse of :func:`encode`."""
    digits = []
    for size in reversed(sizes):
        digits.append(codes % size)
        codes = codes // size
    empty = torch.zeros(codes.shape[0], 0, dtype=torch.int64, device=codes.device)
    return torch.stack(digits[::-1], dim=1) if digits else empty


def all_values(sizes: Sequence[int], limit: int = ENUMERATION_LIMIT) -> Int[Tensor, "n k"]:
    """Every combination of values, in the order of their codes.

    Raises:
        SupportTooLargeError: there are more than ``limit``.
    """
    count = prod(sizes)
    if count > limit:
        raise SupportTooLargeError(
            f"{len(sizes)} variables take {count:,} values together, more than the limit of {limit:,}; "
            "sample them instead (counted_events), or raise the limit"
        )
    return decode(torch.arange(count), sizes)
