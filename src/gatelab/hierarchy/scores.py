"""Does gradient descent find the teacher's variables? Factors and events, matched with nodes."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from gatelab.errors import InputError
from gatelab.hierarchy.codes import decode
from gatelab.hierarchy.marginals import Observation, conditional_mean, observe_student
from gatelab.hierarchy.student import LocalNetwork
from gatelab.hierarchy.teacher import Teacher


@dataclass(frozen=True)
class Matching:
    """Nodes of a region matched with what the teacher knows there.

    Attributes:
        matrix: (nodes, things), how well each node stands for each thing, between 0 and 1.
        nodes: the node assigned to each thing, each node at most once; −1 where there are too few nodes.
        score: mean over the things, 0 for those without a node.
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


def disentanglement_score(student: LocalNetwork, teacher: Teacher, x: Int[Tensor, "n d"] | None = None) -> StudentScore:
    """How far each hidden region's nodes stand for single binary factors of z_α.

    The matrix holds Var(E[f_j | factor i]) / Var(f_j), the share of a node's variance over the inputs that factor i
    alone explains. 1 for all factors means: for each factor there is a node that says this factor and nothing else.

    Args:
        student: with any number of nodes.
        teacher: z_α must take 2^k values in the hidden regions.
        x: samples; every input by default.
    """
    seen = observe_student(student, teacher, x)
    scores = {}
    for region in _hidden(student):
        bits = teacher.factors(region)
        factors = decode(seen.z[region], (2,) * bits)
        f = seen.states[region].output
        explained = [_explained(f, factors[:, i], seen.probability) for i in range(bits)]
        scores[region] = match(torch.stack(explained, dim=1))
    return StudentScore(scores)


def selectivity(student: LocalNetwork, teacher: Teacher, x: Int[Tensor, "n d"] | None = None) -> StudentScore:
    """How far each hidden region's nodes are selective to single events z_α = a, the paper's ultimate goal (Section 1).

    The matrix holds max(0, Corr(f_j, [z_α = a])); 1 means that node j is on for this event and constant elsewhere.
    Events that never occur are left out (their column is 0 and does not count).
    """
    seen = observe_student(student, teacher, x)
    return StudentScore({region: _selective(seen, region) for region in _hidden(student)})


def gradient_selectivity(observation: Observation, region: str) -> Float[Tensor, "n m"]:
    """g_j(z_α = a) minus g_j averaged over the other events: positive where descent teaches node j the event a.

    The paper's question (Section 3): does gradient descent push g_j(z_α) to be correlated with z_α?
    """
    mass = torch.bincount(observation.z[region], observation.probability, minlength=observation.sizes[region])
    weighted = observation.weighted_gradient(region)
    others = (weighted.sum(dim=0) - weighted) / (1 - mass).clamp(min=torch.finfo(mass.dtype).tiny).unsqueeze(1)
    return (observation.gradient(region) - others).T


def match(matrix: Float[Tensor, "n t"]) -> Matching:
    """The best one-to-one assignment of nodes to things."""
    rows, columns = linear_sum_assignment(matrix.detach().cpu().numpy(), maximize=True)
    nodes = torch.full((matrix.shape[1],), -1, dtype=torch.int64)
    nodes[torch.as_tensor(columns)] = torch.as_tensor(rows)
    total = matrix[torch.as_tensor(rows), torch.as_tensor(columns)].sum().item()
    return Matching(matrix, nodes.to(matrix.device), total / matrix.shape[1])


def _hidden(student: LocalNetwork) -> list[str]:
    hidden = [region for region in student.fields.inner if region != student.fields.top]
    if not hidden:
        raise InputError("the student has no hidden region between leaves and top, so that there is nothing to score")
    return hidden


def _variance(values: Float[Tensor, "n w"], weights: Float[Tensor, " n"]) -> Float[Tensor, " w"]:
    return weights @ (values - weights @ values).square()


def _share(part: Tensor, whole: Tensor) -> Tensor:
    """Part / whole, 0 for nodes that do not vary."""
    return torch.where(whole > 1e-12 * whole.max(), part / whole, 0).clamp(0, 1)


def _explained(f: Float[Tensor, "n w"], factor: Int[Tensor, " n"], weights: Float[Tensor, " n"]) -> Float[Tensor, " w"]:
    means = conditional_mean(f, factor, 2, weights)[factor]
    return _share(_variance(means, weights), _variance(f, weights))


def _selective(seen: Observation, region: str) -> Matching:
    p, f = seen.probability, seen.states[region].output
    events = torch.eye(seen.sizes[region], dtype=f.dtype, device=f.device)[seen.z[region]]
    occurring = (p @ events > 0) & (p @ events < 1)
    events = events[:, occurring]
    covariance = (f - p @ f).T @ (p.unsqueeze(1) * (events - p @ events))
    deviations = _variance(f, p).sqrt().unsqueeze(1) * _variance(events, p).sqrt()
    return match(_share(covariance.clamp(min=0), deviations))
