"""Run a student on a teacher's inputs, forward and backward, and keep every node."""

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor, nn

from gatelab.errors import InputError
from gatelab.hierarchy.network_student import observe_network
from gatelab.hierarchy.network_teacher import NetworkTeacher
from gatelab.hierarchy.observation import Observation
from gatelab.hierarchy.student import LocalNetwork, RegionState
from gatelab.hierarchy.teacher import Teacher


def observe_student(
    student: nn.Module, teacher: Teacher | NetworkTeacher, x: Shaped[Tensor, " n *shape"] | None = None
) -> Observation:
    """Run the student forward and backward and keep every node at every input.

    Args:
        student: a :class:`LocalNetwork`, or any network of your own whose gates have the teacher's regions: with a
            teacher on strings, the positions are its pixels and their values 0, 1, … its input. It is left unchanged.
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
    if not isinstance(student, LocalNetwork) or isinstance(teacher, NetworkTeacher):
        return observe_network(student, teacher, x)
    if student.fields.regions != teacher.fields.regions:
        raise InputError("student and teacher have different receptive fields; build both on the same ones")
    x, probability, target = labelled_inputs(student, teacher, x)
    with torch.enable_grad():
        states = student.states(x, probability)
        loss = student.loss.mean(states[student.fields.top].output, target, probability)
        wanted = [tensor for state in states.values() for tensor in (state.raw, state.active)]
        gradients = [-g / probability.unsqueeze(1) for g in torch.autograd.grad(loss, wanted)]
    z = teacher(x)
    return Observation(
        teacher.fields,
        x,
        probability,
        z,
        {region: teacher.numbered_contents(region, x) for region in teacher.fields.bottom_up},
        teacher.sizes,
        {leaf: student.encodings[leaf].detach()[z[leaf]] for leaf in student.fields.leaves},
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


def fitting_targets(student: LocalNetwork, targets: Float[Tensor, "m k"]) -> Float[Tensor, "m k"]:
    """Return the targets in the student's precision and on its device, or raise if their number of columns differs."""
    outputs = student.n_nodes(student.fields.top)
    if targets.shape[1] != outputs:
        raise InputError(f"the teacher's targets have {targets.shape[1]} columns, the student {outputs} outputs")
    return targets.to(student.weights[student.fields.top].detach())
