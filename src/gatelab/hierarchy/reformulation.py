r"""Gradient descent on the teacher's variables instead of the inputs (hierarchy, Thms 2 and 4).

.. math::
    F_\alpha = D_\alpha \circ \sum_{\beta \in ch(\alpha)} P_{\alpha\beta} F_\beta W_{\beta\alpha}, \qquad
    \tilde G_\beta = D_\beta \circ \sum_{\alpha \in pa(\beta)} P_{\alpha\beta}^T \tilde G_\alpha W_{\beta\alpha}^T,
    \qquad \Delta W_{\beta\alpha} = (P_{\alpha\beta} F_\beta)^T \tilde G_\alpha

F, D and G̃ have one row for each value of z_α and one column for each node. At the top G_ω = T − F_ω with T the
targets, one-hot labels say; at the leaves F_β is the student's code of the values.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from gatelab.errors import InputError
from gatelab.hierarchy.batchnorm import Standardised, batch_norm_backward, standardise
from gatelab.hierarchy.events import Events, times, transposed_times
from gatelab.hierarchy.marginals import fitting_targets, observe_student, squared_loss
from gatelab.hierarchy.student import LocalNetwork, Norm
from gatelab.hierarchy.teacher import Teacher

# Region and what its gates see, one row per value of z_α → gating probabilities D_α.
Gates = Callable[[str, Float[Tensor, "m w"]], Float[Tensor, "m w"]]
GateSource = Callable[[LocalNetwork], Gates]


@dataclass(frozen=True)
class Reformulated:
    """One pass of the reformulation.

    Attributes:
        activations: region → F_α, leaves included.
        gates: inner region → D_α.
        gradients: inner region → G̃_α, at the weighted sums.
        weights: inner region → ΔW_α, the children's ΔW_βα on top of each other as in the student.
        biases, scales, shifts: inner region → the moves of b, c₁ and c₀, where they exist.
        loss: ½ Σ_z P(z_ω) ‖T − F_ω‖².
    """

    activations: dict[str, Float[Tensor, "_ _"]]
    gates: dict[str, Float[Tensor, "_ _"]]
    gradients: dict[str, Float[Tensor, "_ _"]]
    weights: dict[str, Float[Tensor, "_ _"]]
    biases: dict[str, Float[Tensor, " _"]]
    scales: dict[str, Float[Tensor, " _"]]
    shifts: dict[str, Float[Tensor, " _"]]
    loss: float


def own_gates(student: LocalNetwork) -> Gates:
    """D_α = 1 where the averaged node is positive: no input is needed, and exact if z_α tells all of x_α."""
    del student
    return lambda _region, gated: (gated > 0).to(gated.dtype)


def measured_gates(teacher: Teacher) -> GateSource:
    """D_α = P(gate open | z_α), measured on the student at every input of the teacher (hierarchy, Section 3)."""

    def source(student: LocalNetwork) -> Gates:
        observation = observe_student(student, teacher)
        return lambda region, gated: observation.gate(region).to(gated)

    return source


@torch.no_grad()
def reformulate(student: LocalNetwork, events: Events, gates: GateSource = own_gates) -> Reformulated:
    """F, D, G̃ and ΔW of a student, from probabilities between the teacher's variables alone.

    Batch norm takes its mean and variance over z_α, with Λ_α as weights (Eq. 83).
    """
    if student.fields.regions != events.fields.regions:
        raise InputError("student and events have different receptive fields; build both on the same ones")
    upward = _Forward(student, events, gates(student))
    top = student.fields.top
    prior = events.priors[top]
    target = fitting_targets(student, events.targets)
    output = upward.activations[top]
    downward = _Backward(student, events, upward, prior.unsqueeze(1) * (target - output))
    loss = squared_loss(output, target, prior).item()
    return Reformulated(
        upward.activations,
        upward.gates,
        _from_below(downward.gradients),
        _from_below(downward.weights),
        _from_below(downward.biases),
        _from_below(downward.scales),
        _from_below(downward.shifts),
        loss,
    )


def _from_below(found: dict[str, Tensor]) -> dict[str, Tensor]:
    """The way back finds the top first; the student's parameters begin below."""
    return dict(reversed(found.items()))


class _Forward:
    """F_α from below, and what the way back needs of it."""

    def __init__(self, student: LocalNetwork, events: Events, gates: Gates):
        self.activations = {leaf: student.encodings[leaf].detach() for leaf in student.fields.leaves}
        self.gates: dict[str, Tensor] = {}
        self.norms: dict[str, Standardised] = {}
        for region in student.fields.inner:
            unit = student.units[region]
            # P (F W) instead of (P F) W: P is the largest factor, and W often makes F narrower.
            raw = sum(
                (
                    times(events.matrix(region, child), self.activations[child] @ weight)
                    for child, weight in student.incoming(region).items()
                ),
                start=events.priors[region].new_zeros(()),
            )
            if unit.bias:
                raw = raw + student.biases[region]
            gated = self._normalised(student, events, region, raw) if unit.norm is Norm.AFTER_LINEAR else raw
            self.gates[region] = gates(region, gated) if unit.relu else torch.ones_like(gated)
            active = self.gates[region] * gated
            normalise = unit.norm is Norm.AFTER_RELU
            self.activations[region] = self._normalised(student, events, region, active) if normalise else active

    def _normalised(self, student: LocalNetwork, events: Events, region: str, f: Tensor) -> Tensor:
        norm = standardise(f, events.priors[region], student.units[region].eps, f"region '{region}'")
        self.norms[region] = norm
        return student.scales[region] * norm.values + student.shifts[region]


class _Backward:
    """G̃_α from above, and the moves of all parameters."""

    def __init__(self, student: LocalNetwork, events: Events, forward: _Forward, top: Float[Tensor, "m k"]):
        self.gradients: dict[str, Tensor] = {}
        self.weights: dict[str, Tensor] = {}
        self.biases: dict[str, Tensor] = {}
        self.scales: dict[str, Tensor] = {}
        self.shifts: dict[str, Tensor] = {}
        arriving = {student.fields.top: top}
        for region in reversed(student.fields.inner):
            unit, gradient = student.units[region], arriving.pop(region)
            gate = forward.gates[region]
            if unit.norm is Norm.NONE:
                gradient = gate * gradient
            else:
                inward = gate * gradient if unit.norm is Norm.AFTER_LINEAR else gradient
                gradient, self.scales[region], self.shifts[region] = batch_norm_backward(
                    forward.norms[region], inward, student.scales[region], events.priors[region]
                )
                gradient = gate * gradient if unit.norm is Norm.AFTER_RELU else gradient
            self.gradients[region] = gradient
            parts = []
            for child, weight in student.incoming(region).items():
                # Pᵀ G̃ serves both the child's gradient and, as Fᵀ (Pᵀ G̃), the weights' move.
                passed = transposed_times(events.matrix(region, child), gradient)
                parts.append(forward.activations[child].T @ passed)
                if child in student.units:
                    arriving[child] = arriving.get(child, 0) + passed @ weight.T
            self.weights[region] = torch.cat(parts)
            if unit.bias:
                self.biases[region] = gradient.sum(dim=0)
