"""Ways to break the code that theorems name, and the theorems that must notice.

``python -m tests.papers.mutations`` writes docs/mutations.md; test_mutations.py checks every line of it.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from gatelab.convert import Regime, to_dgn
from gatelab.data import NLGP
from gatelab.dynamics import GatedLinearFlow, GatedMoments, NeuralRace, PiecewiseFlow, gaussian_moments
from gatelab.dynamics.graph_race import PathwayGraph
from gatelab.dynamics.linear_flow import DenseFlow
from gatelab.dynamics.population import PopulationFlow
from gatelab.dynamics.sliding import ReluFlow
from gatelab.gates import gated
from gatelab.hierarchy import TopLoss, exactness
from gatelab.hierarchy.budget import _Terms
from gatelab.hierarchy.observation import Observation
from gatelab.kernels import infinite_width
from gatelab.kernels.tangent_moments import _Strands
from gatelab.models import DeepGatedNetwork, MeanReadoutNetwork, MemorisationNetwork, mlp
from gatelab.papers import all_theorems
from gatelab.papers.gdln import problem as gdln_problem
from gatelab.papers.gdln import theorems as gdln
from gatelab.papers.gdln import theorems_gates as gdln_gates
from gatelab.papers.gdln import theorems_population as gdln_population
from gatelab.papers.gdln import theorems_printed as gdln_printed
from gatelab.papers.halfspace import figure1
from gatelab.papers.halfspace import theorems as halfspace
from gatelab.papers.hierarchy import theorems as hierarchy
from gatelab.papers.hierarchy import theorems_batchnorm as batchnorm
from gatelab.papers.hierarchy import theorems_corrections as corrections
from gatelab.papers.hierarchy import theorems_expressibility as expressibility
from gatelab.papers.hierarchy import theorems_factors as factors
from gatelab.papers.hierarchy import theorems_random as random_rows
from gatelab.papers.npk import theorems as npk
from gatelab.papers.npk import theorems_bundles as npk_bundles
from gatelab.papers.npk import theorems_expectations as npk_expectations
from gatelab.papers.npk import theorems_gated as npk_gated
from gatelab.papers.npk import theorems_limits as npk_limits
from gatelab.papers.npk import theorems_start as npk_start
from gatelab.paths import features as path_listing
from gatelab.paths import neural_path_features

PAGE = Path(__file__).parents[2] / "docs" / "mutations.md"
HEAD = """# Mutations

Each line changes the code in one way. The theorems beside it must then fail. `tests/papers/test_mutations.py` makes
each change and checks that they do (seed 1), and that every theorem has a line. `python -m tests.papers.mutations`
writes this page.

DGN is a deep gated network, DLGN a deep linearly gated one, and FRNPF (DI) means fixed random neural path features with
dependent initialisation; the [glossary](understand/glossary.md) has the symbols.

| change of the code | theorems that fail |
|---|---|
"""
Patch = Callable[[pytest.MonkeyPatch], Any]


@dataclass(frozen=True)
class Mutation:
    """A way to break the code, and the theorems that must fail."""

    what: str
    rows: tuple[str, ...]
    apply: Patch


def scaled(owner: Any, name: str, factor: float = 1.05) -> Patch:
    """The function with its result multiplied."""
    right = getattr(owner, name)
    return lambda patch: patch.setattr(owner, name, lambda *args, **kwargs: factor * right(*args, **kwargs))


def replaced(owner: Any, name: str, wrong: Any) -> Patch:
    """The name bound to something else."""
    return lambda patch: patch.setattr(owner, name, wrong)


def together(*patches: Patch) -> Patch:
    """Several changes at once."""
    return lambda patch: [apply(patch) for apply in patches]


def shorter(apply: Patch) -> Patch:
    """What is wrong shows in a part of the work as surely as in all of it."""
    return together(apply, replaced(npk, "TRIALS", 10), replaced(npk, "STEPS", 50))


def _lookup_init(sigma: float, gate: float) -> Patch:
    """A memorisation network whose weights are scaled, or whose gates are all open."""
    right = MemorisationNetwork.__init__

    def wrong(self: MemorisationNetwork, *args: Any, **kwargs: Any) -> None:
        right(self, *args, **kwargs)
        with torch.no_grad():
            for weight in self.parameters():
                weight.mul_(sigma)
            self.gates.clamp_(min=gate)

    return replaced(MemorisationNetwork, "__init__", wrong)


def _linear_features(self: DeepGatedNetwork, x: torch.Tensor) -> torch.Tensor:
    """The forward pass of a DGN without the ReLU in its feature network."""
    feature, value = x, x
    *hidden, last = self.value
    for feature_layer, value_layer in zip(self.feature, hidden, strict=True):
        feature = feature_layer(feature)
        value = gated(value_layer(value), feature.repeat(1, self.padding), self.gate)
    return last(value)


_right_angles = infinite_width.angle_maps


def _angle_kept(x: torch.Tensor, y: torch.Tensor, layers: int) -> Any:
    """A recursion in which no layer turns the angle."""
    return list(_right_angles(x, y, 1)) * layers


def _nodes_apart(self: _Strands, both: torch.Tensor, each: torch.Tensor, sigma: float) -> _Strands:
    """The printed proof: paths that meet at a node without sharing a weight do not count."""
    s = sigma**4
    return _Strands(s * both**2 * self.U, s * each * self.V, s * both**2 * self.X, s * both * self.R)


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


def _without_inner_factor(right: Any) -> Any:
    def wrong(*args: Any) -> GatedMoments:
        moments = right(*args)
        return GatedMoments(moments.units * moments.A, moments.b, moments.units, moments.power)

    return wrong


def _shifted_figure(right: Any) -> Any:
    def wrong() -> nn.Module:
        model = right()
        model[2].bias.data += 0.1
        return model

    return wrong


def _uneven(right: Any) -> Any:
    """A path kernel that depends on the first input, as no factor would."""

    def wrong(model: nn.Module, *examples: torch.Tensor, **options: Any) -> torch.Tensor:
        return right(model, *examples, **options) * (1 + 1e-3 * examples[0].flatten()[0])

    return wrong


def _eq2_always(x: torch.Tensor, *, depth: int, last_layer: float = 1.0) -> torch.Tensor:
    del last_layer
    return infinite_width.infinite_width_ntk(x, depth=depth)


def _independent_gates(model: nn.Module, regime: Regime, **options: Any) -> nn.Module:
    del regime
    return to_dgn(model, Regime.FRNPF_II, **options)


def _same_side(right: Any) -> Patch:
    return replaced(figure1, "jumping_network", lambda epsilon: right(abs(epsilon)))


def _reversed_path(right: Any) -> Any:
    return lambda model, path, **options: right(model, path[::-1], **options)


def _rolled(right: Any) -> Any:
    return lambda *args: right(*args).roll(1, dims=1)


def _swapped_events(right: Any) -> Any:
    return lambda blocks, sets: right(blocks, sets)[torch.tensor([1, 0, 2, 3])]


def _last_gates_open(right: Any) -> Any:
    return lambda *args: [*right(*args)[:-1], torch.ones_like(right(*args)[-1])]


def _diagonal(right: Any) -> Any:
    return lambda *args, **options: right(*args, **options).diagonal().diag()


def _of_values(right: Any) -> Any:
    return lambda model, x, wrt=None, **options: right(model, x, wrt=None if wrt is None else model.value, **options)


def _moved_spaces(right: Any) -> Any:
    return lambda model: {name: replace(layer, offsets=layer.offsets + 0.05) for name, layer in right(model).items()}


def _one_too_many(right: Any) -> Any:
    def wrong(*args: Any, **options: Any) -> Any:
        counts = right(*args, **options)
        return replace(counts, patterns=counts.patterns + 1)

    return wrong


def _hard_features(model: nn.Module, x: torch.Tensor, **options: Any) -> torch.Tensor:
    return neural_path_features(model, x, **{**options, "gates": "hard"})


def biased_mlp(**options: Any) -> nn.Module:
    """A ReLU network in place of a DLGN."""
    model = mlp((2, 6, 6, 1), bias=True, **options)
    for layer in (model[0], model[2]):
        nn.init.normal_(layer.bias, generator=options["generator"])
    return model


NPK = (
    Mutation("`neural_tangent_kernel` 1 % too large", ("npk-1.1",), scaled(npk, "neural_tangent_kernel", 1.01)),
    Mutation("K^V and K^F 1 % too large", ("npk-4.1",), scaled(npk_gated, "neural_tangent_kernel", 1.01)),
    Mutation("𝒱 of a DGN 1 % too large", ("npk-4.1-values",), scaled(npk_gated, "value_tangent_kernel", 1.01)),
    Mutation(
        "soft gates count as bits",
        ("npk-4.1-values", "npk-4.1-features"),
        replaced(npk_gated, "neural_path_features", _hard_features),
    ),
    Mutation("`neural_path_values` 1 % too large", ("npk-2.1",), scaled(npk, "neural_path_values", 1.01)),
    Mutation("`neural_path_kernel` 1 % too large", ("npk-L2.1",), scaled(npk, "neural_path_kernel", 1.01)),
    Mutation(
        "`value_tangent_kernel` 1 % too large",
        ("npk-3.1", "npk-3.2"),
        shorter(scaled(npk, "value_tangent_kernel", 1.01)),
    ),
    Mutation(
        "φ forgets the gates of the last layer",
        ("npk-2.1", "npk-L2.1"),
        replaced(path_listing, "gate_factors", _last_gates_open(path_listing.gate_factors)),
    ),
    Mutation(
        "𝒱 as if no two paths shared a weight",
        ("npk-3.1", "npk-3.3"),
        shorter(replaced(npk, "value_tangent_kernel", _diagonal(npk.value_tangent_kernel))),
    ),
    Mutation(
        "K^F is K^V",
        ("npk-4.1",),
        replaced(npk_gated, "neural_tangent_kernel", _of_values(npk_gated.neural_tangent_kernel)),
    ),
    Mutation("`value_tangent_kernel` a thousandth", ("npk-3.3",), shorter(scaled(npk, "value_tangent_kernel", 1e-3))),
    Mutation("`overlap_kernel` 1 % too large", ("npk-C.2",), scaled(npk, "overlap_kernel", 1.01)),
    Mutation(
        "𝒱 over random signs 1 % too large", ("npk-LD.1",), scaled(npk_expectations, "value_tangent_kernel", 1.01)
    ),
    Mutation("H of fixed gates 1 % too large", ("npk-5.1",), scaled(npk_expectations, "neural_path_kernel", 1.01)),
    Mutation("H of fixed gates half as large again", ("npk-C.1",), scaled(npk_expectations, "neural_path_kernel", 1.5)),
    Mutation(
        "`DeepGatedNetwork`: linear feature network",
        ("npk-4.1", "npk-4.1-features", "npk-C.1", "npk-5.1-limit"),
        replaced(DeepGatedNetwork, "forward", _linear_features),
    ),
    Mutation("`MemorisationNetwork`: σ² × 7", ("npk-E",), _lookup_init(7**0.5, 0.0)),
    Mutation("`MemorisationNetwork`: all gates open", ("npk-E",), _lookup_init(1.0, 1.0)),
    Mutation(
        "variance law: paths that meet at a node do not count",
        ("npk-D.1", "npk-D.1-printed"),
        replaced(_Strands, "through_shared", _nodes_apart),
    ),
    Mutation(
        "Eq. 2: no layer turns the angle",
        ("npk-Eq2", "npk-5.1-limit"),
        replaced(infinite_width, "angle_maps", _angle_kept),
    ),
    Mutation(
        "`infinite_width_ntk` ignores `last_layer`",
        ("npk-Eq2-printed",),
        replaced(npk_limits, "infinite_width_ntk", _eq2_always),
    ),
    Mutation(
        "`to_dgn`: FRNPF (DI) draws its own gates", ("npk-DI",), replaced(npk_start, "to_dgn", _independent_gates)
    ),
    Mutation("𝒱 without gates 1 % too large", ("npk-DLN",), scaled(npk_start, "value_tangent_kernel", 1.01)),
    Mutation("`label_complexity` 1 % too large", ("npk-nu",), scaled(npk_start, "label_complexity", 1.01)),
    Mutation(
        "H of an architecture depends on one input",
        ("npk-rotation", "npk-residual"),
        replaced(npk_bundles, "neural_path_kernel", _uneven(npk_bundles.neural_path_kernel)),
    ),
    Mutation(
        "K of bundles 1 % too large",
        ("npk-4.1-bundles", "npk-5.1-bundles"),
        scaled(npk_bundles, "neural_tangent_kernel", 1.01),
    ),
    Mutation("𝒱 of bundles 1 % too large", ("npk-bundles",), scaled(npk_bundles, "value_tangent_kernel", 1.01)),
    Mutation("values of bundles 1 % too large", ("npk-bundles",), scaled(npk_bundles, "neural_path_values", 1.01)),
    Mutation("`path_features` 10 % too large", ("npk-C-sketch",), scaled(npk_bundles, "path_features", 1.1)),
)
HALFSPACE = (
    Mutation(
        "mixture of experts 0.01 % too large", ("halfspace-1", "halfspace-2"), scaled(halfspace, "_mixture", 1.0001)
    ),
    Mutation(
        "half-spaces are moved by 0.05",
        ("halfspace-2", "halfspace-2.2"),
        replaced(halfspace, "half_spaces", _moved_spaces(halfspace.half_spaces)),
    ),
    Mutation(
        "`region_counts` has one region too many",
        ("halfspace-3.1-regions",),
        replaced(halfspace, "region_counts", _one_too_many(halfspace.region_counts)),
    ),
    Mutation(
        "a ReLU network in place of the DLGN",
        ("halfspace-2.2",),
        together(
            replaced(halfspace, "_dlgn_gates", halfspace._relu_gates),
            replaced(halfspace, "DeepLinearlyGatedNetwork", lambda *_, gate, **options: biased_mlp(**options)),
        ),
    ),
    Mutation(
        "Figure 1(a): green opens at 0.4",
        ("halfspace-fig1a",),
        replaced(figure1, "disconnected_network", _shifted_figure(figure1.disconnected_network)),
    ),
    Mutation("Figure 1(b): brown is given |x₂| for every ε", ("halfspace-fig1b",), _same_side(figure1.jumping_network)),
    Mutation(
        "`active_region` of the reversed path",
        ("halfspace-3.1-regions",),
        replaced(halfspace, "active_region", _reversed_path(halfspace.active_region)),
    ),
)


def _larger_second_moments(right: Callable[..., GatedMoments]) -> Callable[..., GatedMoments]:
    def wrong(*args: Any) -> GatedMoments:
        moments = right(*args)
        return GatedMoments(1.01 * moments.A, moments.b, moments.units, moments.power)

    return wrong


def _faster(right: Callable[..., Any]) -> Callable[..., Any]:
    def wrong(*args: Any) -> Any:
        rates, gates, loss = right(*args)
        return {edge: 1.05 * rate for edge, rate in rates.items()}, gates, loss

    return wrong


GDLN = (
    Mutation(
        "`GatedLinearFlow.weights` 5 % too large",
        ("gdln-11", "gdln-descent", "gdln-3.5", "gdln-circulant", "gdln-9-printed", "gdln-outputs"),
        scaled(GatedLinearFlow, "weights"),
    ),
    Mutation(
        "`GatedLinearFlow.limit` 5 % too large",
        ("gdln-limit", "gdln-3.4", "gdln-26-printed"),
        scaled(GatedLinearFlow, "limit"),
    ),
    Mutation("`GatedLinearFlow.loss` 5 % too large", ("gdln-16",), scaled(GatedLinearFlow, "loss")),
    Mutation("`minimum_loss` 5 % too large", ("gdln-16",), scaled(gdln, "minimum_loss")),
    Mutation("`minimum_loss_balanced` 5 % too large", ("gdln-16",), scaled(gdln, "minimum_loss_balanced")),
    Mutation("`DenseFlow.at` 5 % too large", ("gdln-3.4",), scaled(DenseFlow, "at")),
    Mutation("time constants 5 % too large", ("gdln-3.5",), scaled(GatedLinearFlow, "time_constants")),
    Mutation("`NLGP.correlation` 5 % too large", ("gdln-nlgp",), scaled(NLGP, "correlation")),
    Mutation("`PiecewiseFlow.weights` 5 % too large", ("gdln-piecewise",), scaled(PiecewiseFlow, "weights")),
    Mutation("`NeuralRace.loss` 5 % too large", ("gdln-race",), scaled(NeuralRace, "loss")),
    Mutation("gate objective 5 % too large", ("gdln-18-printed",), scaled(gdln_printed, "objective")),
    Mutation("printed gate objective 5 % too large", ("gdln-18-printed",), scaled(gdln_printed, "printed_objective")),
    Mutation(
        "frozen gates of another network",
        ("gdln-2",),
        replaced(MeanReadoutNetwork, "frozen_gates", lambda _: gdln_problem.half_spaces(3, torch.Generator())),
    ),
    Mutation(
        "moments without the inner 1/K",
        ("gdln-8", "gdln-limit", "gdln-8-printed"),
        replaced(gdln_problem, "moments_of", _without_inner_factor(gdln_problem.moments_of)),
    ),
    Mutation(
        "second moments 1 % too large",
        ("gdln-one-basis",),
        replaced(gdln_population, "moments_of", _larger_second_moments(gdln_population.moments_of)),
    ),
    Mutation(
        "orthant probabilities 5 % too large",
        ("gdln-gaussian-moments",),
        scaled(gaussian_moments, "orthant_probability"),
    ),
    Mutation("`PopulationFlow.drive` 5 % too large", ("gdln-population",), scaled(PopulationFlow, "drive")),
    Mutation("excess kurtosis 30 % too large", ("gdln-variational",), scaled(gdln_population, "excess_kurtosis", 1.3)),
    Mutation("`ReluFlow.weights` 0.01 % too large", ("gdln-filippov",), scaled(ReluFlow, "weights", 1.0001)),
    Mutation("least-squares weights 5 % too large", ("gdln-3.3",), scaled(gdln_gates, "fit_weights")),
    Mutation(
        "`PathwayGraph.velocity` 5 % too large",
        ("gdln-shared-race",),
        replaced(PathwayGraph, "velocity", _faster(PathwayGraph.velocity)),
    ),
    Mutation(
        "integrated flow 1 % too large",
        ("gdln-11-printed", "gdln-31-printed"),
        scaled(gdln_printed, "integrated", 1.01),
    ),
)
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
        "`row_energy` of the third power",
        ("hierarchy-8.6.2",),
        replaced(batchnorm, "row_energy", lambda weight: weight.abs().pow(3).sum(dim=0)),
    ),
    Mutation(
        "`row_energy` forgets the bias",
        ("hierarchy-8.6.2-bias",),
        replaced(corrections, "row_energy", lambda weight, _bias=None: weight.square().sum(dim=0) / 2),
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
MUTATIONS = (*NPK, *HALFSPACE, *GDLN, *HIERARCHY)


def page() -> str:
    """Return docs/mutations.md."""
    lines = [f"| {mutation.what} | {', '.join(mutation.rows)} |" for mutation in MUTATIONS]
    return HEAD + "\n".join(lines) + f"\n\n{len(MUTATIONS)} mutations, {len(all_theorems())} rows.\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
