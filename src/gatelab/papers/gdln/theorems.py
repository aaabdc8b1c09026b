"""The equations of the notes on localisation and gated deep linear networks (gdln), corrected, measured.

With ŷ = (1/K) Σ_k g_k w_kᵀx and L = ½⟨(y − ŷ)²⟩. Where the notes' printed formulas fail is in ``gdln_findings``.
All in float64, on small data sets that stand for the population.
"""

from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from scipy.integrate import solve_ivp
from torch import Tensor

from gatelab.data import NLGP, GaussianClone, SinglePulse
from gatelab.dynamics import (
    DenseFlow,
    GatedLinearFlow,
    GatedMoments,
    NeuralRace,
    PathwayFlow,
    PiecewiseFlow,
    class_moments_of,
    context_moments,
    exact_moments,
    gated_inputs,
    minimum_loss,
    minimum_loss_balanced,
    moments_of,
)
from gatelab.figures import Curve, Plot
from gatelab.lab.measure import Mean, against, fitted_power, identity, relative_error
from gatelab.lab.theorem import Measurement, theorem
from gatelab.lab.verdicts import Check
from gatelab.models import (
    CellGates,
    ChosenGates,
    FunctionGates,
    GatedDeepLinearNetwork,
    HalfSpaceGates,
    MeanReadoutNetwork,
    NodeGates,
    PathwayNetwork,
)

D, UNITS, TAU = 6, 3, 0.7
TIMES = torch.tensor([0.0, 0.5, 2.0, 8.0, 40.0], dtype=torch.float64)
INTEGRATED = "DOP853 at rtol 1e-12, atol 1e-13, over five instants"


class Problem(NamedTuple):
    """Data, gates and a start."""

    x: Tensor
    y: Tensor
    gates: NodeGates
    initial: Float[Tensor, "k d"]

    @property
    def moments(self) -> GatedMoments:
        """A and b."""
        return moments_of(self.x, self.y, self.gates)

    @property
    def flow(self) -> GatedLinearFlow:
        """The closed form."""
        return GatedLinearFlow.from_moments(self.moments, TAU, initial=self.initial)


def half_spaces(count: int, generator: torch.Generator) -> HalfSpaceGates:
    """Random half-spaces."""
    return HalfSpaceGates(torch.randn(count, D, generator=generator, dtype=torch.float64))


def problem(seed: int, gates: NodeGates | None = None, n: int = 100) -> Problem:
    """Balanced labels 0 and 1 that a linear unit cannot tell, Gaussian inputs, a random start."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, D, generator=generator, dtype=torch.float64)
    order = (x[:, 0] * x[:, 1] + x[:, 2]).argsort()
    y = torch.zeros(n, dtype=torch.float64)
    y[order[n // 2 :]] = 1
    gates = gates or half_spaces(UNITS, generator)
    return Problem(x, y, gates, torch.randn(gates.count, D, generator=generator, dtype=torch.float64))


def integrated(moments: GatedMoments, initial: Tensor, times: Tensor = TIMES) -> Float[Tensor, "times k d"]:
    """The flow equation followed by a Runge-Kutta method of order eight."""
    A, b, K = moments.A.numpy(), moments.b.numpy(), moments.units

    def rate(_time: float, w: np.ndarray) -> np.ndarray:
        return (b - A @ w / K) / (K * TAU)

    span = (0.0, float(times[-1]))
    found = solve_ivp(rate, span, initial.flatten().numpy(), "DOP853", times.numpy(), rtol=1e-12, atol=1e-13)
    return torch.from_numpy(found.y.T.copy()).view(len(times), *initial.shape)


@theorem("gdln-2", "Eq. (2)", "A ReLU unit is its gate times its pre-activation, whatever the size of its weights")
def relu_is_gated_linear(seed: int) -> Measurement:
    """A ReLU network against the GDLN with the gates of the network, and of a rescaled network."""
    given = problem(seed)
    network = MeanReadoutNetwork(D, UNITS, scale=1.0, dtype=torch.float64)
    outputs = []
    with torch.no_grad():
        network.weights.copy_(given.initial)
        for factor in (1.0, 1e3):
            network.weights.mul_(factor)
            twin = GatedDeepLinearNetwork(D, network.frozen_gates(), dtype=torch.float64)
            twin.weights.copy_(network.weights)
            outputs.append(twin(given.x) / factor)
            network.weights.div_(factor)
        expected = network(given.x)
    found = torch.stack(outputs)
    return Measurement(
        (identity("(1/K) Σ g_k w_kᵀx against ŷ", found, expected.expand_as(found)),),
        against(found[0], expected, "ŷ(x)"),
        ("the notes gate with ≥ 0, gatelab with > 0; they differ on a set of measure zero.",),
    )


@theorem("gdln-8", "Eqs (5)–(8)", "Gradient flow of a GDLN: τẇ = (1/K)[b − (1/K)Aw], the inner 1/K included")
def flow_equation(seed: int) -> Measurement:
    """The right-hand side against autograd."""
    given = problem(seed)
    network = GatedDeepLinearNetwork(D, given.gates, dtype=torch.float64)
    with torch.no_grad():
        network.weights.copy_(given.initial)
    (gradient,) = torch.autograd.grad((network(given.x)[:, 0] - given.y).square().mean() / 2, [network.weights])
    m = given.moments
    rate = (m.b - m.A @ given.initial.flatten() / UNITS).view_as(gradient) / UNITS
    return Measurement((identity("τẇ against −∇L", rate, -gradient),), against(rate, -gradient, "each weight"))


@theorem(
    "gdln-11", "Eqs (9)–(11)", "w(t) = e^{−tA/(K²τ)} w(0) + K (I − e^{−tA/(K²τ)}) A⁺b, for singular A and any w(0)"
)
def closed_form(seed: int) -> Measurement:
    """Against a Runge-Kutta method of order eight, with as many examples as weights and with too few."""
    checks, plots = [], []
    for what, n in (("A regular", 100), ("A singular", 2 * (UNITS * D // 4))):
        given = problem(seed, n=n)
        found, expected = given.flow.weights(TIMES), integrated(given.moments, given.initial)
        checks.append(Check(f"{what}: w(t), rel. error", relative_error(found, expected), 1e-9, INTEGRATED))
        plots.append((what, found, expected))
    (_, found, expected), (label, *other) = plots
    more = Curve(label, tuple(other[1].flatten().tolist()), tuple(other[0].flatten().tolist()))
    return Measurement(tuple(checks), against(found, expected, plots[0][0], more))


@theorem("gdln-descent", "Section 3.2", "Gradient descent approaches the flow, its distance linear in the step")
def descent_is_first_order(seed: int) -> Measurement:
    """Euler steps of four sizes, to one instant."""
    given, horizon = problem(seed), 4.0
    m, target = given.moments, given.flow.weights(horizon)
    counts, gaps = (200, 400, 800, 1600), []
    for count in counts:
        w = given.initial.flatten()
        for _ in range(count):
            w = w + (horizon / count) * (m.b - m.A @ w / UNITS) / (UNITS * TAU)
        gaps.append((w.view_as(target) - target).abs().max().item())
    steps = tuple(horizon / count for count in counts)
    return Measurement(
        (Check("|order in the step − 1|", abs(fitted_power(steps, gaps) - 1), 0.02, "Euler's method: first order"),),
        Plot("step", "largest distance from the flow", (Curve("descent", steps, tuple(gaps), line=True),), log=True),
    )


@theorem("gdln-limit", "Eqs (11), (12)", "w(∞) = K A⁺b + what w(0) has in the null space of A: least squares on x̃")
def limit_is_least_squares(seed: int) -> Measurement:
    """Against the pseudo-inverse of the gated inputs, A regular and singular."""
    checks, curves = [], []
    for what, n in (("A regular", 100), ("A singular", 8)):
        given = problem(seed, n=n)
        features = gated_inputs(given.x, given.gates)
        inverse = torch.linalg.pinv(features)
        start = given.initial.flatten()
        expected = UNITS * inverse @ given.y + start - inverse @ (features @ start)
        found = given.flow.limit().flatten()
        # The pseudo-inverse of A squares the condition number of the features'.
        because = "least squares by A squares the condition number, about 1e3 here"
        checks.append(Check(f"{what}: w(∞), rel. error", relative_error(found, expected), 1e-8, because))
        curves.append(Curve(what, tuple(expected.tolist()), tuple(found.tolist())))
    return Measurement(tuple(checks), Plot("K X̃⁺y + null part", "limit of the flow", tuple(curves), diagonal="equal"))


@theorem("gdln-16", "Eqs (13)–(16)", "The least mean squared error under given gates, balanced classes y ∈ {0, 1}")
def minimum_loss_by_classes(seed: int) -> Measurement:
    """Eq. 15, Eq. 16, what least squares leaves, and twice the flow's last loss, for ten sets of gates."""
    rows = []
    for number in range(10):
        given = problem(100 * seed + number)
        by_class = class_moments_of(given.x, given.y, given.gates)
        features = gated_inputs(given.x, given.gates)
        left = (given.y - features @ (torch.linalg.pinv(features) @ given.y)).square().mean().item()
        flow = 2 * given.flow.loss(1e12).item()
        rows.append((minimum_loss(by_class), minimum_loss_balanced(by_class), left, flow))
    eq15, eq16, left, flow = torch.tensor(rows, dtype=torch.float64).T
    return Measurement(
        (
            identity("Eq. 16 against Eq. 15", eq16, eq15),
            identity("Eq. 15 against least squares", eq15, left),
            identity("2 L(∞) of the flow against least squares", flow, left),
        ),
        against(eq16, left, "Eq. 16", Curve("2 L(∞)", tuple(left.tolist()), tuple(flow.tolist()))),
    )


@theorem(
    "gdln-3.4",
    "Section 3.4",
    "Exclusive gates: A is block diagonal, and each unit solves K × least squares on its own examples",
)
def exclusive_gates(seed: int) -> Measurement:
    """Voronoi cells: off-diagonal blocks, each unit's limit, and its curve alone."""
    generator = torch.Generator().manual_seed(seed)
    gates = CellGates(torch.randn(UNITS, D, generator=generator, dtype=torch.float64))
    given = problem(seed, gates)
    moments, opened = given.moments, gates.opened(given.x)
    blocks = moments.A.view(UNITS, D, UNITS, D)
    off = max(float(blocks[p, :, q].abs().max()) for p in range(UNITS) for q in range(UNITS) if p != q)
    flow = given.flow
    least = torch.stack([UNITS * torch.linalg.pinv(given.x[o]) @ given.y[o] for o in opened.T])
    alone = [
        DenseFlow(moments.input_input(k, k) / (UNITS**2 * TAU), moments.input_output(k)[None] / (UNITS * TAU))
        for k in range(UNITS)
    ]
    apart = torch.cat([part.at(given.initial[k : k + 1], TIMES) for k, part in enumerate(alone)], dim=1)
    full = integrated(moments, given.initial)
    return Measurement(
        (
            Check("largest entry off the diagonal blocks", off, 0.0, "no example opens two gates"),
            Check("−(blocks solved apart)", -len(flow.components), -UNITS, "the solver must see the structure"),
            Check("w(∞) against K × own least squares", relative_error(flow.limit(), least), 1e-8, "as for the limit"),
            Check("w(t), each unit alone, rel. error", relative_error(apart, full), 1e-9, INTEGRATED),
        ),
        against(flow.weights(TIMES), full, "each weight at five instants"),
    )


@theorem("gdln-3.5", "Section 3.5", "Two equal gates: the rate doubles, w₁ − w₂ stays, w₂ = w₁ − (w₁(0) − w₂(0))")
def redundant_gates(seed: int) -> Measurement:
    """Against the integrated flow, and rates against those of one unit with the same K."""
    generator = torch.Generator().manual_seed(seed)
    base = half_spaces(1, generator)
    given = problem(seed, ChosenGates(base, (0, 0)))
    full = integrated(given.moments, given.initial)
    gap = (full[:, 0] - full[:, 1]) - (given.initial[0] - given.initial[1])
    single = problem(seed, base).moments
    rates = 1 / given.flow.time_constants()[:D]
    doubled = 2 * torch.linalg.eigvalsh(single.A).flip(0) / (2**2 * TAU)
    found = given.flow.weights(TIMES)
    return Measurement(
        (
            Check(
                "w₁ − w₂ over time, rel. drift", float(gap.abs().max() / given.initial.abs().max()), 1e-10, INTEGRATED
            ),
            identity("rates against 2λ/(K²τ)", rates, doubled),
            Check("w(t), rel. error", relative_error(found, full), 1e-9, INTEGRATED),
        ),
        against(found, full, "each weight at five instants"),
    )


@theorem(
    "gdln-nlgp",
    "Section 1",
    "NLGP: ⟨x_i x_j⟩ = (2/(πZ²)) arcsin(2g²/(1+2g²) C_ij), and its Gaussian clone has the same",
)
def nlgp_covariance(seed: int) -> Measurement:
    """Sampled second moments of two classes, three gains, and of the clone."""
    generator = torch.Generator().manual_seed(seed)
    checks, curves = [], []
    because = "the largest of 40 deviations in standard errors"
    for gain in (0.01, 3.0, 100.0):
        source = NLGP((3.0, 0.5), gain)
        for label in (1, 0):
            for drawn, name in ((source, "NLGP"), (GaussianClone(source), "clone")):
                x = drawn.of_class(label, 40_000, generator=generator, dtype=torch.float64)
                mean = Mean.of((part[:, :1] * part).mean(dim=0) for part in x.chunk(100))
                z = mean.z_score(source.correlation(label))
                checks.append(Check(f"{name}, g = {gain:g}, y = {label}: deviation", z, 5.0, because))
                if name == "NLGP" and label:
                    predicted = source.correlation(label)
                    curves.append(Curve(f"g = {gain:g}", tuple(predicted.tolist()), tuple(mean.mean.tolist())))
    return Measurement(tuple(checks), Plot("arcsin formula", "sampled ⟨x_0 x_j⟩", tuple(curves), diagonal="equal"))


@theorem(
    "gdln-circulant", "Section 5", "Translation-invariant gates: one Fourier basis solves the flow for all of them"
)
def circulant_flow(seed: int) -> Measurement:
    """Single pulses, gates that see only how many sites are on: Fourier modes against a dense decomposition."""
    generator = torch.Generator().manual_seed(seed)
    source = SinglePulse(((4, 6), (2, 3)), (12,))
    gates = FunctionGates([lambda x: x.sum(dim=1) > 3, lambda x: x.sum(dim=1) < 5])
    moments = exact_moments(source, gates)
    initial = torch.randn(2, source.dim, generator=generator, dtype=torch.float64)
    flow = GatedLinearFlow.from_moments(moments, TAU, initial=initial)
    dense = DenseFlow(moments.A / (4 * TAU), moments.b.view(2, -1) / (2 * TAU)).at(initial, TIMES)
    commutator = moments.input_input(0, 0) @ moments.input_input(1, 1)
    commutator = (commutator - commutator.T).abs().max() / commutator.abs().max()
    half = moments_of(
        source.support(1), torch.ones(len(source.support(1)), dtype=torch.float64), _ring_halves(generator)
    )
    mixed = half.input_input(0, 0) @ half.input_input(1, 1)
    mixed = float((mixed - mixed.T).abs().max() / mixed.abs().max())
    return Measurement(
        (
            Check(
                "−(Fourier modes used)", -float(flow.translation_invariant), -1.0, "the solver must see the structure"
            ),
            identity("Fourier modes against dense", flow.weights(TIMES), dense),
            Check("[A₁₁, A₂₂], relative", float(commutator), 1e-12, "circulant matrices commute"),
        ),
        against(flow.weights(TIMES), dense, "each weight at five instants"),
        (f"the notes hope for one basis over time: under half-space gates [A₁₁, A₂₂] is {mixed:.2g} of the product.",),
    )


def _ring_halves(generator: torch.Generator) -> HalfSpaceGates:
    return HalfSpaceGates(torch.randn(2, 12, generator=generator, dtype=torch.float64))


@theorem(
    "gdln-piecewise",
    "Sections 2.3, 5",
    "Gates that switch: the closed form restarted at each switch is the flow, and continuous",
)
def piecewise_gates(seed: int) -> Measurement:
    """Three sets of gates in turn, each segment integrated apart."""
    generator = torch.Generator().manual_seed(seed)
    given = problem(seed)
    sets = [given.moments, *(moments_of(given.x, given.y, half_spaces(UNITS, generator)) for _ in range(2))]
    starts = [0.0, 1.5, 4.0]
    flow = PiecewiseFlow(starts, sets, TAU, initial=given.initial)
    ends, w, found = [1.5, 4.0, 10.0], given.initial, []
    for start, end, moments in zip(starts, ends, sets, strict=True):
        w = integrated(moments, w, torch.tensor([0.0, end - start], dtype=torch.float64))[-1]
        found.append(w)
    expected = torch.stack(found)
    ours = flow.weights(torch.tensor(ends, dtype=torch.float64))
    switches = torch.tensor(starts[1:], dtype=torch.float64)
    jump = (flow.weights(switches) - flow.weights(switches - 1e-10)).abs().max()
    return Measurement(
        (
            Check("w at the ends of segments, rel. error", relative_error(ours, expected), 1e-9, INTEGRATED),
            Check("jump of w at a switch", float(jump), 1e-8, "1e-10 of time at speeds near 1"),
        ),
        against(ours, expected, "each weight at the ends of three segments"),
    )


@theorem(
    "gdln-race", "beyond the notes", "Decoupled pathways learn logistically, τṡ = 2s(σ − δs); equal ones run together"
)
def neural_race(seed: int) -> Measurement:
    """One hidden layer, two exclusive contexts, one of them with two nodes: against the integrated flow and SGD."""
    generator = torch.Generator().manual_seed(seed)
    n, d, k = 200, 4, 3
    context = torch.arange(n) % 2
    x = torch.randn(n, d, generator=generator, dtype=torch.float64)
    for place in (0, 1):
        own = context == place
        root = torch.linalg.cholesky(x[own].T @ x[own] / n)
        x[own] = torch.linalg.solve_triangular(root, x[own].T, upper=False).T
    teacher = torch.randn(2, k, d, generator=generator, dtype=torch.float64)
    y = torch.einsum("nkd,nd->nk", teacher[context], x)
    gates = FunctionGates([lambda _: context == 0, lambda _: context == 1, lambda _: context == 1])
    network = PathwayNetwork(d, k, [gates], [d], dtype=torch.float64, generator=generator)
    moments = context_moments(network, x, y)
    race, start = NeuralRace(moments, TAU), 1e-3
    race.align(network, start, generator)
    flow = PathwayFlow(moments, network, TAU)
    times = torch.linspace(0, 6, 13, dtype=torch.float64)
    solved = flow.solve(times)
    integrated_loss = torch.tensor([flow.loss([layer[t] for layer in solved]) for t in range(len(times))])
    exact = race.loss(times, start)
    descended = _descent(network, x, y, float(times[-1]), 1500)
    target = torch.cat([layer[-1].flatten() for layer in solved])
    return Measurement(
        (
            Check("L(t), rel. error", relative_error(integrated_loss, exact), 1e-7, "DOP853 at rtol 1e-10"),
            Check("weights of descent, rel. error", relative_error(descended, target), 2e-2, "1500 steps: first order"),
        ),
        Plot(
            "time",
            "loss",
            (
                Curve("exact", tuple(times.tolist()), tuple(exact.tolist()), line=True),
                Curve("integrated", tuple(times.tolist()), tuple(integrated_loss.tolist())),
            ),
        ),
    )


def _descent(network: PathwayNetwork, x: Tensor, y: Tensor, horizon: float, steps: int) -> Tensor:
    weights = network.weights()
    optimiser = torch.optim.SGD(weights, lr=horizon / steps / TAU)
    for _ in range(steps):
        optimiser.zero_grad()
        ((network(x) - y).square().sum(dim=1).mean() / 2).backward()
        optimiser.step()
    return torch.cat([weight.detach().flatten() for weight in weights])
