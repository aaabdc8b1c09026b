"""Moments under gates: exact against sampled; the least loss; the search for gates."""

import pytest
import torch

from gatelab.data import NLGP, SinglePulse
from gatelab.dynamics import (
    GatedLinearFlow,
    GatedMoments,
    estimate_moments,
    exact_moments,
    exhaustive_gates,
    greedy_gates,
    minimum_loss,
    moments_of,
)
from gatelab.dynamics.gate_search import kmeans_cells, learnt_half_spaces, random_half_spaces
from gatelab.dynamics.moments import gated_inputs
from gatelab.errors import InputError
from gatelab.models import ChosenGates, FunctionGates, HalfSpaceGates, OpenGates

PULSES = SinglePulse(((3, 4), (1, 2)), (8,))


def halves(dim, count=3, seed=0):
    return random_half_spaces(dim, count, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_gated_inputs_are_stacked_gates_times_x():
    x = torch.randn(5, 3)
    gates = torch.tensor([[1, 0]] * 3 + [[1, 1]] * 2).bool()
    tilde = gated_inputs(x, gates)
    for row in range(5):
        torch.testing.assert_close(tilde[row], torch.kron(gates[row].double(), x[row]))


@pytest.mark.parametrize(
    ("source", "gates"),
    [(PULSES, halves(8)), (PULSES, OpenGates(2)), (NLGP((1.0, 0.3), 3.0, (12,)), OpenGates(2))],
    ids=["pulses", "pulses, no gates", "NLGP, no gates"],
)
def test_exact_moments_are_those_of_samples(source, gates, generator):
    exact = exact_moments(source, gates)
    found = estimate_moments(source, gates, 40_000, generator=generator)
    assert exact.power == found.power == 0.5
    for estimate, error, expected in ((found.A, found.A_error, exact.A), (found.b, found.b_error, exact.b)):
        z = (estimate - expected).abs() / error.clamp(min=1e-12)
        assert z.max() < 5
        assert z.mean() > 0.05  # errors that are far too large would hide anything


def test_estimates_have_honest_errors():
    """Over repeated draws, the deviations are as large as the error bars say."""
    gates, exact = halves(8), exact_moments(PULSES, halves(8))
    deviations = []
    for seed in range(40):
        found = estimate_moments(PULSES, gates, 2000, generator=torch.Generator().manual_seed(seed), batch=512)
        varies = found.A_error > 0
        deviations.append(((found.A - exact.A)[varies] / found.A_error[varies]).square().mean())
    assert torch.stack(deviations).mean().item() == pytest.approx(1, abs=0.2)


def test_moments_of_data_are_averages_over_open_examples(generator):
    x, y = PULSES.sample(100, generator=generator)
    gates = halves(8)
    moments = moments_of(x, y, gates)
    first, third = (x * gates.opened(x)[:, [place]] for place in (0, 2))
    torch.testing.assert_close(moments.input_input(0, 2), first.T @ third / 100)
    torch.testing.assert_close(moments.input_output(1), (x * (y * gates.opened(x)[:, 1])[:, None]).mean(dim=0))
    assert moments.power == pytest.approx(0.5)


@pytest.mark.parametrize("n", [200, 10])
def test_minimum_loss_is_what_least_squares_leaves(n, generator):
    x, y = PULSES.sample(n, generator=generator)
    gates = halves(8)
    features = gated_inputs(x, gates)
    left = (y - features @ (torch.linalg.pinv(features) @ y)).square().mean().item()
    assert minimum_loss(moments_of(x, y, gates)) == pytest.approx(left, abs=1e-10)


def test_search_finds_the_best_by_brute_force():
    base = halves(8, 6)
    pool = exact_moments(PULSES, base)
    best = exhaustive_gates(pool, 2)
    losses = {
        (i, j): minimum_loss(exact_moments(PULSES, ChosenGates(base, (i, j)))) for i in range(6) for j in range(i)
    }
    assert best.tried == 15
    assert best.loss == pytest.approx(min(losses.values()))
    assert losses[(best.places[1], best.places[0])] == pytest.approx(best.loss)
    greedy = greedy_gates(pool, 2)
    assert best.loss <= greedy.loss + 1e-12
    assert greedy_gates(pool, 1).loss == pytest.approx(exhaustive_gates(pool, 1).loss)
    assert greedy.tried == 6 + 5
    assert minimum_loss(pool) <= best.loss <= minimum_loss(pool.choose([0]))


def test_candidates(generator):
    x, y = PULSES.sample(400, generator=generator)
    assert kmeans_cells(x, 3).opened(x).any(dim=0).all()
    learnt = learnt_half_spaces(x, y, 4, steps=300, generator=generator)
    assert minimum_loss(moments_of(x, y, learnt)) < minimum_loss(moments_of(x, y, OpenGates(1)))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: exact_moments(NLGP((1.0, 0.3), 3.0), halves(40)), "estimate_moments gives them with error bars"),
        (lambda: moments_of(torch.eye(2), torch.ones(3), OpenGates(1)), "2 examples, 3 labels"),
        (lambda: moments_of(torch.eye(2), torch.ones(2), torch.ones(3, 1).bool()), "x has 2 examples"),
        (lambda: moments_of(torch.eye(2), torch.ones(2), torch.full((2, 1), 0.5)), "give booleans"),
        (lambda: gated_inputs(torch.eye(2), torch.full((2, 1), 0.5)), "give booleans"),
        (lambda: moments_of(torch.eye(2), torch.ones(2, 2, 2), OpenGates(1)), r"\(n,\) or \(n, outputs\)"),
        (lambda: GatedMoments(torch.eye(2), torch.ones(2, 1, 1), 1, 1.0), "Kd × outputs"),
        (lambda: estimate_moments(PULSES, OpenGates(1), 0), "cannot be split between two classes"),
        (lambda: exhaustive_gates(exact_moments(PULSES, halves(8)), 4), "ask for 1 to 3"),
        (lambda: exhaustive_gates(exact_moments(PULSES, halves(8)), 2, most=2), "use greedy_gates"),
        (lambda: GatedMoments(torch.eye(3), torch.ones(3), 2, 1.0), "A must be Kd"),
    ],
)  # fmt: skip
@pytest.mark.usefixtures("unchecked")
def test_bad_input_is_refused(make, message):
    with pytest.raises(InputError, match=message):
        make()


def test_gates_that_never_open_are_named():
    gates = FunctionGates([lambda x: x[:, 0] > 2, lambda x: x[:, 0] > 0])
    assert GatedLinearFlow.from_moments(exact_moments(PULSES, gates)).never_open == (0,)
    estimated = estimate_moments(PULSES, HalfSpaceGates(torch.zeros(1, 8)), 100)
    assert GatedLinearFlow.from_moments(estimated).never_open == (0,)


def test_gates_stay_what_they_were():
    gates = HalfSpaceGates(torch.randn(2, 8, dtype=torch.float32))
    assert exact_moments(PULSES, gates).A.dtype == torch.float64
    assert gates.normals.dtype == torch.float32
