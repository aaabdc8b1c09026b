"""Two ways to train one student: the reformulation, and ordinary gradient descent on inputs."""

from collections.abc import Sequence
from math import inf

import torch
from jaxtyping import Float, Int
from torch import Tensor

from gatelab.errors import InputError, OutOfRangeError
from gatelab.hierarchy.events import Events
from gatelab.hierarchy.marginals import labelled_inputs
from gatelab.hierarchy.reformulation import reformulate
from gatelab.hierarchy.student import LocalNetwork
from gatelab.hierarchy.teacher import Teacher


class ReformulatedTrainer:
    """Train a student on the teacher's variables; no input is ever visited (hierarchy, Thm. 4).

    Args:
        student: the network whose parameters move.
        events: exact, counted or given probabilities; assign ``trainer.events`` for a new estimate in each batch.
        learning_rate: η in W ← W + η ΔW.
        gates_from: see :func:`reformulate`.

    Example:
        >>> from gatelab.hierarchy import exact_events, rules, string_fields, student_for
        >>> teacher = Teacher(string_fields(4, [2]), rules.parity)
        >>> trainer = ReformulatedTrainer(student_for(teacher, 3), exact_events(teacher), 0.1)
        >>> trainer.step() >= trainer.step()
        True
    """

    def __init__(self, student: LocalNetwork, events: Events, learning_rate: float, gates_from: Teacher | None = None):
        self.student, self.learning_rate, self._gates_from = student, _positive(learning_rate), gates_from
        self.events = events

    @torch.no_grad()
    def step(self) -> float:
        """Move all parameters once; return the loss before the step."""
        moves = reformulate(self.student, self.events, self._gates_from)
        for kind in ("weights", "biases", "scales", "shifts"):
            for region, move in getattr(moves, kind).items():
                getattr(self.student, kind)[region].add_(move, alpha=self.learning_rate)
        return moves.loss


class GradientTrainer:
    """Train a student by gradient descent on its loss over every input of the teacher, or over a sample.

    Args:
        student: the network whose parameters move.
        teacher: gives inputs and targets.
        learning_rate: the step η.
        x: a sample to train on instead of all inputs, every row equally likely.

    Example:
        >>> from gatelab.hierarchy import rules, string_fields, student_for
        >>> teacher = Teacher(string_fields(4, [2]), rules.parity)
        >>> trainer = GradientTrainer(student_for(teacher, 3), teacher, 0.1)
        >>> trainer.step() > trainer.step()
        True
    """

    def __init__(
        self, student: LocalNetwork, teacher: Teacher, learning_rate: float, x: Int[Tensor, "n d"] | None = None
    ):
        self.student, self.learning_rate = student, _positive(learning_rate)
        self._x, self._weights, self._target = labelled_inputs(student, teacher, x)
        self._parameters = [p for p in student.parameters() if p.requires_grad]

    def step(self, batch: Int[Tensor, " b"] | None = None) -> float:
        """Move all parameters once, on all examples or on those of a batch; return the loss before the step."""
        loss, gradients = self._gradients(self._parameters, batch)
        with torch.no_grad():
            for parameter, gradient in zip(self._parameters, gradients, strict=True):
                parameter.sub_(gradient, alpha=self.learning_rate)
        return loss

    def update(self, batch: Int[Tensor, " b"] | None = None) -> dict[str, Float[Tensor, "_ _"]]:
        """Return region → ΔW_α = E[f_k g_j], the direction of a step (Eq. 17); nothing moves."""
        weights = self.student.weights
        _, gradients = self._gradients(list(weights.values()), batch)
        return {region: -gradient for region, gradient in zip(weights, gradients, strict=True)}

    def _gradients(self, wanted: Sequence[Tensor], batch: Tensor | None) -> tuple[float, tuple[Tensor, ...]]:
        x, target, weights = self._x, self._target, self._weights
        if batch is not None:
            if not len(batch) or int(batch.min()) < 0 or int(batch.max()) >= len(x):
                raise OutOfRangeError(f"batch is {batch.tolist()[:5]}…; give numbers of examples, 0 to {len(x) - 1}")
            x, target = x[batch], target[batch]
            weights = weights[batch] / weights[batch].sum()
        with torch.enable_grad():
            loss = self.student.loss.mean(self.student(x, weights), target, weights)
            return loss.item(), torch.autograd.grad(loss, wanted)


def _positive(learning_rate: float) -> float:
    if not 0 < learning_rate < inf:
        raise InputError(f"the learning rate is {learning_rate}; it must be positive")
    return learning_rate
