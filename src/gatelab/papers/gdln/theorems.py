"""The equations of gdln, corrected, as theorems: Sections 1 to 3, gates in time (2.3 and 5), and deeper networks.

The network, a gated deep linear network (GDLN), is ŷ = (1/K) Σ_k g_k w_kᵀx, the loss L = ½⟨(y − ŷ)²⟩.
``theorems_printed`` measures where the printed formulas fail.
"""

import torch
from torch import Tensor

from gatelab.data import NLGP, GaussianClone, SinglePulse
from gatelab.dynamics import (
    GatedLinearFlow,
    GatedMoments,
    NeuralRace,
    PathwayFlow,
    PiecewiseFlow,
    context_moments,
    exact_moments,
    minimum_loss,
    moments_of,
)
from gatelab.dynamics.gate_search import random_half_spaces
from gatelab.dynamics.linear_flow import DenseFlow
from gatelab.figures import Plot
from gatelab.lab.measure import Mean, against, identity, relative_error
from gatelab.lab.theorem import Measurement, theorem
from gatelab.lab.verdicts import Check
from gatelab.lab.verdicts.fits import fitted_power
from gatelab.models import (
    CellGates,
    ChosenGates,
    FunctionGates,
    GatedDeepLinearNetwork,
    MeanReadoutNetwork,
    PathwayNetwork,
)
from gatelab.papers.common import agrees, at_least, dots, equality, line, measurement
from gatelab.papers.gdln.gate_objective import minimum_loss_balanced
from gatelab.papers.gdln.problem import INTEGRATED, TAU, TIMES, UNITS, D, follows, generator, half_spaces, problem
from gatelab.papers.gdln.simulation import descended, integrated

# A is singular where there are fewer examples than weights.
_SIZES = {"A regular": 100, "A singular": 8}


@theorem("gdln-2", "Eq. (2)", "A ReLU unit is its gate times its pre-activation, whatever the size of its weights")
def relu_is_gated_linear(seed: int) -> Measurement:
    """Compare a ReLU network with the GDLN that has its gates, before and after rescaling the weights."""
    given = problem(seed)
    network = MeanReadoutNetwork(D, UNITS, scale=1.0, dtype=torch.float64)
    outputs = []
    with torch.no_grad():
        network.weights.copy_(given.initial)
        expected = network(given.x)
        for factor in (1.0, 1e3):
            network.weights.copy_(factor * given.initial)
            twin = GatedDeepLinearNetwork(D, network.frozen_gates(), dtype=torch.float64)
            twin.weights.copy_(network.weights)
            outputs.append(twin(given.x) / factor)
    found = torch.stack(outputs)
    return measurement(
        against(found[0], expected, "ŷ(x)"),
        identity("(1/K) Σ g_k w_kᵀx against ŷ", found, expected.expand_as(found)),
        note="The notes open a gate at ≥ 0, gatelab at > 0; the two differ on a set of measure zero.",
    )


@theorem("gdln-8", "Eqs (5)–(8)", "Gradient flow of a GDLN: τẇ = (1/K)[b − (1/K)Aw], the inner 1/K included")
def flow_equation(seed: int) -> Measurement:
    """Compare the right-hand side with autograd."""
    given = problem(seed)
    m = given.moments
    rate = (m.b - m.A @ given.initial.flatten() / UNITS) / UNITS
    return equality("τẇ against −∇L", rate, given.descent_direction(), "each weight")


@theorem(
    "gdln-11", "Eqs (9)–(11)", "w(t) = e^{−tA/(K²τ)} w(0) + K (I − e^{−tA/(K²τ)}) A⁺b, for singular A and any w(0)"
)
def closed_form(seed: int) -> Measurement:
    """Compare with a Runge-Kutta method of order eight, with many examples and with fewer than weights."""
    checks, curves = [], []
    for what, n in _SIZES.items():
        given = problem(seed, n=n)
        found, expected = given.flow.weights(TIMES), given.integrated()
        checks.append(follows(f"{what}: w(t)", found, expected))
        curves.append(dots(what, expected, found))
    return measurement(Plot("predicted", "measured", tuple(curves), diagonal="measured = predicted"), *checks)


@theorem("gdln-descent", "Section 3.2", "Gradient descent approaches the flow, its distance linear in the step")
def descent_is_first_order(seed: int) -> Measurement:
    """Compare descent with four step sizes at one instant."""
    given, horizon, counts = problem(seed), 4.0, (200, 400, 800, 1600)
    target = given.flow.weights(horizon)
    ends = [descended(given.moments, given.initial, horizon, count, TAU) for count in counts]
    gaps = [(end - target).abs().max().item() for end in ends]
    steps = [horizon / count for count in counts]
    return measurement(
        Plot("step", "largest distance from the flow", (line("descent", steps, gaps),), log=True),
        Check("|order in the step − 1|", abs(fitted_power(steps, gaps) - 1), 0.02, "Euler's method: first order"),
    )


@theorem("gdln-limit", "Eqs (11), (12)", "w(∞) = K A⁺b + the part of w(0) in the null space of A: least squares on x̃")
def limit_is_least_squares(seed: int) -> Measurement:
    """Compare with the pseudo-inverse of the gated inputs, for regular and singular A."""
    checks, curves = [], []
    for what, n in _SIZES.items():
        given = problem(seed, n=n)
        inverse, start = torch.linalg.pinv(given.features), given.initial.flatten()
        expected = UNITS * inverse @ given.y + start - inverse @ (given.features @ start)
        found = given.flow.limit().flatten()
        because = "least squares by A squares the condition number of x̃, about 1e3 here"
        checks.append(agrees(f"{what}: w(∞)", found, expected, 1e-8, because))
        curves.append(dots(what, expected, found))
    return measurement(Plot("K X̃⁺y + null part", "limit of the flow", tuple(curves), diagonal="equal"), *checks)


@theorem("gdln-16", "Eqs (13)–(16)", "The least mean squared error under given gates, balanced classes y ∈ {0, 1}")
def minimum_loss_by_classes(seed: int) -> Measurement:
    """Compare Eq. 15, Eq. 16, the residual of least squares and twice the flow's last loss, for ten sets of gates."""
    rows = []
    for number in range(10):
        given = problem(100 * seed + number)
        flow = 2 * given.flow.loss(1e12).item()
        rows.append((minimum_loss(given.moments), minimum_loss_balanced(*given.classes), given.residual(), flow))
    eq15, eq16, left, flow = torch.tensor(rows, dtype=torch.float64).T
    return measurement(
        against(eq16, left, "Eq. 16", dots("2 L(∞)", left, flow)),
        identity("Eq. 16 against Eq. 15", eq16, eq15),
        identity("Eq. 15 against least squares", eq15, left),
        identity("2 L(∞) of the flow against least squares", flow, left),
    )


@theorem(
    "gdln-3.4",
    "Section 3.4",
    "Exclusive gates: A is block diagonal, and each unit solves K × least squares on its own examples",
)
def exclusive_gates(seed: int) -> Measurement:
    """Measure Voronoi cells: the off-diagonal blocks, each unit's limit, and its curve when solved alone."""
    gates = CellGates(torch.randn(UNITS, D, generator=generator(seed), dtype=torch.float64))
    given = problem(seed, gates)
    moments, flow, full = given.moments, given.flow, given.integrated()
    pairs = [(p, q) for p in range(UNITS) for q in range(UNITS) if p != q]
    off = max(float(moments.input_input(p, q).abs().max()) for p, q in pairs)
    least = torch.stack([UNITS * torch.linalg.pinv(given.x[o]) @ given.y[o] for o in gates.opened(given.x).T])
    alone = [
        DenseFlow(moments.input_input(k, k) / (UNITS**2 * TAU), moments.input_output(k)[None] / (UNITS * TAU))
        for k in range(UNITS)
    ]
    apart = torch.cat([part.at(given.initial[k : k + 1], TIMES) for k, part in enumerate(alone)], dim=1)
    return measurement(
        against(flow.weights(TIMES), full, "each weight at five instants"),
        Check("largest entry off the diagonal blocks", off, 0.0, "no example opens two gates"),
        at_least("blocks solved separately", len(flow.components), UNITS, "the solver must see the structure"),
        Check("w(∞) against K × own least squares", relative_error(flow.limit(), least), 1e-8, "as for the limit"),
        follows("w(t), each unit alone", apart, full),
    )


@theorem("gdln-3.5", "Section 3.5", "Two equal gates: the rate doubles, w₁ − w₂ stays, w₂ = w₁ − (w₁(0) − w₂(0))")
def redundant_gates(seed: int) -> Measurement:
    """Compare with the integrated flow, and the rates with the rates of one unit for the same K."""
    base = half_spaces(1, generator(seed))
    given = problem(seed, ChosenGates(base, (0, 0)))
    found, full = given.flow.weights(TIMES), given.integrated()
    gap = (full[:, 0] - full[:, 1]) - (given.initial[0] - given.initial[1])
    drift = float(gap.abs().max() / given.initial.abs().max())
    rates = 1 / given.flow.time_constants()[:D]
    # K = 2 enters as K² in the rates of both flows; the factor 2 is the number of equal units.
    doubled = 2 * torch.linalg.eigvalsh(problem(seed, base).moments.A).flip(0) / (2**2 * TAU)
    return measurement(
        against(found, full, "each weight at five instants"),
        Check("w₁ − w₂ over time, rel. drift", drift, 1e-10, INTEGRATED),
        identity("rates against 2λ/(K²τ)", rates, doubled),
        follows("w(t)", found, full),
    )


@theorem(
    "gdln-nlgp",
    "Section 1",
    "NLGP: ⟨x_i x_j⟩ = (2/(πZ²)) arcsin(2g²/(1+2g²) C_ij), and its Gaussian clone has the same",
)
def nlgp_covariance(seed: int) -> Measurement:
    """Compare the nonlinear Gaussian process's formula with sampled second moments of both classes and of the clone."""
    source, checks, curves = generator(seed), [], []
    because = "the largest of 40 deviations in standard errors"
    for gain in (0.01, 3.0, 100.0):
        nlgp = NLGP((3.0, 0.5), gain)
        for label in (1, 0):
            predicted = nlgp.correlation(label)
            for drawn, name in ((nlgp, "NLGP"), (GaussianClone(nlgp), "clone")):
                x = drawn.of_class(label, 10_000, generator=source, dtype=torch.float64)
                # Means over a hundred parts give the standard errors.
                mean = Mean.of((part[:, :1] * part).mean(dim=0) for part in x.chunk(100))
                what = f"{name}, g = {gain:g}, y = {label}: deviation"
                checks.append(Check(what, mean.z_score(predicted), 5.0, because))
                if name == "NLGP" and label:
                    curves.append(dots(f"g = {gain:g}", predicted, mean.mean))
    return measurement(Plot("arcsin formula", "sampled ⟨x_0 x_j⟩", tuple(curves), diagonal="equal"), *checks)


@theorem(
    "gdln-circulant", "Section 5", "Translation-invariant gates: one Fourier basis solves the flow for all of them"
)
def circulant_flow(seed: int) -> Measurement:
    """Compare Fourier modes with a dense decomposition, for pulses under gates that count the active sites."""
    random = generator(seed)
    source = SinglePulse(((4, 6), (2, 3)), (12,))
    gates = FunctionGates([lambda x: x.sum(dim=1) > 3, lambda x: x.sum(dim=1) < 5])
    moments = exact_moments(source, gates)
    initial = torch.randn(2, source.dim, generator=random, dtype=torch.float64)
    flow = GatedLinearFlow.from_moments(moments, TAU, initial=initial)
    dense = DenseFlow(moments.A / (4 * TAU), moments.b.view(2, -1) / (2 * TAU)).at(initial, TIMES)
    x, ones = source.support(1), torch.ones(len(source.support(1)), dtype=torch.float64)
    # Some half-spaces are open for all pulses, which are not negative, or for none: the largest of five pairs counts.
    pairs = [random_half_spaces(source.dim, 2, generator=random, dtype=torch.float64) for _ in range(5)]
    mixed = max(_commutator(moments_of(x, ones, halves)) for halves in pairs)
    because = "raw pulses are not symmetric under x → −x; gdln-one-basis has data that are"
    return measurement(
        against(flow.weights(TIMES), dense, "each weight at five instants"),
        at_least("Fourier modes used", flow.translation_invariant, 1.0, "the solver must see the structure"),
        identity("Fourier modes against dense", flow.weights(TIMES), dense),
        Check("[A₁₁, A₂₂], relative", _commutator(moments), 1e-12, "circulant matrices commute"),
        at_least("[A₁₁, A₂₂] of half-spaces on one class of raw pulses, relative", mixed, 1e-3, because),
    )


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
    return measurement(
        against(found, expected, "each weight at the ends of three segments"),
        follows("w at the ends of segments", found, expected),
        Check("jump of w at a switch", float(jump), 1e-8, "1e-10 of time at speeds near 1"),
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
    middle = 4  # an instant at which weights still move fast, so that wrong descent would miss them
    reached = _descent(network, x, y, float(times[middle]), 200)
    target = torch.cat([layer[middle].flatten() for layer in solved])
    return measurement(
        Plot("time", "loss", (line("exact", times, exact), dots("integrated", times, losses))),
        agrees("L(t)", losses, exact, 1e-7, "DOP853 at rtol 1e-10"),
        agrees("weights of descent", reached, target, 2e-2, "200 steps: first order"),
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
