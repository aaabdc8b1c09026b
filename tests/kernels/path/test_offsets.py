"""The pooled path kernel offset by offset against the one over all pairs of positions."""

import pytest
import torch
from torch import nn

import gatelab as gl
from gatelab.kernels.path import kernel as path_kernel
from gatelab.kernels.path import offset_program
from tests import image_zoo


class Strided(nn.Module):
    """Strides, a projection and an identity around gates, uneven sizes, a LeakyReLU, two terms at the end."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(2, 70, (3, 2), stride=(1, 2), padding=(0, 1))
        self.down = nn.Conv2d(70, 5, 3, stride=2, padding=1)
        self.side = nn.Conv2d(70, 5, 1, stride=2)
        self.wide = nn.Conv2d(5, 5, (1, 5), padding=(0, 4), dilation=(1, 2))
        self.head = nn.Linear(5, 3)

    def forward(self, x):
        x = nn.functional.leaky_relu(self.stem(x), 0.1)
        x = torch.relu(self.down(x) + self.side(x))
        x = x + torch.relu(self.wide(x))
        return self.head(x.mean((2, 3)))


def _pooled(*layers):
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(layers[-2].out_channels, 2))


CASES = [
    (gl.models.gconv(channels=(4, 130, 3), dense=(5,)), (3, 6, 6)),
    (gl.models.halfspace_cnn(layers=2, filters=5, dense=4), (3, 7, 5)),
    (gl.models.resnet(8).eval(), (3, 8, 8)),
    (Strided(), (2, 9, 12)),
    (image_zoo.made(image_zoo.PreActivation), (2, 6, 6)),
    (image_zoo.made(image_zoo.Dense), (2, 6, 6)),
    (_pooled(nn.Conv2d(1, 3, 2, dilation=3), nn.ReLU()), (1, 5, 6)),
]


@pytest.fixture
def by_pairs(monkeypatch):
    """The kernel with offsets switched off."""

    def kernel(*args, **kwargs):
        with monkeypatch.context() as patch:
            patch.setattr(path_kernel, "pooled_kernel", lambda *_args, **_kwargs: None)
            return gl.neural_path_kernel(*args, **kwargs)

    return kernel


@pytest.fixture
def used(monkeypatch):
    """Whether the offsets told the kernel, call by call."""
    calls = []

    def watched(*args, **kwargs):
        calls.append(offset_program.pooled_kernel(*args, **kwargs))
        return calls[-1]

    monkeypatch.setattr(path_kernel, "pooled_kernel", watched)
    return lambda: any(call is not None for call in calls)


@pytest.mark.parametrize(("model", "shape"), CASES)
@pytest.mark.parametrize("options", [{}, {"biases": True, "normalise": False}])
def test_offsets_agree_with_all_pairs(model, shape, options, by_pairs, used):
    model, x = model.double(), torch.randn(6, *shape)  # 21 pairs: more than the compiled loops take at a time
    expected = by_pairs(model, x, **options)
    torch.testing.assert_close(gl.neural_path_kernel(model, x, **options), expected, rtol=1e-11, atol=0)
    assert used()


def test_rectangular_and_single_examples(by_pairs):
    model, x, y = Strided(), torch.randn(3, 2, 9, 12), torch.randn(7, 2, 9, 12)
    torch.testing.assert_close(gl.neural_path_kernel(model, x, y), by_pairs(model, x, y), rtol=1e-11, atol=0)
    torch.testing.assert_close(gl.neural_path_kernel(model, x[:1]), by_pairs(model, x[:1]), rtol=1e-11, atol=0)


def test_single_precision_is_good_to_its_digits():
    model, x = gl.models.gconv(channels=(8, 8), dense=(5,)), torch.randn(3, 3, 8, 8)
    exact = gl.neural_path_kernel(model.double(), x)
    short = gl.neural_path_kernel(model.float(), x.float())
    assert short.dtype == torch.float32
    # Relative to the diagonal: off-diagonal entries are sums of products of either sign.
    assert ((short - exact).abs() / exact.diagonal().min()).max() < 1e-5


@pytest.mark.parametrize(
    "model",
    [
        _pooled(nn.Conv2d(2, 3, 3, padding=1, padding_mode="circular"), nn.ReLU()),
        _pooled(nn.Conv2d(2, 3, 3, padding=1), nn.AvgPool2d(2), nn.Conv2d(3, 4, 1), nn.ReLU()),
    ],
)
def test_where_offsets_do_not_tell_everything_all_pairs_do(model, by_pairs, used):
    model, x = model.double(), torch.randn(3, 2, 4, 4)
    torch.testing.assert_close(gl.neural_path_kernel(model, x), by_pairs(model, x), rtol=1e-12, atol=0)
    assert not used()


def test_closed_gates_and_layers_without_gates(by_pairs):
    closed = _pooled(nn.Conv2d(1, 3, 3), nn.Conv2d(3, 2, 3), nn.ReLU()).double()
    x = torch.randn(4, 1, 6, 6)
    torch.testing.assert_close(gl.neural_path_kernel(closed, x), by_pairs(closed, x), rtol=1e-11, atol=0)
    nn.init.constant_(closed[1].bias, -1e6)
    assert torch.equal(gl.neural_path_kernel(closed, x), torch.zeros(4, 4))
