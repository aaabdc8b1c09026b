"""The boundaries of a ReLU unit's gates in weight space, and what a unit does when it reaches one (Filippov)."""

from dataclasses import dataclass

import numpy as np
from scipy.optimize import lsq_linear

_DIGITS = 10  # directions that agree to this many digits count as one


@dataclass(frozen=True)
class Facets:
    """Hyperplanes wᵀq = 0, one for each direction among the examples; parallel and opposite examples share one.

    ``normals`` are unit vectors q, ``of`` gives the facet of each example and ``along`` its length along q, negative
    for an opposite one. Examples that are zero lie on no facet and are left out by the caller.
    """

    normals: np.ndarray
    of: np.ndarray
    along: np.ndarray

    @classmethod
    def among(cls, x: np.ndarray) -> "Facets":
        """Group examples by direction."""
        lengths = np.linalg.norm(x, axis=1)
        directions = x / lengths[:, None]
        rounded = np.round(directions, _DIGITS)
        # The first entry that is not zero decides the sign, so opposite rows become equal.
        signs = np.sign(rounded[np.arange(len(x)), (rounded != 0).argmax(axis=1)])
        _, places, of = np.unique(rounded * signs[:, None], axis=0, return_index=True, return_inverse=True)
        normals = directions[places] * signs[places, None]
        return cls(normals, of.ravel(), lengths * signs)


def settle(
    push: np.ndarray, normals: np.ndarray, plus: np.ndarray, minus: np.ndarray, came: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Decide what a unit does on several facets at once.

    The other examples give the velocity ``push``; the examples on facet f add m_f q_f to it, with m = ``plus`` on the
    facet's positive side and ``minus`` on its negative side. Where the velocities on both sides point to the facet
    (plus < minus), the unit slides along it, with an m between them that keeps it there. The sliding velocity is the
    shortest one in the box of all m, so bounded least squares finds every m together.

    Args:
        push: velocity without the examples on these facets.
        normals: q of the facets.
        plus: m on the positive sides.
        minus: m on the negative sides.
        came: the side, ±1, from which each facet was reached; 0 for one along which the unit was sliding.

    Returns:
        The new side of each facet, 0 where the unit slides, and m.
    """
    attracts = plus < minus
    # A unit crosses a facet that does not attract it, and leaves one that no longer does to its plus side.
    m = np.where(came > 0, minus, plus).astype(float)
    side = np.where(came > 0, -1, 1)
    if attracts.any():
        fixed = push + m[~attracts] @ normals[~attracts]
        low, high = plus[attracts], minus[attracts]
        found = lsq_linear(normals[attracts].T, -fixed, bounds=(low, high), method="bvls", tol=1e-15).x
        width = high - low
        inside = (found > low + 1e-9 * width) & (found < high - 1e-9 * width)
        m[attracts] = found
        side[attracts] = np.where(inside, 0, np.where(found <= low + 1e-9 * width, 1, -1))
    return side, m
