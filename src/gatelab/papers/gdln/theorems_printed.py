"""Where the formulas that gdln prints fail, and by how much, as theorems.

Each theorem states that a printed formula is wrong. It holds if the measured discrepancy is at least as large as the
algebra predicts. ``theorems`` measures the corrected formulas.
"""

from itertools import count
from math import log

import torch
from torch import Tensor

from gatelab.dynamics import GatedLinearFlow, GatedMoments
from gatelab.figures import Plot
from gatelab.lab.measure import EXACT, against, relative_error
from gatelab.lab.theorem import Measurement, theorem
from gatelab.lab.verdicts import Check
from gatelab.models import ChosenGates
from gatelab.papers.common import agrees, at_least, dots, first_suitable, line, measurement
from gatelab.papers.gdln.gate_objective import objective, printed_objective
from gatelab.papers.gdln.problem import (
    TAU,
    TIMES,
    UNITS,
    Problem,
    follows,
    generator,
    half_spaces,
    problem,
    under_other_gates,
)
from gatelab.papers.gdln.simulation import integrated


@theorem(
    "gdln-8-printed",
    "Eqs (5), (8) as printed",
    "Without the inner 1/K the right-hand side is not the gradient: Aw is K times too large",
)
def printed_flow_equation(seed: int) -> Measurement:
    """Compare the printed right-hand side with −∇L, by autograd, which the corrected one equals."""
    given = problem(seed)
    m, w = given.moments, given.initial.flatten()
    true, printed = given.descent_direction(), (m.b - m.A @ w) / UNITS
    step = 1e-6
    slope = (given.flow.weights(step).flatten() - w) * (TAU / step)
    excess = torch.linalg.lstsq((m.A @ w)[:, None], (true - printed)[:, None] * UNITS).solution.item()
    return measurement(
        against(printed, true, "each weight"),
        at_least("rel. error of the printed rate", relative_error(printed, true), 0.5, "Aw counts K = 3 times"),
        Check("|excess Aw − (1 − 1/K)|", abs(excess - (1 - 1 / UNITS)), 1e-9, "the effect of the missing 1/K"),
        agrees("τẇ of the closed form at t = 0", slope, true, 1e-5, "a difference over 1e-6 of time"),
    )


@theorem(
    "gdln-9-printed",
    "Eqs (9)–(11) as printed",
    "e^{…+C} with a real C starts only above the limit: it cannot express most initial conditions",
)
def printed_initial_condition(seed: int) -> Measurement:
    """Count the modes of random starts with u(0) < Λ⁻¹c, where no real C solves e^C = Λu(0) − c."""
    out_of_reach, misses, distances = [], [], []
    for number in range(50):
        given = problem(1000 * seed + number)
        m = given.plain_moments
        rates, vectors = torch.linalg.eigh(m.A)
        above = vectors.T @ given.initial.flatten() - vectors.T @ m.b / rates  # what e^C/Λ has to equal
        out_of_reach.append(above <= 0)
        # The printed form comes nearest with e^C → 0 in these modes; the basis is orthonormal.
        distances.append(float(above.clamp(max=0).norm() / given.initial.norm()))
        misses.append(relative_error(given.flow.weights(0.0), given.initial))
    first = problem(1000 * seed)
    shares = torch.stack(out_of_reach).double().mean(dim=1)
    whole = int((shares == 0).sum())
    return measurement(
        Plot("start", "share of modes that the printed form cannot start from", (dots("starts", range(50), shares),)),
        Check("|share of modes out of reach − ½|", abs(shares.mean().item() - 0.5), 0.1, "signs are random"),
        Check("starts wholly within reach, of 50", whole, 0, f"each has one chance in 2^{UNITS * 6}"),
        at_least("least distance of the printed form from w(0), rel.", min(distances), 0.1, "e^C is positive"),
        Check("corrected form at t = 0 against w(0), rel. error", max(misses), 1e-9, "it starts anywhere"),
        follows("corrected form of the first start", first.flow.weights(TIMES), first.integrated()),
    )


@theorem("gdln-11-printed", "w(∞) = A⁻¹b as printed", "The limit is K A⁻¹b; time constants are K²τ/λ, not Kτ/λ")
def printed_limit(seed: int) -> Measurement:
    """Compare the printed limit and time constant with the integrated flow, followed for 30 slowest time constants."""
    given = _well_conditioned(seed)
    m = given.plain_moments
    rates, vectors = torch.linalg.eigh(m.A)
    t = UNITS**2 * TAU / float(rates[0])  # one time constant of the slowest mode
    times = torch.tensor([0.0, t, 30 * t], dtype=torch.float64)
    start, later, end = integrated(m, given.initial, times, TAU).flatten(1)
    printed = torch.linalg.solve(m.A, m.b)
    ratio = float((end @ printed) / (printed @ printed))
    left = float(vectors[:, 0] @ (later - end) / (vectors[:, 0] @ (start - end)))
    constant = -t / log(left)
    times_larger = constant * float(rates[0]) / (UNITS * TAU)
    slowest = float(given.flow.time_constants()[-1])
    return measurement(
        against(printed, end, "A⁻¹b against w(∞)"),
        Check("|w(∞)/(A⁻¹b) − K|", abs(ratio - UNITS), 1e-6, "e⁻³⁰ is 1e-13: what is left is the integrator's"),
        Check("|slowest time constant/(Kτ/λ) − K|", abs(times_larger - UNITS), 1e-4, "one mode at one instant"),
        agrees("w(∞) of the closed form", given.flow.limit().flatten(), end, 1e-6, "the same integral"),
        Check("|its slowest time constant / measured − 1|", abs(slowest / constant - 1), 1e-4, "one mode, one instant"),
        at_least("rel. error of A⁻¹b", relative_error(printed, end), 0.5, "a factor K = 3 is missing"),
    )


def _well_conditioned(seed: int) -> Problem:
    """Return a problem whose A has a condition number of at most 300.

    A gate that few examples open makes a mode so slow that an explicit integrator cannot follow it to the limit.
    """
    drawn = (problem(1000 * number + seed) for number in count())
    what = "a problem whose A has a condition number of at most 300"
    return first_suitable(drawn, lambda given: bool(torch.linalg.cond(given.plain_moments.A) <= 300), what)


@theorem(
    "gdln-18-printed", "Eq. (18) as printed", "With outer products of means it is 1 for any gates: it cannot rank them"
)
def printed_gate_objective(seed: int) -> Measurement:
    """Compare the printed and the corrected objective for twenty sets of gates."""
    rows = [
        (printed_objective(*given.classes), objective(*given.classes), given.residual())
        for given in under_other_gates(seed, 20)
    ]
    printed, corrected, losses = torch.tensor(rows, dtype=torch.float64).T
    flat = (printed - 1).abs().max().item()
    spread = (losses.max() - losses.min()).item()
    curves = (dots("Eq. 18 as printed", losses, printed), dots("corrected", losses, corrected))
    agreement = (corrected - (1 - 2 * losses)).abs().max().item()
    return measurement(
        Plot("residual of least squares", "objective", curves),
        Check("largest |printed − 1|", flat, 1e-9, "two means span a plane, which explains each of them in full"),
        at_least("spread of the true least loss", spread, 0.01, "the gates do differ"),
        Check("corrected − (1 − 2 × residual of least squares)", agreement, 1e-10, EXACT),
    )


@theorem(
    "gdln-26-printed",
    "Eq. (26) as printed",
    "w₁(∞) keeps e^{−tΛ/(Kτ)}, which depends on t; the limit has no exponential left",
)
def printed_exclusive_limit(seed: int) -> Measurement:
    """Evaluate Eq. (26) over time, for a single unit that starts above its limit, where Eq. (25) has a meaning."""
    given = problem(seed, half_spaces(1, generator(seed)))
    m = given.plain_moments
    rates, vectors = torch.linalg.eigh(m.A)

    def printed(t: float) -> Tensor:
        return torch.linalg.solve(m.A, vectors @ torch.exp(-t * rates / TAU) + m.b)

    limit = given.flow.limit().flatten()
    times = (0.0, 1.0, 4.0, 16.0, 64.0, 1e6)
    gaps = [relative_error(printed(t), limit) for t in times]
    return measurement(
        Plot("t", "rel. error of Eq. (26)", (line("C = 0", times[:-1], gaps[:-1]),)),
        at_least("rel. error of Eq. (26) at t = 0", gaps[0], 0.5, "C = 0: the exponential is 1"),
        Check("rel. error at t = 10⁶", gaps[-1], 1e-9, "without the exponential it is the limit"),
    )


@theorem(
    "gdln-31-printed",
    "Eqs (31), (32) as printed",
    "Redundant gates: the printed curve decays at half the true rate and loses Δ",
)
def printed_redundant(seed: int) -> Measurement:
    """Compare (31), with the C that starts it right, with the integral of the notes' own (27), (28)."""
    given = problem(seed, ChosenGates(half_spaces(1, generator(seed)), (0, 0)))
    m = given.plain_moments
    A, b = m.input_input(0, 0), m.input_output(0)
    # (27) and (28) lack the inner 1/K; doubling A makes up for it.
    notes, ours = (GatedMoments(2 * of.A, of.b, 2, of.power) for of in (m, given.moments))
    closed = GatedLinearFlow.from_moments(ours, TAU, initial=given.initial).weights(TIMES)[:, 0]
    late = torch.tensor([1e3], dtype=torch.float64)
    path = integrated(notes, given.initial, torch.cat([TIMES, late]), TAU)[:, 0]
    true, end = path[:-1], path[-1]
    rates, vectors = torch.linalg.eigh(A)
    # e^C = 2Λu(0) − c makes (31) start at w₁(0).
    start = 2 * rates * (vectors.T @ given.initial[0]) - vectors.T @ b
    printed = 0.5 * ((torch.exp(-TIMES[:, None] * rates / (2 * TAU)) * start + vectors.T @ b) / rates) @ vectors.T
    offset = (given.initial[0] - given.initial[1]) / 2
    conserved = relative_error(end - 0.5 * torch.linalg.solve(A, b), offset)
    return measurement(
        against(printed, true, "w₁ at five instants"),
        at_least("rel. error of Eq. (31) over time", relative_error(printed, true), 0.1, "half the rate, no Δ"),
        follows("w₁ of the closed form", closed, true),
        Check("w₁(∞) − ½A⁻¹b against Δ, rel. error", conserved, 1e-6, "Δ is conserved; integrated to t = 10³"),
    )
