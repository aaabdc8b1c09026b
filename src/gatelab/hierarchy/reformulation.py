r"""Gradient descent on the teacher's variables instead of the inputs (hierarchy, Thms 2 and 4).

.. math::
    F_\alpha = D_\alpha \circ \sum_{\beta \in ch(\alpha)} P_{\alpha\beta} F_\beta W_{\beta\alpha}, \qquad
    \tilde G_\beta = D_\beta \circ \sum_{\alpha \in pa(\beta)} P_{\alpha\beta}^T \tilde G_\alpha W_{\beta\alpha}^T,
    \qquad \Delta W_{\beta\alpha} = (P_{\alpha\beta} F_\beta)^T \tilde G_\alpha

F, D and G̃ have one row for each value of z_α and one column for each node. At the top G_ω = T − F_ω, where T holds the
targets, or T − softmax(F_ω) if the student's loss is the cross-entropy; at the leaves F_β is the student's encoding of
the values.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from gatelab.errors import InputError
from gatelab.hierarchy.batchnorm import Standardised, batch_norm_backward, standardise
from gatelab.hierarchy.events import Events, times
from gatelab.hierarchy.marginals import fitting_targets, observe_student
from gatelab.hierarchy.observation import Observation
from gatelab.hierarchy.student import LocalNetwork, Norm
from gatelab.hierarchy.teacher import Teacher


@dataclass(frozen=True)
class Reformulated:
    """One pass of the reformulation: F_α (leaves included), D_α and G̃_α at the weighted sums, region by region.

    ``weights``, ``biases``, ``scales`` and ``shifts`` are the moves of W, b, c₁ and c₀, where these exist; the ΔW_βα of
    all children are stacked as in the student. The loss is the student's own, ½ Σ_z P(z_ω) ‖T − F_ω‖² by default.
    """

    activations: dict[str, Float[Tensor, "_ _"]]
    gates: dict[str, Float[Tensor, "_ _"]]
    gradients: dict[str, Float[Tensor, "_ _"]]
    weights: dict[str, Float[Tensor, "_ _"]]
    biases: dict[str, Float[Tensor, " _"]]
    scales: dict[str, Float[Tensor, " _"]]
    shifts: dict[str, Float[Tensor, " _"]]
    loss: float


@torch.no_grad()
def reformulate(student: LocalNetwork, events: Events, gates_from: Teacher | None = None) -> Reformulated:
    """Compute F, D, G̃ and ΔW of a student from the probabilities between the teacher's variables alone.

    Batch norm takes its mean and variance over z_α, with Λ_α as weights (Eq. 83).

    Args:
        student: the network, which is left unchanged.
        events: probabilities on the same receptive fields.
        gates_from: measure D_α = P(gate open | z_α) on the student at every input of this teacher (hierarchy,
            Section 3). By default D_α = 1 where the averaged node is positive, which is exact if z_α determines x_α.

    Returns:
        Activations, gates, gradients and the moves of all parameters.

    Example:
        >>> from gatelab.hierarchy import exact_events, rules, string_fields, student_for
        >>> teacher = Teacher(string_fields(4, [2]), rules.parity)
        >>> student = student_for(teacher, 3, dtype=torch.float64)
        >>> reformulate(student, exact_events(teacher)).weights["h1_0"].shape
        torch.Size([4, 3])
    """
    if student.fields.regions != events.fields.regions:
        raise InputError("student and events have different receptive fields; build both on the same ones")
    top = student.fields.top
    events = events.to(student.weights[top].device, student.weights[top].dtype)
    measured = None if gates_from is None else observe_student(student, gates_from)
    activations, gates, norms = _forward(student, events, measured)
    output, target, prior = activations[top], fitting_targets(student, events.targets), events.priors[top]
    gradients, weights, biases, scales, shifts = ({} for _ in range(5))
    arriving = {top: prior.unsqueeze(1) * student.loss.gradient(output, target)}
    for region, options in reversed(student.options.items()):
        gradient, gate = arriving.pop(region), gates[region]
        if options.norm is not Norm.AFTER_RELU:
            gradient = gate * gradient
        if options.norm is not Norm.NONE:
            gradient, scales[region], shifts[region] = batch_norm_backward(
                norms[region], gradient, student.scales[region], events.priors[region]
            )
        if options.norm is Norm.AFTER_RELU:
            gradient = gate * gradient
        gradients[region] = gradient
        parts = []
        for child, weight in student.incoming(region).items():
            # Pᵀ G̃ serves both the child's gradient and, as Fᵀ (Pᵀ G̃), the move of the weights.
            passed = times(events.matrix(region, child), gradient, transposed=True)
            parts.append(activations[child].T @ passed)
            if child in student.options:
                arriving[child] = arriving.get(child, 0) + passed @ weight.T
        weights[region] = torch.cat(parts)
        if options.bias:
            biases[region] = gradient.sum(dim=0)
    # The backward pass finds the top first; the student's parameters start at the bottom.
    gradients, weights, biases, scales, shifts = (
        dict(reversed(by_region.items())) for by_region in (gradients, weights, biases, scales, shifts)
    )
    loss = student.loss.mean(output, target, prior).item()
    return Reformulated(activations, gates, gradients, weights, biases, scales, shifts, loss)


def _forward(
    student: LocalNetwork, events: Events, measured: Observation | None
) -> tuple[dict[str, Tensor], dict[str, Tensor], dict[str, Standardised]]:
    """Compute F_α and D_α from the leaves up, and what batch norm's backward pass needs."""
    activations = {leaf: student.encodings[leaf].detach() for leaf in student.fields.leaves}
    gates: dict[str, Tensor] = {}
    norms: dict[str, Standardised] = {}

    def normalised(region: str, f: Tensor) -> Tensor:
        norms[region] = standardise(f, events.priors[region], student.options[region].eps, f"region '{region}'")
        return student.scales[region] * norms[region].values + student.shifts[region]

    for region, options in student.options.items():
        f = student.biases[region] if options.bias else torch.zeros(()).to(student.weights[region])
        for child, weight in student.incoming(region).items():
            # P (F W) instead of (P F) W: P is the largest factor, and W often makes F narrower.
            f = f + times(events.matrix(region, child), activations[child] @ weight)
        if options.norm is Norm.AFTER_LINEAR:
            f = normalised(region, f)
        if not options.relu:
            gates[region] = torch.ones_like(f)
        elif measured is None:
            gates[region] = (f > 0).to(f.dtype)
        else:
            gates[region] = measured.gate(region).to(f)
        f = gates[region] * f
        activations[region] = normalised(region, f) if options.norm is Norm.AFTER_RELU else f
    return activations, gates, norms
