"""The path kernel's rules against its definition, E_v[ŷ ŷ'] with the gates held fixed."""

# ruff: noqa: E501  one network to a line

from functools import cache

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import gatelab as gl
from gatelab.errors import UnsupportedModelError
from gatelab.gates import HardGate
from gatelab.kernels.path import kernel as path_kernel_module
from tests.references.replay import exact_kernel, sampled_kernel


class Net(nn.Module):
    """Layers by name, and a forward."""

    def __init__(self, forward, **layers):
        super().__init__()
        self._forward = forward
        for name, layer in layers.items():
            setattr(self, name, layer)

    def forward(self, x):
        return self._forward(self, x)


def sequential(*layers):
    return lambda: nn.Sequential(
        *(layer() if callable(layer) and not isinstance(layer, nn.Module) else layer for layer in layers)
    )


def conv(*args, **kwargs):
    return lambda: nn.Conv2d(*args, **kwargs)


def dense(*args, **kwargs):
    return lambda: nn.Linear(*args, **kwargs)


# name -> (network, shape of an example); at most 13 weights, so that all sign patterns can be run.
TINY = {
    "stride and padding, flattened": (sequential(conv(2, 1, 2, padding=1, stride=2), nn.ReLU, nn.Flatten, dense(4, 1)), (2, 3, 3)),
    "dilation": (sequential(conv(1, 2, 2, dilation=2), nn.ReLU, nn.Flatten, dense(2, 1)), (1, 3, 3)),
    "padding by name": (sequential(conv(1, 1, 3, padding="same"), nn.ReLU, nn.Flatten, dense(4, 1)), (1, 2, 2)),
    "circular padding, pooled": (
        sequential(conv(1, 1, 3, padding=1, padding_mode="circular"), nn.ReLU, conv(1, 1, 1), nn.ReLU,
                   lambda: nn.AdaptiveAvgPool2d(1), nn.Flatten, dense(1, 1)), (1, 4, 3)),
    "circular padding, flattened": (
        sequential(conv(1, 1, (2, 1), padding=(1, 0), padding_mode="circular"), nn.ReLU, nn.Flatten, dense(9, 1)), (1, 2, 3)),
    "global average": (
        sequential(conv(1, 2, 2), nn.ReLU, conv(2, 1, 1), lambda: nn.LeakyReLU(0.1), lambda: nn.AdaptiveAvgPool2d(1),
                   nn.Flatten, dense(1, 1)), (1, 3, 3)),
    "max-pool, then a gate": (sequential(conv(1, 1, 2, padding=1), lambda: nn.MaxPool2d(2), nn.ReLU, nn.Flatten, dense(4, 1)), (1, 3, 3)),
    "adaptive max-pool": (sequential(conv(1, 2, 1), nn.ReLU, lambda: nn.AdaptiveMaxPool2d(1), nn.Flatten, dense(2, 1)), (1, 3, 2)),
    "functional, adaptive max-pool, view": (
        lambda: Net(lambda s, x: s.b(F.adaptive_max_pool2d(F.relu(s.a(x)), (1, 2)).view(-1, 4)), a=nn.Conv2d(1, 2, 1), b=nn.Linear(4, 1)), (1, 3, 4)),
    "functional max-pool, reshape": (
        lambda: Net(lambda s, x: s.b(F.max_pool2d(F.relu(s.a(x)), 2).reshape(x.shape[0], -1)), a=nn.Conv2d(1, 2, 1), b=nn.Linear(4, 1)), (1, 2, 4)),
    "average pool, then convolution": (
        sequential(conv(1, 2, 1), nn.ReLU, lambda: nn.AvgPool2d(2), conv(2, 1, 2), nn.ReLU, nn.Flatten, dense(1, 1)), (1, 4, 4)),
    "average pool, then a gate": (
        sequential(conv(1, 2, 1), lambda: nn.AvgPool2d((1, 2)), nn.ReLU, nn.Flatten, dense(8, 1)), (1, 2, 4)),
    "groups": (
        sequential(conv(2, 2, 2, groups=2), nn.ReLU, conv(2, 1, 1), nn.ReLU, lambda: nn.AdaptiveAvgPool2d(1), nn.Flatten,
                   dense(1, 1)), (2, 3, 3)),
    "gate on the input": (sequential(nn.ReLU, conv(2, 1, 2), nn.ReLU, nn.Flatten, dense(4, 1)), (2, 3, 3)),
    "identity skip": (
        lambda: Net(lambda s, x: s.c(F.relu(s.b(h := F.relu(s.a(x))) + h).mean((2, 3))),
                    a=nn.Conv2d(1, 2, 1), b=nn.Conv2d(2, 2, 1), c=nn.Linear(2, 1)), (1, 2, 2)),
    "skip around a gate": (
        lambda: Net(lambda s, x: s.c(F.relu(s.b(F.relu(h := s.a(x)) + h)).mean((2, 3))),
                    a=nn.Conv2d(1, 2, 1), b=nn.Conv2d(2, 2, 1), c=nn.Linear(2, 1)), (1, 2, 2)),
    "signal added to itself": (
        lambda: Net(lambda s, x: s.c((h := F.relu(s.a(x))) + h), a=nn.Linear(3, 2), c=nn.Linear(2, 1)), (3,)),
    "projection skip": (
        lambda: Net(lambda s, x: s.c(F.relu(s.b(F.relu(s.a(x))) + s.p(x)).flatten(1)),
                    a=nn.Conv2d(1, 2, 1), b=nn.Conv2d(2, 1, 1), p=nn.Conv2d(1, 1, 1), c=nn.Linear(4, 1)), (1, 2, 2)),
    "concatenation": (
        lambda: Net(lambda s, x: s.d(F.relu(s.c(F.relu(torch.cat([s.a(x), s.b(x)], 1)))).flatten(1)),
                    a=nn.Conv2d(1, 1, 1), b=nn.Conv2d(1, 2, 1), c=nn.Conv2d(3, 1, 1), d=nn.Linear(4, 1)), (1, 2, 2)),
    "dense connection": (
        lambda: Net(lambda s, x: s.c(torch.cat([h := F.relu(s.a(x)), F.relu(s.b(h))], dim=1)),
                    a=nn.Linear(2, 2), b=nn.Linear(2, 2), c=nn.Linear(4, 1)), (2,)),
    "skip to the output": (
        lambda: Net(lambda s, x: s.b(F.relu(s.a(x))) + s.c(x), a=nn.Linear(2, 2), b=nn.Linear(2, 1), c=nn.Linear(2, 1)), (2,)),
    "skip behind flattened pixels": (
        lambda: Net(lambda s, x: s.b(F.relu(h := s.a(x.flatten(1))) + h), a=nn.Linear(4, 2), b=nn.Linear(2, 1)), (2, 1, 2)),
    "skip behind pixels shown twice": (
        lambda: Net(lambda s, x: s.b(F.relu(h := s.a(x.expand(-1, 2, -1, -1).flatten(1))) + h),
                    a=nn.Linear(4, 2), b=nn.Linear(2, 1)), (1, 1, 2)),
    "logits by pooling": (
        sequential(conv(1, 2, 2), nn.ReLU, conv(2, 1, 1), lambda: nn.AdaptiveAvgPool2d(1), nn.Flatten), (1, 3, 3)),
}  # fmt: skip


def with_open_paths(make, shape: tuple[int, ...], n: int) -> tuple[nn.Module, torch.Tensor]:
    """The network with weights for which every example has an open path."""
    for seed in range(100):
        torch.manual_seed(seed)
        model, x = make(), torch.randn(n, *shape)
        if gl.neural_path_kernel(model, x).diagonal().min() > 0:
            return model, x
    raise AssertionError("no seed opens a path for every example")


@cache
def alive(name: str, n: int = 5) -> tuple[nn.Module, torch.Tensor]:
    return with_open_paths(*TINY[name], n)


@pytest.mark.parametrize("name", TINY)
def test_rules_agree_with_all_sign_patterns(name):
    model, x = alive(name)
    kernel = gl.neural_path_kernel(model, x, normalise=False)
    torch.testing.assert_close(kernel, exact_kernel(model, x), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", ["identity skip", "skip to the output", "signal added to itself"])
def test_biases_are_paths_from_a_constant_node(name):
    model, x = alive(name)
    kernel = gl.neural_path_kernel(model, x, normalise=False, biases=True)
    torch.testing.assert_close(kernel, exact_kernel(model, x, biases=True), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", TINY)
def test_rectangles_tiles_and_batches(name, monkeypatch):
    model, x = alive(name)
    whole = gl.neural_path_kernel(model, x)
    torch.testing.assert_close(gl.neural_path_kernel(model, x[:2], x[2:]), whole[:2, 2:])
    torch.testing.assert_close(whole, whole.T)
    monkeypatch.setattr(path_kernel_module, "BLOCK_ENTRIES", 1)
    torch.testing.assert_close(gl.neural_path_kernel(model, x, batch_size=2), whole)


class Bottleneck(nn.Module):
    """A residual block with a projection and one without, batch-norm that does nothing, and a functional style."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(2, 4, 3, padding=1)
        self.a, self.b = nn.Conv2d(4, 3, 3, padding=1, stride=2), nn.Conv2d(3, 6, 3, padding=1)
        self.project = nn.Conv2d(4, 6, 1, stride=2)
        self.c = nn.Conv2d(6, 6, 3, padding=1, groups=3)
        self.norm = nn.BatchNorm2d(6, eps=0.0)
        self.head = nn.Linear(6, 1)

    def forward(self, x):
        x = F.relu(self.stem(x), inplace=True)
        x = F.relu(self.b(F.relu(self.a(x))) + self.project(x))
        x = F.relu(self.norm(self.c(x)) + x)
        return self.head(F.adaptive_avg_pool2d(x, 1).flatten(1))


def test_random_signs_agree_on_a_residual_network():
    torch.manual_seed(3)
    model, x = Bottleneck().eval(), torch.randn(3, 2, 6, 6)
    kernel = gl.neural_path_kernel(model, x)
    mean, error = sampled_kernel(model, x, 4000, normalise=True, first=("stem",))
    assert ((kernel - mean).abs() / error).max() < 5


def test_dense_networks_agree_by_bits_and_by_rules():
    """A batch-norm that does nothing sends the same network through the general rules."""
    plain = gl.models.mlp([5, 7, 6, 1])
    dressed = nn.Sequential(plain[0], nn.BatchNorm1d(7, eps=0.0), *plain[1:]).eval()
    x = torch.randn(9, 5)
    for normalise in (True, False):
        torch.testing.assert_close(
            gl.neural_path_kernel(dressed, x, normalise=normalise), gl.neural_path_kernel(plain, x, normalise=normalise)
        )


def test_a_constant_image_is_the_overlap_times_its_size():
    """A piecewise constant DLGN behind a flattening: its value network reads ones, at 2 × 12 places."""
    gated = gl.models.DeepLinearlyGatedNetwork([24, 7, 6, 1], gate=HardGate(), piecewise_constant=True)
    model, x, y = nn.Sequential(nn.Flatten(), gated), torch.randn(5, 2, 3, 4), torch.randn(4, 2, 3, 4)
    overlap = gl.overlap_kernel(gl.capture_gates(model, x), gl.capture_gates(model, y))
    torch.testing.assert_close(gl.neural_path_kernel(model, x, y), 24 * overlap.to(x))


def test_papers_networks_have_a_kernel():
    x = torch.randn(2, 3, 8, 8)
    small = {"channels": (4, 5), "dense": (6,)}
    for model in (
        gl.models.gconv(**small),
        gl.models.vconv(inputs=(3, 8, 8), **small),
        gl.models.halfspace_cnn(layers=2, filters=3),
        gl.models.resnet(8).eval(),
    ):
        kernel = gl.neural_path_kernel(model, x)
        assert torch.linalg.eigvalsh(kernel)[0] > 0


REFUSED = {
    "tied convolutions": (
        lambda: Net(lambda s, x: s.b(F.relu(s.a(F.relu(s.a(x)))).flatten(1)), a=nn.Conv2d(1, 1, 1), b=nn.Linear(9, 1)), "same weight"),
    "dense layer over rows": (sequential(conv(1, 2, 1), nn.ReLU, dense(3, 2), nn.ReLU, nn.Flatten, dense(12, 1)), "shared over positions"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_has_no_exact_rule_is_refused(name):
    make, message = REFUSED[name]
    with pytest.raises(UnsupportedModelError, match=message):
        gl.neural_path_kernel(make(), torch.randn(2, 1, 3, 3))


@pytest.mark.parametrize("head", [nn.Softmax(dim=1), nn.LogSoftmax(dim=1), nn.Sigmoid()])
def test_a_final_softmax_is_left_out(head):
    plain = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3)).double()
    x = torch.randn(3, 4)
    kernel = gl.neural_path_kernel(nn.Sequential(*plain, head), x)
    torch.testing.assert_close(kernel, gl.neural_path_kernel(plain, x), rtol=1e-12, atol=0)
    with pytest.raises(UnsupportedModelError):
        gl.neural_path_kernel(nn.Sequential(*plain, head, nn.Linear(3, 1).double()), x)
