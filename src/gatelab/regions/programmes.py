"""Linear programmes (HiGHS), of whose variables and constraints each may have a size of its own."""

from math import frexp, inf
from typing import Any

import numpy as np
from scipy.optimize import linprog

PRECISE = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}  # of HiGHS
# HiGHS takes coefficients up to 1e-9 for 0. Where entries are smaller than this, rows and columns are rescaled.
_SMALL = 1e-7
_SPREAD = 30.0  # rescaled entries differ by at most 2³⁰, about 1e9


def largest(
    direction: np.ndarray,
    extra: float,
    rows: np.ndarray,
    bound: np.ndarray,
    *,
    low: float | None = None,
    high: float | None = None,
) -> tuple[float, np.ndarray] | None:
    """Maximise ⟨direction, x⟩ + extra · r under rows · (x, r) ≤ bound, low ≤ r ≤ high.

    Returns:
        The maximum, infinite if there is none, and x; None if no point satisfies the constraints.
    """
    factors, sizes = balanced(rows)
    rows, bound = factors[:, None] * rows * sizes, factors * bound
    cost = -np.r_[direction, extra] * sizes
    unit = _power_of_two(np.abs(cost).max())
    ends = [None if end is None else end / sizes[-1] for end in (low, high)]
    ranges: list[tuple[float | None, float | None]] = [*[(None, None)] * len(direction), (ends[0], ends[1])]
    best = solved(cost / unit, rows, bound, bounds=ranges)
    if best.status == 0:
        return -float(best.fun) * unit, (best.x * sizes)[:-1]
    if best.status == 2:
        return None
    inside = solved(
        np.zeros_like(cost), rows, bound, bounds=ranges
    )  # HiGHS may say no more than "infeasible or unbounded"
    return (inf, (inside.x * sizes)[:-1]) if inside.status == 0 else None


def balanced(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Powers of two for rows and for columns, by which a matrix's entries become as equal in size as they can.

    The geometric means of all rows and of all columns become about 1 (Curtis and Reid 1972). All powers are 1 if no
    entry is small beside the others, which are at most 1, or if sizes do not explain the small ones, which may then be
    rounding errors.
    """
    sizes, used = np.abs(rows), rows != 0
    powers = [np.zeros((len(rows), 1)), np.zeros((1, rows.shape[1]))]
    if not used.any() or sizes[used].min() >= _SMALL:
        return np.ones(len(rows)), np.ones(rows.shape[1])
    logs = np.log2(sizes, where=used, out=np.zeros_like(sizes))
    for _ in range(20):
        for axis in (1, 0):
            total = np.where(used, logs + powers[axis], 0).sum(axis=axis, keepdims=True)
            powers[1 - axis] = -total / np.maximum(1, used.sum(axis=axis, keepdims=True))
    left = (logs + powers[0] + powers[1])[used]
    if left.max() - left.min() > _SPREAD:
        return np.ones(len(rows)), np.ones(rows.shape[1])
    by_row, by_column = (np.exp2(np.clip(power.round(), -500, 500)).ravel() for power in powers)
    return by_row, by_column


def _power_of_two(value: float) -> float:
    return 2.0 ** (frexp(value)[1] - 1) if 0 < value < inf else 1.0


def solved(*programme: Any, **bounds: Any) -> Any:
    """Return HiGHS's answer to a linear programme, which is given as to ``scipy.optimize.linprog``.

    Its simplex method gives up (status 4) on some programmes that are well posed; its interior points then answer.
    """
    answer = linprog(*programme, **bounds, method="highs", options=PRECISE)
    return answer if answer.status != 4 else linprog(*programme, **bounds, method="highs-ipm", options=PRECISE)
