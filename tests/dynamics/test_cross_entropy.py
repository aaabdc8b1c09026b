"""The classifier's flow against autograd and small steps."""

import pytest
import torch
from torch.nn.functional import cross_entropy

from gatelab.dynamics.cross_entropy import cross_entropy_flow
from gatelab.errors import InputError
from gatelab.models import HalfSpaceGates


def test_the_flow_is_the_limit_of_small_steps(generator):
    x, labels = torch.randn(30, 3, generator=generator), torch.randint(3, (30,), generator=generator)
    gates, start = HalfSpaceGates(torch.randn(2, 3, generator=generator)), torch.randn(2, 3, 3, generator=generator)
    flow = cross_entropy_flow(x, labels, gates, [0.0, 4.0], 0.5, initial=start)
    opened, gaps = gates.opened(x).double(), []

    def loss(w):
        return cross_entropy(torch.einsum("nk,nd,kdc->nc", opened, x, w) / 2, labels)

    assert flow.loss[-1].item() == pytest.approx(loss(flow.weights[-1]).item(), rel=1e-9)
    for steps in (100, 200):
        w = start.clone().requires_grad_()
        for _ in range(steps):
            (slope,) = torch.autograd.grad(loss(w), w)
            w = (w - 4.0 / steps / 0.5 * slope).detach().requires_grad_()
        gaps.append(float((w.detach() - flow.weights[-1]).abs().max()))
    assert gaps[1] < 0.02
    assert gaps[0] / gaps[1] == pytest.approx(2, rel=0.1)  # first order in the step


def test_bad_labels_are_refused():
    gates = torch.ones(2, 1, dtype=torch.bool)
    with pytest.raises(InputError, match="two classes or more"):
        cross_entropy_flow(torch.eye(2), torch.tensor([0, 1]), gates, [1.0], classes=1)
    with pytest.raises(InputError, match="K, d, classes"):
        cross_entropy_flow(torch.eye(2), torch.tensor([0, 1]), gates, [1.0], initial=torch.ones(1, 2, 3))
