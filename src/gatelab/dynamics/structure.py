"""What makes a gated linear flow fall apart into smaller ones: equal gates, exclusive gates, translation invariance."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from gatelab.data import circulant
from gatelab.errors import InputError


def dense_blocks(A: Float[Tensor, "kd kd"], K: int) -> Float[Tensor, "k k d d"]:
    """A_pq as blocks[p, q]."""
    dim = len(A) // K
    return A.view(K, dim, K, dim).transpose(1, 2)


def rounding(blocks: Tensor) -> float:
    """What counts as equal: sums over examples in another order differ by some units in the last place."""
    return 100 * torch.finfo(blocks.dtype).eps * float(blocks.abs().max())


def check_symmetric(A: Float[Tensor, "kd kd"]) -> None:
    """Refuse what is no second moment."""
    gap = float((A - A.T).abs().max())
    if not gap <= rounding(A):
        raise InputError(f"A and its transpose differ by {gap:.3g}; second moments are symmetric: use (A + A.T) / 2")


def circulant_rows(blocks: Float[Tensor, "k k d d"], shape: tuple[int, ...]) -> Float[Tensor, "k k *shape"] | None:
    """The first rows of the blocks, if every block is translation-invariant on the ring or torus; else None."""
    K, _, dim, _ = blocks.shape
    if torch.Size(shape).numel() != dim:
        raise InputError(f"shape {shape} does not have {dim} sites, the input's dimension")
    tolerance = rounding(blocks)
    rows = blocks[:, :, 0].reshape(K, K, *shape)
    # One row besides the first tells nearly all blocks that are not; only the rest is compared in full.
    for exact in (False, True):
        for p in range(K):
            for q in range(p, K):
                expected = circulant(rows[p, q]) if exact else rows[p, q].roll(1, -1).flatten()
                found = blocks[p, q] if exact else blocks[p, q, 1]
                if float((expected - found).abs().max()) > tolerance:
                    return None
    return rows


def check_rows(rows: Float[Tensor, "k k *shape"]) -> None:
    """Refuse first rows whose blocks are not symmetric: row[j] must be row[−j], on every axis together."""
    axes = tuple(range(2, rows.dim()))
    mirrored = rows.flip(axes).roll([1] * len(axes), axes)
    gap = max(float((rows - mirrored).abs().max()), float((rows - rows.transpose(0, 1)).abs().max()))
    if not gap <= rounding(rows):
        raise InputError(
            f"the blocks' first rows differ by {gap:.3g} from their mirror images or transposes; "
            "second moments are symmetric"
        )


def identical_units(blocks: Float[Tensor, "k k ..."], b: Float[Tensor, "k d"]) -> list[tuple[int, ...]]:
    """Units with the same gate, grouped: A_pp = A_pq = A_qq and b_p = b_q, but for rounding."""
    tolerance, b_tolerance = rounding(blocks), rounding(b)
    groups: list[list[int]] = []
    for unit in range(len(b)):
        for group in groups:
            first = group[0]
            gaps = ((blocks[first, first] - blocks[other]).abs().max() for other in ((first, unit), (unit, unit)))
            if all(gap <= tolerance for gap in gaps) and (b[first] - b[unit]).abs().max() <= b_tolerance:
                group.append(unit)
                break
        else:
            groups.append([unit])
    return [tuple(group) for group in groups]


def coupling(blocks: Float[Tensor, "k k ..."]) -> Bool[Tensor, "k k"]:
    """Which units are ever open together: exclusive gates leave exact zeros."""
    return blocks.flatten(2).any(dim=2)


def connected(coupled: Bool[Tensor, "k k"]) -> list[tuple[int, ...]]:
    """Connected components of a symmetric relation.

    Example:
        >>> connected(torch.tensor([[1, 0, 1], [0, 1, 0], [1, 0, 1]]).bool())
        [(0, 2), (1,)]
    """
    left, found = set(range(len(coupled))), []
    while left:
        reached, front = set(), {min(left)}
        while front:
            reached |= front
            front = {int(j) for i in front for j in coupled[i].nonzero()} - reached
        found.append(tuple(sorted(reached)))
        left -= reached
    return found
