"""Ways to break the code that the theorems of gdln name."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from gatelab.data import NLGP, nlgp
from gatelab.data.power_field import PowerField
from gatelab.data.ring import root_spectrum, squared_distances
from gatelab.dynamics import (
    GatedLinearFlow,
    GatedMoments,
    NeuralRace,
    PiecewiseFlow,
    cross_entropy,
    gate_optimum,
    gated_flow,
    gaussian_moments,
    moments,
    race,
)
from gatelab.dynamics.gate_optimum import Overlap
from gatelab.dynamics.graph_race import PathwayGraph
from gatelab.dynamics.linear_flow import CirculantFlow, DenseFlow, LinearFlow
from gatelab.dynamics.population import PopulationFlow
from gatelab.dynamics.population_centre import CentredFlow
from gatelab.dynamics.sliding import ReluFlow
from gatelab.models import ChosenGates, GatedDeepLinearNetwork, HalfSpaceGates, MeanReadoutNetwork
from gatelab.papers.gdln import gate_objective
from gatelab.papers.gdln import problem as gdln_problem
from gatelab.papers.gdln import theorems as gdln
from gatelab.papers.gdln import theorems_gates as gdln_gates
from gatelab.papers.gdln import theorems_population as gdln_population
from gatelab.papers.gdln import theorems_printed as gdln_printed
from gatelab.papers.gdln import theorems_structure as gdln_structure
from tests.papers.mutations.changes import Mutation, Patch, replaced, scaled, together


def _without_inner_factor(right: Any) -> Any:
    def wrong(*args: Any) -> GatedMoments:
        moments = right(*args)
        return GatedMoments(moments.units * moments.A, moments.b, moments.units, moments.power)

    return wrong


def _larger_second_moments(right: Callable[..., GatedMoments]) -> Callable[..., GatedMoments]:
    def wrong(*args: Any) -> GatedMoments:
        moments = right(*args)
        return GatedMoments(1.01 * moments.A, moments.b, moments.units, moments.power)

    return wrong


def _at_rates(right: Callable[..., Any], factor: float, node: str = "") -> Callable[..., Any]:
    def wrong(*args: Any) -> Any:
        rates, gates, loss = right(*args)
        of_node = {edge for edge in rates if node in edge or not node}
        return {edge: factor * rate if edge in of_node else rate for edge, rate in rates.items()}, gates, loss

    return wrong


def _gated_inputs(wrong: Callable[[Any, Any], Any]) -> Patch:
    """Every module that imports ``gated_inputs``, with the gates as booleans."""

    def of_gates(x: Any, gates: Any) -> Any:
        return wrong(x, gates if isinstance(gates, torch.Tensor) else gates.opened(x))

    users = (moments, cross_entropy, gate_optimum, gdln_problem)
    return together(*(replaced(user, "gated_inputs", of_gates) for user in users))


def _ungated(x: Any, opened: Any) -> Any:
    return x.repeat(1, opened.shape[1])


def _reversed(x: Any, opened: Any) -> Any:
    return (opened.flip(1).to(x)[:, :, None] * x[:, None, :]).flatten(1)


def _by_sites(x: Any, opened: Any) -> Any:
    return (x[:, :, None] * opened.to(x)[:, None, :]).flatten(1)


def _always_the_same(right: Callable[..., Any]) -> Callable[..., Any]:
    return lambda count, _source: right(count, torch.Generator().manual_seed(0))


def _for_many_weights(wrong: Callable[[Any, Any], Any]) -> Patch:
    """Change the drive of a centred flow wherever more than one weight is not zero."""
    begin, drive = CentredFlow.__init__, CentredFlow._drive

    def __init__(self: Any, source: Any, *args: Any) -> None:  # noqa: N807
        begin(self, source, *args)
        self.plain = PopulationFlow.of_field(source)

    def _drive(self: Any, w: Any) -> Any:
        right = drive(self, w)
        return wrong(self.plain._drive(w), right) if np.count_nonzero(w) > 1 else right

    return together(replaced(CentredFlow, "__init__", __init__), replaced(CentredFlow, "_drive", _drive))


def _with_variance(change: Callable[[Any], Any]) -> Callable[..., Any]:
    right = race._runner

    def wrong(*args: Any) -> Any:
        runner = right(*args)
        return replace(runner, variance=change(runner.variance))

    return wrong


def _no_variance(right: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, runner, *args: right(self, replace(runner, variance=torch.ones_like(runner.variance)), *args)


def _undriven(right: Callable[..., Any]) -> Callable[..., Any]:
    def wrong(self: LinearFlow, start: Any, times: Any) -> Any:
        return right(self, start, times) - right(self, torch.zeros_like(start), times)

    return wrong


def _unstarted(right: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, start, times: right(self, torch.zeros_like(start), times)


def _single_counts(right: Callable[..., Any]) -> Callable[..., Any]:
    def wrong(self: CirculantFlow, *args: Any) -> None:
        right(self, *args)
        self.counts = torch.ones_like(self.counts)

    return wrong


def _doubled_b(right: Callable[..., GatedMoments]) -> Callable[..., GatedMoments]:
    def wrong(*args: Any) -> GatedMoments:
        found = right(*args)
        return replace(found, b=2 * found.b)

    return wrong


def _wide_errors(right: Callable[..., GatedMoments]) -> Callable[..., GatedMoments]:
    def wrong(*args: Any, **kwargs: Any) -> GatedMoments:
        found = right(*args, **kwargs)
        assert found.A_error is not None
        assert found.b_error is not None
        return replace(found, A_error=10 * found.A_error, b_error=10 * found.b_error)

    return wrong


def _only_at_the_end(right: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, t: right(self, torch.full_like(torch.as_tensor(t, dtype=torch.float64), 1e12))


def _first_column(right: Callable[..., Any]) -> Callable[..., Any]:
    return lambda A, b: right(A, b.view(len(b), -1)[:, 0])


def _patterns_of_exclusive(changed: Overlap) -> Callable[..., Any]:
    right = Overlap.patterns
    return lambda self, units: right(Overlap.EXCLUSIVE if self is changed else self, units)


def _farthest(x: Any, target: Any, weights: Any, overlap: Overlap) -> Any:
    patterns = overlap.patterns(len(weights))
    return patterns[(x @ weights.T @ patterns.to(x).T - target[:, None]).abs().argmax(dim=1)]


def _exponential_root(self: NLGP, label: int) -> Any:
    return root_spectrum((-squared_distances(self.shape).sqrt() / self.lengths[1 - label]).exp(), "exp(−d/ξ)")


def _stopping(right: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args, **kwargs: right(*args, **{**kwargs, "most": 0})


def _wrong_loss(right: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, w: right(GatedMoments(self.units * self.A, self.b, self.units, self.power), w)


def _slower(right: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, start, times: right(self, start, times / 2)


def _from_zero(right: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, start: right(self, torch.zeros_like(start))


def _complementary(right: Callable[..., Any]) -> Callable[..., Any]:
    def wrong(self: ChosenGates, x: Any) -> Any:
        scores = right(self, x)
        return torch.cat([scores[:, :1], -scores[:, 1:]], dim=1)

    return wrong


def _resetting_switch(self: PiecewiseFlow, instant: float, moments: GatedMoments) -> None:
    start = self.flows[0].initial
    self.flows.append(GatedLinearFlow.from_moments(moments, self.flows[0].tau, initial=start))
    self.starts.append(instant)


GDLN = (
    Mutation(
        "`GatedLinearFlow.weights` 5 % too large",
        (
            "gdln-11",
            "gdln-descent",
            "gdln-3.5",
            "gdln-circulant",
            "gdln-outputs",
            "gdln-8-printed",
            "gdln-9-printed",
            "gdln-31-printed",
        ),
        scaled(GatedLinearFlow, "weights"),
    ),
    Mutation(
        "`GatedLinearFlow.limit` 5 % too large",
        ("gdln-limit", "gdln-3.4", "gdln-11-printed", "gdln-26-printed"),
        scaled(GatedLinearFlow, "limit"),
    ),
    Mutation(
        "`GatedLinearFlow.loss` 5 % too large",
        ("gdln-16", "gdln-11", "gdln-circulant"),
        scaled(GatedLinearFlow, "loss"),
    ),
    Mutation(
        "the loss is that of t → ∞ at all times",
        ("gdln-11", "gdln-circulant"),
        replaced(GatedLinearFlow, "loss", _only_at_the_end(GatedLinearFlow.loss)),
    ),
    Mutation("`minimum_loss` 5 % too large", ("gdln-16",), scaled(gdln, "minimum_loss")),
    Mutation(
        "gates explain the first output only",
        ("gdln-outputs",),
        replaced(moments, "explained", _first_column(moments.explained)),
    ),
    Mutation("what gates explain 1 % too large", ("gdln-16",), scaled(moments, "explained", 1.01)),
    Mutation(
        "moments ignore the gates",
        (
            "gdln-8",
            "gdln-11",
            "gdln-descent",
            "gdln-limit",
            "gdln-16",
            "gdln-3.4",
            "gdln-3.5",
            "gdln-circulant",
            "gdln-piecewise",
            "gdln-one-basis",
            "gdln-3.3",
            "gdln-outputs",
            "gdln-8-printed",
            "gdln-9-printed",
            "gdln-11-printed",
            "gdln-18-printed",
            "gdln-26-printed",
            "gdln-31-printed",
        ),
        _gated_inputs(_ungated),
    ),
    Mutation("moments take the gates in reverse", ("gdln-11", "gdln-limit"), _gated_inputs(_reversed)),
    Mutation("moments are ordered by sites, not by units", ("gdln-11", "gdln-limit"), _gated_inputs(_by_sites)),
    Mutation(
        "half-spaces are always the same",
        ("gdln-16", "gdln-18-printed"),
        replaced(gdln_problem, "half_spaces", _always_the_same(gdln_problem.half_spaces)),
    ),
    Mutation(
        "the loss without the inner 1/K", ("gdln-8",), replaced(GatedMoments, "loss", _wrong_loss(GatedMoments.loss))
    ),
    Mutation(
        "closed forms decay at half the rate",
        ("gdln-11", "gdln-descent", "gdln-3.4", "gdln-3.5", "gdln-piecewise", "gdln-outputs", "gdln-circulant"),
        replaced(LinearFlow, "_modes_at", _slower(LinearFlow._modes_at)),
    ),
    Mutation(
        "closed forms forget what drives them",
        ("gdln-11", "gdln-circulant", "gdln-31-printed"),
        replaced(LinearFlow, "_modes_at", _undriven(LinearFlow._modes_at)),
    ),
    Mutation(
        "closed forms forget where the weights started",
        ("gdln-11", "gdln-circulant", "gdln-9-printed"),
        replaced(LinearFlow, "_modes_at", _unstarted(LinearFlow._modes_at)),
    ),
    Mutation(
        "every Fourier mode counts once",
        ("gdln-circulant",),
        replaced(CirculantFlow, "__init__", _single_counts(CirculantFlow.__init__)),
    ),
    Mutation(
        "exact b doubled",
        ("gdln-circulant",),
        replaced(gdln_structure, "exact_moments", _doubled_b(gdln_structure.exact_moments)),
    ),
    Mutation(
        "limits forget where the weights started",
        ("gdln-limit", "gdln-3.4"),
        replaced(LinearFlow, "limit", _from_zero(LinearFlow.limit)),
    ),
    Mutation(
        "the mean over units is a sum",
        ("gdln-2", "gdln-8", "gdln-8-printed"),
        scaled(GatedDeepLinearNetwork, "forward", 3.0),
    ),
    Mutation("half-spaces open on the wrong side", ("gdln-2",), scaled(HalfSpaceGates, "forward", -1.0)),
    Mutation(
        "exclusive units are solved together",
        ("gdln-3.4",),
        replaced(gated_flow, "connected", lambda coupled: [tuple(range(len(coupled)))]),
    ),
    Mutation(
        "a chosen gate opens where it should close",
        ("gdln-3.5", "gdln-31-printed"),
        replaced(ChosenGates, "forward", _complementary(ChosenGates.forward)),
    ),
    Mutation(
        "Fourier modes are not found", ("gdln-circulant",), replaced(gated_flow, "circulant_rows", lambda *_: None)
    ),
    Mutation("erf counts as linear", ("gdln-nlgp",), replaced(nlgp, "_erf_correlation", lambda _gain, row: row)),
    Mutation("C_ij = e^{−d/ξ}", ("gdln-nlgp",), replaced(NLGP, "_root", _exponential_root)),
    Mutation("a race takes δ as 1", ("gdln-race",), replaced(race, "_runner", _with_variance(torch.ones_like))),
    Mutation("a race takes δ² for δ", ("gdln-race",), replaced(race, "_runner", _with_variance(torch.square))),
    Mutation(
        "modes of a race saturate as if δ were 1",
        ("gdln-race",),
        replaced(NeuralRace, "_strength", _no_variance(NeuralRace._strength)),
    ),
    Mutation("modes of a race learn at half the rate", ("gdln-race",), scaled(race, "as_times", 0.5)),
    Mutation(
        "a switch resets the weights",
        ("gdln-piecewise",),
        replaced(PiecewiseFlow, "switch", _resetting_switch),
    ),
    Mutation("`minimum_loss_balanced` 5 % too large", ("gdln-16",), scaled(gdln, "minimum_loss_balanced")),
    Mutation("`DenseFlow.at` 5 % too large", ("gdln-3.4",), scaled(DenseFlow, "at")),
    Mutation(
        "time constants 5 % too large",
        ("gdln-3.5", "gdln-circulant", "gdln-11-printed"),
        scaled(GatedLinearFlow, "time_constants"),
    ),
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
    Mutation(
        "error bars of moments ten times too wide",
        ("gdln-gaussian-moments",),
        replaced(gdln_population, "estimate_moments", _wide_errors(gdln_population.estimate_moments)),
    ),
    Mutation(
        "the centre does nothing for several weights", ("gdln-population",), _for_many_weights(lambda plain, _: plain)
    ),
    Mutation(
        "the centred drive 10 % too large for several weights",
        ("gdln-population",),
        _for_many_weights(lambda _, right: 1.1 * right),
    ),
    Mutation("`PopulationFlow.drive` 5 % too large", ("gdln-population",), scaled(PopulationFlow, "drive")),
    Mutation("excess kurtosis 30 % too large", ("gdln-variational",), scaled(gdln_population, "excess_kurtosis", 1.3)),
    Mutation("`ReluFlow.weights` 0.01 % too large", ("gdln-filippov",), scaled(ReluFlow, "weights", 1.0001)),
    Mutation("`ReluFlow.loss` doubled", ("gdln-filippov",), scaled(ReluFlow, "loss", 2.0)),
    Mutation(
        "restarts stop at once",
        ("gdln-filippov",),
        replaced(gdln_gates, "self_gated_flow", _stopping(gdln_gates.self_gated_flow)),
    ),
    Mutation(
        "units may not overlap", ("gdln-3.3",), replaced(Overlap, "patterns", _patterns_of_exclusive(Overlap.ANY))
    ),
    Mutation(
        "tilings may leave examples out",
        ("gdln-3.3",),
        replaced(Overlap, "patterns", _patterns_of_exclusive(Overlap.TILING)),
    ),
    Mutation("the search opens the worst gates", ("gdln-3.3",), replaced(gate_optimum, "choose_gates", _farthest)),
    Mutation("least-squares weights 5 % too large", ("gdln-3.3",), scaled(gdln_gates, "fit_weights")),
    Mutation("weights of the search 5 % too large", ("gdln-3.3",), scaled(gate_optimum, "fit_weights")),
    Mutation(
        "what gates explain by class 1 % too large", ("gdln-18-printed",), scaled(gate_objective, "explained", 1.01)
    ),
    Mutation("`PowerField.transform` 10 % too large", ("gdln-variational",), scaled(PowerField, "transform", 1.1)),
    Mutation(
        "`PathwayGraph.velocity` 5 % too large",
        ("gdln-shared-race",),
        replaced(PathwayGraph, "velocity", _at_rates(PathwayGraph.velocity, 1.05)),
    ),
    Mutation(
        "the shared node learns 10 % too slowly",
        ("gdln-shared-race",),
        replaced(PathwayGraph, "velocity", _at_rates(PathwayGraph.velocity, 0.9, "S")),
    ),
    Mutation(
        "integrated flow 1 % too large",
        ("gdln-11-printed", "gdln-31-printed"),
        scaled(gdln_printed, "integrated", 1.01),
    ),
)
