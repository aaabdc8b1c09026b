"""Gates with a structure, as theorems: exclusive, redundant, translation-invariant, switched, and decoupled pathways.

The network and the loss are those of ``theorems`` (gdln, Sections 3.4, 3.5, 2.3 and 5, and deeper networks).
"""

from itertools import count

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
from gatelab.figures import Plot
from gatelab.lab.measure import against, identity, relative_error
from gatelab.lab.theorem import Measurement, theorem
from gatelab.lab.verdicts import Check
from gatelab.models import CellGates, ChosenGates, FunctionGates, PathwayNetwork
from gatelab.papers.common import agrees, at_least, dots, first_suitable, line, measurement
from gatelab.papers.gdln.problem import (
    INTEGRATED,
    TAU,
    TIMES,
    UNITS,
    D,
    Problem,
    follows,
    generator,
    half_spaces,
    plain_moments,
    plainly_opened,
    problem,
)
from gatelab.papers.gdln.simulation import integrated


@theorem(
    "gdln-3.4",
    "Section 3.4",
    "Exclusive gates: A is block diagonal; each unit solves K × least squares on its own examples, and keeps the part "
    "of w(0) that these do not reach",
)
def exclusive_gates(seed: int) -> Measurement:
    """Measure Voronoi cells: the off-diagonal blocks, each unit's limit, and its curve when solved alone."""
    given = _cells(seed)
    moments, flow, full = given.moments, given.flow, given.integrated()
    pairs = [(p, q) for p in range(UNITS) for q in range(UNITS) if p != q]
    off = max(float(moments.input_input(p, q).abs().max()) for p, q in pairs)
    alone = [
        DenseFlow(moments.input_input(k, k) / (UNITS**2 * TAU), moments.input_output(k)[None] / (UNITS * TAU))
        for k in range(UNITS)
    ]
    apart = torch.cat([part.at(given.initial[k : k + 1], TIMES) for k, part in enumerate(alone)], dim=1)
    # With 8 examples a cell holds fewer than its d = 6 weights, so a part of w(0) stays.
    few, overlapping = _cells(seed, n=8, each=1), problem(seed)
    forgotten = relative_error(few.flow.limit(), _own_limits(few, keep=False))
    shared = relative_error(overlapping.flow.limit(), _own_limits(overlapping))
    return measurement(
        against(flow.weights(TIMES), full, "each weight at five instants"),
        Check("largest entry off the diagonal blocks", off, 0.0, "no example opens two gates"),
        at_least("blocks solved separately", len(flow.components), UNITS, "the solver must see the structure"),
        agrees("w(∞) against K × own least squares", flow.limit(), _own_limits(given), 1e-8, "as for the limit"),
        agrees("the same, cells of few examples", few.flow.limit(), _own_limits(few), 1e-8, "as for the limit"),
        follows("w(t), each unit alone", apart, full),
        at_least("few examples, w(0) forgotten: rel. error", forgotten, 0.1, "a part of it stays"),
        at_least("half-spaces that overlap: rel. error", shared, 0.1, "units share examples there"),
    )


def _cells(seed: int, n: int = 100, each: int = 2 * D) -> Problem:
    """Return a problem with exclusive gates, Voronoi cells that hold at least ``each`` of its n examples.

    Where a cell holds about d examples, the condition number of its A has no bound; 2d examples bound it in practice.
    """
    random = generator(seed)
    centres = (torch.randn(UNITS, D, generator=random, dtype=torch.float64) for _ in count())

    def filled(given: Problem) -> bool:
        held = given.gates.opened(given.x).sum(dim=0)
        return int(held.min()) >= each and not bool((held == D).any())

    return first_suitable(
        (problem(seed, CellGates(c), n=n) for c in centres), filled, f"one with {each} examples or more in every cell"
    )


def _own_limits(given: Problem, *, keep: bool = True) -> Tensor:
    """Return K × least squares of each unit on the examples that open it, and, if kept, the part of w(0) they miss."""
    limits = []
    for start, opened in zip(given.initial, given.gates.opened(given.x).T, strict=True):
        inverse = torch.linalg.pinv(given.x[opened])
        left = start - inverse @ (given.x[opened] @ start)
        limits.append(UNITS * inverse @ given.y[opened] + (left if keep else 0))
    return torch.stack(limits)


@theorem("gdln-3.5", "Section 3.5", "Two equal gates: the rate doubles, w₁ − w₂ stays, w₂ = w₁ − (w₁(0) − w₂(0))")
def redundant_gates(seed: int) -> Measurement:
    """Compare with the integrated flow, and the rates with the rates of one unit for the same K; gates that differ."""
    base = half_spaces(1, generator(seed))
    given = problem(seed, ChosenGates(base, (0, 0)))
    found, full = given.flow.weights(TIMES), given.integrated()
    # K = 2 enters as K² in the rates of both flows; the factor 2 is the number of equal units.
    doubled = 2 * torch.linalg.eigvalsh(problem(seed, base).moments.A).flip(0) / (2**2 * TAU)
    rates = 1 / given.flow.time_constants()[:D]
    different = problem(seed, half_spaces(2, generator(seed)))
    own = 1 / different.flow.time_constants()[:D]
    return measurement(
        against(found, full, "each weight at five instants"),
        Check("w₁ − w₂ over time, rel. drift", _drift(given, full), 1e-10, INTEGRATED),
        identity("rates against 2λ/(K²τ)", rates, doubled),
        follows("w(t)", found, full),
        at_least("gates that differ: drift of w₁ − w₂", _drift(different, different.integrated()), 0.1, "not equal"),
        at_least("gates that differ: their rates against 2λ/(K²τ)", relative_error(own, doubled), 0.02, "not doubled"),
    )


def _drift(given: Problem, path: Tensor) -> float:
    """Return how far w₁ − w₂ moves from its start, relative to the largest weight there."""
    gap = (path[:, 0] - path[:, 1]) - (given.initial[0] - given.initial[1])
    return float(gap.abs().max() / given.initial.abs().max())


@theorem(
    "gdln-circulant", "Section 5", "Translation-invariant gates: one Fourier basis solves the flow for all of them"
)
def circulant_flow(seed: int) -> Measurement:
    """Compare Fourier modes with a dense decomposition, for pulses under gates that count the active sites."""
    random = generator(seed)
    source = SinglePulse(((4, 6), (2, 3)), (12,))
    gates = FunctionGates([lambda x: x.sum(dim=1) > 3, lambda x: x.sum(dim=1) < 5])
    moments, plain = exact_moments(source, gates), _pulse_moments(source)
    initial = torch.randn(2, source.dim, generator=random, dtype=torch.float64)
    flow = GatedLinearFlow.from_moments(moments, TAU, initial=initial)
    dense = DenseFlow(moments.A / (4 * TAU), moments.b.view(2, -1) / (2 * TAU))
    weights, path = flow.weights(TIMES), integrated(plain, initial, TIMES, TAU)
    rates = dense.all_rates().sort(descending=True).values
    x, ones = source.support(1), torch.ones(len(source.support(1)), dtype=torch.float64)
    # Some half-spaces are open for all pulses, which are not negative, or for none: the largest of five pairs counts.
    pairs = [random_half_spaces(source.dim, 2, generator=random, dtype=torch.float64) for _ in range(5)]
    mixed = max(_commutator(moments_of(x, ones, halves)) for halves in pairs)
    because = "raw pulses are not symmetric under x → −x; gdln-one-basis has data that are"
    return measurement(
        against(weights, path, "each weight at five instants"),
        at_least("Fourier modes used", flow.translation_invariant, 1.0, "the solver must see the structure"),
        identity("Fourier modes against dense", weights, dense.at(initial, TIMES)),
        follows("w(t)", weights, path),
        follows("L(t)", flow.loss(TIMES), plain.loss(path)),
        identity("rates against dense", 1 / flow.time_constants(), rates),
        Check("[A₁₁, A₂₂], relative", _commutator(moments), 1e-12, "circulant matrices commute"),
        at_least("[A₁₁, A₂₂] of half-spaces on one class of raw pulses, relative", mixed, 1e-3, because),
    )


def _pulse_moments(source: SinglePulse) -> GatedMoments:
    """Return A and b of both classes under gates that count the active sites, summed over the support."""
    halves = []
    for label in (1, 0):
        x = source.support(label)
        sites = x.sum(dim=1)
        y = torch.full_like(sites, label)
        halves.append(plain_moments(x, y, torch.stack([sites > 3, sites < 5], dim=1)))
    one, zero = halves
    return GatedMoments((one.A + zero.A) / 2, (one.b + zero.b) / 2, 2, (one.power + zero.power) / 2)


def _commutator(moments: GatedMoments) -> float:
    """Return the largest entry of A₁₁A₂₂ − A₂₂A₁₁ over the largest of A₁₁A₂₂; both blocks are symmetric."""
    product = moments.input_input(0, 0) @ moments.input_input(1, 1)
    return float((product - product.T).abs().max() / product.abs().max().clamp(min=1e-300))


@theorem(
    "gdln-piecewise",
    "Sections 2.3, 5",
    "Gates that switch: the closed form restarted at each switch is the flow, and continuous",
)
def piecewise_gates(seed: int) -> Measurement:
    """Compare three sets of gates in turn with each segment integrated alone."""
    given, random = problem(seed), generator(seed)
    gates = [given.gates, *(half_spaces(UNITS, random) for _ in range(2))]
    sets = [moments_of(given.x, given.y, g) for g in gates]
    plain = [plain_moments(given.x, given.y, plainly_opened(given.x, g)) for g in gates]
    starts, ends = [0.0, 1.5, 4.0], [1.5, 4.0, 10.0]
    flow = PiecewiseFlow(starts, sets, TAU, initial=given.initial)
    states = [given.initial]
    for start, end, moments in zip(starts, ends, plain, strict=True):
        span = torch.tensor([0.0, end - start], dtype=torch.float64)
        states.append(integrated(moments, states[-1], span, TAU)[-1])
    found, expected = flow.weights(torch.tensor(ends, dtype=torch.float64)), torch.stack(states[1:])
    switches = torch.tensor(starts[1:], dtype=torch.float64)
    jump = (flow.weights(switches) - flow.weights(switches - 1e-10)).abs().max()
    unswitched = relative_error(given.flow.weights(ends[-1]), expected[-1])
    reset = GatedLinearFlow.from_moments(sets[-1], TAU, initial=given.initial).weights(ends[-1] - starts[-1])
    return measurement(
        against(found, expected, "each weight at the ends of three segments"),
        follows("w at the ends of segments", found, expected),
        Check("jump of w at a switch", float(jump), 1e-8, "1e-10 of time at speeds near 1"),
        at_least("gates that never switch: rel. error at the end", unswitched, 0.1, "the later gates matter"),
        at_least("last gates from w(0): rel. error", relative_error(reset, expected[-1]), 0.05, "and the earlier ones"),
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
    for place in (0, 1):  # Σˣˣ = δ I within each context, so modes decouple; δ is 1.5 in one, 0.5 in the other
        own = context == place
        root = torch.linalg.cholesky(x[own].T @ x[own] / n) / (1.5 - place) ** 0.5
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
    middle = 4  # an instant at which weights still move fast, so that wrong descent would miss them
    reached = _descent(network, x, y, float(times[middle]), 200)
    two = FunctionGates([lambda _: context == 0, lambda _: context == 1])
    single = PathwayNetwork(d, k, [two], [d], dtype=torch.float64, generator=random)
    others = {
        "rates σ in place of 2σ": NeuralRace(moments, 2 * TAU),
        "one node in place of the two equal ones": NeuralRace(context_moments(single, x, y), TAU),
    }
    because = "in the middle of learning curves differ"
    target = torch.cat([layer[middle].flatten() for layer in solved])
    return measurement(
        Plot("time", "loss", (line("exact", times, exact), dots("integrated", times, losses))),
        agrees("L(t)", losses, exact, 1e-7, "DOP853 at rtol 1e-10"),
        agrees("weights of descent", reached, target, 2e-2, "200 steps: first order"),
        *(
            at_least(f"{what}: L(t), rel. error", relative_error(race.loss(times, start), losses), 0.01, because)
            for what, race in others.items()
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
