"""Deeper gated linear networks: moments against autograd and descent; the neural race against the integrator."""

import pytest
import torch

from gatelab.dynamics import NeuralRace, PathwayFlow, context_moments
from gatelab.errors import InputError
from gatelab.models import FunctionGates, HalfSpaceGates, OpenGates, PathwayNetwork

TAU = 0.8


def deep(generator):
    gates = [
        HalfSpaceGates(torch.randn(2, 4, generator=generator)),
        HalfSpaceGates(torch.randn(3, 4, generator=generator)),
    ]
    network = PathwayNetwork(4, 2, gates, [3, 2], generator=generator)
    x = torch.randn(40, 4, generator=generator)
    return network, x, torch.randn(40, 2, generator=generator) + x[:, :2]


def loss(network, x, y):
    return (network(x) - y).square().sum(dim=1).mean() / 2


def test_velocity_and_loss_are_autograds(generator):
    network, x, y = deep(generator)
    flow = PathwayFlow(context_moments(network, x, y), network, TAU)
    gradients = torch.autograd.grad(loss(network, x, y), network.weights())
    for rate, gradient in zip(flow.velocity(flow.initial), gradients, strict=True):
        torch.testing.assert_close(rate, -gradient / TAU)
    assert flow.loss(flow.initial) == pytest.approx(loss(network, x, y).item(), rel=1e-12)


def test_solution_is_the_limit_of_small_steps(generator):
    network, x, y = deep(generator)
    flow = PathwayFlow(context_moments(network, x, y), network, TAU)
    times = torch.tensor([0.0, 0.5, 1.0])
    solved = flow.solve(times)
    torch.testing.assert_close(solved[0][0], flow.initial[0])
    gaps = []
    for steps in (100, 200):
        own = [weight.detach().clone() for weight in network.weights()]
        for weight, start in zip(network.weights(), own, strict=True):
            weight.data.copy_(start)
        optimiser = torch.optim.SGD(network.weights(), lr=1.0 / steps / TAU)
        for _ in range(steps):
            optimiser.zero_grad()
            loss(network, x, y).backward()
            optimiser.step()
        ends = network.weights()
        gaps.append(max((w - s[-1]).abs().max().item() for w, s in zip(ends, solved, strict=True)))
        for weight, start in zip(ends, own, strict=True):
            weight.data.copy_(start)
    assert gaps[1] < 1e-2
    assert gaps[0] / gaps[1] == pytest.approx(2, rel=0.1)  # first order in the step


def test_path_moments_are_averages_over_open_examples(generator):
    network, x, y = deep(generator)
    moments = context_moments(network, x, y)
    one, two = (gates.opened(x).double() for gates in network.node_gates())
    p, q = one[:, 1] * two[:, 2], one[:, 0] * two[:, 2]
    torch.testing.assert_close(moments.input_output([1, 2]), (y * p[:, None]).T @ x / 40)
    torch.testing.assert_close(moments.input_input([1, 2], [0, 2]), (x * (p * q)[:, None]).T @ x / 40)


class ByRow(FunctionGates):
    """Gates by the place of an example, for data whose contexts are given."""

    def __init__(self, opened):
        super().__init__([lambda x, place=place: opened[:, place] for place in range(opened.shape[1])])


def race(generator, copies=(1, 2), n=400):
    """Two exclusive contexts, white inputs in each, another teacher in each; a node for each, some twice."""
    context = torch.arange(n) % 2
    x = torch.randn(n, 4, generator=generator)
    for place in (0, 1):
        own = context == place
        root = torch.linalg.cholesky(x[own].T @ x[own] / n)
        x[own] = torch.linalg.solve_triangular(root, x[own].T, upper=False).T * (0.5 + place)
    teachers = torch.randn(2, 3, 4, generator=generator)
    y = torch.einsum("nkd,nd->nk", teachers[context], x)
    opened = torch.nn.functional.one_hot(context, 2).repeat_interleave(torch.tensor(copies), dim=1)
    network = PathwayNetwork(4, 3, [ByRow(opened)], [4], generator=generator)
    return network, context_moments(network, x, y), x, y


def test_race_is_the_integrated_flow(generator):
    network, moments, x, y = race(generator)
    exact = NeuralRace(moments, TAU)
    assert [runner.nodes for runner in exact.runners] == [(0,), (1, 2)]
    start = 1e-2
    exact.align(network, start, generator)
    flow = PathwayFlow(moments, network, TAU)
    times = torch.tensor([0.0, 0.5, 1.0, 2.0, 5.0, 20.0])
    solved = flow.solve(times)
    losses = torch.tensor([flow.loss([layer[place] for layer in solved]) for place in range(len(times))])
    torch.testing.assert_close(exact.loss(times, start), losses, rtol=0, atol=1e-8)
    for runner, strengths in zip(exact.runners, exact.strengths(times, start), strict=True):
        rows = [row for node in runner.nodes for row in range(4 * node, 4 * node + 4)]
        product = solved[1][:, :, rows] @ solved[0][:, rows]
        modes = torch.einsum("kr,tkd,dr->tr", runner.left, product, runner.right)
        torch.testing.assert_close(modes, strengths, rtol=0, atol=1e-8)
    assert loss(network, x, y).item() == pytest.approx(exact.loss(0.0, start).item())


def test_redundant_runners_are_faster(generator):
    _, moments, _, _ = race(generator, (1, 1))
    _, twice, _, _ = race(torch.Generator().manual_seed(0), (2, 1))
    alone, together = NeuralRace(moments).strengths(0.3, 1e-3), NeuralRace(twice).strengths(0.3, 1e-3)
    assert (together[0] > alone[0]).all()


def test_modes_that_mix_are_refused(generator):
    network, x, y = deep(generator)
    with pytest.raises(InputError, match="2 hidden layers"):
        NeuralRace(context_moments(network, x, y))
    shallow = PathwayNetwork(4, 2, [HalfSpaceGates(torch.eye(4)[:2])], [2], generator=generator)
    with pytest.raises(InputError, match="nodes 0 and 1 differ but are open together"):
        NeuralRace(context_moments(shallow, x, y))
    single = PathwayNetwork(4, 2, [OpenGates(1)], [2], generator=generator)
    with pytest.raises(InputError, match="lies off the singular vectors"):
        NeuralRace(context_moments(single, x, y))


def test_bad_input_is_refused(generator):
    network, moments, _, _ = race(generator)
    exact = NeuralRace(moments)
    with pytest.raises(InputError, match="never moves"):
        exact.strengths(1.0, 0.0)
    narrow = PathwayNetwork(4, 3, [OpenGates(3)], [2])
    with pytest.raises(InputError, match="cannot hold 3 modes"):
        exact.align(narrow, 0.1)
    with pytest.raises(InputError, match="finite and rise"):
        PathwayFlow(moments, network).solve(torch.tensor([1.0, 0.5]))
    with pytest.raises(InputError, match="1 hidden layers"):
        moments.is_open([0, 1])
