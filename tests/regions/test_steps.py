"""The quick way from one layer of gates to the next, against the slow one."""

import numpy as np
import pytest
import torch
from torch import nn

from gatelab.models import DeepLinearlyGatedNetwork, gconv, mlp
from gatelab.regions import Plane, linear_regions_2d
from gatelab.regions.cutting import Cutter
from gatelab.regions.replay import Replay
from gatelab.regions.steps import Gated, Step, step_to
from tests import zoo
from tests.regions.test_halfspaces import with_biases

BOUNDS = ((-2.0, 3.0), (-1.5, 2.0))


def _twice():
    """The second layer has every unit twice, so that two gates change on the same line."""
    model = with_biases(mlp([2, 6, 8, 5, 2], bias=True)).double()
    with torch.no_grad():
        model[2].weight[4:] = model[2].weight[:4]
        model[2].bias[4:] = model[2].bias[:4]
    return model


MODELS = {
    "relu": lambda: with_biases(mlp([2, 9, 8, 7, 2], bias=True)).double(),
    "units twice": _twice,
    "leaky": lambda: nn.Sequential(
        nn.Linear(2, 7), nn.LeakyReLU(0.3), nn.Linear(7, 7), nn.LeakyReLU(-0.5), nn.Linear(7, 2)
    ),
    "prelu": lambda: nn.Sequential(nn.Linear(2, 7), nn.PReLU(7, init=0.2), nn.Linear(7, 7), nn.ReLU(), nn.Linear(7, 2)),
    "batch-norm": lambda: nn.Sequential(
        nn.Linear(2, 9), nn.ReLU(), nn.BatchNorm1d(9), nn.Linear(9, 6), nn.ReLU(), nn.Linear(6, 1)
    ).eval(),
}  # fmt: skip


def _rows(partition):
    """The gates of each region, with its area and map, in one order."""
    bits = torch.cat([state.flatten(1) for state in partition.states.values()], 1)
    order = np.lexsort(bits.numpy().T)
    return bits[order], partition.areas[order], partition.maps[order], len(partition.graph.vertices)


@pytest.mark.parametrize("name", MODELS)
def test_steps_find_the_regions_that_running_the_network_finds(name, monkeypatch):
    model = MODELS[name]().double()
    quick = _rows(linear_regions_2d(model, None, BOUNDS))
    monkeypatch.setattr(Cutter, "step", lambda *_: None)
    slow = _rows(linear_regions_2d(model, None, BOUNDS))
    assert torch.equal(quick[0], slow[0])
    assert len(quick[0]) > 5
    for fast, plain in zip(quick[1:3], slow[1:3], strict=True):
        torch.testing.assert_close(fast, plain, rtol=1e-11, atol=1e-12)
    assert quick[3] == slow[3]


def _steps(model, shape):
    plane = Plane(torch.zeros(shape), torch.randn(shape), torch.randn(shape))
    replay = Replay(model.double(), shape=shape)
    cutter = Cutter(replay, plane.at(torch.tensor([[0.0, 0], [1, 0], [0, 1]])))
    return [cutter.step(level) is not None for level in range(len(replay.gates) + 1)]


def test_a_step_is_taken_where_one_matrix_leads_from_gates_to_gates():
    assert _steps(mlp([2, 4, 4, 1], bias=True), (2,)) == [False, True, True]
    assert not any(_steps(DeepLinearlyGatedNetwork([2, 4, 4, 1]), (2,)))  # the gates do not pass what they gate by
    assert _steps(zoo.Residual(), (5,)) == [False, True, True]  # relu(h + W h) reads one layer of gates
    # A convolution's matrix has few entries that are not zero; the dense layers behind it have steps.
    assert _steps(gconv(channels=[2, 2], dense=[4], inputs=1, outputs=2), (1, 8, 8))[1:] == [False, True, True]
    bounded = nn.Sequential(nn.Linear(2, 4), nn.ReLU6(), nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 1))
    assert _steps(bounded, (2,)) == [False, False, True]


def test_errors_of_a_step_bound_what_rounding_does():
    """Compared in extended precision; the parts are a chain of single flips, the longest way from a product."""
    generator = np.random.default_rng(0)
    units, parts = 40, 41
    lines, weight = generator.normal(size=(1, 3, units)), generator.normal(size=(units, 6))
    lines[0, :, 0] *= 1e9  # what cancels leaves the largest errors
    weight[0] *= 1e3
    closed, constant = np.where(np.arange(units) % 3, 0.0, 0.1), generator.normal(size=6)
    above = np.arange(units)[None] >= np.arange(parts)[:, None]
    gated = Gated(lines, np.zeros((1, units)), np.zeros(parts, np.int64), above)
    step = Step(weight, constant, closed)
    found, bound = step.lines(gated), step.errors(gated)
    passed = lines[0].astype(np.longdouble)[None] * np.where(above, 1.0, closed)[:, None].astype(np.longdouble)
    exact = passed @ weight.astype(np.longdouble)
    exact[:, 0] += constant
    wrong = np.abs(found - exact).sum(1).max(0)  # of a height in [−1, 1]²
    assert (wrong > 0).all()
    assert (wrong <= bound[0]).all()
    assert (bound[0] < 1e5 * wrong).all()  # and is not idle


def test_a_step_needs_the_only_way_to_its_target():
    class Skip(nn.Module):
        """Both the input and the gates reach the second layer."""

        def __init__(self):
            super().__init__()
            self.first, self.second, self.last = nn.Linear(2, 4), nn.Linear(6, 4), nn.Linear(4, 1)

        def forward(self, x):
            return self.last(torch.relu(self.second(torch.cat([torch.relu(self.first(x)), x], 1))))

    replay = Replay(Skip().double(), shape=(2,))
    first, second = replay.gates
    assert step_to(replay, first, second, (2,)) is None
    assert step_to(replay, second, None, (2,)) is not None
