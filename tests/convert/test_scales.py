"""Parameters that only scale or shift signals: batch-norm functions, layer scales, gains of skips, learnt slopes."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import gatelab as gl
from gatelab import Regime
from gatelab.errors import UnsupportedModelError


class NormAct(nn.BatchNorm2d):
    """Batch-norm and its gate in one module, which calls the function itself."""

    def forward(self, x):
        return F.relu(
            F.batch_norm(x, self.running_mean, self.running_var, self.weight, self.bias, False, 0.1, self.eps)
        )


class PlainNorm(nn.Module):
    """Batch-norm by its function in a module of its own, with the state under other names."""

    def __init__(self, channels):
        super().__init__()
        self.gain, self.shift = nn.Parameter(torch.rand(channels) + 0.5), nn.Parameter(torch.randn(channels))
        self.register_buffer("mean", torch.randn(channels))
        self.register_buffer("var", torch.rand(channels) + 0.5)

    def forward(self, x):
        return F.relu(F.batch_norm(x, self.mean, self.var, self.gain, self.shift))


class LayerScale(nn.Module):
    """x + γ ⊙ f(x), with one γ for each channel."""

    def __init__(self, channels):
        super().__init__()
        self.conv, self.gamma = nn.Conv2d(channels, channels, 3, padding=1), nn.Parameter(torch.rand(channels) + 0.5)

    def forward(self, x):
        return x + self.gamma.view(1, -1, 1, 1) * F.relu(self.conv(x))


class Gain(nn.Module):
    """α f(x) + b, with two numbers, and x / c."""

    def __init__(self, channels):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1)
        self.alpha, self.b, self.c = (nn.Parameter(torch.rand(1) + 0.5) for _ in range(3))

    def forward(self, x):
        return self.alpha * F.relu(self.conv(x)) + self.b + x / self.c


class Slope(nn.Module):
    """PReLU by its function."""

    def __init__(self, channels):
        super().__init__()
        self.slope = nn.Parameter(torch.rand(channels))

    def forward(self, x):
        return F.prelu(x, self.slope)


BLOCKS = [NormAct, PlainNorm, LayerScale, Gain, Slope]


def made(block):
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(2, 4, 3),
        block(4),
        nn.Conv2d(4, 4, 2),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(4, 2),
    )
    if block is NormAct:
        net[1].running_mean.normal_()
        net[1].running_var.uniform_(0.5, 1.5)
        nn.init.uniform_(net[1].weight, 0.5, 1.5)
    return net.double().eval(), torch.randn(3, 2, 6, 6, dtype=torch.float64)


@pytest.mark.parametrize("block", BLOCKS)
def test_features_estimate_the_path_kernel(block):
    net, x = made(block)
    copies = 400
    features = gl.path_features(net, x, 4 * copies, torch.Generator().manual_seed(0), copies=copies)
    blocks = features.view(len(x), copies, 4)
    kernels = copies * torch.einsum("nck,mck->cnm", blocks, blocks)
    error = kernels.std(dim=0) / copies**0.5
    exact = gl.neural_path_kernel(net, x)
    assert ((kernels.mean(dim=0) - exact).abs() < 5 * error).all()
    assert (error.diag() < 0.1 * exact.diag()).all()  # a scale that counted by its own size would show


@pytest.mark.parametrize("block", BLOCKS)
@pytest.mark.parametrize("convert", [lambda net: gl.to_dgn(net, Regime.FRNPF_II), gl.to_dlgn])
def test_redrawn_scales_are_one_and_shifts_are_zero(block, convert):
    net, x = made(block)
    twin = convert(net)
    assert twin(x).isfinite().all()
    state = {name.removeprefix("1."): tensor for name, tensor in twin.feature.state_dict().items()}
    for name in state.keys() & {"gain", "gamma", "alpha", "c", "var", "running_var"}:
        assert (state[name] == 1).all(), name
    for name in state.keys() & {"shift", "b", "mean", "running_mean"}:
        assert (state[name] == 0).all(), name
    own, kept = net.state_dict(), twin.value.state_dict()
    assert all(torch.equal(kept[name], own[name]) for name in own.keys() & kept.keys())


@pytest.mark.parametrize("block", BLOCKS)
def test_the_twin_of_both_is_the_network(block):
    net, x = made(block)
    assert torch.equal(gl.to_dgn(net, Regime.FRNPF_DI)(x), net(x))


class Both(LayerScale):
    def forward(self, x):
        return super().forward(x) + self.gamma.view(1, -1, 1, 1)


class Curved(LayerScale):
    def forward(self, x):
        return x + self.gamma.exp().view(1, -1, 1, 1) * F.relu(self.conv(x))


@pytest.mark.parametrize("block", [Both, Curved])
def test_other_parameters_are_refused(block):
    net, x = made(block)
    with pytest.raises(UnsupportedModelError, match=r"1\.gamma: no initialiser is known"):
        gl.to_dlgn(net)
    with pytest.raises(UnsupportedModelError, match=r"1\.gamma are not weights"):
        gl.path_features(net, x, 4)
