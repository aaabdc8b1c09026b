"""Does gradient descent find the teacher's variables? Match nodes with factors and with events."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int, Shaped
from scipy.optimize import linear_sum_assignment
from torch import Tensor, nn

from gatelab.errors import InputError
from gatelab.hierarchy.codes import decode, n_factors
from gatelab.hierarchy.marginals import observe_student
from gatelab.hierarchy.network_teacher import NetworkTeacher
from gatelab.hierarchy.observation import Observation, conditional_mean
from gatelab.hierarchy.teacher import Teacher


@dataclass(frozen=True)
class Matching:
    """Nodes of a region matched with the teacher's factors, or events, there.

    The matrix holds, between 0 and 1, how well each node represents each factor. ``nodes`` are those assigned to the
    factors, each at most once, or −1 where there are too few. The score is the mean over factors; one without a node
    counts 0.
    """

    matrix: Float[Tensor, "n t"]
    nodes: Int[Tensor, " t"]
    score: float


@dataclass(frozen=True)
class StudentScore:
    """A score for each region, and their mean."""

    regions: dict[str, Matching]

    @property
    def overall(self) -> float:
        """Mean over regions."""
        return sum(region.score for region in self.regions.values()) / len(self.regions)


def disentanglement_score(
    student: nn.Module,
    teacher: Teacher | NetworkTeacher,
    x: Shaped[Tensor, " n *shape"] | None = None,
    *,
    over_inputs: bool = False,
) -> StudentScore:
    """Score how well each hidden region's nodes represent single binary factors of z_α (Definition 3).

    Definition 3 is about F_α = E[f | z_α]. The matrix holds Var(E[f_j | factor i]) / Var(E[f_j | z_α]): the share of
    what node j says about z_α that factor i alone explains. A score of 1 means that every factor has a node whose mean
    depends on this factor and on nothing else of z_α.

    With ``over_inputs`` the share is of Var(f_j), the variance over the inputs. That is the score above times the share
    of the node's variance that z_α explains, so it also rises when a node merely comes to depend on z_α.

    Args:
        student: with any number of nodes.
        teacher: z_α must take 2^k values in the hidden regions.
        x: a sample; every input of the teacher by default.
        over_inputs: whether the whole variance of a node counts, or only the variance of its mean given z_α.

    Returns:
        The score of each hidden region, and their mean ``overall``.

    Example:
        >>> from gatelab.hierarchy import rules, string_fields, student_for
        >>> teacher = Teacher(string_fields(4, [2]), rules.joint)
        >>> 0 < disentanglement_score(student_for(teacher, 4, dtype=torch.float64), teacher).overall < 1
        True
    """
    seen = observe_student(student, teacher, x)
    scores = {}
    for region in _hidden(seen):
        bits = n_factors(teacher.sizes[region], f"region '{region}'")
        f, p = seen.states[region].output, seen.probability
        if not over_inputs:
            f = seen.given_z(f, region)[seen.z[region]]
        means = (conditional_mean(f, factor, 2, p)[factor] for factor in decode(seen.z[region], (2,) * bits).T)
        explained = [_share(_variance(mean, p), _variance(f, p)) for mean in means]
        scores[region] = match(torch.stack(explained, dim=1))
    return StudentScore(scores)


def selectivity(
    student: nn.Module, teacher: Teacher | NetworkTeacher, x: Shaped[Tensor, " n *shape"] | None = None
) -> StudentScore:
    """Score how selective each hidden region's nodes are to single events z_α = a, the paper's goal (Section 1).

    The matrix holds max(0, Corr(f_j, [z_α = a])); 1 means that node j is on for this event and constant elsewhere.
    Events that never occur, or always, have no column, and regions without columns no score.

    Args:
        student: with any number of nodes.
        teacher: on the same receptive fields.
        x: a sample; every input of the teacher by default.

    Returns:
        The score of each hidden region, and their mean ``overall``.

    Example:
        >>> from gatelab.hierarchy import rules, string_fields, student_for
        >>> teacher = Teacher(string_fields(4, [2]), rules.parity)
        >>> 0 < selectivity(student_for(teacher, 4, dtype=torch.float64), teacher).overall < 1
        True
    """
    seen = observe_student(student, teacher, x)
    scores = {}
    for region in _hidden(seen):
        p, f = seen.probability, seen.states[region].output
        events = torch.eye(seen.sizes[region], dtype=f.dtype, device=f.device)[seen.z[region]]
        events = events[:, (p @ events > 0) & (p @ events < 1)]
        if not events.shape[1]:
            continue
        covariance = (f - p @ f).T @ (p.unsqueeze(1) * (events - p @ events))
        deviations = _variance(f, p).sqrt().unsqueeze(1) * _variance(events, p).sqrt()
        scores[region] = match(_share(covariance.clamp(min=0), deviations))
    if not scores:
        raise InputError("in every hidden region z has only one value, so there is no event to be selective to")
    return StudentScore(scores)


def gradient_selectivity(observation: Observation, region: str) -> Float[Tensor, "n m"]:
    """Return g_j(z_α = a) minus g_j averaged over the other events: positive where descent teaches node j the event a.

    The paper's question (Section 3): does gradient descent push g_j(z_α) to be correlated with z_α?
    """
    mass = torch.bincount(observation.z[region], observation.probability, minlength=observation.sizes[region])
    weighted = observation.weighted_gradient(region)
    # An event that always occurs leaves no others; the smallest positive number stands for their mass: 0 / 0 is 0.
    others = (weighted.sum(dim=0) - weighted) / (1 - mass).clamp(min=torch.finfo(mass.dtype).tiny).unsqueeze(1)
    return (observation.gradient(region) - others).T


def match(matrix: Float[Tensor, "n t"]) -> Matching:
    """Find the best one-to-one assignment of nodes (rows) to factors or events (columns)."""
    rows, columns = linear_sum_assignment(matrix.detach().cpu().numpy(), maximize=True)
    nodes = torch.full((matrix.shape[1],), -1, dtype=torch.int64)
    nodes[torch.as_tensor(columns)] = torch.as_tensor(rows)
    total = matrix[torch.as_tensor(rows), torch.as_tensor(columns)].sum().item()
    return Matching(matrix, nodes.to(matrix.device), total / matrix.shape[1])


def _hidden(seen: Observation) -> tuple[str, ...]:
    if not seen.fields.hidden:
        raise InputError("the student has no hidden region between leaves and top, so there is nothing to score")
    return seen.fields.hidden


def _variance(values: Float[Tensor, "n w"], weights: Float[Tensor, " n"]) -> Float[Tensor, " w"]:
    return weights @ (values - weights @ values).square()


def _share(part: Tensor, whole: Tensor) -> Tensor:
    """Return part / whole, 0 for nodes that do not vary."""
    # Rounding gives a constant node some variance, so zero is relative to the node that varies most.
    return torch.where(whole > 1e-12 * whole.max(), part / whole, 0).clamp(0, 1)
