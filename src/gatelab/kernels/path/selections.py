"""Covariances where each channel of each example reads a field at its own positions, as after a max-pooling."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from gatelab.kernels.compiled import compiled
from gatelab.kernels.path.pairs import AllPairs, OffsetPairs, Pairs

LOOPS = "gatelab.kernels.path.gather_loops"


@dataclass(frozen=True, eq=False)
class Gathering:
    """What some examples read of a field.

    Attributes:
        multiplier: the factor of each channel and position; the taps of one node position stand side by side.
        index: the position in the field that each of them reads.
        taps: how many there are for each node position.
    """

    multiplier: Float[Tensor, "n k r"]
    index: Int[Tensor, "n k r"]
    taps: int


def gathered(
    left: Gathering, right: Gathering, fields: Tensor, form: Pairs, pairs: Pairs | None, blocks: Any
) -> Float[Tensor, "n m groups *pairs"]:
    """Sum multiplier · multiplier · covariance over channels.

    Args:
        left: what the examples of the rows read.
        right: what the examples of the columns read.
        fields: covariances of the field.
        form: the pairs at which ``fields`` holds them.
        pairs: the pairs of node positions that are wanted; None means all pairs of multipliers, with taps kept apart.
        blocks: the groups of channels.
    """
    a, at, b, bt, taps = left.multiplier, left.index, right.multiplier, right.index, left.taps
    if isinstance(form, AllPairs):
        shape = (a.shape[2], b.shape[2])
    else:
        assert isinstance(pairs, OffsetPairs)
        shape = pairs.shape
    n, m = fields.shape[:2]
    out = fields.new_zeros(n, m, blocks.groups, *shape)
    loops = compiled(LOOPS) if fields.device.type == "cpu" else None
    a, at = a.expand(n, -1, -1), at.expand(n, -1, -1)
    b, bt = b.expand(m, -1, -1), bt.expand(m, -1, -1)
    if loops is None:
        _by_torch(a, at, b, bt, taps, fields, form, pairs, blocks, out)
        return out
    sides = [part.contiguous().numpy() for part in (a, at, b, bt)]
    groups = blocks.field_groups.numpy(), blocks.node_groups.numpy()
    held, results = fields.contiguous().numpy(), out.numpy()
    lookup = () if isinstance(form, AllPairs) else _lookup(form)
    for i in range(n):
        for j in range(m):
            mine = (sides[0][i], sides[1][i], sides[2][j], sides[3][j], held[i, j], *groups)
            if isinstance(form, AllPairs):
                loops.add_all_pairs(*mine, results[i, j])
            else:
                assert isinstance(pairs, OffsetPairs)
                loops.add_offsets(*mine, pairs.partners.numpy(), taps, *lookup, results[i, j])
    return out


def _lookup(form: OffsetPairs) -> tuple[np.ndarray, np.ndarray, int]:
    """Return codes of positions whose differences identify offsets, and the number of each offset by difference."""
    codes, base, weight = np.zeros(1, np.int64), 0, 1
    weights = []
    for length in reversed(form.size):
        weights.insert(0, weight)
        base += (length - 1) * weight
        weight *= 2 * length - 1
    for length, step in zip(form.size, weights, strict=True):
        codes = (codes[:, None] + step * np.arange(length)).ravel()
    numbers = np.zeros(weight, np.int64)
    for number, offset in enumerate(form.offsets):
        numbers[base + sum(step * part for step, part in zip(weights, offset, strict=True))] = number
    return codes, numbers, base


def _by_torch(
    a: Tensor,
    at: Tensor,
    b: Tensor,
    bt: Tensor,
    taps: int,
    fields: Tensor,
    form: Pairs,
    pairs: Pairs | None,
    blocks: Any,
    out: Tensor,
) -> None:
    """The same without compiled loops, channel by channel."""
    n, m = out.shape[:2]
    i, j = torch.arange(n, device=out.device), torch.arange(m, device=out.device)
    i, j = i[:, None, None, None], j[None, :, None, None]
    for k, (f, g) in enumerate(zip(blocks.field_groups.tolist(), blocks.node_groups.tolist(), strict=True)):
        if isinstance(form, AllPairs):
            values = fields[i, j, f, at[:, None, k, :, None], bt[None, :, k, None, :]]
            out[:, :, g] += values * a[:, None, k, :, None] * b[None, :, k, None, :]
            continue
        assert isinstance(pairs, OffsetPairs)
        codes, numbers, base = _lookup(form)
        codes, numbers = torch.from_numpy(codes).to(out.device), torch.from_numpy(numbers).to(out.device)
        partners = pairs.partners.to(out.device)
        one, one_at = (part[:, k].unflatten(1, (-1, taps)) for part in (a, at))
        two, two_at = (part[:, k].unflatten(1, (-1, taps))[:, partners.clamp(min=0)] for part in (b, bt))
        two = two * (partners >= 0)[..., None]
        for t in range(taps):
            for u in range(taps):
                q, other = one_at[:, None, None, :, t], two_at[None, :, :, :, u]
                number = numbers[codes[other] - codes[q] + base]
                values = fields[i, j, f, number, q.expand_as(number)]
                out[:, :, g] += values * one[:, None, None, :, t] * two[None, :, :, :, u]
