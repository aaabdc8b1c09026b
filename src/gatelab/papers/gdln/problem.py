"""Small problems, in float64, on which the theorems are measured, and the checks that these share.

Gates and moments are also written out here, so that the library is not compared with itself.
"""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from gatelab.dynamics import GatedLinearFlow, GatedMoments, moments_of
from gatelab.dynamics.gate_search import random_half_spaces
from gatelab.dynamics.moments import gated_inputs
from gatelab.errors import InputError
from gatelab.lab.verdicts import Check
from gatelab.models import CellGates, ChosenGates, GatedDeepLinearNetwork, HalfSpaceGates
from gatelab.models.node_gates import NodeGates
from gatelab.papers.common import agrees
from gatelab.papers.gdln.simulation import integrated

D, UNITS, TAU = 6, 3, 0.7
TIMES = torch.tensor([0.0, 0.5, 2.0, 8.0, 40.0], dtype=torch.float64)
INTEGRATED = "DOP853 at rtol 1e-12, atol 1e-13, over five instants"


class Problem(NamedTuple):
    """Data, gates and initial weights."""

    x: Float[Tensor, "n d"]
    y: Float[Tensor, " n"]
    gates: NodeGates
    initial: Float[Tensor, "k d"]

    @property
    def moments(self) -> GatedMoments:
        """A and b."""
        return moments_of(self.x, self.y, self.gates)

    @property
    def flow(self) -> GatedLinearFlow:
        """The closed form."""
        return GatedLinearFlow.from_moments(self.moments, TAU, initial=self.initial)

    @property
    def classes(self) -> tuple[Float[Tensor, "half kd"], Float[Tensor, "half kd"]]:
        """The gated inputs of the classes y = 0 and y = 1."""
        features = gated_inputs(self.x, self.gates)
        return features[self.y == 0], features[self.y == 1]

    @property
    def features(self) -> Float[Tensor, "n kd"]:
        """The gated inputs x̃, written out."""
        return plain_features(self.x, plainly_opened(self.x, self.gates))

    @property
    def plain_moments(self) -> GatedMoments:
        """A and b, written out."""
        return plain_moments(self.x, self.y, plainly_opened(self.x, self.gates))

    def integrated(self, times: Float[Tensor, " times"] = TIMES) -> Float[Tensor, "times k d"]:
        """Integrate the flow of the written-out moments numerically."""
        return integrated(self.plain_moments, self.initial, times, TAU)

    def descent_direction(self) -> Float[Tensor, " kd"]:
        """Return −∇L at the initial weights, by autograd."""
        network = GatedDeepLinearNetwork(D, self.gates, dtype=torch.float64)
        with torch.no_grad():
            network.weights.copy_(self.initial)
        loss = (network(self.x)[:, 0] - self.y).square().mean() / 2
        return -torch.autograd.grad(loss, [network.weights])[0].flatten()

    def residual(self) -> float:
        """Return the mean squared error that least squares on x̃ leaves."""
        fitted = self.features @ (torch.linalg.pinv(self.features) @ self.y)
        return (self.y - fitted).square().mean().item()


def plainly_opened(x: Float[Tensor, "n d"], gates: NodeGates) -> Bool[Tensor, "n k"]:
    """Return which gates are open, by their definitions."""
    if isinstance(gates, HalfSpaceGates):
        return x @ gates.normals.T + gates.offsets > 0
    if isinstance(gates, ChosenGates):
        return plainly_opened(x, gates.base)[:, gates.places]
    if isinstance(gates, CellGates):
        nearest = torch.cdist(x, gates.centres).argmin(dim=1, keepdim=True)
        return nearest == torch.arange(len(gates.centres))
    raise InputError(f"{type(gates).__name__} are not written out here; add their definition")


def plain_features(x: Float[Tensor, "n d"], opened: Bool[Tensor, "n k"]) -> Float[Tensor, "n kd"]:
    """Return x̃ = (g₁x, …, g_K x), unit by unit."""
    return torch.cat([torch.where(gate[:, None], x, 0) for gate in opened.T], dim=1)


def plain_moments(x: Float[Tensor, "n d"], y: Float[Tensor, " n"], opened: Bool[Tensor, "n k"]) -> GatedMoments:
    """Return ⟨x̃x̃ᵀ⟩, ⟨x̃y⟩ and ⟨y²⟩ of equally likely examples."""
    features = plain_features(x, opened)
    power = float(y.square().mean())
    return GatedMoments(features.T @ features / len(x), features.T @ y / len(x), opened.shape[1], power)


def generator(seed: int) -> torch.Generator:
    """Return a new generator for a seed."""
    return torch.Generator().manual_seed(seed)


def half_spaces(count: int, source: torch.Generator) -> HalfSpaceGates:
    """Return random half-spaces of the problems' inputs."""
    return random_half_spaces(D, count, generator=source, dtype=torch.float64)


def problem(seed: int, gates: NodeGates | None = None, n: int = 100) -> Problem:
    """Return Gaussian inputs with balanced labels 0 and 1 that no linear unit can separate, and a random start."""
    source = generator(seed)
    x = torch.randn(n, D, generator=source, dtype=torch.float64)
    # The label is 1 above the median of a quadratic function: balanced, and not linear.
    order = (x[:, 0] * x[:, 1] + x[:, 2]).argsort()
    y = torch.zeros(n, dtype=torch.float64)
    y[order[n // 2 :]] = 1
    gates = gates or half_spaces(UNITS, source)
    return Problem(x, y, gates, torch.randn(gates.count, D, generator=source, dtype=torch.float64))


def under_other_gates(seed: int, count: int) -> Iterator[Problem]:
    """Yield one problem under ``count`` sets of half-spaces; only the gates differ."""
    given = problem(100 * seed)
    for number in range(count):
        yield given._replace(gates=half_spaces(UNITS, generator(100 * seed + 1 + number)))


def follows(what: str, measured: Tensor, expected: Tensor) -> Check:
    """Check a closed form against an integrated flow."""
    return agrees(what, measured, expected, 1e-9, INTEGRATED)
