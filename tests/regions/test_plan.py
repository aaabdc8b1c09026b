"""A plan looks at models of one make: the same gates, outputs and half-spaces as without it, to the last bit."""

import copy

import pytest
import torch
from torch import nn

import gatelab as gl
from gatelab.errors import InputError, UnsupportedModelError
from gatelab.gates import HardGate, SoftGate
from gatelab.models import DeepLinearlyGatedNetwork, mlp
from gatelab.regions import RegionPlan
from tests.regions.test_partition import MODELS


def with_other_weights(model: nn.Module) -> nn.Module:
    other = copy.deepcopy(model)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.add_(0.5 * torch.randn_like(parameter))
    return other


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", MODELS)
def test_gates_and_outputs_are_those_of_capture(name, dtype):
    make, shape = MODELS[name]
    model = make().to(dtype)
    plan = RegionPlan(model)
    x = torch.randn(40, *(shape or (2,)), dtype=dtype)
    for seen in (model, with_other_weights(model), model):
        before = copy.deepcopy(seen.state_dict())
        gates, output = plan.capture(seen, x)
        assert gates == gl.capture_gates(seen, x)
        assert output.equal(seen(x).detach())
        assert all(before[key].equal(value) for key, value in seen.state_dict().items())


def test_gates_are_seen_before_they_overwrite_their_input():
    model = nn.Sequential(nn.Linear(3, 5), nn.ReLU(inplace=True), nn.Linear(5, 4), nn.LeakyReLU(0.2, inplace=True))
    plan, x = RegionPlan(model), torch.randn(20, 3)
    gates, output = plan.capture(model, x)
    assert gates == gl.capture_gates(model, x)
    assert output.equal(model(x).detach())


@pytest.mark.parametrize("shallow", [False, True])
def test_half_spaces_are_the_same(shallow):
    first, second = (DeepLinearlyGatedNetwork([3, 5, 4, 1], shallow=shallow) for _ in range(2))
    plan = RegionPlan(first)
    with_plan, alone = gl.half_spaces(second, plan=plan), gl.half_spaces(second)
    assert list(with_plan) == list(alone)
    for name, layer in alone.items():
        assert layer.offsets.equal(with_plan[name].offsets)
        assert layer.normals().equal(with_plan[name].normals())
    with torch.no_grad():  # they are a snapshot
        second.feature[0].weight.zero_()
    assert with_plan["gated"].normals().equal(alone["gated"].normals())


@pytest.mark.parametrize(
    ("model", "other", "where"),
    [
        (mlp([2, 3, 1]), mlp([2, 4, 1]), "'0' differs"),
        (mlp([2, 3, 1]), mlp([2, 3, 3, 1]), "'2' differs"),
        (mlp([2, 3, 1]), mlp([2, 3, 1], bias=True), "'0' differs"),
        (nn.Sequential(nn.Linear(2, 2), nn.ReLU()), nn.Sequential(nn.Linear(2, 2), nn.LeakyReLU()), "'1' differs"),
        (nn.Sequential(nn.Linear(2, 2), nn.LeakyReLU()), nn.Sequential(nn.Linear(2, 2), nn.LeakyReLU(0.5)), "'1' diff"),
        (
            DeepLinearlyGatedNetwork([2, 3, 1], gate=SoftGate()),
            DeepLinearlyGatedNetwork([2, 3, 1], gate=HardGate()),
            "'' differs",
        ),
    ],
)
def test_a_model_of_another_make_is_refused(model, other, where):
    plan = RegionPlan(model)
    with pytest.raises(InputError, match=rf"made for another model: module {where}"):
        plan.capture(other, torch.randn(3, 2))
    with pytest.raises(InputError, match="made for another model"):
        gl.half_spaces(other, plan=plan)


class Mixing(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(2, 8)

    def forward(self, x):
        return (self.first(x) - self.first(x).mean(dim=0)).relu()


def test_what_capture_refuses_is_refused():
    with pytest.raises(UnsupportedModelError, match="examples depend on each other: mean in the model"):
        RegionPlan(model := Mixing()).capture(model, torch.randn(6, 2))
    model = nn.Sequential(nn.Linear(2, 2), nn.Tanh(), nn.Linear(2, 2), nn.ReLU())
    with pytest.raises(UnsupportedModelError, match="Tanh"):
        RegionPlan(model).capture(model, torch.randn(6, 2))
