import copy

import pytest
import torch
from torch import nn

from gatelab.errors import InputError
from gatelab.gates import SoftGate, StraightThroughGate
from gatelab.models import DeepGatedNetwork, mlp
from gatelab.models.init import bernoulli_, fans, glorot_, he_
from gatelab.network import capture_gates
from tests.contracts.gated_model import GatedModelContract


def seeded() -> torch.Generator:
    return torch.Generator().manual_seed(3)


class TestMLP(GatedModelContract):
    def make(self):
        return mlp([3, 4, 5, 2], generator=seeded())


class TestBiasedMLP(GatedModelContract):
    def make(self):
        model = mlp([3, 4, 5, 2], bias=True, generator=seeded())
        for layer in model:
            if isinstance(layer, nn.Linear):
                nn.init.normal_(layer.bias, generator=seeded())
        return model


class TestLeakyMLP(GatedModelContract):
    def make(self):
        model = mlp([3, 4, 5, 2], generator=seeded())
        model[1] = nn.LeakyReLU(0.2)
        return model


class TestDGN(GatedModelContract):
    def make(self):
        return DeepGatedNetwork([3, 4, 5, 2], generator=seeded())

    def soft(self, beta):
        return DeepGatedNetwork([3, 4, 5, 2], gate=SoftGate(beta), generator=seeded())


class TestPaddedDGN(GatedModelContract):
    def make(self):
        return DeepGatedNetwork([3, 4, 3, 1], padding=2, bias=True, generator=seeded())

    def soft(self, beta):
        return DeepGatedNetwork([3, 4, 3, 1], padding=2, bias=True, gate=SoftGate(beta), generator=seeded())


def test_dgn_with_equal_weights_is_the_relu_network():
    relu = mlp([3, 6, 5, 2], bias=True)
    linears = [copy.deepcopy(layer) for layer in relu if isinstance(layer, nn.Linear)]
    dgn = DeepGatedNetwork([3, 6, 5, 2], bias=True)
    dgn.value = nn.ModuleList(linears)
    dgn.feature = nn.ModuleList(linears[:-1])
    x = torch.randn(9, 3)
    torch.testing.assert_close(dgn(x), relu(x))


def test_capture_of_a_dgn_sees_the_feature_networks_gates_once():
    dgn = DeepGatedNetwork([3, 6, 5, 2], padding=2, gate=StraightThroughGate())
    x = torch.randn(9, 3)
    pattern = capture_gates(dgn, x)
    q = dgn.feature[0](x)
    assert len(pattern) == 2
    assert torch.equal(pattern["gated"], (q > 0).repeat(1, 2))
    assert torch.equal(pattern["gated#2"], (dgn.feature[1](q.relu()) > 0).repeat(1, 2))


def test_straight_through_is_hard_forward_and_soft_backward():
    q = torch.tensor([-0.3, 0.0, 0.2], requires_grad=True)
    gate = StraightThroughGate(beta=5.0)(q)
    assert gate.tolist() == [0.0, 0.0, 1.0]
    gate.sum().backward()
    sigma = torch.sigmoid(5 * q.detach())
    torch.testing.assert_close(q.grad, 5 * sigma * (1 - sigma))


def test_initialisers_have_the_variance_they_promise():
    weight = torch.empty(300, 400)
    assert set(bernoulli_(weight, 0.5, seeded()).unique().tolist()) == {-0.5, 0.5}
    # 120,000 draws: the standard error of a variance is about 0.4 %
    assert he_(weight, seeded()).var().item() == pytest.approx(2 / 400, rel=0.02)
    assert glorot_(weight, seeded()).var().item() == pytest.approx(2 / 700, rel=0.02)
    assert fans(torch.empty(8, 3, 5, 5)) == (75, 200)
    assert torch.equal(he_(weight, seeded()), he_(weight.clone(), seeded()))


@pytest.mark.parametrize("make", [lambda: mlp([3]), lambda: mlp([3, 0, 1]), lambda: DeepGatedNetwork([3, 1])])
def test_impossible_widths_are_refused(make):
    with pytest.raises(InputError, match="widths"):
        make()
