r"""An error budget of the reformulation: how much of the error of ΔW each assumption of Theorem 2 causes.

With measured gates D the true conditional means obey the equations of Theorem 4 up to four corrections, one for each
assumption (Φ for focus, B for broadness, C for decorrelation, K for the covariance of updates):

.. math::
    F_\alpha &= D_\alpha \circ \Bigl(\sum_\beta (P_{\alpha\beta} F_\beta - \Phi_{\alpha\beta}) W_{\beta\alpha} + b\Bigr)
        + C_\alpha \\
    G_\beta &= D_\beta \circ \sum_\alpha (P^{bT}_{\alpha\beta} G_\alpha - B_{\beta\alpha}) W_{\beta\alpha}^T
        + C'_\beta \\
    \Delta W_{\beta\alpha} &= (P_{\alpha\beta} F_\beta - \Phi_{\alpha\beta})^T \Lambda_\alpha G_\alpha + K_{\beta\alpha}

With all four the recursion gives the true ΔW, with none the reformulated one. An assumption's share of the error is its
Shapley value: how much its correction lowers the error, averaged over the orders in which corrections can be made.
"""

from dataclasses import dataclass
from itertools import combinations
from math import factorial

import torch
from jaxtyping import Int
from torch import Tensor

from gatelab.errors import InputError
from gatelab.hierarchy.events import Events, count_events, times
from gatelab.hierarchy.marginals import fitting_targets, observe_student
from gatelab.hierarchy.observation import Observation
from gatelab.hierarchy.student import LocalNetwork, Norm
from gatelab.hierarchy.teacher import Teacher
from gatelab.hierarchy.top_loss import TopLoss

CAUSES = ("focus", "broadness", "decorrelation", "covariance of updates")


@dataclass(frozen=True)
class ErrorBudget:
    """The error of the reformulated ΔW relative to ΔW, and the contributions of the assumptions, which add up to it.

    A contribution may be negative: one assumption's error then cancels part of another's.

    Attributes:
        total: ‖ΔW on z − ΔW‖ / ‖ΔW‖ over all weights, with measured gates.
        parts: cause → its Shapley value.
        regions: region → the relative error of its own ΔW.
        mended: corrected causes → the remaining error.
    """

    total: float
    parts: dict[str, float]
    regions: dict[str, float]
    mended: dict[frozenset[str], float]


@torch.no_grad()
def error_budget(student: LocalNetwork, teacher: Teacher, x: Int[Tensor, "n d"] | None = None) -> ErrorBudget:
    """Split the error of the reformulated update into its causes.

    Args:
        student: without batch norm, with the squared loss.
        teacher: on the same receptive fields.
        x: a sample; every input of the teacher by default.

    Returns:
        The error and its parts.

    Example:
        >>> from gatelab.hierarchy import full_information, rules, string_fields, student_for
        >>> teacher = Teacher(string_fields(4, [2]), rules.parity)
        >>> student = student_for(teacher, 3, dtype=torch.float64)
        >>> error_budget(student, full_information(teacher)).total < 1e-12
        True
        >>> found = error_budget(student, teacher)
        >>> abs(sum(found.parts.values()) - found.total) < 1e-12
        True
    """
    if any(options.norm is not Norm.NONE for options in student.options.values()):
        raise InputError("the budget is for networks without batch norm: its variance over z is another approximation")
    if student.loss is not TopLoss.SQUARED:
        raise InputError("the budget needs the squared loss: the mean of a softmax is not the softmax of the mean")
    terms = _Terms(student, teacher, observe_student(student, teacher, x))
    subsets: list[frozenset[str]] = [
        frozenset(chosen) for size in range(len(CAUSES) + 1) for chosen in combinations(CAUSES, size)
    ]
    moves = {mended: terms.moves(mended) for mended in subsets}
    true = moves[frozenset(CAUSES)]
    errors = {mended: _relative(found, true) for mended, found in moves.items()}
    plain = moves[frozenset()]
    by_region = {region: _relative({region: plain[region]}, {region: true[region]}) for region in true}
    return ErrorBudget(errors[frozenset()], _shapley(errors), by_region, errors)


def _relative(found: dict[str, Tensor], true: dict[str, Tensor]) -> float:
    apart = sum((found[region] - true[region]).square().sum().item() for region in true)
    whole = sum(move.square().sum().item() for move in true.values())
    return (apart / whole) ** 0.5 if whole > 0 else 0.0


def _shapley(errors: dict[frozenset[str], float]) -> dict[str, float]:
    """Return how much correcting each cause lowers the error, averaged over all orders of correction."""
    count, found = len(CAUSES), {}
    for cause in CAUSES:
        others = [mended for mended in errors if cause not in mended]
        shares = [
            factorial(len(mended)) * factorial(count - len(mended) - 1) / factorial(count)
            * (errors[mended] - errors[mended | {cause}])
            for mended in others
        ]  # fmt: skip
        found[cause] = sum(shares)
    return found


class _Terms:
    """The measured corrections, and the recursion with a chosen set of them."""

    def __init__(self, student: LocalNetwork, teacher: Teacher, seen: Observation):
        self.student, self.seen = student, seen
        z = {region: codes.to(seen.probability.device) for region, codes in seen.z.items()}
        weights = seen.probability.double()
        events = count_events(seen.fields, seen.sizes, z, weights, teacher.targets.to(weights.device), None)
        self.events: Events = events.to(dtype=seen.probability.dtype)
        self.targets = fitting_targets(student, teacher.targets)
        self.gates = {region: seen.gate(region) for region in seen.states}
        self.forward_gap, self.backward_gap, self.covariance = {}, {}, {}
        for parent, child in seen.fields.edges:
            f, g = seen.output(child), seen.gradients[parent]
            matrix = self.events.matrix(parent, child)
            given, above = seen.given_z(f, parent), seen.given_z(g, parent)
            self.forward_gap[parent, child] = times(matrix, seen.given_z(f, child)) - given
            back = times(self.events.backward(parent, child), above, transposed=True)
            self.backward_gap[parent, child] = back - seen.given_z(g, child)
            prior = self.events.priors[parent].unsqueeze(1)
            p = seen.probability.unsqueeze(1)
            self.covariance[parent, child] = f.T @ (p * g) - given.T @ (prior * above)
        self.activation = {r: self._covariance(r, s.output, s.raw) for r, s in seen.states.items()}
        self.gradient = {r: self._covariance(r, seen.gradients[r], seen.raw_gradients[r]) for r in seen.states}

    def _covariance(self, region: str, product: Tensor, other: Tensor) -> Tensor:
        return self.seen.given_z(product, region) - self.gates[region] * self.seen.given_z(other, region)

    def moves(self, mended: frozenset[str]) -> dict[str, Tensor]:
        """Return region → ΔW of the recursion with the corrections of these causes."""
        student, fields = self.student, self.student.fields
        activations = {leaf: student.encodings[leaf].detach() for leaf in fields.leaves}
        below: dict[tuple[str, str], Tensor] = {}
        for region in fields.inner:
            f = student.biases[region].detach() if region in student.biases else torch.zeros(()).to(self.targets)
            for child, weight in student.incoming(region).items():
                part = times(self.events.matrix(region, child), activations[child])
                if "focus" in mended:
                    part = part - self.forward_gap[region, child]
                below[region, child] = part
                f = f + part @ weight
            activations[region] = self.gates[region] * f
            if "decorrelation" in mended:
                activations[region] = activations[region] + self.activation[region]
        arriving = {fields.top: self.targets - activations[fields.top]}
        found = {}
        for region in reversed(fields.inner):
            gradient = self.gates[region] * arriving.pop(region)
            if "decorrelation" in mended:
                gradient = gradient + self.gradient[region]
            weighted = self.events.priors[region].unsqueeze(1) * gradient
            parts = []
            for child, weight in student.incoming(region).items():
                move = below[region, child].T @ weighted
                if "covariance of updates" in mended:
                    move = move + self.covariance[region, child]
                parts.append(move)
                if child in student.options:
                    back = times(self.events.backward(region, child), gradient, transposed=True)
                    if "broadness" in mended:
                        back = back - self.backward_gap[region, child]
                    arriving[child] = arriving.get(child, 0) + back @ weight.T
            found[region] = torch.cat(parts)
        return found
