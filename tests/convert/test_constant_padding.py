"""Padding by a constant: no path starts there, and what is padded by -inf wins no maximum."""

from math import inf

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import gatelab as gl
from gatelab import Regime
from gatelab.errors import UnsupportedModelError
from tests.references.replay import sampled_kernel


class Padded(nn.Module):
    """A padding between two convolutions of one axis, the first with one channel."""

    def __init__(self, pad, channels=1):
        super().__init__()
        torch.manual_seed(0)
        self.a, self.b, self.c = nn.Conv1d(2, channels, 2), nn.Conv1d(channels, 4, 2), nn.Linear(4, 2)
        self.pad = pad
        self.double().eval()

    def forward(self, x):
        return self.c(F.relu(self.b(self.pad(F.leaky_relu(self.a(x), 0.1)))).mean(2))


def images():
    return torch.randn(3, 2, 6, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def constant(number):
    return lambda h: F.pad(h, (2, 0), value=number)


def same_maximum(h):
    """The windows of a maximum begin at the first unit, the last one may lie outside."""
    return F.max_pool1d(F.pad(h - 0.5, (0, 1), value=-inf), 2, 2)


PADS = {
    "1": constant(1.0),  # not the number of a unit
    "2": constant(2.0),
    "half": constant(0.5),
    "module": nn.ConstantPad1d((2, 0), 3.0),
    "module of zeros": nn.ConstantPad1d((2, 0), 0.0),
    "maximum": same_maximum,
}
EACH = pytest.mark.parametrize("pad", PADS.values(), ids=PADS.keys())


@EACH
@pytest.mark.parametrize("channels", [1, 3])
def test_the_path_kernel_is_that_of_random_values_without_the_constant(pad, channels):
    net, x = Padded(pad, channels), images()
    exact = gl.neural_path_kernel(net, x)
    mean, error = sampled_kernel(LinearPart(net), x, 3000, normalise=True, first=("net.a",))
    assert ((mean - exact).abs() < 5 * error).all()
    assert (error.diag() < 0.1 * exact.diag()).all()


class LinearPart(nn.Module):
    """The answer minus the answer to zeros under the same gates, which is what constants contribute.

    The second half of the examples is x when gates are recorded, and zeros when they are replayed: a replay sets every
    bias to zero.
    """

    def __init__(self, net):
        super().__init__()
        self.net, self.bias = net, nn.Parameter(torch.ones(()).double())

    def forward(self, x):
        answers, constants = self.net(torch.cat([x, self.bias * x])).chunk(2)
        return answers - constants


@EACH
def test_twins_are_the_network_and_finite(pad):
    net, x = Padded(pad), images()
    assert torch.equal(gl.to_dgn(net, Regime.FRNPF_DI)(x), net(x))
    assert gl.to_dlgn(net, generator=torch.Generator().manual_seed(0))(x).isfinite().all()
    assert gl.to_dln(net)(x).isfinite().all()


@EACH
def test_features_estimate_the_path_kernel(pad):
    net, x = Padded(pad, channels=3), images()
    copies = 300
    blocks = gl.path_features(net, x, 4 * copies, torch.Generator().manual_seed(0), copies=copies).view(3, copies, 4)
    kernels = copies * torch.einsum("nck,mck->cnm", blocks, blocks)
    error = kernels.std(dim=0) / copies**0.5
    exact = gl.neural_path_kernel(net, x)
    assert ((kernels.mean(dim=0) - exact).abs() < 5 * error).all()
    assert (error.diag() < 0.2 * exact.diag()).all()


@EACH
def test_paths_add_up_to_the_output(pad):
    net, x = Padded(pad), images()
    paths = gl.top_paths(net, x[0], 10_000, output=0)
    assert sum(path.contribution for path in paths) == pytest.approx(net(x[:1])[0, 0].item(), rel=1e-9)


def test_paths_from_a_constant_have_no_rule_in_the_kernel():
    with pytest.raises(UnsupportedModelError, match="pads with a constant"):
        gl.neural_path_kernel(Padded(PADS["1"]), images(), biases=True)
