import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import gatelab as gl
from gatelab.errors import InputError, TooManyPathsError, UnsupportedModelError
from gatelab.gates import HardGate
from gatelab.models import DeepGatedNetwork, DeepLinearlyGatedNetwork, dln, mlp
from gatelab.paths import mixture_of_experts
from tests import zoo


def with_biases(model: nn.Module) -> nn.Module:
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            nn.init.normal_(parameter)
    return model


MODELS = {
    "relu": lambda bias: mlp([3, 4, 3, 4, 2], bias=bias),
    "dlgn": lambda bias: DeepLinearlyGatedNetwork([3, 4, 3, 4, 2], gate=HardGate(), value_bias=bias),
    "dlgn-pwc": lambda bias: DeepLinearlyGatedNetwork(
        [3, 4, 3, 4, 2], gate=HardGate(), value_bias=bias, piecewise_constant=True
    ),
    "dln": lambda bias: dln([3, 4, 3, 4, 2], bias=bias),
    "dgn": lambda bias: DeepGatedNetwork([3, 4, 3, 4, 2], bias=bias),
    "converted dlgn": lambda bias: gl.to_dlgn(mlp([3, 4, 3, 4, 2], bias=bias)).set_gates(HardGate()),
    "converted dln": lambda bias: gl.to_dln(mlp([3, 4, 3, 4, 2], bias=bias)),
}


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)
def test_the_mixture_is_the_network(make, bias):
    model, x = with_biases(make(bias)), torch.randn(9, 3)
    mixture = mixture_of_experts(model)
    assert mixture.count == 48 + bias * (12 + 4 + 1)
    torch.testing.assert_close(mixture(x), model(x).detach(), rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)
def test_one_path_is_its_column(make):
    model, x = with_biases(make(True)), torch.randn(5, 3)
    mixture = mixture_of_experts(model)
    gating, expert = mixture.gating(x), mixture.expert(x)
    for number in {*range(0, 48, 17), 48, 55, 60, 63, mixture.count - 1}:  # paths from x, then from each bias
        path = mixture.index.units(number)
        assert torch.equal(mixture.gating(x, path), gating[:, number])
        torch.testing.assert_close(mixture.expert(x, path), expert[:, number], rtol=1e-13, atol=0)


def test_experts_of_the_papers_table():
    """f_π and g_π written out as in Table 1."""
    x = torch.randn(6, 2)
    relu, gated = mlp([2, 3, 3, 1]), DeepLinearlyGatedNetwork([2, 3, 3, 1], gate_bias=False, piecewise_constant=True)
    (w1, w2, w3), (u1, u2, u3) = ([p.detach() for p in net] for net in (relu.parameters(), gated.value.parameters()))
    v1, v2 = (p.detach() for p in gated.feature.parameters())
    plain, constant = mixture_of_experts(relu), mixture_of_experts(gated, gates="hard")
    for i in range(3):
        for j in range(3):
            f = (x @ w1[i] > 0) & ((x @ w1.T).clamp(min=0) @ w2[j] > 0)
            g = w2[j, i] * w3[0, j] * (x @ w1[i])
            assert torch.equal(plain.gating(x, (i, j)), f.double())
            torch.testing.assert_close(plain.expert(x, (i, j))[:, 0], g)
            f = (x @ v1[i] > 0) & (x @ v1.T @ v2[j] > 0)
            g = u2[j, i] * u3[0, j] * u1[i].sum().expand(6)
            assert torch.equal(constant.gating(x, (i, j)), f.double())
            torch.testing.assert_close(constant.expert(x, (i, j))[:, 0], g)
    assert mixture_of_experts(dln([2, 3, 1])).gating(x).eq(1).all()


def test_the_gating_of_a_dlgn_is_its_active_region():
    model = with_biases(DeepLinearlyGatedNetwork([2, 2, 3, 1]))
    x = torch.randn(50, 2)
    mixture = mixture_of_experts(model, gates="hard")
    for path in mixture.index:
        assert torch.equal(mixture.gating(x, path) > 0, gl.active_region(model, path).contains(x))


def test_listing_is_guarded_one_path_is_not():
    model = mlp([3, 64, 64, 64, 64, 1])
    mixture, x = mixture_of_experts(model), torch.randn(2, 3)
    for listing in (mixture, mixture.gating, mixture.expert):
        with pytest.raises(TooManyPathsError, match="one path at a time"):
            listing(x)
    assert mixture.expert(x, (1, 2, 3, 4)).shape == (2, 1)


@pytest.mark.parametrize("path", [(0,), (0, 3), (0, 0, 0), (-1, 0)])
def test_paths_that_do_not_exist(path):
    with pytest.raises(InputError):
        mixture_of_experts(mlp([2, 3, 3, 1])).gating(torch.randn(1, 2), path)


def test_what_has_no_such_paths_is_refused():
    with pytest.raises(UnsupportedModelError):
        mixture_of_experts(zoo.Residual())
    with pytest.raises(TooManyPathsError, match="more than the limit"):
        mixture_of_experts(zoo.cnn()).gating(torch.randn(1, 4, 8, 8), limit=10)
    with pytest.raises(InputError, match="the first layer takes 2"):
        mixture_of_experts(mlp([2, 3, 1])).expert(torch.randn(1, 4))


@settings(deadline=None, max_examples=10)
@given(widths=st.lists(st.integers(1, 4), min_size=3, max_size=5), seed=st.integers(0, 99), bias=st.booleans())
def test_any_relu_network_is_a_mixture(widths, seed, bias):
    model = with_biases(mlp(widths, bias=bias, generator=torch.Generator().manual_seed(seed)))
    x = torch.randn(4, widths[0])
    torch.testing.assert_close(mixture_of_experts(model)(x), model(x).detach(), rtol=1e-10, atol=1e-11)


IMAGES = {
    "convolutions": lambda: nn.Sequential(
        nn.Conv2d(1, 2, 2), nn.ReLU(), nn.Conv2d(2, 2, 2), nn.ReLU(), nn.Flatten(), nn.Linear(2, 2)
    ),
    "average pooling, batch-norm, LeakyReLU": lambda: nn.Sequential(
        nn.Conv2d(1, 2, 2), nn.ReLU(), nn.AvgPool2d(2, 1), nn.Conv2d(2, 2, 1), nn.BatchNorm2d(2), nn.LeakyReLU(0.1),
        nn.Flatten(), nn.Linear(2, 2),
    ).eval(),
    "max-pooling": lambda: nn.Sequential(
        nn.Conv2d(1, 2, 2), nn.ReLU(), nn.MaxPool2d(2, padding=1), nn.Flatten(), nn.Linear(8, 3)
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", IMAGES)
def test_experts_of_convolutional_networks(name):
    model, x = IMAGES[name]().double(), torch.randn(7, 1, 3, 3, dtype=torch.float64)
    mixture = mixture_of_experts(model, x)
    torch.testing.assert_close(mixture(x), model(x).detach(), rtol=1e-12, atol=1e-13)
    last = mixture.index.count_from(0) - 1
    units = mixture.index.units(last)
    torch.testing.assert_close(mixture.gating(x, units), mixture.gating(x)[:, last])
    torch.testing.assert_close(mixture.expert(x, units), mixture.expert(x)[:, last])


@pytest.mark.parametrize("piecewise_constant", [False, True])
def test_experts_of_soft_convolutional_gates_are_what_the_network_computes(piecewise_constant):
    x = torch.randn(7, 1, 3, 3, dtype=torch.float64)
    twin = gl.to_dlgn(IMAGES["convolutions"]().double(), piecewise_constant=piecewise_constant, x=x)
    torch.testing.assert_close(mixture_of_experts(twin, x)(x), twin(x).detach(), rtol=1e-12, atol=1e-13)
    hard = mixture_of_experts(twin, x, gates="hard")(x)
    assert (hard - twin(x)).abs().max() > 1e-3
    torch.testing.assert_close(hard, twin.set_gates(HardGate())(x).detach(), rtol=1e-12, atol=1e-13)
