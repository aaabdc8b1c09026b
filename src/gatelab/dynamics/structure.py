"""Structure that splits a gated linear flow into smaller ones: equal gates, exclusive gates, translation invariance."""

from itertools import product

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from gatelab.errors import InputError


def _rounding(blocks: Tensor) -> float:
    """Return the largest gap that counts as equal: sums in another order differ by some units in the last place."""
    return 100 * torch.finfo(blocks.dtype).eps * float(blocks.abs().max())


def check_symmetric(A: Float[Tensor, "kd kd"]) -> None:
    """Raise InputError unless A is symmetric up to rounding."""
    gap = float((A - A.T).abs().max())
    # A comparison with NaN is false, so this also refuses NaN.
    if not gap <= _rounding(A):
        raise InputError(f"A and its transpose differ by {gap:.3g}; second moments are symmetric: use (A + A.T) / 2")


def check_rows(rows: Float[Tensor, "k k *shape"]) -> None:
    """Raise InputError unless first rows belong to symmetric blocks: row[j] = row[−j], on all axes at once."""
    axes = tuple(range(2, rows.dim()))
    mirrored = rows.flip(axes).roll([1] * len(axes), axes)
    gap = max(float((rows - mirrored).abs().max()), float((rows - rows.transpose(0, 1)).abs().max()))
    if not gap <= _rounding(rows):
        raise InputError(
            f"the blocks' first rows differ by {gap:.3g} from their mirror images or transposes; "
            "second moments are symmetric: give rows with row[j] = row[-j]"
        )


def circulant_rows(blocks: Float[Tensor, "k k d d"], shape: tuple[int, ...]) -> Float[Tensor, "k k *shape"] | None:
    """Return the first rows of the blocks if every block is translation-invariant on the ring or torus, else None."""
    K, _, dim, _ = blocks.shape
    if torch.Size(shape).numel() != dim:
        raise InputError(f"shape {shape} has {torch.Size(shape).numel()} sites, the input {dim}; give its own shape")
    tolerance = _rounding(blocks)
    rows = blocks[:, :, 0].reshape(K, K, *shape)
    axes = tuple(range(2, rows.dim()))
    # The second site rules out nearly all matrices that are not invariant, so this loop ends early for them.
    for site, place in enumerate(product(*map(range, shape))):
        shifted = rows.roll(place, axes).flatten(2)
        if float((shifted - blocks[:, :, site]).abs().max()) > tolerance:
            return None
    return rows


def identical_units(blocks: Float[Tensor, "k k ..."], b: Float[Tensor, "k d"]) -> list[tuple[int, ...]]:
    """Group units with the same gate: A_pp = A_pq = A_qq and b_p = b_q, up to rounding."""
    tolerance, b_tolerance = _rounding(blocks), _rounding(b)
    groups: list[list[int]] = []
    for unit in range(len(b)):
        for group in groups:
            first = group[0]
            gaps = ((blocks[first, first] - blocks[pair]).abs().max() for pair in ((first, unit), (unit, unit)))
            if all(gap <= tolerance for gap in gaps) and (b[first] - b[unit]).abs().max() <= b_tolerance:
                group.append(unit)
                break
        else:
            groups.append([unit])
    return [tuple(group) for group in groups]


def connected(coupled: Bool[Tensor, "k k"]) -> list[tuple[int, ...]]:
    """Return the connected components of a symmetric relation.

    Example:
        >>> connected(torch.tensor([[1, 0, 1], [0, 1, 0], [1, 0, 1]]).bool())
        [(0, 2), (1,)]
    """
    unseen, components = set(range(len(coupled))), []
    while unseen:
        reached, front = set(), {min(unseen)}
        while front:
            reached |= front
            front = {int(j) for i in front for j in coupled[i].nonzero()} - reached
        components.append(tuple(sorted(reached)))
        unseen -= reached
    return components
