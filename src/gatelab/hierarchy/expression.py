"""What ReLU networks can say and linear ones cannot (hierarchy, Thms 6 and 7)."""

from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from gatelab.errors import InputError
from gatelab.hierarchy.events import Events
from gatelab.hierarchy.hulls import VERTEX_TOLERANCE, separate
from gatelab.hierarchy.reformulation import reformulate
from gatelab.hierarchy.student import LocalNetwork, Unit


def relu_weights(matrix: Float[Tensor, "m n"], place: str = "P") -> tuple[Float[Tensor, "n m"], Float[Tensor, " m"]]:
    """W and b with relu(P W + b) = I, from a separating hyperplane for each row (hierarchy, Thm. 6).

    Raises:
        InputError: a row is no vertex, so that there is no such hyperplane.
    """
    weights, biases = [], []
    for row in range(len(matrix)):
        found = separate(matrix, row)
        if found.distance <= VERTEX_TOLERANCE:
            raise InputError(
                f"{place}: row {row} lies in the convex hull of the others (distance {found.distance:.1e}), so that "
                "no node can single it out; Theorem 6 needs every row to be a vertex"
            )
        weights.append(found.normal / found.distance)
        biases.append(found.offset / found.distance)
    return torch.stack(weights, dim=1), torch.tensor(biases, dtype=matrix.dtype, device=matrix.device)


def expressive_network(events: Events, *, values: int = 2) -> LocalNetwork:
    """A ReLU network with n_α = m_α whose reformulated activations are F_α = I everywhere, so that its loss is zero.

    The paper asks that each P_αβ alone be all-vert. That excludes regions that know more than one child does: where
    z_α = (z_β, z_γ), rows of P_αβ repeat. It is enough that the rows of all children side by side, [P_αβ, P_αγ, …],
    are vertices, and this is what is used here; both conditions give F_α = I by induction from below.

    Raises:
        InputError: a row that is no vertex, with the region's name.
    """
    fields = events.fields
    sizes = {region: len(events.priors[region]) for region in fields.bottom_up}
    for leaf in fields.leaves:
        if sizes[leaf] != values ** len(fields.positions(leaf)):
            raise InputError(f"leaf '{leaf}' takes {sizes[leaf]} values; with {values} values per position it cannot")
    prior = events.priors[fields.top]
    network = LocalNetwork(fields, sizes, sizes[fields.top], values=values, top=Unit(), dtype=prior.dtype)
    network = network.to(prior.device)
    with torch.no_grad():
        for region in fields.inner:
            rows = torch.cat([_dense(events.matrix(region, child)) for child in fields.children(region)], dim=1)
            weight, bias = relu_weights(rows, f"region '{region}'")
            network.weights[region].copy_(weight)
            network.biases[region].copy_(bias)
    return network


@dataclass(frozen=True)
class Expressibility:
    """‖F_ω − I‖² that can be reached.

    Attributes:
        events: m_ω, the number of values at the top, which is also the loss of F = 0.
        relu: of the constructed ReLU network.
        linear: of the best linear network of any width, biases included.
        rank: of what a linear network can say at the top; Eckart–Young: linear ≥ m_ω − rank.
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
    """The losses ‖F_ω − I‖² of the constructed ReLU network and of the best linear one."""
    network = expressive_network(events, values=values)
    top = events.fields.top
    identity = torch.eye(len(events.priors[top])).to(events.priors[top])
    output = reformulate(network, replace(events, targets=identity)).activations[top]
    best = best_linear(events)
    rank = int(torch.linalg.matrix_rank(best))
    return Expressibility(
        len(output), (output - identity).square().sum().item(), (best - identity).square().sum().item(), rank
    )


def best_linear(events: Events) -> Float[Tensor, "m m"]:
    r"""The F_ω nearest to I that a linear network can reach, whatever its width.

    Without gates :math:`F_\omega = A_\omega W` with :math:`A_\alpha = [P_{\alpha\beta} A_\beta, …]` and A = I at the
    leaves; a width of m_α loses nothing of A_α, and biases add nothing, since the rows of P sum to one. The best F_ω
    projects onto the columns of A_ω.
    """
    spans = {leaf: torch.eye(len(events.priors[leaf])).to(events.priors[leaf]) for leaf in events.fields.leaves}
    for region in events.fields.inner:
        parts = [events.matrix(region, child) @ spans[child] for child in events.fields.children(region)]
        spans[region] = _basis(torch.cat(parts, dim=1))
    top = spans[events.fields.top]
    return top @ top.T


def _basis(matrix: Float[Tensor, "m n"]) -> Float[Tensor, "m r"]:
    """Orthonormal columns that span the matrix's columns."""
    left, lengths, _ = torch.linalg.svd(matrix, full_matrices=False)
    return left[:, lengths > 1e-9 * lengths[0]]


def _dense(matrix: Tensor) -> Tensor:
    return matrix.to_dense() if matrix.is_sparse else matrix
