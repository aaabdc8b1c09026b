"""Averages of the student's nodes over inputs: f_j(z_α), g_j(z_α), g_j(x_k) (hierarchy, Eqs 2 and 5)."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from gatelab.errors import InputError
from gatelab.hierarchy.student import LocalNetwork, RegionState
from gatelab.hierarchy.teacher import Teacher


@dataclass(frozen=True)
class Observation:
    """Every node at every input, and the teacher's variables there.

    Gradients have the paper's sign and scale: g_j(x) = −∂L/∂f_j^raw (x), divided by the input's probability, for the
    loss L = ½ E‖target − f_ω‖². Gradient descent then moves w_jk by E[f_k g_j].

    Attributes:
        x, probability: the inputs, and the probability of each; these sum to one.
        z, contents: region → the teacher's variable, and x_α as one number.
        sizes: region → m_α.
        states: inner region → its nodes.
        gradients, raw_gradients: inner region → g_j(x) at the weighted sums, and g^raw_j(x) before the gate filters it.
        loss: L.
    """

    x: Int[Tensor, "n d"]
    probability: Float[Tensor, " n"]
    z: dict[str, Int[Tensor, " n"]]
    contents: dict[str, Int[Tensor, " n"]]
    sizes: dict[str, int]
    states: dict[str, RegionState]
    gradients: dict[str, Float[Tensor, "n _"]]
    raw_gradients: dict[str, Float[Tensor, "n _"]]
    loss: float

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


def observe_student(student: LocalNetwork, teacher: Teacher, x: Int[Tensor, "n d"] | None = None) -> Observation:
    """Run the student forward and backward and keep every node at every input.

    Args:
        student: the network; nothing of it changes.
        teacher: gives the inputs, their probabilities and the targets.
        x: a sample, every row equally likely; by default every input of the teacher.

    Returns:
        Nodes, gradients and teacher's variables, with methods for their conditional means.

    Example:
        >>> from gatelab.hierarchy import rules, string_fields, student_for
        >>> teacher = Teacher(string_fields(4, [2]), rules.parity)
        >>> observe_student(student_for(teacher, 3), teacher).activation("h1_0").shape
        torch.Size([2, 3])
    """
    if student.fields.regions != teacher.fields.regions:
        raise InputError("student and teacher have different receptive fields; build both on the same ones")
    x, probability, target = labelled_inputs(student, teacher, x)
    with torch.enable_grad():
        states = student.states(x, probability)
        loss = squared_loss(states[student.fields.top].output, target, probability)
        wanted = [tensor for state in states.values() for tensor in (state.raw, state.active)]
        gradients = [-g / probability.unsqueeze(1) for g in torch.autograd.grad(loss, wanted)]
    return Observation(
        x,
        probability,
        teacher(x),
        {region: teacher.contents(region, x) for region in teacher.fields.bottom_up},
        teacher.sizes,
        {region: RegionState(*(tensor.detach() for tensor in state)) for region, state in states.items()},
        dict(zip(states, gradients[::2], strict=True)),
        dict(zip(states, gradients[1::2], strict=True)),
        loss.item(),
    )


def labelled_inputs(
    student: LocalNetwork, teacher: Teacher, x: Int[Tensor, "n d"] | None
) -> tuple[Int[Tensor, "n d"], Float[Tensor, " n"], Float[Tensor, "n k"]]:
    """Return inputs, probabilities and targets on the student's device: of a sample x, or of every input."""
    if x is None:
        x, probability = teacher.inputs.support()
    else:
        probability = torch.full((len(x),), 1 / max(1, len(x)), dtype=torch.float64)
    parameter = student.weights[student.fields.top]
    x = x.to(parameter.device)
    targets = fitting_targets(student, teacher.targets)
    return x, probability.to(parameter.detach()), targets[teacher(x)[teacher.fields.top]]


def squared_loss(
    output: Float[Tensor, "n k"], target: Float[Tensor, "n k"], weights: Float[Tensor, " n"]
) -> Float[Tensor, ""]:
    """Return ½ Σ_x P(x) ‖target − output‖²."""
    return weights @ (target - output).square().sum(dim=1) / 2


def fitting_targets(student: LocalNetwork, targets: Float[Tensor, "m k"]) -> Float[Tensor, "m k"]:
    """Return the targets in the student's precision and on its device, or raise if their number of columns differs."""
    outputs = student.n_nodes(student.fields.top)
    if targets.shape[1] != outputs:
        raise InputError(f"the teacher's targets have {targets.shape[1]} columns, the student {outputs} outputs")
    return targets.to(student.weights[student.fields.top].detach())


def conditional_mean(
    values: Float[Tensor, "n w"], codes: Int[Tensor, " n"], size: int, weights: Float[Tensor, " n"]
) -> Float[Tensor, "m w"]:
    """Return E[values | code], one row for each code; zero where the code never occurs."""
    mass = torch.bincount(codes, weights, minlength=size).to(values.dtype)
    sums = values.new_zeros(size, values.shape[1]).index_add_(0, codes, weights.unsqueeze(1) * values)
    return torch.where(mass.unsqueeze(1) > 0, sums / mass.unsqueeze(1), 0)
