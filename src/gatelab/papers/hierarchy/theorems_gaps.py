"""The gaps of Theorem 2's conditions by their definitions: sums over all pairs of inputs, for the rows to compare."""

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import one_hot
from torch.nn.utils import parameters_to_vector

from gatelab.hierarchy import LocalNetwork, Teacher, conditions, observe_student
from gatelab.hierarchy.observation import Observation
from gatelab.lab.measure import identity
from gatelab.lab.verdicts import Check


def gaps_against_definitions(student: LocalNetwork, teacher: Teacher) -> list[Check]:
    """Compare every gap that ``conditions`` measures, on each edge and at each node, with its definition.

    Relative gaps are multiplied by what they are relative to.
    """
    found, seen = conditions(student, teacher), observe_student(student, teacher)
    z, contents, g = seen.z, seen.contents, seen.gradients
    pairs: dict[str, list[tuple[Tensor, Tensor]]] = {
        name: [] for name in ("focus", "broadness", "updates", "activations", "gradients")
    }
    for (parent, child), edge in found.edges.items():
        size = _rms(seen, seen.output(child)).unsqueeze(1) * _rms(seen, g[parent])
        focus = _total_variation(seen, contents[child], z[child], z[parent])
        broadness = _total_variation(seen, contents[parent], z[parent], z[child])
        pairs["focus"].append((torch.full_like(focus, edge.focus), focus))
        pairs["broadness"].append((torch.full_like(broadness, edge.broadness), broadness))
        pairs["updates"].append((edge.update * size, covariance_of_updates(seen, parent, child)))
    for region, node in found.nodes.items():
        gate, given = seen.states[region].gate, _given(seen, z[region])
        others = {"activations": seen.states[region].gated, "gradients": seen.raw_gradients[region]}
        for (name, other), gap in zip(others.items(), (node.activation, node.gradient), strict=True):
            covariance = given @ (gate * other) - (given @ gate) * (given @ other)
            product, factors = _rms(seen, gate * other), _rms(seen, gate) * _rms(seen, other)
            pairs[name].append((gap * torch.where(product > 0, product, factors), _rms(seen, covariance)))
    return [
        identity(
            f"lossy teacher: gap of {name} against its definition",
            *(parameters_to_vector(values) for values in zip(*own, strict=True)),
        )
        for name, own in pairs.items()
    ]


def covariance_of_updates(seen: Observation, parent: str, child: str) -> Float[Tensor, "k w"]:
    """Return E[Cov(f_k, g_j | z_α)] for each node k of the child and j of the parent."""
    f, g, given = seen.output(child), seen.gradients[parent], _given(seen, seen.z[parent])
    return (f - given @ f).T @ (seen.probability.unsqueeze(1) * (g - given @ g))


def _given(seen: Observation, codes: Int[Tensor, " n"]) -> Float[Tensor, "n n"]:
    """Return P(x' | the code of x), a row for each x."""
    joint = (codes.unsqueeze(1) == codes) * seen.probability
    return joint / joint.sum(dim=1, keepdim=True)


def _total_variation(
    seen: Observation, contents: Int[Tensor, " n"], own: Int[Tensor, " n"], other: Int[Tensor, " n"]
) -> Float[Tensor, ""]:
    """Return E TV(P(contents | own, other), P(contents | own)), TV = ½ Σ |P − Q|."""
    numbers = one_hot(contents).to(seen.probability)
    apart = (_given(seen, own * (int(other.max()) + 1) + other) - _given(seen, own)) @ numbers
    return seen.probability @ apart.abs().sum(dim=1) / 2


def _rms(seen: Observation, values: Float[Tensor, "n w"]) -> Float[Tensor, " w"]:
    return (seen.probability @ values.square()).sqrt()
