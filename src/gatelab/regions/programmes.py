"""Linear programmes (HiGHS)."""

from math import inf
from typing import Any

import numpy as np
from scipy.optimize import linprog

_PRECISE = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10, "maxiter": 10_000}  # of HiGHS
_FAR = 1e20  # HiGHS takes a bound of this size or more for none
_OPEN = (1, 4)  # the status of a programme that reached the limit of steps, or met numerical difficulties


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
    cost = -np.r_[direction, extra]
    ranges: list[tuple[float | None, float | None]] = [*[(None, None)] * len(direction), (low, high)]
    best = solved(cost, rows, bound, bounds=ranges)
    if best.status == 0:
        return -float(best.fun), best.x[:-1]
    if best.status == 2:
        return None
    # HiGHS may say no more than "infeasible or unbounded".
    inside = solved(np.zeros_like(cost), rows, bound, bounds=ranges)
    if inside.status != 0:
        return None
    far = float(np.abs(bound).max(initial=0.0))
    if far >= _FAR:
        best = largest(direction, extra, rows, bound / far, low=low and low / far, high=high and high / far)
        if best is not None and best[0] < inf:
            return far * best[0], far * best[1]
    return inf, inside.x[:-1]


def solved(*programme: Any, **bounds: Any) -> Any:
    """Return HiGHS's answer to a linear programme, which is given as to ``scipy.optimize.linprog``.

    Its simplex method gives up (status 4) on some programmes that are well posed; its interior points, or the simplex
    method without its first simplifications, then answer. Each has a limited number of steps: some never end.
    """
    answer = linprog(*programme, **bounds, method="highs", options=_PRECISE)
    for method, changes in (("highs-ipm", {}), ("highs-ds", {"presolve": False})):
        if answer.status not in _OPEN:
            break
        answer = linprog(*programme, **bounds, method=method, options=_PRECISE | changes)
    return answer
