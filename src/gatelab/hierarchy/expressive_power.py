"""What ReLU networks can express and linear networks cannot (hierarchy, Defs 1 and 2, Thms 6 and 7)."""

from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Bool, Float
from scipy.optimize import linprog
from torch import Tensor

from gatelab.errors import InputError
from gatelab.hierarchy.events import Events
from gatelab.hierarchy.reformulation import reformulate
from gatelab.hierarchy.student import LocalNetwork, NodeOptions

# HiGHS solves to 1e-7 by default; rows nearer than this to the hull of the others, relative to the spread of all rows,
# count as inside it.
_VERTEX_TOLERANCE = 1e-7


def separate(matrix: Float[Tensor, "m n"], row: int) -> tuple[Float[Tensor, " n"], float, float]:
    """Return the hyperplane w, b that best separates row i from the others, and w·p_i + b.

    The linear programme "maximise w·p_i + b subject to w·p_j + b ≤ 0 for j ≠ i and |w|∞ ≤ 1" is solved by HiGHS. Its
    value is the row's ℓ₁ distance to the convex hull of the others; 0 inside the hull. The programme is solved for rows
    shifted and scaled to [−1, 1], so that the data's unit does not matter to the solver.
    """
    if matrix.ndim != 2 or matrix.numel() == 0 or not bool(torch.isfinite(matrix).all()):
        raise InputError(f"a matrix of shape {tuple(matrix.shape)}, empty or with NaN or infinity, has no hull")
    points = matrix.detach().cpu().double().numpy()
    if not 0 <= row < len(points):
        raise InputError(f"there is no row {row}; the matrix has {len(points)} rows")
    if len(points) == 1:
        return torch.zeros_like(matrix[0]), 1.0, 1.0
    centre, spread = points.mean(axis=0), _spread(matrix)
    points = (points - centre) / (spread or 1.0)
    others = np.delete(points, row, axis=0)
    gain = np.append(points[row], 1.0)
    bounds = [(-1.0, 1.0)] * points.shape[1] + [(None, None)]
    constraints = np.hstack([others, np.ones((len(others), 1))])
    solution = linprog(-gain, A_ub=constraints, b_ub=np.zeros(len(others)), bounds=bounds, method="highs")
    if solution.x is None:
        raise RuntimeError(f"HiGHS found no hyperplane for row {row}: {solution.message}")
    normal, offset = solution.x[:-1], spread * float(solution.x[-1]) - float(solution.x[:-1] @ centre)
    return torch.as_tensor(normal).to(matrix), offset, spread * max(0.0, -float(solution.fun))


def _spread(matrix: Float[Tensor, "m n"]) -> float:
    """Return the largest distance of an entry from its column's mean."""
    points = matrix.detach().double()
    return (points - points.mean(dim=0)).abs().max().item()


def _inside(matrix: Float[Tensor, "m n"]) -> float:
    """Return the distance below which a row counts as inside the hull: the solver's precision, or the matrix's own."""
    return max(_VERTEX_TOLERANCE, 16 * torch.finfo(matrix.dtype).eps) * _spread(matrix)


def vertices(matrix: Float[Tensor, "m n"]) -> Bool[Tensor, " m"]:
    """Return which rows are vertices: not in the convex hull of the other rows (Def. 1). Equal rows are not vertices.

    vert(P) of Def. 2 is their number; P is all-vert if all rows are vertices.

    Example:
        >>> vertices(torch.tensor([[0.0, 1.0], [1.0, 0.0], [0.5, 0.5]])).tolist()
        [True, True, False]
    """
    nearest = torch.tensor([separate(matrix, row)[2] for row in range(len(matrix))], device=matrix.device)
    return nearest > _inside(matrix) if len(matrix) > 1 else torch.ones_like(nearest, dtype=torch.bool)


def relu_weights(matrix: Float[Tensor, "m n"], place: str = "P") -> tuple[Float[Tensor, "n m"], Float[Tensor, " m"]]:
    """Find W and b with relu(P W + b) = I, from a separating hyperplane for each row (hierarchy, Thm. 6)."""
    planes = [separate(matrix, row) for row in range(len(matrix))]
    for row, (_, _, distance) in enumerate(planes):
        if len(planes) > 1 and distance <= _inside(matrix):
            raise InputError(
                f"{place}: row {row} lies in the convex hull of the others (distance {distance:.1e}), so "
                "no node can single it out; Theorem 6 needs every row to be a vertex"
            )
    weight = torch.stack([normal / distance for normal, _, distance in planes], dim=1)
    return weight, torch.tensor([offset / distance for _, offset, distance in planes], dtype=torch.float64).to(matrix)


def expressive_network(events: Events, *, values: int = 2) -> LocalNetwork:
    """Construct a ReLU network with n_α = m_α and F_α = I in every region, which has zero loss.

    The paper asks that each P_αβ alone be all-vert. That excludes regions that know more than one child does: where
    z_α = (z_β, z_γ), rows of P_αβ repeat. It is enough that the rows of all children side by side, [P_αβ, P_αγ, …],
    are vertices, and this function needs only that; both conditions give F_α = I by induction from below. Values that
    never occur (where regions overlap, children cannot disagree) have no row, and their nodes stay 0.
    """
    fields = events.fields
    sizes = {region: len(events.priors[region]) for region in fields.bottom_up}
    for leaf in fields.leaves:
        if sizes[leaf] != values ** len(fields.positions(leaf)):
            raise InputError(f"leaf '{leaf}' takes {sizes[leaf]} values; give values= per position, not {values}")
    prior = events.priors[fields.top]
    network = LocalNetwork(fields, sizes, sizes[fields.top], values=values, top=NodeOptions(), dtype=prior.dtype)
    network = network.to(prior.device)
    with torch.no_grad():
        for region in fields.inner:
            rows = torch.cat([events.matrix(region, child).to_dense() for child in fields.children(region)], dim=1)
            occurring = (events.priors[region] > 0).nonzero()[:, 0]
            weight, bias = relu_weights(rows[occurring], f"region '{region}'")
            network.weights[region].zero_().index_copy_(1, occurring, weight)
            network.biases[region].zero_().index_copy_(0, occurring, bias)
    return network


@dataclass(frozen=True)
class Expressibility:
    """The losses ‖F_ω − I‖² of the constructed ReLU network and of the best linear one, of any width and with biases.

    ``events`` is m_ω, the number of values of z_ω that occur, also the loss of F = 0; ``rank`` is the rank of the best
    linear F_ω. Eckart–Young: linear ≥ m_ω − rank.
    """

    events: int
    relu: float
    linear: float
    rank: int

    @property
    def bound(self) -> int:
        """The Eckart–Young bound m_ω − rank."""
        return self.events - self.rank


def expressibility(events: Events, *, values: int = 2) -> Expressibility:
    """Compute the losses ‖F_ω − I‖² of the constructed ReLU network and of the best linear one (hierarchy, Thm. 6).

    Args:
        events: probabilities whose rows are vertices.
        values: number of values that a position takes.

    Returns:
        Both losses, with the rank and the Eckart–Young bound of the linear network.

    Example:
        >>> from gatelab.hierarchy import Teacher, exact_events, rules, string_fields
        >>> able = expressibility(exact_events(Teacher(string_fields(3, []), rules.joint)))
        >>> able.events, able.bound, able.relu < 1e-12
        (8, 4, True)
    """
    network = expressive_network(events, values=values)
    top = events.fields.top
    identity = torch.eye(len(events.priors[top])).to(events.priors[top])
    output = reformulate(network, replace(events, targets=identity)).activations[top]
    best = best_linear(events)
    occurring = events.priors[top] > 0
    relu, linear = ((f - identity)[occurring][:, occurring].square().sum().item() for f in (output, best))
    return Expressibility(int(occurring.sum()), relu, linear, int(torch.linalg.matrix_rank(best)))


def best_linear(events: Events) -> Float[Tensor, "m m"]:
    r"""Return the F_ω nearest to I that a linear network can reach, whatever its width.

    Without gates :math:`F_\omega = A_\omega W` with :math:`A_\alpha = [P_{\alpha\beta} A_\beta, …]` and A = I at the
    leaves; a width of m_α loses nothing of A_α, and biases add nothing, since the rows of P sum to one. The best F_ω
    projects onto the columns of A_ω.
    """
    spans = {leaf: torch.eye(len(events.priors[leaf])).to(events.priors[leaf]) for leaf in events.fields.leaves}
    for region in events.fields.inner:
        parts = [events.matrix(region, child) @ spans[child] for child in events.fields.children(region)]
        left, lengths, _ = torch.linalg.svd(torch.cat(parts, dim=1), full_matrices=False)
        spans[region] = left[:, lengths > 1e-9 * lengths[0]]  # an orthonormal basis, up to rounding
    top = spans[events.fields.top]
    return top @ top.T
