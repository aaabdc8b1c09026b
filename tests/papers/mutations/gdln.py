"""Ways to break the code that the theorems of gdln name."""

from collections.abc import Callable
from typing import Any

import torch

from gatelab.data import NLGP, nlgp
from gatelab.data.power_field import PowerField
from gatelab.dynamics import (
    GatedLinearFlow,
    GatedMoments,
    NeuralRace,
    PiecewiseFlow,
    gate_optimum,
    gated_flow,
    gaussian_moments,
    linear_flow,
    moments,
    race,
)
from gatelab.dynamics.graph_race import PathwayGraph
from gatelab.dynamics.linear_flow import DenseFlow
from gatelab.dynamics.population import PopulationFlow
from gatelab.dynamics.sliding import ReluFlow
from gatelab.models import ChosenGates, GatedDeepLinearNetwork, HalfSpaceGates, MeanReadoutNetwork
from gatelab.papers.gdln import gate_objective
from gatelab.papers.gdln import problem as gdln_problem
from gatelab.papers.gdln import theorems as gdln
from gatelab.papers.gdln import theorems_gates as gdln_gates
from gatelab.papers.gdln import theorems_population as gdln_population
from gatelab.papers.gdln import theorems_printed as gdln_printed
from tests.papers.mutations.changes import Mutation, replaced, scaled


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


def _faster(right: Callable[..., Any]) -> Callable[..., Any]:
    def wrong(*args: Any) -> Any:
        rates, gates, loss = right(*args)
        return {edge: 1.05 * rate for edge, rate in rates.items()}, gates, loss

    return wrong


def _ungated(x: Any, gates: Any) -> Any:
    return x.repeat(1, gates.shape[1] if isinstance(gates, torch.Tensor) else gates.count)


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
        ("gdln-11", "gdln-descent", "gdln-3.5", "gdln-circulant", "gdln-9-printed", "gdln-outputs"),
        scaled(GatedLinearFlow, "weights"),
    ),
    Mutation(
        "`GatedLinearFlow.limit` 5 % too large",
        ("gdln-limit", "gdln-3.4", "gdln-11-printed", "gdln-26-printed"),
        scaled(GatedLinearFlow, "limit"),
    ),
    Mutation("`GatedLinearFlow.loss` 5 % too large", ("gdln-16",), scaled(GatedLinearFlow, "loss")),
    Mutation("`minimum_loss` 5 % too large", ("gdln-16",), scaled(gdln, "minimum_loss")),
    Mutation("what gates explain 1 % too large", ("gdln-16",), scaled(moments, "explained", 1.01)),
    Mutation(
        "moments ignore the gates",
        ("gdln-8", "gdln-limit", "gdln-16", "gdln-3.4", "gdln-one-basis"),
        replaced(moments, "gated_inputs", _ungated),
    ),
    Mutation(
        "the loss without the inner 1/K", ("gdln-8",), replaced(GatedMoments, "loss", _wrong_loss(GatedMoments.loss))
    ),
    Mutation(
        "closed forms decay at half the rate",
        ("gdln-11", "gdln-descent", "gdln-3.4", "gdln-3.5", "gdln-piecewise", "gdln-outputs"),
        replaced(linear_flow.LinearFlow, "_modes_at", _slower(linear_flow.LinearFlow._modes_at)),
    ),
    Mutation(
        "limits forget where the weights started",
        ("gdln-limit", "gdln-3.4"),
        replaced(linear_flow.LinearFlow, "limit", _from_zero(linear_flow.LinearFlow.limit)),
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
    Mutation("modes of a race learn at half the rate", ("gdln-race",), scaled(race, "as_times", 0.5)),
    Mutation(
        "a switch resets the weights",
        ("gdln-piecewise",),
        replaced(PiecewiseFlow, "switch", _resetting_switch),
    ),
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
    Mutation("weights of the search 5 % too large", ("gdln-3.3",), scaled(gate_optimum, "fit_weights")),
    Mutation(
        "what gates explain by class 1 % too large", ("gdln-18-printed",), scaled(gate_objective, "explained", 1.01)
    ),
    Mutation("`PowerField.transform` 10 % too large", ("gdln-variational",), scaled(PowerField, "transform", 1.1)),
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
