"""The event-driven flow of ReLU networks against a stiff solver with smoothed gates, and against descent."""

import numpy as np
import pytest
import torch

from gatelab.dynamics.facets import Facets, settle
from gatelab.dynamics.gated_flow import FlowStoppedError
from gatelab.dynamics.sliding import relu_flow
from gatelab.errors import InputError
from gatelab.papers.gdln.simulation import smoothed_relu_flow

TAU = 0.5


def problem(n=40, d=4, units=3, seed=1):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, d, generator=generator)
    y = (x[:, 0] + x[:, 1].abs() > 0.5).double()
    return x, y, 0.3 * torch.randn(units, d, generator=generator)


@pytest.mark.parametrize(
    ("n", "d", "units", "horizon"),
    [(40, 4, 3, 30.0), pytest.param(60, 5, 4, 50.0, marks=pytest.mark.slow), (30, 4, 1, 20.0)],
)
def test_the_flow_is_the_limit_of_smoothed_gates(n, d, units, horizon):
    x, y, start = problem(n, d, units)
    flow = relu_flow(x, y, start, horizon, TAU)
    assert (len(flow.slides) > 0) == (units > 1)
    gaps = [
        float((smoothed_relu_flow(x, y, start, horizon, TAU, width) - flow.weights(horizon)).abs().max())
        for width in (1e-5, 1e-6)
    ]
    assert gaps[1] < 1e-6
    assert gaps[0] > 5 * gaps[1]  # the smoothed flow is off by its own width, or by its tolerance


def test_the_loss_never_rises_and_weights_never_jump():
    x, y, start = problem()
    flow = relu_flow(x, y, start, 30.0, TAU)
    times = torch.linspace(0, 30, 500)
    assert float(flow.loss(times).diff().max()) < 1e-12
    torch.testing.assert_close(flow.weights(0.0), start)
    events = torch.tensor(sorted(flow.switches + flow.slides))
    before, after = flow.weights((events - 1e-9).clamp(min=0)), flow.weights(events + 1e-9)
    assert float((before - after).abs().max()) < 1e-7
    assert flow.sliding(30.0) == 1
    h = flow.weights(30.0) @ x.T
    assert int((h.abs() < 1e-10).sum()) == 1  # the unit is still on the boundary along which it slides


def test_parallel_and_opposite_examples_share_a_boundary():
    generator = torch.Generator().manual_seed(0)
    base = torch.randint(0, 2, (12, 3), generator=generator).double() * 2 - 1  # few directions, many repeats
    x = torch.cat([base, -base, 2 * base[:4], torch.zeros(1, 3)])
    y = torch.rand(len(x), generator=generator)
    start = 0.3 * torch.randn(2, 3, generator=generator)
    facets = Facets.among(x[:-1].numpy())
    assert len(facets.normals) <= 4
    np.testing.assert_allclose(facets.normals[facets.of] * facets.along[:, None], x[:-1].numpy(), atol=1e-12)
    flow = relu_flow(x, y, start, 10.0, TAU)
    assert float((smoothed_relu_flow(x, y, start, 10.0, TAU, 1e-6) - flow.weights(10.0)).abs().max()) < 1e-6


def test_filippovs_rule():
    q, push = np.eye(2)[:1], np.array([0.3, 1.0])

    def rule(plus, minus, came):
        return settle(push, q, np.array([plus]), np.array([minus]), np.array([came]))

    assert rule(-0.1, 0.2, -1)[0].tolist() == [1]  # both sides drive it to the right
    assert rule(-0.5, -0.4, 1)[0].tolist() == [-1]
    side, m = rule(-0.8, 0.2, -1)
    assert side.tolist() == [0]
    assert m[0] == pytest.approx(-0.3)  # the velocity along q vanishes
    assert rule(0.2, -0.1, -1)[0].tolist() == [1]  # a facet that repels is crossed


def test_what_cannot_be_followed_is_refused():
    x, y, start = problem()
    with pytest.raises(FlowStoppedError, match="more than 3 events"):
        relu_flow(x, y, start, 30.0, TAU, most=3)
    with pytest.raises(InputError, match="beyond the horizon"):
        relu_flow(x, y, start, 0.1, TAU).weights(0.2)
    with pytest.raises(InputError, match="positive horizon"):
        relu_flow(x, y, start, 0.0)
    with pytest.raises(InputError, match="clean the data"):
        relu_flow(x * torch.nan, y, start, 1.0)
