"""How far Theorem 2's conditions are from holding, node by node: why the reformulation departs from the student.

The appendix calls them focus and broadness; together they are the main text's "onsite conditional independence".
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor, nn

from gatelab.hierarchy.marginals import observe_student
from gatelab.hierarchy.network_teacher import NetworkTeacher
from gatelab.hierarchy.observation import Observation
from gatelab.hierarchy.teacher import Teacher


@dataclass(frozen=True)
class EdgeConditions:
    """Conditional independence between a region and a child; 0 means that the condition holds.

    Attributes:
        focus: E TV(P(x_β | z_α, z_β), P(x_β | z_β)), a total variation distance between 0 and 1.
        broadness: E TV(P(x_α | z_α, z_β), P(x_α | z_α)).
        update: by pair (k, j), what the covariance of f_k and g_j given z_α adds to Δw_jk, relative to both RMS.
    """

    focus: float
    broadness: float
    update: Float[Tensor, "k w"]


@dataclass(frozen=True)
class NodeConditions:
    """RMS of Cov(f', f^raw | z_α) and of Cov(f', g^raw | z_α) at each node, relative to the RMS of the products.

    The products of conditional means may be larger than the mean product, so a gap may exceed 1. Where the product is
    always 0, as at a node that is open only where its gradient vanishes, the gap is relative to both factors' RMS.
    """

    activation: Float[Tensor, " w"]
    gradient: Float[Tensor, " w"]


@dataclass(frozen=True)
class Conditions:
    """Theorem 2's conditions, measured: independence on each edge (parent, child), decorrelation in inner regions."""

    edges: dict[tuple[str, str], EdgeConditions]
    nodes: dict[str, NodeConditions]

    @property
    def worst(self) -> dict[str, float]:
        """The largest gap of each kind, over the whole network."""
        edges, nodes = self.edges.values(), self.nodes.values()
        return {
            "focus": max(edge.focus for edge in edges),
            "broadness": max(edge.broadness for edge in edges),
            "decorrelation of activations": max(node.activation.max().item() for node in nodes),
            "decorrelation of gradients": max(node.gradient.max().item() for node in nodes),
            "decorrelation of updates": max(edge.update.abs().max().item() for edge in edges),
        }


def conditions(
    student: nn.Module, teacher: Teacher | NetworkTeacher, x: Shaped[Tensor, " n *shape"] | None = None
) -> Conditions:
    """Measure focus, broadness and decorrelation.

    Args:
        student: the network; see :func:`observe_student`.
        teacher: on the same receptive fields.
        x: a sample; by default every input of the teacher. A content that occurs only once in the sample looks as
            if z determined it, so take many more samples than there are contents. For images, whose contents never
            repeat, :func:`gatelab.hierarchy.diagnose` measures what the conditions do to the nodes instead.

    Returns:
        The gaps, edge by edge and node by node.

    Example:
        >>> from gatelab.hierarchy import full_information, rules, string_fields, student_for
        >>> teacher = full_information(Teacher(string_fields(4, [2]), rules.parity))
        >>> max(conditions(student_for(teacher, 3, dtype=torch.float64), teacher).worst.values()) < 1e-12
        True
    """
    seen = observe_student(student, teacher, x)
    return Conditions(
        {(parent, child): _edge(seen, parent, child, seen.output(child)) for parent, child in seen.fields.edges},
        {region: _node(seen, region) for region in seen.states},
    )


def independence_gap(
    contents: Int[Tensor, " n"], own: Int[Tensor, " n"], other: Int[Tensor, " n"], weights: Float[Tensor, " n"]
) -> float:
    """Return E TV(P(contents | own, other), P(contents | own)), where ``own`` is a function of the contents."""
    # TV = Σ max(0, P − Q), and P > 0 only for pairs that occur: no other pairs need to be visited.
    pairs, pair_mass = _masses(torch.stack([contents, other], dim=1), weights)
    predicted = _mass(contents, weights) / _mass(own, weights) * _mass(torch.stack([own, other], dim=1), weights)
    # All inputs of a pair have the same prediction, so any of them may write it.
    predicted_pair = torch.zeros_like(pair_mass)
    predicted_pair[pairs] = predicted
    return (pair_mass - predicted_pair).clamp(min=0).sum().item()


def _masses(codes: Int[Tensor, " n *k"], weights: Float[Tensor, " n"]) -> tuple[Int[Tensor, " n"], Float[Tensor, " p"]]:
    """Number the different codes; return the number at each input and the probability of each number."""
    numbers = torch.unique(codes, dim=0, return_inverse=True)[1]
    return numbers, torch.bincount(numbers, weights)


def _mass(codes: Int[Tensor, " n *k"], weights: Float[Tensor, " n"]) -> Float[Tensor, " n"]:
    """Return the probability of each input's code, at the input."""
    numbers, masses = _masses(codes, weights)
    return masses[numbers]


def _rms(values: Float[Tensor, "n w"], weights: Float[Tensor, " n"]) -> Float[Tensor, " w"]:
    return (weights @ values.square()).sqrt()


def _relative(part: Tensor, whole: Tensor) -> Tensor:
    """Return part / whole, and 0 where the whole is 0 (a node that is never open, for example)."""
    return torch.where(whole > 0, part / whole, 0)


def _node(seen: Observation, region: str) -> NodeConditions:
    state, p = seen.states[region], seen.probability

    def gap(other: Tensor) -> Tensor:
        product = state.gate * other
        mean, gate, factor = (seen.given_z(values, region) for values in (product, state.gate, other))
        whole, largest = _rms(product, p), _rms(state.gate, p) * _rms(other, p)
        return _relative(_rms((mean - gate * factor)[seen.z[region]], p), torch.where(whole > 0, whole, largest))

    return NodeConditions(gap(state.gated), gap(seen.raw_gradients[region]))


def _edge(seen: Observation, parent: str, child: str, f: Float[Tensor, "n k"]) -> EdgeConditions:
    p, g = seen.probability, seen.gradients[parent]
    above, below = seen.z[parent], seen.z[child]
    f_above, g_above = seen.given_z(f, parent)[above], seen.given_z(g, parent)[above]
    covariance = (f - f_above).T @ (p.unsqueeze(1) * (g - g_above))
    return EdgeConditions(
        independence_gap(seen.contents[child], below, above, p),
        independence_gap(seen.contents[parent], above, below, p),
        _relative(covariance, _rms(f, p).unsqueeze(1) * _rms(g, p)),
    )
