"""Gates and contexts in time: gdln's Sections 2.3 and 5, and deeper networks beyond the notes, as theorems."""

import torch
from torch import Tensor

from gatelab.data import SinglePulse
from gatelab.dynamics import (
    GatedLinearFlow,
    GatedMoments,
    NeuralRace,
    PathwayFlow,
    PiecewiseFlow,
    context_moments,
    exact_moments,
    moments_of,
)
from gatelab.dynamics.gate_search import random_half_spaces
from gatelab.dynamics.linear_flow import DenseFlow
from gatelab.figures import Curve, Plot
from gatelab.lab.measure import against, identity, relative_error
from gatelab.lab.theorem import Measurement, theorem
from gatelab.lab.verdicts import Check
from gatelab.models import FunctionGates, PathwayNetwork
from gatelab.papers.gdln.problem import TAU, TIMES, UNITS, at_least, follows, generator, half_spaces, problem
from gatelab.papers.gdln.simulation import integrated


@theorem(
    "gdln-circulant", "Section 5", "Translation-invariant gates: one Fourier basis solves the flow for all of them"
)
def circulant_flow(seed: int) -> Measurement:
    """Compare Fourier modes with a dense decomposition, for pulses under gates that count the sites that are on."""
    random = generator(seed)
    source = SinglePulse(((4, 6), (2, 3)), (12,))
    gates = FunctionGates([lambda x: x.sum(dim=1) > 3, lambda x: x.sum(dim=1) < 5])
    moments = exact_moments(source, gates)
    initial = torch.randn(2, source.dim, generator=random, dtype=torch.float64)
    flow = GatedLinearFlow.from_moments(moments, TAU, initial=initial)
    dense = DenseFlow(moments.A / (4 * TAU), moments.b.view(2, -1) / (2 * TAU)).at(initial, TIMES)
    x = source.support(1)
    halves = random_half_spaces(source.dim, 2, generator=random, dtype=torch.float64)
    mixed = _commutator(moments_of(x, torch.ones(len(x), dtype=torch.float64), halves))
    return Measurement(
        (
            at_least("Fourier modes used", flow.translation_invariant, 1.0, "the solver must see the structure"),
            identity("Fourier modes against dense", flow.weights(TIMES), dense),
            Check("[A₁₁, A₂₂], relative", _commutator(moments), 1e-12, "circulant matrices commute"),
        ),
        against(flow.weights(TIMES), dense, "each weight at five instants"),
        (f"The notes hope for one basis over time. For half-space gates [A₁₁, A₂₂] is {mixed:.2g} of the product.",),
    )


def _commutator(moments: GatedMoments) -> float:
    """Return the largest entry of A₁₁A₂₂ − A₂₂A₁₁, relative to that of A₁₁A₂₂; both blocks are symmetric."""
    product = moments.input_input(0, 0) @ moments.input_input(1, 1)
    return float((product - product.T).abs().max() / product.abs().max())


@theorem(
    "gdln-piecewise",
    "Sections 2.3, 5",
    "Gates that switch: the closed form restarted at each switch is the flow, and continuous",
)
def piecewise_gates(seed: int) -> Measurement:
    """Compare three sets of gates in turn with each segment integrated alone."""
    given, random = problem(seed), generator(seed)
    sets = [given.moments, *(moments_of(given.x, given.y, half_spaces(UNITS, random)) for _ in range(2))]
    starts, ends = [0.0, 1.5, 4.0], [1.5, 4.0, 10.0]
    flow = PiecewiseFlow(starts, sets, TAU, initial=given.initial)
    states = [given.initial]
    for start, end, moments in zip(starts, ends, sets, strict=True):
        span = torch.tensor([0.0, end - start], dtype=torch.float64)
        states.append(integrated(moments, states[-1], span, TAU)[-1])
    found, expected = flow.weights(torch.tensor(ends, dtype=torch.float64)), torch.stack(states[1:])
    switches = torch.tensor(starts[1:], dtype=torch.float64)
    jump = (flow.weights(switches) - flow.weights(switches - 1e-10)).abs().max()
    return Measurement(
        (
            follows("w at the ends of segments", found, expected),
            Check("jump of w at a switch", float(jump), 1e-8, "1e-10 of time at speeds near 1"),
        ),
        against(found, expected, "each weight at the ends of three segments"),
    )


@theorem(
    "gdln-race", "beyond the notes", "Decoupled pathways learn logistically, τṡ = 2s(σ − δs); equal ones run together"
)
def neural_race(seed: int) -> Measurement:
    """Compare two exclusive contexts, one of them with two nodes, with the integrated flow and with descent."""
    random = generator(seed)
    n, d, k = 40, 4, 3
    context = torch.arange(n) % 2
    x = torch.randn(n, d, generator=random, dtype=torch.float64)
    for place in (0, 1):  # whitened within each context, so modes decouple
        own = context == place
        root = torch.linalg.cholesky(x[own].T @ x[own] / n)
        x[own] = torch.linalg.solve_triangular(root, x[own].T, upper=False).T
    teacher = torch.randn(2, k, d, generator=random, dtype=torch.float64)
    y = torch.einsum("nkd,nd->nk", teacher[context], x)
    gates = FunctionGates([lambda _: context == 0, lambda _: context == 1, lambda _: context == 1])
    network = PathwayNetwork(d, k, [gates], [d], dtype=torch.float64, generator=random)
    moments = context_moments(network, x, y)
    race, start = NeuralRace(moments, TAU), 1e-3
    race.align(network, start, random)
    flow = PathwayFlow(moments, network, TAU)
    times = torch.linspace(0, 6, 13, dtype=torch.float64)
    solved, exact = flow.solve(times), race.loss(times, start)
    losses = torch.tensor([flow.loss([layer[t] for layer in solved]) for t in range(len(times))])
    middle = 4  # the instant at which weights still move fast, so descent could miss them
    descended = _descent(network, x, y, float(times[middle]), 200)
    target = torch.cat([layer[middle].flatten() for layer in solved])
    return Measurement(
        (
            Check("L(t), rel. error", relative_error(losses, exact), 1e-7, "DOP853 at rtol 1e-10"),
            Check("weights of descent, rel. error", relative_error(descended, target), 2e-2, "200 steps: first order"),
        ),
        Plot(
            "time",
            "loss",
            (
                Curve("exact", tuple(times.tolist()), tuple(exact.tolist()), line=True),
                Curve("integrated", tuple(times.tolist()), tuple(losses.tolist())),
            ),
        ),
    )


def _descent(network: PathwayNetwork, x: Tensor, y: Tensor, horizon: float, steps: int) -> Tensor:
    # Plain steps: torch.optim takes seconds to import.
    weights = network.weights()
    for _ in range(steps):
        loss = (network(x) - y).square().sum(dim=1).mean() / 2
        gradients = torch.autograd.grad(loss, weights)
        with torch.no_grad():
            for weight, gradient in zip(weights, gradients, strict=True):
                weight.sub_(horizon / steps / TAU * gradient)
    return torch.cat([weight.detach().flatten() for weight in weights])
