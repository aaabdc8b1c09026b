"""Products of gates over channels at pairs of positions, from packed bits."""

import numpy as np
from jaxtyping import Float, Int
from torch import Tensor

from gatelab.gates.bits import pack
from gatelab.kernels.compiled import compiled

LOOPS = "gatelab.kernels.path.gather_loops"
# Counting bits pays where many pairs of positions share the packing, and a word holds several channels.
FEWEST_OFFSETS, FEWEST_CHANNELS = 3, 16


def bit_products(
    left: Float[Tensor, "a c k p"], right: Float[Tensor, "b c k p"], partners: Int[Tensor, "d p"]
) -> Float[Tensor, "a b c d p"] | None:
    """Sum products over k at pairs of positions, if multipliers are bits times a number; None if they are not.

    Args:
        left: multipliers of the rows.
        right: multipliers of the columns.
        partners: for each offset and position the other position, -1 for none.
    """
    few = partners.shape[0] < FEWEST_OFFSETS or left.shape[2] < FEWEST_CHANNELS
    loops = None if few or left.device.type != "cpu" else compiled(LOOPS)
    levels = (level(left), level(right)) if loops is not None else (None, None)
    if loops is None or levels[0] is None or levels[1] is None:
        return None
    rows, columns = _packed(left), _packed(right)
    out = left.new_empty(left.shape[0], right.shape[0], left.shape[1], *partners.shape)
    others = partners.numpy()
    for i in range(out.shape[0]):
        for j in range(out.shape[1]):
            for c in range(out.shape[2]):
                loops.count_common(rows[i, c], columns[j, c], others, out[i, j, c].numpy())
    return out.mul_(levels[0] * levels[1])


def level(multiplier: Tensor) -> float | None:
    """The value of the multipliers where they are not zero; None if there are several."""
    level = float(multiplier.max()) or 1.0  # all closed gates are bits, too
    return level if bool(((multiplier == 0) | (multiplier == level)).all()) else None


def _packed(multiplier: Float[Tensor, "n c k p"]) -> np.ndarray:
    """Channels as bits: (n, c, words, p)."""
    open_channels = multiplier.transpose(2, 3) != 0
    words = pack(open_channels.reshape(-1, multiplier.shape[2])).view(*open_channels.shape[:3], -1)
    return np.ascontiguousarray(words.transpose(2, 3).numpy()).view(np.uint64)
