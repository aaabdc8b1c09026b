"""Corrections that the paper's statements need: decorrelation only at gates, the sum of the errors, a softmax."""

from copy import deepcopy
from itertools import pairwise, permutations

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.utils import parameters_to_vector

from gatelab.figures import Plot
from gatelab.hierarchy import (
    GradientTrainer,
    NodeOptions,
    Teacher,
    TopLoss,
    conditions,
    exact_events,
    full_information,
    observe_student,
    reformulate,
    string_fields,
    student_for,
)
from gatelab.hierarchy.budget import CAUSES, ErrorBudget, error_budget
from gatelab.hierarchy.rules import random_table
from gatelab.lab.measure import EXACT, IDENTITY, against, identity, relative_error
from gatelab.lab.theorem import Measurement, theorem
from gatelab.lab.verdicts import Check
from gatelab.papers.common import at_least, dots, measurement
from gatelab.papers.hierarchy.theorems import markov_bits
from gatelab.papers.hierarchy.theorems_gaps import covariance_of_updates, gaps_against_definitions


def _lossy(seed: int) -> tuple[torch.Generator, Teacher]:
    """Return a teacher whose variables forget, with inputs of different probabilities."""
    generator = torch.Generator().manual_seed(seed)
    fields, inputs = string_fields(6, [2, 2], [1, 1]), markov_bits(generator)
    return generator, Teacher(fields, random_table(3, generator), inputs, top=random_table(2, generator))


@theorem(
    "hierarchy-Eq6",
    "Equation 6",
    "Decorrelation is about gates: without a ReLU nothing can violate it; with one, a variable that forgets does",
)
def decorrelation_needs_gates(seed: int) -> Measurement:
    """Measure the covariances of f' with f^raw and g^raw: a linear student, a ReLU student, and its linear top."""
    generator, teacher = _lossy(seed)
    found, checks = {}, []
    for relu in (False, True):
        hidden = NodeOptions(relu=relu)
        student = student_for(teacher, 5, hidden=hidden, dtype=torch.float64, generator=generator)
        found[relu] = conditions(student, teacher).nodes
        if relu:
            checks = gaps_against_definitions(student, teacher)
    top = teacher.fields.top
    linear = max(gap.max().item() for node in found[False].values() for gap in (node.activation, node.gradient))
    forward = max(node.activation.max().item() for node in found[True].values())
    backward = max(node.gradient.max().item() for node in found[True].values())
    because = "three values of z forget; gates and sums covary"
    at_top = max(gap.max().item() for gap in (found[True][top].activation, found[True][top].gradient))
    names = teacher.fields.inner
    curves = tuple(
        dots("ReLU" if relu else "linear", range(len(names)), [nodes[name].activation.max().item() for name in names])
        for relu, nodes in found.items()
    )
    return measurement(
        Plot("region", "largest gap of the activations", curves, ticks=names),
        Check("linear student: largest gap", linear, IDENTITY, EXACT),
        Check("linear top of a ReLU student: largest gap", at_top, IDENTITY, EXACT),
        at_least("ReLU student: largest gap of the activations", forward, 0.05, because),
        at_least("ReLU student: largest gap of the gradients", backward, 0.05, because),
        *checks,
    )


@theorem(
    "hierarchy-2-budget",
    "Theorem 2, its errors",
    "The error of ΔW is what focus, broadness, decorrelation and the covariance of updates add, and nothing else",
)
def errors_add_up(seed: int) -> Measurement:
    """Add the measured gaps to Theorem 4's recursion: the result is autograd's update, on three layers of regions."""
    generator, teacher = _lossy(seed)
    student = student_for(teacher, 5, dtype=torch.float64, generator=generator)
    found, full = error_budget(student, teacher), full_information(teacher)
    exact = error_budget(student_for(full, 5, dtype=torch.float64, generator=generator), full)
    by_descent = parameters_to_vector(GradientTrainer(student, teacher, 1.0).update().values())
    seen = observe_student(student, teacher)
    covariances = parameters_to_vector([covariance_of_updates(seen, *edge) for edge in student.fields.edges])
    updates = (covariances.norm() / by_descent.norm()).item()
    on_z = parameters_to_vector(reformulate(student, exact_events(teacher), teacher).weights.values())
    measured = ((on_z - by_descent).norm() / by_descent.norm()).item()
    parts = [found.parts[cause] for cause in CAUSES]
    split = torch.tensor(parts, dtype=torch.float64)
    least = min(error for mended, error in found.mended.items() if len(mended) == len(CAUSES) - 1)
    return measurement(
        Plot("cause", "part of the error of ΔW", (dots("Shapley value", range(4), parts),), ticks=CAUSES),
        Check("error of ΔW against trainer and reformulation", abs(found.total - measured), IDENTITY, EXACT),
        Check("parts − error", abs(sum(parts) - found.total), IDENTITY, EXACT),
        identity("parts against what a cause mends, averaged over all 24 orders", split, _over_orders(found)),
        Check("error with only the covariance of updates left, against its definition",
              abs(found.mended[frozenset(CAUSES[:-1])] - updates), IDENTITY, EXACT),
        Check("full information: error", exact.total, IDENTITY, EXACT),
        at_least("lossy teacher: error", found.total, 0.05, "else there is nothing to split"),
        at_least("error with any one gap left", least, 1e-3, "each assumption is broken here"),
    )  # fmt: skip


def _over_orders(found: ErrorBudget) -> Float[Tensor, " 4"]:
    """Return how much mending each cause lowers the error, by its definition: the mean over orders of mending."""
    parts = torch.zeros(len(CAUSES), dtype=torch.float64)
    orders = list(permutations(range(len(CAUSES))))
    for order in orders:
        errors = [found.mended[frozenset(CAUSES[i] for i in order[:count])] for count in range(len(CAUSES) + 1)]
        for cause, (before, after) in zip(order, pairwise(errors), strict=True):
            parts[cause] += (before - after) / len(orders)
    return parts


@theorem(
    "hierarchy-4-softmax",
    "Theorem 4 under a softmax",
    "With cross-entropy on top G_ω = T − softmax(F_ω); training on z is exact if z_ω determines x, and not otherwise",
)
def softmax_on_top(seed: int) -> Measurement:
    """Compare ΔW with autograd under full information; a lossy z_ω takes the softmax of a mean for the mean of one."""
    generator, lossy = _lossy(seed)
    full = full_information(lossy)
    student = student_for(full, 5, loss=TopLoss.CROSS_ENTROPY, dtype=torch.float64, generator=generator)
    with torch.no_grad():
        # If the classes' differences hardly vary, or one class leads throughout, means pass through almost unchanged.
        rows = student(full.inputs.support()[0])
        student.weights["top"] *= 3 / (rows - rows.mean(dim=1, keepdim=True)).std(dim=0).max()
        student.biases["top"] -= student(full.inputs.support()[0]).mean(dim=0)
    squared = deepcopy(student)
    squared.loss = TopLoss.SQUARED
    found, descent = reformulate(student, exact_events(full)), GradientTrainer(student, full, 1.0).update()
    of_square = reformulate(squared, exact_events(full)).weights
    ours, theirs, other = (parameters_to_vector(moves.values()) for moves in (found.weights, descent, of_square))
    seen = observe_student(student, lossy)
    with torch.no_grad():
        rows = seen.states["top"].output
        mean_of = seen.given_z(torch.softmax(rows, dim=1), "top")
        of_mean = torch.softmax(seen.given_z(rows, "top"), dim=1)
    return measurement(
        against(ours, theirs, "Δw_jk under cross-entropy"),
        identity("ΔW against autograd", ours, theirs),
        Check("loss on z − loss on x", abs(found.loss - observe_student(student, full).loss), IDENTITY, EXACT),
        at_least("G_ω = T − F_ω: ΔW against autograd, rel.", relative_error(other, theirs), 0.1, "the softmax counts"),
        at_least(
            "lossy z_ω: softmax of the mean − mean of the softmax", relative_error(of_mean, mean_of), 0.01, "convexity"
        ),
    )
