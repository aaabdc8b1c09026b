"""Filters that are no parameters, such as a blur from a buffer: linear maps that are never redrawn."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import gatelab as gl
from gatelab import Regime

BLUR = torch.tensor([[1.0, 2, 1], [2, 4, 2], [1, 2, 1]]) / 16


class Blur(nn.Module):
    """Reflected padding, then the same filter in every channel, with stride 2."""

    def __init__(self, channels):
        super().__init__()
        self.register_buffer("filt", BLUR.expand(channels, 1, 3, 3).clone(), persistent=False)

    def forward(self, x):
        return F.conv2d(F.pad(x, (1, 1, 1, 1), "reflect"), self.filt, stride=2, groups=x.shape[1])


class Attribute(nn.Module):
    """The same with a tensor that is no buffer."""

    def __init__(self, channels):
        super().__init__()
        self.filt = BLUR.double().expand(channels, 1, 3, 3).clone()

    def forward(self, x):
        return F.conv2d(x, self.filt, None, 2, 1, 1, x.shape[1])


def module(channels):
    """The same as a convolution whose weight is a buffer."""
    conv = nn.Conv2d(channels, channels, 3, 2, 1, groups=channels, bias=False)
    del conv.weight
    conv.register_buffer("weight", BLUR.expand(channels, 1, 3, 3).clone())
    return conv


def made(filter_):
    torch.manual_seed(0)
    layers = nn.Conv2d(2, 4, 3), nn.ReLU(), filter_(4), nn.Conv2d(4, 4, 2), nn.ReLU(), nn.Flatten(), nn.Linear(4, 2)
    return nn.Sequential(*layers).double().eval(), torch.randn(3, 2, 6, 6, dtype=torch.float64)


FILTERS = pytest.mark.parametrize("filter_", [Blur, Attribute, module])


@FILTERS
def test_a_twin_keeps_the_filter(filter_):
    net, x = made(filter_)
    assert torch.equal(gl.to_dgn(net, Regime.FRNPF_DI)(x), net(x))
    twin = gl.to_dlgn(net, generator=torch.Generator().manual_seed(0))
    plain = gl.to_dln(net)
    linear = copy.deepcopy(nn.Sequential(*(layer for layer in net if not isinstance(layer, nn.ReLU))))
    assert torch.equal(plain(x), linear(x))
    with torch.no_grad():  # the linear features are those of a network with the same filter
        linear[0].load_state_dict(twin.feature.get_submodule("0").state_dict())
        linear[2].load_state_dict(twin.feature.get_submodule("3").state_dict())
        q = linear[:3](x)
        gates = [torch.sigmoid(10 * part) for part in (linear[:1](x), q)]
        h = net[3](net[2](net[0](x) * gates[0])) * gates[1]
        torch.testing.assert_close(twin(x), net[6](h.flatten(1)), rtol=1e-12, atol=1e-12)


@FILTERS
def test_features_estimate_the_path_kernel(filter_):
    net, x = made(filter_)
    copies = 300
    blocks = gl.path_features(net, x, 4 * copies, torch.Generator().manual_seed(0), copies=copies).view(3, copies, 4)
    kernels = copies * torch.einsum("nck,mck->cnm", blocks, blocks)
    error = kernels.std(dim=0) / copies**0.5
    exact = gl.neural_path_kernel(net, x)
    assert ((kernels.mean(dim=0) - exact).abs() < 5 * error).all()
    assert (error.diag() < 0.1 * exact.diag()).all()


def test_a_fixed_last_layer_ends_no_features():
    """The features of a network whose classifier is fixed are its outputs."""
    net, x = made(Blur)
    last = nn.Linear(4, 2, bias=False)
    weight = last.weight.detach().double()
    del last.weight
    last.register_buffer("weight", weight)
    net[6] = last
    features = gl.path_features(net, x, 6, torch.Generator().manual_seed(0), copies=3)
    assert features.shape == (3, 6)
    assert torch.equal(gl.to_dgn(net, Regime.FRNPF_DI)(x), net(x))
    assert torch.equal(gl.to_dlgn(net).value.get_submodule("6").weight, weight)
