"""Vertices of the convex hull of a matrix's rows (hierarchy, Defs 1 and 2)."""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float
from scipy.optimize import linprog
from scipy.spatial import ConvexHull
from torch import Tensor

from gatelab.errors import InputError

# HiGHS solves to 1e-7 by default; rows nearer than this to the hull of the others count as inside it.
VERTEX_TOLERANCE = 1e-7
_QHULL_DIMENSIONS = 8


@dataclass(frozen=True)
class Separation:
    """The hyperplane that best tells one row from the others.

    Attributes:
        normal, offset: w, b with |w|∞ ≤ 1 and w·p_j + b ≤ 0 for all other rows j.
        distance: w·p_i + b at the row itself, which is its ℓ₁ distance to the hull of the others; 0 inside it.
    """

    normal: Float[Tensor, " n"]
    offset: float
    distance: float


def separate(matrix: Float[Tensor, "m n"], row: int) -> Separation:
    """Maximise w·p_i + b subject to w·p_j + b ≤ 0 (j ≠ i) and |w|∞ ≤ 1: a linear programme, solved by HiGHS."""
    points = _finite(matrix)
    if not 0 <= row < len(points):
        raise InputError(f"there is no row {row} in a matrix of {len(points)} rows")
    others = np.delete(points, row, axis=0)
    if len(others) == 0:
        return Separation(torch.zeros_like(matrix[0]), 1.0, 1.0)
    gain = np.append(points[row], 1.0)
    bounds = [(-1.0, 1.0)] * points.shape[1] + [(None, None)]
    constraints = np.hstack([others, np.ones((len(others), 1))])
    solution = linprog(-gain, A_ub=constraints, b_ub=np.zeros(len(others)), bounds=bounds, method="highs")
    if solution.x is None:
        raise RuntimeError(f"HiGHS found no hyperplane for row {row}: {solution.message}")
    normal = torch.as_tensor(solution.x[:-1]).to(matrix)
    return Separation(normal, float(solution.x[-1]), max(0.0, -float(solution.fun)))


def vertices(matrix: Float[Tensor, "m n"], tolerance: float = VERTEX_TOLERANCE) -> Bool[Tensor, " m"]:
    """Which rows are vertices: not in the convex hull of the other rows. Equal rows are none.

    Example:
        >>> vertices(torch.tensor([[0.0, 1.0], [1.0, 0.0], [0.5, 0.5]])).tolist()
        [True, True, False]
    """
    found = [separate(matrix, row).distance > tolerance for row in range(len(matrix))]
    return torch.tensor(found, device=matrix.device)


def vert(matrix: Float[Tensor, "m n"], tolerance: float = VERTEX_TOLERANCE) -> int:
    """The number of rows that are vertices (Def. 2)."""
    return int(vertices(matrix, tolerance).sum())


def is_all_vert(matrix: Float[Tensor, "m n"], tolerance: float = VERTEX_TOLERANCE) -> bool:
    """Whether every row is a vertex (Def. 2)."""
    return vert(matrix, tolerance) == len(matrix)


def hull_vertices(matrix: Float[Tensor, "m n"]) -> Bool[Tensor, " m"]:
    """The same by the whole convex hull (Qhull), inside the plane that the rows span; for rows of few dimensions.

    Raises:
        InputError: the rows span more than eight dimensions, where hulls have too many faces.
    """
    points = _finite(matrix)
    unique, index, counts = np.unique(points.round(12), axis=0, return_inverse=True, return_counts=True)
    centred = unique - unique.mean(axis=0)
    _, lengths, axes = np.linalg.svd(centred, full_matrices=False)
    rank = int((lengths > 1e-9 * max(1.0, lengths[0])).sum())
    if rank > _QHULL_DIMENSIONS:
        raise InputError(
            f"the rows span {rank} dimensions; a full hull is for at most {_QHULL_DIMENSIONS}, use vertices(matrix)"
        )
    flat = centred @ axes[:rank].T
    corners = np.zeros(len(unique), dtype=bool)
    if rank == 0:
        corners[:] = True
    elif rank == 1:
        corners[[flat[:, 0].argmin(), flat[:, 0].argmax()]] = True
    else:
        corners[ConvexHull(flat).vertices] = True
    return torch.as_tensor((corners & (counts == 1))[index.reshape(-1)], device=matrix.device)


def _finite(matrix: Tensor) -> np.ndarray:
    if matrix.ndim != 2 or matrix.numel() == 0 or not bool(torch.isfinite(matrix).all()):
        raise InputError(f"a matrix of shape {tuple(matrix.shape)} with NaN, infinity or nothing in it has no hull")
    return matrix.detach().cpu().double().numpy()
