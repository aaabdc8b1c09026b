"""Kernels with entries that their dtype does not hold."""

import pytest
import torch

from gatelab.errors import InputError
from gatelab.kernels.overflow import is_finite, refuse_overflow


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("bad", [float("inf"), -float("inf"), float("nan")])
def test_one_bad_entry_is_found(bad, dtype):
    kernel = torch.randn(70, 90).to(dtype)
    assert is_finite(kernel)
    kernel[61, 33] = bad
    assert not is_finite(kernel)
    with pytest.raises(InputError, match=f"the kernel is larger than {dtype} holds"):
        refuse_overflow(kernel, "the kernel")


def test_an_empty_kernel_is_finite():
    assert is_finite(torch.empty(0, 3))


def test_largest_numbers_are_finite():
    """Their sum or their square would overflow."""
    assert is_finite(torch.full((3, 3), torch.finfo(torch.float64).max))
