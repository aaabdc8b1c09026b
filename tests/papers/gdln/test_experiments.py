"""The notes' experiments, end to end on little, and the parts they are made of."""

import pytest
import torch

from gatelab.data import NLGP
from gatelab.dynamics import GatedLinearFlow, moments_of
from gatelab.dynamics.localisation import open_gates
from gatelab.lab.verdicts import Outcome
from gatelab.models import CellGates, MeanReadoutNetwork
from gatelab.papers import find_experiment
from gatelab.papers.gdln.best_gates import off_diagonal_share, ring_half_spaces
from gatelab.papers.gdln.many_units import dispersion
from gatelab.papers.gdln.phase_diagram import PhaseConfig, border
from gatelab.papers.gdln.predictions import _hits_elsewhere, even_switches
from gatelab.papers.gdln.training import (
    Activation,
    Descent,
    initial_weights,
    neighbour_correlation,
    pulse_widths,
    recorded_steps,
    relu_descent,
    train_fields,
)
from tests.lab.test_experiments import _run


@pytest.mark.parametrize(
    ("identifier", "claims", "figures"),
    [
        ("gdln-localisation", 7, 3),
        ("gdln-phase-diagram", 5, 4),
        ("gdln-pulse-map", 2, 2),
        ("gdln-gaussian-clone", 5, 2),
        ("gdln-sign-flipping", 9, 3),
        ("gdln-predict-location", 9, 2),
        ("gdln-evolving-gates", 6, 1),
        ("gdln-theory", 9, 2),
        ("gdln-best-gates", 8, 2),
        ("gdln-optimal-gates", 7, 2),
        ("gdln-shared-pathways", 6, 3),
    ],
)
def test_smoke_profiles(identifier, claims, figures, tmp_path):
    torch.set_default_dtype(torch.float32)
    path, findings = _run(find_experiment(identifier), "smoke", {}, tmp_path / "run")
    assert path.exists()
    assert len(findings.claims) == claims
    assert len(findings.figures) == figures
    assert all(claim.outcome is Outcome.UNDECIDED for claim in findings.claims), "a smoke run decides nothing"
    if identifier == "gdln-theory":
        exact = [claim.verdict for claim in findings.claims if claim.verdict.is_exact]
        assert len(exact) == 5
        assert all(verdict.by_chance == (0.0, 1.0) for verdict in exact), "more runs would not change these"


def test_training_is_that_of_the_module():
    """The stacked loop against autograd and torch's own optimiser on the network itself."""
    source, descent = NLGP((1.0, 0.3), 3.0, (10,)), Descent(5, 0.4, 20, scale=1.0, bias=-0.5)
    fields = train_fields(source, Activation.ERF, 2, [3], descent, records=10, dtype=torch.float64)
    network = MeanReadoutNetwork(
        10, 2, Activation.ERF.module(), bias=-0.5, scale=1.0, generator=torch.Generator().manual_seed(3)
    )
    torch.testing.assert_close(fields.weights[0, 0], network.weights.detach())
    optimiser = torch.optim.SGD([p for p in network.parameters() if p.requires_grad], lr=0.4)
    stream = source.stream(20, generator=torch.Generator().manual_seed(10_003))
    for _ in range(5):
        x, y = next(stream)
        optimiser.zero_grad()
        ((network(x)[:, 0] - y).square().mean() / 2).backward()
        optimiser.step()
    torch.testing.assert_close(fields.weights[-1, 0], network.weights.detach())


def test_descent_without_flips_is_the_flow():
    """While no gate flips, small steps of the ReLU network are its gated linear flow."""
    x, y = NLGP((1.0, 0.3), 3.0, (10,)).sample(60, generator=torch.Generator().manual_seed(0))
    start = initial_weights([5], 2, 10, 1.0)
    fields = relu_descent(x, y, start, 50, 1e-4, records=5)
    gates = open_gates(fields.weights[:, 0], x)
    assert torch.equal(gates[0], gates[-1])
    flow = GatedLinearFlow.from_data(x, y, gates[0].T, initial=start[0])
    torch.testing.assert_close(fields.weights[-1, 0], flow.weights(50 * 1e-4), rtol=0, atol=1e-7)
    assert fields.loss[0, 0].item() == pytest.approx(flow.loss(0.0).item())


def test_chance_is_counted_on_other_runs():
    observed = torch.eye(6)[:4].view(4, 1, 6)  # at sites 0, 1, 2, 3
    assert _hits_elsewhere(torch.eye(6)[:1], observed, 0) == pytest.approx(1 / 3)  # only site 1 is near
    assert _hits_elsewhere(torch.eye(6)[1:2], observed, 3) == 1


def test_switches_split_the_flips_evenly():
    flips = torch.tensor([4.0, 2.0, 2.0, 0.0, 0.0, 8.0, 0.0])
    assert even_switches(flips, 0) == [0]
    assert even_switches(flips, 1) == [0, 3]  # half of 16 is reached by the third step
    assert even_switches(flips, 3) == [0, 1, 3, 6]


def test_small_parts():
    assert recorded_steps(100, 5) == {0, 1, 5, 22, 100}
    assert pulse_widths(40) == ((8, 10), (2, 4))
    assert neighbour_correlation(torch.tensor([1.0, -1.0] * 4)).item() == -1
    assert neighbour_correlation(torch.ones(5)).item() == 1
    x, y = NLGP((1.0, 0.3), 3.0, (10,)).sample(400, generator=torch.Generator().manual_seed(0))
    assert off_diagonal_share(moments_of(x, y, CellGates(x[:3]))) < 1e-12
    assert off_diagonal_share(moments_of(x, y, x[:, :3] > 0)) > 0.05
    torch.testing.assert_close(ring_half_spaces(4, 2).normals, torch.tensor([[1.0, 0, -1, 0], [-1, 0, 1, 0]]))


def test_a_trained_second_layer_is_autograds():
    source, descent = NLGP((1.0, 0.3), 3.0, (10,)), Descent(4, 0.4, 20, second=True)
    fields = train_fields(source, Activation.RELU, 3, [3], descent, records=10, dtype=torch.float64)
    weights = initial_weights([3], 3, 10, 0.1)[0].requires_grad_()
    second = torch.ones(3, requires_grad=True)
    stream = source.stream(20, generator=torch.Generator().manual_seed(10_003))
    for _ in range(4):
        x, y = next(stream)
        loss = (((x @ weights.T).clamp(min=0) * second).mean(dim=1) - y).square().mean() / 2
        slopes = torch.autograd.grad(loss, [weights, second])
        with torch.no_grad():
            weights -= 0.4 * slopes[0]
            second -= 0.4 * slopes[1]
    torch.testing.assert_close(fields.weights[-1, 0], weights.detach())
    assert (second - 1).abs().max() > 1e-3


def test_dispersion_tells_tiling_from_chance():
    even = torch.arange(40)
    assert dispersion(even, 40) == pytest.approx(0)
    assert dispersion(torch.zeros(40, dtype=torch.int64), 40) > 5
    draws = [dispersion(torch.randint(40, (40,)), 40) for _ in range(300)]
    assert sum(draws) / 300 == pytest.approx(1, abs=0.15)


def test_the_border_is_where_the_map_crosses():
    config = PhaseConfig(gains=3, lengths=2)
    gains, lengths = config.axis(0, 3), config.axis(1, 2)
    found = border(config, [[0.05, 0.3], [0.15, 0.3], [0.25, 0.3]])
    assert found == [(lengths[0], pytest.approx(gains[1]))]
