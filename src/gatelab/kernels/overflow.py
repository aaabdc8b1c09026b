"""Kernels whose entries exceed the range of their dtype."""

from math import isfinite

import torch
from torch import Tensor

from gatelab.errors import InputError


def is_finite(kernel: Tensor) -> bool:
    """Whether all entries are finite.

    ``torch.isfinite`` would make arrays of one and a half times the kernel's size, and take thirty times as long.

    Example:
        >>> is_finite(torch.ones(2, 2)), is_finite(torch.tensor([1.0, float("nan")]))
        (True, False)
    """
    return not kernel.numel() or all(isfinite(end.item()) for end in torch.aminmax(kernel))  # passes NaN on


def refuse_overflow(kernel: Tensor, what: str) -> None:
    """Refuse a kernel with infinite or NaN entries, which finite examples and weights produce only by overflow."""
    if not is_finite(kernel):
        raise InputError(
            f"{what} is larger than {kernel.dtype} holds; scale the examples down, or use a wider dtype for them and "
            "the model"
        )
