"""Where the notes' printed formulas (gdln) fail, and by how much.

Each statement says that a printed formula is wrong; it holds if the measured discrepancy is at least what the algebra
says it must be. What takes the formula's place is in :mod:`gatelab.papers.gdln.theorems`.
"""

from math import log

import torch
from torch import Tensor

from gatelab.dynamics import GatedMoments, class_moments_of, gate_objective, gated_inputs, printed_gate_objective
from gatelab.figures import Curve, Plot
from gatelab.lab.measure import EXACT, against, relative_error
from gatelab.lab.theorem import Measurement, theorem
from gatelab.lab.verdicts import Check
from gatelab.models import ChosenGates
from gatelab.papers.gdln.theorems import TAU, TIMES, UNITS, half_spaces, integrated, problem


def at_least(what: str, value: float, bound: float, because: str) -> Check:
    """A discrepancy that must not be smaller than ``bound``."""
    return Check(f"−({what})", -value, -bound, because)


@theorem(
    "gdln-8-printed",
    "Eqs (5), (8) as printed",
    "Without the inner 1/K the right-hand side is not the gradient: Aw is K times too large",
)
def printed_flow_equation(seed: int) -> Measurement:
    """The printed right-hand side against −∇L, which its corrected form meets."""
    given = problem(seed)
    m, w = given.moments, given.initial.flatten()
    true, printed = (m.b - m.A @ w / UNITS) / UNITS, (m.b - m.A @ w) / UNITS
    excess = torch.linalg.lstsq((m.A @ w)[:, None], (true - printed)[:, None] * UNITS).solution.item()
    return Measurement(
        (
            at_least("rel. error of the printed rate", relative_error(printed, true), 0.5, "Aw counts K = 3 times"),
            Check("|excess Aw − (1 − 1/K)|", abs(excess - (1 - 1 / UNITS)), 1e-9, "what the missing 1/K leaves over"),
        ),
        against(printed, true, "each weight"),
    )


@theorem(
    "gdln-9-printed",
    "Eqs (9)–(11) as printed",
    "e^{…+C} with a real C starts only above the limit: it cannot hold most initial conditions",
)
def printed_initial_condition(seed: int) -> Measurement:
    """Share of modes of random starts with u(0) < Λ⁻¹c, where no real C solves e^C = Λu(0) − c."""
    shares, whole = [], 0
    for number in range(50):
        given = problem(1000 * seed + number)
        rates, vectors = torch.linalg.eigh(given.moments.A)
        needed = rates * (vectors.T @ given.initial.flatten()) - vectors.T @ given.moments.b
        shares.append(float((needed <= 0).double().mean()))
        whole += int((needed > 0).all())
    share = sum(shares) / len(shares)
    return Measurement(
        (
            Check("|share of modes out of reach − ½|", abs(share - 0.5), 0.1, "the sign of a random amplitude"),
            Check("starts wholly within reach, of 50", whole, 0, f"each has one chance in 2^{UNITS * 6}"),
        ),
        Plot(
            "start",
            "share of modes that the printed form cannot start from",
            (Curve("starts", tuple(range(50)), tuple(shares)),),
        ),
    )


@theorem("gdln-11-printed", "w(∞) = A⁻¹b as printed", "The limit is K A⁻¹b; time constants are K²τ/λ, not Kτ/λ")
def printed_limit(seed: int) -> Measurement:
    """The printed limit and time constant against the integrated flow."""
    given = problem(seed)
    m = given.moments
    end = integrated(m, given.initial, torch.tensor([0.0, 1e4], dtype=torch.float64))[-1].flatten()
    printed = torch.linalg.solve(m.A, m.b)
    ratio = float((end @ printed) / (printed @ printed))
    rates, vectors = torch.linalg.eigh(m.A)
    start, slowest = vectors.T @ given.initial.flatten(), 0
    t = UNITS**2 * TAU / float(rates[slowest])
    later = integrated(m, given.initial, torch.tensor([0.0, t], dtype=torch.float64))[-1].flatten()
    goal = vectors.T @ end
    left = float(((vectors.T @ later - goal) / (start - goal))[slowest])
    times_larger = -t / log(left) * float(rates[slowest]) / (UNITS * TAU)
    return Measurement(
        (
            Check("|w(∞)/(A⁻¹b) − K|", abs(ratio - UNITS), 1e-6, "integrated to t = 10⁴"),
            Check("|slowest time constant/(Kτ/λ) − K|", abs(times_larger - UNITS), 1e-4, "one mode at one instant"),
            at_least("rel. error of A⁻¹b", relative_error(printed, end), 0.5, "a factor K = 3 is missing"),
        ),
        against(printed, end, "A⁻¹b against w(∞)"),
    )


@theorem(
    "gdln-18-printed", "Eq. (18) as printed", "With outer products of means it is 1 for any gates: it cannot rank them"
)
def printed_objective(seed: int) -> Measurement:
    """Printed and corrected objective of twenty sets of gates."""
    printed, corrected, losses = [], [], []
    for number in range(20):
        given = problem(100 * seed + number)
        moments = class_moments_of(given.x, given.y, given.gates)
        features = gated_inputs(given.x, given.gates)
        printed.append(printed_gate_objective(moments))
        corrected.append(gate_objective(moments))
        losses.append(float((given.y - features @ (torch.linalg.pinv(features) @ given.y)).square().mean()))
    flat = max(abs(value - 1) for value in printed)
    agreement = max(abs(value - (1 - 2 * loss)) for value, loss in zip(corrected, losses, strict=True))
    return Measurement(
        (
            Check("largest |printed − 1|", flat, 1e-9, "two means span a plane in which one is explained in full"),
            at_least("spread of the true least loss", max(losses) - min(losses), 0.01, "the gates do differ"),
            Check("corrected − (1 − 2 × what least squares leaves)", agreement, 1e-10, EXACT),
        ),
        Plot(
            "what least squares leaves",
            "objective",
            (
                Curve("Eq. 18 as printed", tuple(losses), tuple(printed)),
                Curve("corrected", tuple(losses), tuple(corrected)),
            ),
        ),
    )


@theorem(
    "gdln-26-printed",
    "Eq. (26) as printed",
    "w₁(∞) keeps e^{−tΛ/(Kτ)}, which depends on t; the limit has no exponential left",
)
def printed_exclusive_limit(seed: int) -> Measurement:
    """Eq. (26) at two times, for a single unit started above its limit, where Eq. (25) can be written at all."""
    given = problem(seed, half_spaces(1, torch.Generator().manual_seed(seed)))
    A, b = given.moments.A, given.moments.b
    rates, vectors = torch.linalg.eigh(A)

    def printed(t: float) -> Tensor:
        return torch.linalg.solve(A, vectors @ torch.exp(-t * rates / TAU) + b)

    limit = torch.linalg.solve(A, b)
    times = (0.0, 1.0, 4.0, 16.0, 64.0, 1e6)
    gaps = [relative_error(printed(t), limit) for t in times]
    return Measurement(
        (
            at_least("rel. error of Eq. (26) at t = 0", gaps[0], 0.5, "C = 0: the exponential is 1"),
            Check("rel. error at t = 10⁶", gaps[-1], 1e-9, "only without the exponential is it the limit"),
        ),
        Plot("t", "rel. error of Eq. (26)", (Curve("C = 0", times[:-1], tuple(gaps[:-1]), line=True),)),
    )


@theorem(
    "gdln-31-printed",
    "Eqs (31), (32) as printed",
    "Redundant gates: the printed curve decays at half the true rate and forgets Δ",
)
def printed_redundant(seed: int) -> Measurement:
    """(31) with the constants C that start it right, against the notes' own (27), (28), integrated."""
    given = problem(seed, ChosenGates(half_spaces(1, torch.Generator().manual_seed(seed)), (0, 0)))
    m = given.moments
    A, b = m.input_input(0, 0), m.input_output(0)
    # (27) and (28) lack the inner 1/K, which a doubled A takes out again.
    notes = GatedMoments(2 * m.A, m.b, 2, m.power)
    true = integrated(notes, given.initial)[:, 0]
    rates, vectors = torch.linalg.eigh(A)
    start = 2 * rates * (vectors.T @ given.initial[0]) - vectors.T @ b
    printed = 0.5 * ((torch.exp(-TIMES[:, None] * rates / (2 * TAU)) * start + vectors.T @ b) / rates) @ vectors.T
    end = integrated(notes, given.initial, torch.tensor([0.0, 1e3], dtype=torch.float64))[-1, 0]
    offset = (given.initial[0] - given.initial[1]) / 2
    conserved = relative_error(end - 0.5 * torch.linalg.solve(A, b), offset)
    return Measurement(
        (
            at_least("rel. error of Eq. (31) over time", relative_error(printed, true), 0.1, "half the rate, no Δ"),
            Check("(31) at t = 0, rel. error", relative_error(printed[0], true[0]), 1e-9, "C was chosen for that"),
            Check("w₁(∞) − ½A⁻¹b against Δ, rel. error", conserved, 1e-6, "Δ is conserved; integrated to t = 10³"),
        ),
        against(printed, true, "w₁ at five instants"),
    )
