"""Two ways to train one student: the reformulation, and ordinary gradient descent on all inputs."""

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from gatelab.errors import InputError
from gatelab.hierarchy.events import Events
from gatelab.hierarchy.marginals import fitting_targets, squared_loss
from gatelab.hierarchy.reformulation import GateSource, own_gates, reformulate
from gatelab.hierarchy.student import LocalNetwork
from gatelab.hierarchy.teacher import Teacher


class ReformulatedTrainer:
    """Trains a student on the teacher's variables: no input is ever visited (hierarchy, Thm. 4).

    Args:
        student: whose parameters move.
        events: probabilities; exact, counted, given, or a new estimate for each batch (assign ``trainer.events``).
        learning_rate: W ← W + η ΔW.
        gates: where the gating probabilities D come from; :func:`own_gates` by default.
    """

    def __init__(self, student: LocalNetwork, events: Events, learning_rate: float, gates: GateSource = own_gates):
        self.student, self.learning_rate, self._gates = student, _positive(learning_rate), gates
        self.events = events

    @property
    def events(self) -> Events:
        """The probabilities of the next step, in the student's precision and on its device."""
        return self._events

    @events.setter
    def events(self, events: Events) -> None:
        parameter = self.student.weights[self.student.fields.top]
        self._events = events.to(parameter.device, parameter.dtype)

    @torch.no_grad()
    def step(self) -> float:
        """Move all parameters once; return the loss before."""
        found = reformulate(self.student, self._events, self._gates)
        student = self.student
        pairs = (
            (student.weights, found.weights),
            (student.biases, found.biases),
            (student.scales, found.scales),
            (student.shifts, found.shifts),
        )
        for parameters, moves in pairs:
            for region, move in moves.items():
                parameters[region].add_(move, alpha=self.learning_rate)
        return found.loss


class GradientTrainer:
    """Trains a student by gradient descent on ½ E‖target − f_ω‖² over every input of the teacher, or a sample.

    Args:
        student: whose parameters move.
        teacher: gives inputs and targets.
        learning_rate: the step η.
        x: a sample to train on instead of all inputs, each equally likely.
    """

    def __init__(
        self, student: LocalNetwork, teacher: Teacher, learning_rate: float, x: Int[Tensor, "n d"] | None = None
    ):
        self.student, self.learning_rate = student, _positive(learning_rate)
        parameter = student.weights[student.fields.top]
        if x is None:
            x, weights = teacher.inputs.support()
        else:
            weights = torch.full((len(x),), 1 / max(1, len(x)), dtype=torch.float64)
        self._x, self._weights = x.to(parameter.device), weights.to(parameter)
        self._target = fitting_targets(student, teacher.targets)[teacher(self._x)[teacher.fields.top]]
        self._parameters = [p for p in student.parameters() if p.requires_grad]

    def step(self, batch: Int[Tensor, " b"] | None = None) -> float:
        """Move all parameters once, by all examples or by those of a batch; return the loss before."""
        loss, gradients = self._gradients(self._parameters, batch)
        with torch.no_grad():
            for parameter, gradient in zip(self._parameters, gradients, strict=True):
                parameter.sub_(gradient, alpha=self.learning_rate)
        return loss

    def update(self, batch: Int[Tensor, " b"] | None = None) -> dict[str, Float[Tensor, "_ _"]]:
        """Region → ΔW_α = E[f_k g_j], the direction in which a step would move the weights (Eq. 17); nothing moves."""
        weights = self.student.weights
        _, gradients = self._gradients(list(weights.values()), batch)
        return {region: -gradient for region, gradient in zip(weights, gradients, strict=True)}

    def _gradients(self, wanted: Sequence[Tensor], batch: Tensor | None) -> tuple[float, tuple[Tensor, ...]]:
        x, target, weights = self._x, self._target, self._weights
        if batch is not None:
            x, target = x[batch], target[batch]
            weights = weights[batch] / weights[batch].sum()
        with torch.enable_grad():
            loss = squared_loss(self.student(x, weights), target, weights)
            return loss.item(), torch.autograd.grad(loss, wanted)


def _positive(learning_rate: float) -> float:
    if not learning_rate > 0:
        raise InputError(f"the learning rate is {learning_rate}; it must be positive")
    return learning_rate
