"""Mean and variance of tangent kernels over signs: every sign pattern, and a case by hand."""

from itertools import pairwise

import pytest
import torch
from torch import nn

import gatelab as gl
from gatelab.errors import InputError, UnsupportedModelError
from gatelab.gates import GatePattern, HardGate, SoftGate
from gatelab.kernels.tangent_moments import tangent_moments
from gatelab.lab.measure import all_signs, tangent_kernels
from gatelab.models import DeepGatedNetwork
from gatelab.network import capture_gates


@pytest.mark.parametrize("widths", [(1, 2, 1), (2, 3, 2, 1), (1, 2, 2, 2, 1)])
def test_all_sign_patterns(widths):
    generator = torch.Generator().manual_seed(len(widths))
    model = DeepGatedNetwork(widths, generator=generator)
    x = torch.randn(4, widths[0], generator=generator)
    values = {f"value.{name}": parameter for name, parameter in model.value.named_parameters()}
    kernels = tangent_kernels(model, x, all_signs(values, 0.7))
    moments = tangent_moments(x, capture_gates(model, x), 0.7)
    torch.testing.assert_close(moments.mean, kernels.mean(dim=0), rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(moments.variance, kernels.var(dim=0, unbiased=False), rtol=1e-9, atol=1e-11)


SOFT, LEAKY = SoftGate(1.5), nn.LeakyReLU(0.5)


def _leaky(widths):
    layers = [nn.Linear(a, b, bias=False) for a, b in pairwise(widths)]
    return nn.Sequential(*(part for layer in layers for part in (layer, LEAKY)))[:-1]


@pytest.mark.parametrize("widths", [(1, 2, 1), (2, 2, 2, 1)])
def test_soft_gates_count_with_their_numbers(widths):
    model = DeepGatedNetwork(widths, gate=SOFT, generator=torch.Generator().manual_seed(3))
    x = torch.randn(3, widths[0], generator=torch.Generator().manual_seed(4))
    values = {f"value.{name}": parameter for name, parameter in model.value.named_parameters()}
    _agrees_with_all_signs(model, x, values, capture_gates(model, x))


@pytest.mark.parametrize("widths", [(1, 2, 1), (2, 2, 2, 1)])
def test_closed_gates_of_a_leaky_relu_count_with_their_slope(widths):
    """The gates of one network, fixed, on the values of another of the same shape: a DGN with leaky gates."""
    torch.manual_seed(5)
    features, x = _leaky(widths), torch.randn(3, widths[0])
    model = gl.to_dgn(features, gl.Regime.FRNPF_II).set_gates(HardGate())
    values = {name: p for name, p in model.named_parameters() if name.startswith("value")}
    _agrees_with_all_signs(model, x, values, capture_gates(model, x))


def _agrees_with_all_signs(model, x, values, gates):
    kernels = tangent_kernels(model, x, all_signs(values, 0.7))
    moments = tangent_moments(x, gates, 0.7)
    torch.testing.assert_close(moments.mean, kernels.mean(dim=0), rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(moments.variance, kernels.var(dim=0, unbiased=False), rtol=1e-9, atol=1e-11)


def test_what_gates_alone_do_not_determine_is_refused():
    convolutional = nn.Sequential(nn.Conv1d(1, 1, 2), nn.ReLU(), nn.Flatten(), nn.Linear(2, 1))
    images = torch.randn(2, 1, 3)
    with pytest.raises(UnsupportedModelError, match="positions"):
        tangent_moments(images, capture_gates(convolutional, images), 1.0)
    branched = GatePattern({"1": torch.ones(2, 2, dtype=torch.bool)}, is_chain=False)
    with pytest.raises(UnsupportedModelError, match="chain"):
        tangent_moments(torch.ones(2, 1), branched, 1.0)


@pytest.mark.parametrize("sigma", [float("nan"), float("inf"), -1.0])
def test_a_size_that_weights_cannot_have_is_refused(sigma):
    with pytest.raises(InputError, match="sigma is"):
        tangent_moments(torch.ones(1, 1), GatePattern({"1": torch.ones(1, 2, dtype=torch.bool)}), sigma)


def test_moments_beyond_float64_are_refused():
    with pytest.raises(InputError, match=r"larger than torch\.float64"):
        tangent_moments(1e80 * torch.ones(1, 1), GatePattern({"1": torch.ones(1, 2, dtype=torch.bool)}), 1.0)


def test_one_hidden_layer_by_hand():
    """K = x x' Σ_i g_i g'_i (v_i² + u_i²) does not depend on the signs."""
    gates = GatePattern({"1": torch.tensor([[True, True, False], [True, False, True]])})
    moments = tangent_moments(torch.tensor([[2.0], [3.0]]), gates, 0.5)
    torch.testing.assert_close(moments.mean, 2 * 0.25 * torch.tensor([[8.0, 6.0], [6.0, 18.0]]))
    torch.testing.assert_close(moments.variance, torch.zeros(2, 2))


def test_gates_of_other_inputs_are_refused():
    gates = GatePattern({"1": torch.ones(3, 2, dtype=torch.bool)})
    with pytest.raises(InputError, match="gates have n=3, x has n=2"):
        tangent_moments(torch.ones(2, 1), gates, 1.0)
