"""Averages of a student's nodes over inputs: f_j(z_α), g_j(z_α), g_j(x_k) (hierarchy, Eqs 2 and 5)."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from gatelab.hierarchy.fields import ReceptiveFields
from gatelab.hierarchy.student import RegionState


@dataclass(frozen=True)
class Observation:
    """Every node at every input, and the teacher's variables there.

    Gradients have the paper's sign and scale: g_j(x) = −∂L/∂f_j^raw (x), divided by the input's probability, for the
    loss L = ½ E‖target − f_ω‖². Gradient descent then moves w_jk by E[f_k g_j].

    Attributes:
        fields: the regions.
        x, probability: the inputs, and the probability of each; these sum to one.
        z, contents: region → the teacher's variable, and x_α as one number.
        sizes: region → m_α.
        inputs: leaf → what its parents read of it.
        states: inner region → its nodes.
        gradients, raw_gradients: inner region → g_j(x) at the weighted sums, and g^raw_j(x) before the gate filters it.
        loss: L.
    """

    fields: ReceptiveFields
    x: Shaped[Tensor, " n *shape"]
    probability: Float[Tensor, " n"]
    z: dict[str, Int[Tensor, " n"]]
    contents: dict[str, Int[Tensor, " n"]]
    sizes: dict[str, int]
    inputs: dict[str, Float[Tensor, "n _"]]
    states: dict[str, RegionState]
    gradients: dict[str, Float[Tensor, "n _"]]
    raw_gradients: dict[str, Float[Tensor, "n _"]]
    loss: float

    def output(self, region: str) -> Float[Tensor, "n _"]:
        """Return f_j(x), what the parents read: a leaf's encoding, or another region's nodes."""
        return self.states[region].output if region in self.states else self.inputs[region]

    def given_z(self, values: Float[Tensor, "n w"], region: str) -> Float[Tensor, "m w"]:
        """Return E[values | z_α], one row for each value of z_α."""
        return conditional_mean(values, self.z[region], self.sizes[region], self.probability)

    def given_contents(self, values: Float[Tensor, "n w"], region: str) -> Float[Tensor, "n w"]:
        """Return E[values | x_α] at each input: the average over everything outside the region (Eq. 2)."""
        _, codes = torch.unique(self.contents[region], return_inverse=True)
        return conditional_mean(values, codes, int(codes.max()) + 1, self.probability)[codes]

    def activation(self, region: str) -> Float[Tensor, "m w"]:
        """Return F_α = f_j(z_α)."""
        return self.given_z(self.states[region].output, region)

    def gate(self, region: str) -> Float[Tensor, "m w"]:
        """Return D_α = f'_j(z_α), the gating probabilities."""
        return self.given_z(self.states[region].gate, region)

    def gradient(self, region: str) -> Float[Tensor, "m w"]:
        """Return G_α = g_j(z_α)."""
        return self.given_z(self.gradients[region], region)

    def weighted_gradient(self, region: str) -> Float[Tensor, "m w"]:
        """Return G̃_α = Λ_α G_α."""
        prior = torch.bincount(self.z[region], self.probability, minlength=self.sizes[region])
        return prior.unsqueeze(1) * self.gradient(region)


def conditional_mean(
    values: Float[Tensor, "n w"], codes: Int[Tensor, " n"], size: int, weights: Float[Tensor, " n"]
) -> Float[Tensor, "m w"]:
    """Return E[values | code], one row for each code; zero where the code never occurs."""
    mass = torch.bincount(codes, weights, minlength=size).to(values.dtype)
    sums = values.new_zeros(size, values.shape[1]).index_add_(0, codes, weights.unsqueeze(1) * values)
    return torch.where(mass.unsqueeze(1) > 0, sums / mass.unsqueeze(1), 0)
