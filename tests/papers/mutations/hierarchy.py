"""Ways to break the code that the theorems of hierarchy name."""

from collections.abc import Callable
from copy import copy
from dataclasses import replace
from typing import Any

import torch

from gatelab.hierarchy import (
    LocalNetwork,
    TopLoss,
    budget,
    disentangle,
    exactness,
    expressive_power,
    marginals,
    observation,
    parents,
    reformulation,
)
from gatelab.hierarchy import batchnorm as batch_norm
from gatelab.hierarchy import events as counting
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
from tests.papers.mutations.changes import Mutation, edited, replaced, scaled, together


def _edit(what: str, rows: str, function: Callable[..., Any], *changes: tuple[str, str]) -> Mutation:
    """A mutation that edits a function; the rows without "hierarchy-"."""
    return Mutation(what, tuple(f"hierarchy-{row}" for row in rows.split()), edited(function, *changes))


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


def _without_loss(right: Any) -> Any:
    return lambda *args, **kwargs: replace(right(*args, **kwargs), relu=0.0)


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
        ("hierarchy-L1", "hierarchy-8", "hierarchy-9", "hierarchy-8.7.3", "hierarchy-109"),
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
    _edit(
        "the distance from disentangled ignores the last factor",
        "L1 8 9 8.7.3 109",
        disentangle.nearest_disentangled,
        ("for axis in range(k):", "for axis in range(k - 1):"),
    ),
    _edit(
        "the distance from disentangled ignores the first factor",
        "L1 8 9 8.7.3 109",
        disentangle.nearest_disentangled,
        ("for axis in range(k):", "for axis in range(1, k):"),
    ),
    _edit(
        "relative distances are squared",
        "L1 8 9 8.7.3 109",
        Nearest.of,
        ("distance / norm if", "(distance / norm) ** 2 if"),
    ),
    _edit(
        "no gate behind the backward pass of batch norm",
        "3 4",
        reformulation.reformulate,
        ("        if options.norm is Norm.AFTER_RELU:\n            gradient = gate * gradient\n", ""),
    ),
    _edit(
        "no backward pass of batch norm behind the ReLU",
        "3 4",
        reformulation.reformulate,
        ("options.norm is not Norm.NONE", "options.norm is Norm.AFTER_LINEAR"),
    ),
    _edit("the loss on z is doubled", "3", reformulation.reformulate, ("shifts, loss)", "shifts, 2 * loss)")),
    _edit(
        "`conditional_mean` takes all inputs as equally likely",
        "1 2 3 Eq6 2-budget",
        observation.conditional_mean,
        ("    mass =", "    weights = torch.full_like(weights, 1 / len(weights))\n    mass ="),
    ),
    _edit(
        "observed gradients are not divided by the probability",
        "1",
        marginals.observe_student,
        ("-g / probability.unsqueeze(1)", "-g"),
    ),
    _edit("observed gradients point uphill", "1", marginals.observe_student, ("-g / probability", "g / probability")),
    _edit(
        "focus and broadness exchanged",
        "2 3 Eq6",
        exactness._edge,
        ("EdgeConditions(\n", "(lambda focus, broadness, update: EdgeConditions(broadness, focus, update))(\n"),
    ),
    _edit("`independence_gap` ten times too large", "2 3 Eq6", exactness.independence_gap, (".item()", ".item() * 10")),
    _edit(
        "`independence_gap` says only whether there is a gap",
        "2 3 Eq6",
        exactness.independence_gap,
        (".sum().item()", ".sum().gt(1e-9).double().item()"),
    ),
    _edit(
        "`independence_gap` takes all inputs as equally likely",
        "2 3 Eq6",
        exactness.independence_gap,
        ("    pairs, pair_mass", "    weights = torch.full_like(weights, 1 / len(weights))\n    pairs, pair_mass"),
    ),
    _edit("updates never covary", "2 3 Eq6", exactness._edge, ("_relative(covariance", "_relative(0 * covariance")),
    _edit(
        "activations never covary with gates",
        "2 3 Eq6",
        exactness._node,
        ("(gap(state.gated)", "(0 * gap(state.gated)"),
    ),
    _edit(
        "gradients never covary with gates",
        "2 3 Eq6",
        exactness._node,
        (" gap(seen.raw_gradients[region])", " 0 * gap(seen.raw_gradients[region])"),
    ),
    _edit(
        "`count_events` takes all inputs as equally likely",
        "2-budget 4-softmax",
        counting.count_events,
        ("    priors =", "    weights = torch.full_like(weights, 1 / len(weights))\n    priors ="),
    ),
    _edit(
        "the gradient on z takes all values as equally likely",
        "4-softmax",
        reformulation.reformulate,
        (
            "prior.unsqueeze(1) * student.loss.gradient(output, target)",
            "student.loss.gradient(output, target) / len(prior)",
        ),
    ),
    _edit(
        "cross-entropy takes all inputs as equally likely",
        "4-softmax",
        TopLoss.mean,
        (
            "-(weights @ (target * torch.log_softmax(output, dim=1)).sum(dim=1))",
            "-(target * torch.log_softmax(output, dim=1)).sum(dim=1).mean()",
        ),
    ),
    _edit(
        "`_shapley` mends in one order only",
        "2-budget",
        budget._shapley,
        ("for mended in others\n", "for mended in others if mended == frozenset(CAUSES[: CAUSES.index(cause)])\n"),
        ("factorial(len(mended)) * factorial(count - len(mended) - 1) / factorial(count)\n            * ", ""),
    ),
    _edit(
        "`_shapley` exchanges focus and broadness",
        "2-budget",
        budget._shapley,
        ("return found", "return {**found, 'focus': found['broadness'], 'broadness': found['focus']}"),
    ),
    _edit("the reformulation has no ReLU", "8", reformulation._forward, ("if not options.relu:", "if True:")),
    _edit(
        "the reformulation has no batch norm",
        "8 6-batchnorm",
        reformulation._forward,
        ("return student.scales[region] * norms[region].values + student.shifts[region]", "return f"),
    ),
    _edit(
        "every matrix counts as factorised",
        "8",
        disentangle.nearest_factorised,
        ("factorised(factor_blocks(matrix, sets), sets)", "matrix"),
    ),
    _edit(
        "gradients of c₁ and c₀ are averaged",
        "5",
        batch_norm.batch_norm_backward,
        (
            "(gradient - removed), to_scale, to_shift",
            "(gradient - removed), to_scale / len(gradient), to_shift / len(gradient)",
        ),
    ),
    _edit(
        "gradients of c₁ and c₀ exchanged",
        "5",
        batch_norm.batch_norm_backward,
        ("(gradient - removed), to_scale, to_shift", "(gradient - removed), to_shift, to_scale"),
    ),
    _edit(
        "`factor_marginals` are ½",
        "109",
        disentangle.factor_marginals,
        ("[prior.view", "[torch.full_like(prior, 1 / len(prior)).view"),
    ),
    _edit(
        "`factor_marginals` in reverse",
        "109",
        disentangle.factor_marginals,
        ('range(n_factors(len(prior), "z"))', 'reversed(range(n_factors(len(prior), "z")))'),
    ),
    _edit(
        "`row_energy` without the ½",
        "8.6.2 8.6.2-bias",
        batch_norm.row_energy,
        (".sum(dim=0) / 2", ".sum(dim=0)"),
        ("bias.square() / 2", "bias.square()"),
    ),
    _edit(
        "`row_energy` adds up all nodes",
        "8.6.2 8.6.2-bias",
        batch_norm.row_energy,
        (
            "return energy if bias is None else energy + bias.square() / 2",
            "bias = torch.zeros_like(energy) if bias is None else bias\n"
            "    return (energy + bias.square() / 2).sum().expand(len(energy))",
        ),
    ),
    Mutation(
        "Theorem 6: weights 1 % too large, and the loss reported as 0",
        ("hierarchy-6",),
        together(
            replaced(expressive_power, "relu_weights", _larger(expressive_power.relu_weights)),
            replaced(expressibility, "expressibility", _without_loss(expressibility.expressibility)),
        ),
    ),
)
