"""The equations of gdln, corrected, as theorems: Sections 1, 2 and 3.1 to 3.3.

The network, a gated deep linear network (GDLN), is ŷ = (1/K) Σ_k g_k w_kᵀx, the loss L = ½⟨(y − ŷ)²⟩.
``theorems_structure`` has the gates with a structure (Sections 3.4, 3.5 and 5); ``theorems_printed`` measures where the
printed formulas fail.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from gatelab.data import NLGP, GaussianClone
from gatelab.dynamics import GatedLinearFlow, GatedMoments, minimum_loss
from gatelab.figures import Plot
from gatelab.lab.measure import Mean, against, identity, relative_error
from gatelab.lab.theorem import Measurement, theorem
from gatelab.lab.verdicts import Check
from gatelab.lab.verdicts.fits import fitted_power
from gatelab.models import GatedDeepLinearNetwork, HalfSpaceGates, MeanReadoutNetwork
from gatelab.papers.common import agrees, at_least, dots, line, measurement
from gatelab.papers.gdln.gate_objective import minimum_loss_balanced
from gatelab.papers.gdln.problem import (
    TAU,
    TIMES,
    UNITS,
    D,
    follows,
    generator,
    half_spaces,
    problem,
    under_other_gates,
)
from gatelab.papers.gdln.simulation import descended

# A is singular where there are fewer examples than weights.
_SIZES = {"A regular": 100, "A singular": 8}


def _without_inner_factor(moments: GatedMoments) -> GatedMoments:
    """Return moments whose flow is the notes' Eq. (8), which loses the inner 1/K: A counts K times."""
    return GatedMoments(moments.units * moments.A, moments.b, moments.units, moments.power)


@theorem("gdln-2", "Eq. (2)", "A ReLU unit is its gate times its pre-activation, whatever the size of its weights")
def relu_is_gated_linear(seed: int) -> Measurement:
    """Compare a ReLU network with the GDLN that has its gates, before and after rescaling the weights."""
    given = problem(seed)
    network = MeanReadoutNetwork(D, UNITS, scale=1.0, dtype=torch.float64)
    other = half_spaces(UNITS, generator(seed))
    outputs = []
    with torch.no_grad():
        network.weights.copy_(given.initial)
        expected = network(given.x)
        for factor in (1.0, 1e3):
            network.weights.copy_(factor * given.initial)
            outputs.append(_gated_twin(network, network.frozen_gates())(given.x) / factor)
        strange = _gated_twin(network, other)(given.x) / 1e3
    found = torch.stack(outputs)
    return measurement(
        against(found[0], expected, "ŷ(x)"),
        identity("(1/K) Σ g_k w_kᵀx against ŷ", found, expected.expand_as(found)),
        at_least("gates of other weights: rel. error", relative_error(strange, expected), 0.1, "the gates matter"),
        note="The notes open a gate at ≥ 0, gatelab at > 0; the two differ on a set of measure zero.",
    )


def _gated_twin(network: MeanReadoutNetwork, gates: HalfSpaceGates) -> GatedDeepLinearNetwork:
    """Return the GDLN with these gates and the network's weights."""
    twin = GatedDeepLinearNetwork(D, gates, dtype=torch.float64)
    twin.weights.data.copy_(network.weights)
    return twin


@theorem("gdln-8", "Eqs (5)–(8)", "Gradient flow of a GDLN: τẇ = (1/K)[b − (1/K)Aw], the inner 1/K included")
def flow_equation(seed: int) -> Measurement:
    """Compare the right-hand side, and the gradient of L as a function of the moments, with autograd."""
    given = problem(seed)
    true, w = given.descent_direction(), given.initial.clone().requires_grad_()
    (slope,) = torch.autograd.grad(given.moments.loss(w), [w])
    printed = _rate(_without_inner_factor(given.moments), given.initial)
    return measurement(
        against(_rate(given.moments, given.initial), true, "each weight"),
        identity("τẇ against −∇L", _rate(given.moments, given.initial), true),
        identity("−∇ of ½⟨y²⟩ − b·w/K + w·Aw/(2K²) against −∇L", -slope.flatten(), true),
        at_least("without the inner 1/K: rel. error", relative_error(printed, true), 0.5, "Aw counts K = 3 times"),
    )


def _rate(moments: GatedMoments, weights: Float[Tensor, "k d"]) -> Float[Tensor, " kd"]:
    """Return (1/K)[b − (1/K)Aw]."""
    return (moments.b - moments.A @ weights.flatten() / moments.units) / moments.units


@theorem(
    "gdln-11", "Eqs (9)–(11)", "w(t) = e^{−tA/(K²τ)} w(0) + K (I − e^{−tA/(K²τ)}) A⁺b, for singular A and any w(0)"
)
def closed_form(seed: int) -> Measurement:
    """Compare with a Runge-Kutta method of order eight, with many examples and with fewer than weights."""
    checks, curves = [], []
    for what, n in _SIZES.items():
        given = problem(seed, n=n)
        found, expected = given.flow.weights(TIMES), given.integrated()
        printed = GatedLinearFlow.from_moments(_without_inner_factor(given.moments), TAU, initial=given.initial)
        from_zero = GatedLinearFlow.from_moments(given.moments, TAU).weights(TIMES)
        checks += [
            follows(f"{what}: w(t)", found, expected),
            follows(f"{what}: L(t)", given.flow.loss(TIMES), given.plain_moments.loss(expected)),
            _off(f"{what}: without the inner 1/K", printed.weights(TIMES), expected, "rates are K times too large"),
            _off(f"{what}: started at 0", from_zero, expected, "w(0) enters"),
        ]
        curves.append(dots(what, expected, found))
    return measurement(Plot("predicted", "measured", tuple(curves), diagonal="measured = predicted"), *checks)


def _off(what: str, found: Tensor, expected: Tensor, because: str) -> Check:
    """Check that another formula misses by five percent or more, far above the integrator's error."""
    return at_least(f"{what}, rel. error", relative_error(found, expected), 0.05, because)


@theorem("gdln-descent", "Section 3.2", "Gradient descent approaches the flow, its distance linear in the step")
def descent_is_first_order(seed: int) -> Measurement:
    """Compare descent with four step sizes at one instant; the printed equation's descent goes elsewhere."""
    given, horizon, counts = problem(seed), 4.0, (200, 400, 800, 1600)
    target, printed = given.flow.weights(horizon), _without_inner_factor(given.moments)
    ends = [descended(given.plain_moments, given.initial, horizon, count, TAU) for count in counts]
    gaps = [(end - target).abs().max().item() for end in ends]
    elsewhere = descended(printed, given.initial, horizon, counts[-1], TAU)
    steps = [horizon / count for count in counts]
    return measurement(
        Plot("step", "largest distance from the flow", (line("descent", steps, gaps),), log=True),
        Check("|order in the step − 1|", abs(fitted_power(steps, gaps) - 1), 0.02, "Euler's method: first order"),
        _off("descent without the inner 1/K, smallest step", elsewhere, target, "no step makes up for the 1/K"),
    )


@theorem("gdln-limit", "Eqs (11), (12)", "w(∞) = K A⁺b + the part of w(0) in the null space of A: least squares on x̃")
def limit_is_least_squares(seed: int) -> Measurement:
    """Compare with the pseudo-inverse of the gated inputs, for regular and singular A."""
    checks, curves = [], []
    for what, n in _SIZES.items():
        given = problem(seed, n=n)
        inverse, start = torch.linalg.pinv(given.features), given.initial.flatten()
        reached, left = UNITS * inverse @ given.y, start - inverse @ (given.features @ start)
        found = given.flow.limit().flatten()
        because = "least squares by A squares the condition number of x̃, about 1e3 here"
        checks += [
            agrees(f"{what}: w(∞)", found, reached + left, 1e-8, because),
            _off(f"{what}: without the factor K", found, reached / UNITS + left, "the notes print A⁻¹b"),
        ]
        if what == "A singular":
            checks.append(_off(f"{what}: without the part of w(0)", found, reached, "some directions never move"))
        curves.append(dots(what, reached + left, found))
    return measurement(Plot("K X̃⁺y + null part", "limit of the flow", tuple(curves), diagonal="equal"), *checks)


@theorem("gdln-16", "Eqs (13)–(16)", "The least mean squared error under given gates, balanced classes y ∈ {0, 1}")
def minimum_loss_by_classes(seed: int) -> Measurement:
    """Compare Eq. 15, Eq. 16, the residual of least squares and twice the flow's last loss, for ten sets of gates."""
    rows = []
    for given in under_other_gates(seed, 10):
        flow = 2 * given.flow.loss(1e12).item()
        rows.append((minimum_loss(given.moments), minimum_loss_balanced(*given.classes), given.residual(), flow))
    eq15, eq16, left, flow = torch.tensor(rows, dtype=torch.float64).T
    of_others = relative_error(eq15, left.roll(1))
    return measurement(
        against(eq16, left, "Eq. 16", dots("2 L(∞)", left, flow)),
        identity("Eq. 16 against Eq. 15", eq16, eq15),
        identity("Eq. 15 against least squares", eq15, left),
        identity("2 L(∞) of the flow against least squares", flow, left),
        at_least("Eq. 15 against least squares of other gates, rel.", of_others, 0.05, "the gates decide the loss"),
    )


@theorem(
    "gdln-nlgp",
    "Section 1",
    "NLGP, C_ij = e^{−d²/ξ²}: ⟨x_i x_j⟩ = (2/(πZ²)) arcsin(2g²/(1+2g²) C_ij), and its Gaussian clone has the same",
)
def nlgp_covariance(seed: int) -> Measurement:
    """Compare the nonlinear Gaussian process's formula with sampled second moments of both classes and of the clone."""
    source, checks, curves, fourth = generator(seed), [], [], {}
    because = "the largest of 40 deviations in standard errors"
    for gain in (0.01, 3.0, 100.0):
        nlgp = NLGP((3.0, 0.5), gain)
        for label, length in zip((1, 0), nlgp.lengths, strict=True):
            C, predicted = _covariances(length, gain, nlgp.dim)
            checks.append(identity(f"NLGP.correlation, g = {gain:g}, y = {label}", nlgp.correlation(label), predicted))
            for drawn, name in ((nlgp, "NLGP"), (GaussianClone(nlgp), "clone")):
                x = drawn.of_class(label, 10_000, generator=source, dtype=torch.float64)
                # Means over a hundred parts give the standard errors.
                mean = Mean.of((part[:, :1] * part).mean(dim=0) for part in x.chunk(100))
                what = f"{name}, g = {gain:g}, y = {label}: deviation"
                checks.append(Check(what, mean.z_score(predicted), 5.0, because))
                if name == "NLGP" and label:
                    curves.append(dots(f"g = {gain:g}", predicted, mean.mean))
                if gain == 100.0 and label:
                    fourth[name] = float(x.pow(4).mean())
                    what = f"{name}, g = 100: deviation from C_ij itself"
                    checks.append(at_least(what, mean.z_score(C), 10.0, "erf at a large gain is far from linear"))
    gap = fourth["clone"] - fourth["NLGP"]
    return measurement(
        Plot("arcsin formula", "sampled ⟨x_0 x_j⟩", tuple(curves), diagonal="equal"),
        *checks,
        at_least("g = 100: ⟨x⁴⟩ of the clone − of the NLGP", gap, 1.5, "Gaussians have 3, signs 1: only seconds agree"),
    )


def _covariances(length: float, gain: float, sites: int) -> tuple[Tensor, Tensor]:
    """Return C_0j of the field on a ring, and ⟨x_0 x_j⟩ of erf(g z)/Z, as the statement has them."""
    steps = torch.arange(sites, dtype=torch.float64)
    C = (-torch.minimum(steps, sites - steps).square() / length**2).exp()
    share = torch.tensor(2 * gain**2 / (1 + 2 * gain**2), dtype=torch.float64)
    return C, (share * C).asin() / share.asin()
