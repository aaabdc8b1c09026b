import pytest
import torch
from torch import nn

import gatelab as gl
from gatelab.kernels.tangent import factors as gradient_factors
from gatelab.kernels.tangent.factors import ExplicitFactor, UnitFactor, join, layer_factor
from tests.references import explicit

ALL = slice(0, 3)


def close(a, b):
    torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-10 * b.abs().max().item())


def pooled_layer(n=3, k=4, groups=2, positions=7, fan_in=5, fan_out=6):
    """Signals as a global pooling sends them back through gates: one number for a channel, here and there closed."""
    inputs = torch.randn(n, groups, positions, fan_in)
    gates = (torch.rand(n, 1, groups, positions, fan_out) < 0.5).double()
    signals = gates * torch.randn(n, k, groups, 1, fan_out)
    signals[0, :, 0, :, 0] = 0  # a closed channel has no scale to be read off
    return inputs, signals, torch.einsum("nkgpo,ngpi->nkgoi", signals, inputs).flatten(2)


def factor_of(inputs, signals):
    return layer_factor(inputs, signals, bias=False, pairs_per_example=3)


@pytest.mark.parametrize("chunk", [1, 2**22])
def test_a_common_pattern_gives_the_same_kernel(monkeypatch, chunk):
    monkeypatch.setattr(gradient_factors, "_CHUNK", chunk)
    inputs, signals, gradients = pooled_layer()
    factor = factor_of(inputs, signals)
    assert isinstance(factor, UnitFactor)
    close(factor.explicit(ALL).gradients, gradients)
    i, j = slice(1, 3), slice(0, 2)
    full = torch.einsum("nkp,mlp->nmkl", gradients[i], gradients[j])
    for mine in (factor, ExplicitFactor(gradients)):
        for other in (factor, ExplicitFactor(gradients)):
            traces, fulls = torch.ones(2, 2), torch.ones(2, 2, *full.shape[2:])
            mine.add_trace(traces, other, i, j)
            mine.add_full(fulls, other, i, j)
            close(traces, 1 + full.diagonal(dim1=2, dim2=3).sum(-1))
            close(fulls, 1 + full)


def test_only_an_exact_pattern_counts():
    inputs, signals, gradients = pooled_layer()
    signals[2, 1] *= 1 + 1e-12 * torch.rand_like(signals[2, 1])  # the last example, one output
    factor = factor_of(inputs, signals)
    assert isinstance(factor, ExplicitFactor)
    close(factor.gradients, gradients)
    inputs, signals, _ = pooled_layer(k=1)  # nothing to share
    assert isinstance(factor_of(inputs, signals), ExplicitFactor)


def test_batches_with_and_without_a_pattern_join():
    inputs, signals, gradients = pooled_layer()
    parts = [factor_of(inputs[rows], signals[rows]) for rows in (slice(0, 2), slice(2, 3))]
    joined = join(list(parts))
    assert isinstance(joined, UnitFactor)
    close(joined.explicit(ALL).gradients, gradients)
    mixed = join([parts[0], ExplicitFactor(gradients[2:])])
    assert isinstance(mixed, ExplicitFactor)
    close(mixed.gradients, gradients)


class Skip(nn.Module):
    """The pooled channels also reach the output without a pooling, unless the example is dark."""

    def __init__(self):
        super().__init__()
        self.convolution, self.head = nn.Conv2d(2, 5, 3, padding=1), nn.Linear(5, 3)
        self.corner = nn.Linear(5 * 64, 3)

    def forward(self, x):
        h = torch.relu(self.convolution(x))
        bright = (x.mean(dim=(1, 2, 3), keepdim=True) > 0).to(x.dtype)
        return self.head(h.mean(dim=(2, 3))) + self.corner((bright * h).flatten(1))


def global_max():
    return nn.Sequential(nn.Conv2d(2, 5, 3), nn.ReLU(), nn.AdaptiveMaxPool2d(1), nn.Flatten(), nn.Linear(5, 3))


def global_mean():
    return gl.models.gconv(channels=(4, 6), dense=(5,), inputs=2, outputs=3)


@pytest.mark.parametrize("make", [global_mean, global_max, Skip])
def test_pooled_networks(make):
    model, x = make(), torch.randn(6, 2, 8, 8)
    x[:3] = -x[:3].abs()  # Skip has a common pattern for these and none for the others
    x[3:] = x[3:].abs()
    full = explicit.tangent_kernel(model, x)
    close(gl.neural_tangent_kernel(model, x, outputs="full"), full)
    close(gl.neural_tangent_kernel(model, x), full.diagonal(dim1=2, dim2=3).sum(-1))
    close(gl.neural_tangent_kernel(model, x, batch_size=3, outputs="full"), full)
    for rows, columns in ((slice(0, 3), slice(3, 6)), (slice(3, 6), slice(0, 3))):
        close(gl.neural_tangent_kernel(model, x[rows], x[columns], outputs="full"), full[rows, columns])
