"""Ways to break the code that the theorems of hierarchy name."""

from copy import copy
from dataclasses import replace
from typing import Any

import torch

from gatelab.hierarchy import LocalNetwork, TopLoss, exactness, expressive_power, parents, reformulation
from gatelab.hierarchy import batchnorm as batch_norm
from gatelab.hierarchy.budget import _Terms
from gatelab.hierarchy.disentangle import Nearest
from gatelab.hierarchy.events import Events
from gatelab.hierarchy.observation import Observation
from gatelab.papers.hierarchy import theorems as hierarchy
from gatelab.papers.hierarchy import theorems_batchnorm as batchnorm
from gatelab.papers.hierarchy import theorems_energy as energy
from gatelab.papers.hierarchy import theorems_expressibility as expressibility
from gatelab.papers.hierarchy import theorems_factors as factors
from gatelab.papers.hierarchy import theorems_random as random_rows
from tests.papers.mutations.changes import Mutation, replaced, scaled


def _ungated_gradients(right: Any) -> Any:
    def wrong(student: Any, teacher: Any) -> Any:
        seen = right(student, teacher)
        seen.gradients.update(seen.raw_gradients)
        return seen

    return wrong


def _gates_everywhere(right: Any) -> Any:
    def wrong(student: Any, teacher: Any, x: Any = None) -> Any:
        seen = right(student, teacher, x)
        for region, state in seen.states.items():
            seen.states[region] = state._replace(gate=(state.gated > 0).to(state.gated.dtype))
        return seen

    return wrong


def _without_broadness(right: Any) -> Any:
    def wrong(self: _Terms, *args: Any) -> None:
        right(self, *args)
        for gap in self.backward_gap.values():
            gap.zero_()

    return wrong


def _linear_activations(rows: torch.Tensor, nodes: int, *, bias: bool, generator: torch.Generator) -> torch.Tensor:
    del bias
    return rows @ torch.randn(rows.shape[1], nodes, generator=generator, dtype=rows.dtype)


def _larger_weights(right: Any) -> Any:
    def wrong(*args: Any) -> Any:
        found = right(*args)
        return replace(found, weights=1.01 * found.weights)

    return wrong


def _leaky_backward(right: Any) -> Any:
    def wrong(forward: Any, gradient: Any, scale: Any, weights: Any = None) -> Any:
        found, *rest = right(forward, gradient, scale, weights)
        return found + 1e-6 * gradient, *rest

    return wrong


def _worse_construction(right: Any) -> Any:
    def wrong(events: Any, *, values: int = 2) -> Any:
        found = right(events, values=values)
        return type(found)(found.events, found.relu + 0.1, found.linear, found.rank)

    return wrong


def _with_mean(right: Any) -> Any:
    return lambda f, weights=None: right(f, weights) + 1 / len(f)


def _linear_forward(right: Any) -> Any:
    def wrong(student: Any, events: Any, measured: Any) -> Any:
        linear = copy(student)
        linear.options = {region: replace(options, relu=False) for region, options in student.options.items()}
        return right(linear, events, measured)

    return wrong


def _always_outside(right: Any) -> Any:
    def wrong(matrix: torch.Tensor, row: int) -> Any:
        normal, offset, distance = right(matrix, row)
        return normal, offset, distance + 1.0

    return wrong


def _larger(right: Any) -> Any:
    def wrong(*args: Any) -> Any:
        weight, bias = right(*args)
        return 1.01 * weight, bias

    return wrong


def _bent(right: Any) -> Any:
    def wrong(*args: Any) -> Any:
        found = right(*args)
        return replace(found, values=found.values.tanh())

    return wrong


def _reversed(right: Any) -> Any:
    return lambda tensors: right(tensors[::-1])


def _rolled(right: Any) -> Any:
    return lambda *args: right(*args).roll(1, dims=1)


def _swapped_events(right: Any) -> Any:
    return lambda blocks, sets: right(blocks, sets)[torch.tensor([1, 0, 2, 3])]


HIERARCHY = (
    Mutation(
        "`given_contents` does not marginalise",
        ("hierarchy-1",),
        replaced(Observation, "given_contents", lambda _self, values, _region: values),
    ),
    Mutation(
        "`independence_gap` is always 0",
        ("hierarchy-2", "hierarchy-3"),
        replaced(exactness, "independence_gap", lambda *_: 0.0),
    ),
    Mutation(
        "gradients ignore the gate",
        ("hierarchy-1", "hierarchy-2", "hierarchy-4"),
        replaced(hierarchy, "observe_student", _ungated_gradients(hierarchy.observe_student)),
    ),
    Mutation(
        "a lossy teacher where full information is claimed",
        ("hierarchy-3", "hierarchy-4"),
        replaced(hierarchy, "full_information", lambda teacher: teacher),
    ),
    Mutation("`batch_norm_jacobian` 1 % too large", ("hierarchy-5",), scaled(batchnorm, "batch_norm_jacobian", 1.01)),
    Mutation(
        "`batch_norm_backward` leaks a millionth",
        ("hierarchy-5",),
        replaced(batchnorm, "batch_norm_backward", _leaky_backward(batchnorm.batch_norm_backward)),
    ),
    Mutation("`projection` 1 % too large", ("hierarchy-81",), scaled(batchnorm, "projection", 1.01)),
    Mutation(
        "P^⊥ in the Jacobian keeps the mean",
        ("hierarchy-5", "hierarchy-81"),
        replaced(batch_norm, "projection", _with_mean(batch_norm.projection)),
    ),
    Mutation(
        "`standardise` does not divide by σ",
        ("hierarchy-8.6.2", "hierarchy-8.6.2-bias"),
        replaced(LocalNetwork, "_normalised", lambda _self, _region, f, _weights: f - f.mean(dim=0)),
    ),
    Mutation(
        "`Events.backward` without the priors",
        ("hierarchy-4",),
        replaced(Events, "backward", Events.matrix),
    ),
    Mutation(
        "the reformulation ignores gates on the way up",
        ("hierarchy-4", "hierarchy-4-softmax", "hierarchy-3"),
        replaced(reformulation, "_forward", _linear_forward(reformulation._forward)),
    ),
    Mutation(
        "every matrix counts as its own nearest",
        ("hierarchy-L1", "hierarchy-8", "hierarchy-9", "hierarchy-8.7.3"),
        replaced(Nearest, "of", lambda given, _nearest: Nearest(given, 0.0, 0.0)),
    ),
    Mutation(
        "weights of Theorem 6 1 % too large",
        ("hierarchy-6",),
        replaced(expressive_power, "relu_weights", _larger(expressive_power.relu_weights)),
    ),
    Mutation(
        "batch norm bends what it normalises",
        ("hierarchy-6-batchnorm",),
        replaced(reformulation, "standardise", _bent(reformulation.standardise)),
    ),
    Mutation("factors of Eq. 109 in reverse", ("hierarchy-109",), replaced(parents, "kron", _reversed(parents.kron))),
    Mutation(
        "`separate`: all rows lie outside the hull",
        ("hierarchy-7",),
        replaced(expressive_power, "separate", _always_outside(expressive_power.separate)),
    ),
    Mutation(
        "`row_energy` of the third power",
        ("hierarchy-8.6.2",),
        replaced(energy, "row_energy", lambda weight, _bias=None: weight.abs().pow(3).sum(dim=0)),
    ),
    Mutation(
        "`row_energy` forgets the bias",
        ("hierarchy-8.6.2-bias",),
        replaced(energy, "row_energy", lambda weight, _bias=None: weight.square().sum(dim=0) / 2),
    ),
    Mutation(
        "a gate is measured where there is none",
        ("hierarchy-Eq6",),
        replaced(exactness, "observe_student", _gates_everywhere(exactness.observe_student)),
    ),
    Mutation(
        "the budget leaves out the gap of broadness",
        ("hierarchy-2-budget",),
        replaced(_Terms, "__init__", _without_broadness(_Terms.__init__)),
    ),
    Mutation(
        "under a softmax the gradient is still T − F",
        ("hierarchy-4-softmax",),
        replaced(TopLoss, "gradient", lambda _self, output, target: target - output),
    ),
    Mutation("`best_linear` 10 % too small", ("hierarchy-6-batchnorm",), scaled(random_rows, "best_linear", 0.9)),
    Mutation(
        "`random_activations` without the ReLU",
        ("hierarchy-7-random",),
        replaced(random_rows, "random_activations", _linear_activations),
    ),
    Mutation(
        "`disentangling_weights` 1 % too large",
        ("hierarchy-109",),
        replaced(random_rows, "disentangling_weights", _larger_weights(random_rows.disentangling_weights)),
    ),
    Mutation(
        "`expressibility`: a construction that misses",
        ("hierarchy-6",),
        replaced(expressibility, "expressibility", _worse_construction(expressibility.expressibility)),
    ),
    Mutation(
        "`vertices`: every row is one",
        ("hierarchy-7",),
        replaced(expressibility, "vertices", lambda matrix: torch.ones(len(matrix), dtype=torch.bool)),
    ),
    Mutation(
        "`disentangled` rotates its columns",
        ("hierarchy-L1", "hierarchy-8"),
        replaced(factors, "disentangled", _rolled(factors.disentangled)),
    ),
    Mutation("`factorised` 1 % too large", ("hierarchy-8.7.3",), scaled(factors, "factorised", 1.01)),
    Mutation(
        "`factorised` swaps two events",
        ("hierarchy-8", "hierarchy-9"),
        replaced(factors, "factorised", _swapped_events(factors.factorised)),
    ),
)
