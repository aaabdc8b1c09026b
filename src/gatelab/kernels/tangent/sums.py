"""Inner products of long vectors, added up so that float32 keeps its digits.

A float32 product adds its terms one after another. Once a sum of ten million squares is large, every further term loses
digits: the sum is off by up to a percent. Blocks of a few thousand terms lose almost nothing, and adding their sums in
float64 costs one addition for each of them.
"""

import torch
from jaxtyping import Float
from torch import Tensor

# Terms that are added in the caller's precision. Equal terms are the worst case: their roundings have one sign. Of ten
# million of them a product of 2 × 2 examples loses 2e-6 in blocks of 2^12, 5e-5 in blocks of 2^16, 7e-3 in one block.
BLOCK = 2**12
# Sums of blocks that are held at a time, 1 MB.
_HELD = 2**18


def widest(device: torch.device) -> torch.dtype:
    """Return the dtype in which sums are added up: float64, or float32 on devices that have no float64."""
    return torch.float32 if device.type == "mps" else torch.float64


def inner_products(left: Float[Tensor, "*b n t"], right: Float[Tensor, "*b m t"]) -> Float[Tensor, "*b n m"]:
    """Compute left · rightᵀ; with more than 2^12 terms, in blocks that are added up in float64.

    Short products keep the dtype of their factors; long ones have the dtype of :func:`widest`.

    Example:
        >>> tenths = torch.full((1, 2**24), 0.1, dtype=torch.float32)
        >>> round(inner_products(tenths, tenths).item() / 2**24, 7), (tenths @ tenths.T).item() / 2**24 < 0.0099999
        (0.01, True)
    """
    terms = left.shape[-1]
    if terms <= BLOCK or left.dtype == torch.float64:
        return left @ right.mT
    total = left.new_zeros(*left.shape[:-1], right.shape[-2], dtype=widest(left.device))
    whole = terms // BLOCK if left.ndim == 2 else 0
    if whole:  # one call for many blocks: for two examples a call takes longer than its product
        ours, theirs = (side[:, : whole * BLOCK].unflatten(1, (whole, BLOCK)).transpose(0, 1) for side in (left, right))
        step = max(1, _HELD // total.numel())
        for start in range(0, whole, step):
            blocks = slice(start, start + step)
            total += (ours[blocks] @ theirs[blocks].mT).sum(dim=0, dtype=total.dtype)
    for start in range(whole * BLOCK, terms, BLOCK):
        block = slice(start, start + BLOCK)
        total += left[..., block] @ right[..., block].mT
    return total
