"""Kernels whose entries exceed the range of their dtype."""

import torch
from torch import Tensor

from gatelab.errors import InputError


def refuse_overflow(kernel: Tensor, what: str) -> None:
    """Refuse a kernel with infinite or NaN entries, which finite examples and weights produce only by overflow."""
    if not bool(torch.isfinite(kernel).all()):
        raise InputError(
            f"{what} is larger than {kernel.dtype} holds; scale the examples down, or use a wider dtype for them and "
            "the model"
        )
