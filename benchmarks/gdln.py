"""Closed-form learning curves against simulated ones, and Fourier modes against a dense eigendecomposition."""

from math import ceil

import torch
from torch import Tensor

from benchmarks.timing import Ratio, interleaved
from gatelab.data import NLGP, SinglePulse
from gatelab.data.ring import circulant
from gatelab.dynamics import GatedLinearFlow, GatedMoments, estimate_moments, exact_moments, minimum_loss
from gatelab.dynamics.gate_search import random_half_spaces
from gatelab.dynamics.linear_flow import DenseFlow

UNITS, DIM, TIMES, SAMPLED = 10, 100, 1000, 10_000


def closed_form(name: str, moments: GatedMoments) -> tuple[str, float]:
    """Time the flow of K = 10 units on n = 100 sites at 1,000 times against descent at the largest stable step.

    Both run until 99.9 % of the possible fall of the loss is reached. Long descents are timed over their first steps.
    """
    flow = GatedLinearFlow.from_moments(moments)
    fastest = float(flow.time_constants()[0])
    candidates = fastest * torch.logspace(-1, 9, 2000, dtype=torch.float64)
    start, end = float(flow.loss(0.0)), minimum_loss(moments) / 2
    horizon = float(candidates[(start - flow.loss(candidates)) / (start - end) > 0.999][0])
    times = torch.linspace(0, horizon, TIMES, dtype=torch.float64)
    step = 1.99 * fastest  # descent is stable below two time constants of the fastest mode
    steps = ceil(horizon / step)
    timed = min(steps, SAMPLED)
    A, b = moments.A * (-step / UNITS**2), moments.b * (step / UNITS)

    def solved() -> Tensor:
        return GatedLinearFlow.from_moments(moments).weights(times)

    def descended() -> Tensor:
        w = torch.zeros_like(b)
        for _ in range(timed):
            w = torch.addmv(w, A, w).add_(b)
        return w

    ours, theirs = interleaved(solved, descended, rounds=3)
    gap = float(moments.loss(descended().view(UNITS, DIM)) - flow.loss(timed * step))
    if abs(gap) > 1e-3:
        raise RuntimeError(f"descent and flow differ by {gap} in the loss")
    return f"{name}, K = 10, n = 100, 1,000 times, {steps:,} steps of descent", theirs / ours * steps / timed


def learning_curves() -> list[Ratio]:
    """Measure the notes' two kinds of data under ten random half-spaces."""
    generator = torch.Generator().manual_seed(0)
    gates = random_half_spaces(DIM, UNITS, generator=generator, dtype=torch.float64)
    pulses = exact_moments(SinglePulse(((20, 25), (5, 10)), (DIM,)), gates)
    fields = estimate_moments(NLGP((3.0, 0.1), 3.0, (DIM,)), gates, 40_000, generator=generator, dtype=torch.float64)
    work, ratio = closed_form("closed form, pulses", pulses)
    against = "gradient descent at the largest stable step (speed-up)"
    easy, easy_ratio = closed_form("closed form, NLGP", fields)
    return [
        Ratio(work, against, ratio, "≥ 100", ratio >= 100),
        # Well conditioned, so descent ends before the eigendecomposition does: shown without a target.
        Ratio(easy, against, easy_ratio, "none", True),
    ]


def circulant_solver() -> Ratio:
    """Measure the whole solution at ten times, for n = 1024, K = 4 and translation-invariant blocks."""
    units, sites = 4, 1024
    source = NLGP((3.0, 1.0), 3.0, (sites,))
    generator = torch.Generator().manual_seed(0)
    mixing = torch.randn(2, units, units, generator=generator, dtype=torch.float64)
    mixing = mixing @ mixing.mT  # each positive semidefinite, so their sum over classes is too
    rows = sum(mixing[label][:, :, None] * source.correlation(label) for label in (0, 1))
    assert isinstance(rows, Tensor)
    b = torch.randn(units, sites, generator=generator, dtype=torch.float64)
    times = torch.linspace(0, 100, 10, dtype=torch.float64)
    A = torch.cat([torch.cat([circulant(rows[p, q]) for q in range(units)], dim=1) for p in range(units)])

    solutions: dict[str, Tensor] = {}  # kept for the comparison: the dense solution takes too long to repeat

    def fourier() -> None:
        solutions["fourier"] = GatedLinearFlow.from_rows(rows, b).weights(times)

    def dense() -> None:
        solutions["dense"] = DenseFlow(A / units**2, b / units).at(torch.zeros_like(b), times)

    ours, theirs = interleaved(fourier, dense, rounds=1)
    gap = float((solutions["fourier"] - solutions["dense"]).abs().max() / solutions["dense"].abs().max())
    if gap > 1e-8:
        raise RuntimeError(f"the two solutions differ by {gap}")
    ratio = theirs / ours
    return Ratio("Fourier modes, n = 1024, K = 4", "dense eigendecomposition (speed-up)", ratio, "≥ 50", ratio >= 50)


def run() -> list[Ratio]:
    """Run all measurements."""
    return [*learning_curves(), circulant_solver()]
