"""Gates that change in time: continuity, and the ReLU network's own flow as the limit."""

from itertools import pairwise

import pytest
import torch
from scipy.integrate import solve_ivp

from gatelab.dynamics import GatedLinearFlow, PiecewiseFlow, moments_of, self_gated_flow
from gatelab.dynamics.sliding import relu_flow
from gatelab.errors import InputError

TAU = 0.5


def problem(n=40, d=4, units=2):
    generator = torch.Generator().manual_seed(7)
    x = torch.randn(n, d, generator=generator, dtype=torch.float64)
    y = (x[:, 0] + x[:, 1].abs() > 0.5).double()
    return x, y, 0.3 * torch.randn(units, d, generator=generator, dtype=torch.float64)


def test_segments_join_and_obey_their_own_gates():
    x, y, start = problem()
    gates = [x[:, :2] > 0, x[:, 1:3] > 0, x[:, 2:] > 0.2]
    moments = [moments_of(x, y, gate) for gate in gates]
    instants = [0.0, 0.7, 2.0]
    flow = PiecewiseFlow(instants, moments, TAU, initial=start)

    def rate(t, w):
        own = moments[max(place for place in range(3) if instants[place] <= t)]
        return ((own.b - own.A @ torch.from_numpy(w) / 2) / (2 * TAU)).numpy()

    w = start.flatten().numpy()
    for begin, end in ((0.0, 0.7), (0.7, 2.0), (2.0, 3.0)):
        # The right-hand side jumps at the end of a segment, which is why each is integrated alone.
        w = solve_ivp(lambda t, w, b=begin: rate(b, w), (begin, end), w, "DOP853", rtol=1e-12, atol=1e-13).y[:, -1]
        torch.testing.assert_close(flow.weights(end).flatten(), torch.from_numpy(w), rtol=0, atol=1e-9)
    near = flow.weights(torch.tensor([0.7 - 1e-9, 0.7, 0.7 + 1e-9, 2.0 - 1e-9, 2.0]))
    torch.testing.assert_close(near[0], near[2], rtol=0, atol=1e-7)
    torch.testing.assert_close(near[3], near[4], rtol=0, atol=1e-7)
    torch.testing.assert_close(flow.weights(0.0), start)
    torch.testing.assert_close(flow.limit(), flow.weights(1e9), rtol=0, atol=1e-7)
    torch.testing.assert_close(flow.loss(2.5), moments[2].loss(flow.weights(2.5)))


def test_one_segment_is_the_plain_flow():
    x, y, start = problem()
    moments = moments_of(x, y, x[:, :2] > 0)
    times = torch.linspace(0, 3, 7)
    plain = GatedLinearFlow.from_moments(moments, TAU, initial=start)
    torch.testing.assert_close(PiecewiseFlow([0.0], [moments], TAU, initial=start).weights(times), plain.weights(times))


def relu_descent(x, y, start, horizon, steps):
    w = start.clone()
    for _ in range(steps):
        h = x @ w.T
        error = y - h.clamp(min=0).mean(dim=1)
        w = w + (horizon / steps) * ((h > 0).double() * error[:, None]).T @ x / (len(x) * len(w) * TAU)
    return w


def test_switches_that_pile_up_end_the_flow():
    """This flow slides from 19.11 on, where float64 cannot tell 60 switches apart."""
    generator = torch.Generator().manual_seed(21)
    for _ in range(15):  # the last draw slides
        x = torch.randn(20, 3, generator=generator, dtype=torch.float64)
        start = 0.3 * torch.randn(3, 3, generator=generator, dtype=torch.float64)
    y = (x[:, 0] + x[:, 1].abs() > 0.5).double()
    first = relu_flow(x, y, start, 20.0, 0.7).slides[0]
    found = self_gated_flow(x, y, start, 20.0, 0.7, tolerance=0.0, most=60)
    assert 0 < len(found.flips) < 60
    assert all(one < other for one, other in pairwise(found.flow.starts))
    assert found.reached == pytest.approx(first, rel=1e-6)


def test_self_gated_flow_becomes_the_relu_networks_flow():
    x, y, start = problem()
    horizon = 4.0
    target = relu_descent(x, y, start, horizon, 4000)
    errors, switches = [], []
    for tolerance in (0.2, 0.05, 0.0):
        found = self_gated_flow(x, y, start, horizon, TAU, tolerance=tolerance)
        assert found.reached == horizon
        assert all(flips > tolerance for flips in found.flips)
        errors.append((found.flow.weights(horizon) - target).abs().max().item())
        switches.append(len(found.flips))
    assert switches[0] < switches[1] < switches[2]
    assert errors[2] < 1e-4  # steps of descent and the width of a bisection
    assert errors[2] < errors[1] < errors[0]


def test_switches_may_run_out():
    x, y, start = problem()
    found = self_gated_flow(x, y, start, 4.0, TAU, tolerance=0.0, most=3)
    assert len(found.flips) == 3
    assert found.reached == found.flow.starts[-1] < 4.0
    found.flow.weights(found.reached)
    for ask in (lambda: found.flow.weights(4.0), lambda: found.flow.loss(4.0), found.flow.limit):
        with pytest.raises(InputError, match="known only up to t"):
            ask()


@pytest.mark.parametrize("instants", [[0.5], [0.0, 0.0], [0.0], []])
def test_instants_that_do_not_rise_are_refused(instants):
    x, y, _ = problem()
    moments = moments_of(x, y, x[:, :2] > 0)
    with pytest.raises(InputError, match="0 first, rising"):
        PiecewiseFlow(instants, [moments] * max(len(instants), 2) if len(instants) != 2 else [moments] * 2)


def test_bad_tolerance_is_refused():
    x, y, start = problem()
    with pytest.raises(InputError, match="0 ≤ tolerance < 1"):
        self_gated_flow(x, y, start, 1.0, tolerance=1.0)
    flow = PiecewiseFlow([0.0], [moments_of(x, y, x[:, :2] > 0)])
    with pytest.raises(InputError, match="starts at 0"):
        flow.weights(-1.0)
