"""Outputs in groups: the same kernel, in bounded memory."""

import pytest
import torch
from torch import nn

import gatelab as gl
from gatelab.kernels.tangent import gradients as gradients_module
from gatelab.kernels.tangent import layers
from gatelab.kernels.tangent.kernel import TangentKernel
from gatelab.models import mlp
from tests import zoo
from tests.kernels.tangent import plain
from tests.kernels.tangent.test_sums import Copied


class Opaque(nn.Module):
    """Neither layers nor vmap: every gradient by plain autograd."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 5))
        self.loose = nn.Parameter(torch.randn(5))

    def forward(self, x):
        return Copied.apply(self.inner(x) * self.loose)


MODELS = {
    "dense": (lambda: mlp([5, 6, 7], bias=True), (5,)),
    "pooled": (lambda: gl.models.gconv(channels=(4, 6), dense=(5,), inputs=2, outputs=7), (2, 8, 8)),
    "positions": (
        lambda: nn.Sequential(nn.Conv2d(20, 30, 3), nn.ReLU(), nn.Flatten(), nn.Linear(120, 5)),
        (20, 4, 4),
    ),
    "loose parameters": (zoo.LooseParameters, (5,)),
    "opaque": (Opaque, (5,)),
}


def close(a, b):
    torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-10 * b.abs().max().item())


@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize("kept", [0, 2**29])
@pytest.mark.parametrize("name", MODELS)
def test_groups_agree_with_plain_autograd(monkeypatch, name, kept, together):
    make, shape = MODELS[name]
    model, x = make(), torch.randn(4, *shape)
    full = plain.tangent_kernel(model, x)
    traces = full.diagonal(dim1=2, dim2=3).sum(-1)
    function = TangentKernel(model).on(x)
    function.rows(x)
    numbers = function.gradients._signals
    if name == "opaque":
        numbers = sum(p.numel() for p in model.parameters())
    monkeypatch.setattr(gradients_module, "_SIGNALS", 4 * numbers)  # two outputs of two examples
    monkeypatch.setattr(gradients_module, "_KEPT", kept)
    monkeypatch.setattr(layers, "_SMALL", 2**20 if together else 0)
    rows = function.rows(x)
    assert len(rows.kept) == (-(-full.shape[2] // 2) if kept else 0)
    close(gl.neural_tangent_kernel(model, x), traces)
    close(gl.neural_tangent_kernel(model, x[:1], x[1:]), traces[:1, 1:])
    close(gl.neural_tangent_kernel(model, x, outputs="full"), full)
    close(gl.neural_tangent_kernel(model, x, outputs=1), full[:, :, 1, 1])


def test_working_memory_does_not_grow_with_outputs_or_examples(monkeypatch):
    monkeypatch.setattr(gradients_module, "_KEPT", 0)
    monkeypatch.setattr(gradients_module, "_SIGNALS", 2**14)
    told = {}
    for outputs in (100, 800):
        model, x = mlp([5, 100, outputs]), torch.randn(6, 5)
        function = TangentKernel(model).on(x)
        rows = function.rows(x)
        assert function.bytes_kept(rows) == x.numel() * x.element_size()
        told[outputs] = [function.gradients.bytes_making(n, 8) for n in (6, 6000)]
        assert rows.group_bytes < 2 * 6 * 2**14 * 8
    # Four arrays of signals, give or take the last output that fits.
    assert all(making <= 4 * 2**14 * 8 for pair in told.values() for making in pair)


def test_a_model_that_loses_its_structure_between_groups_is_differentiated_one_by_one(monkeypatch):
    """Later groups are made in block(); what they cannot do must not surface there."""
    model, x = mlp([5, 6, 8], bias=True), torch.randn(4, 5)
    expected = gl.neural_tangent_kernel(model, x)
    function = TangentKernel(model).on(x)
    monkeypatch.setattr(gradients_module, "_KEPT", 0)
    monkeypatch.setattr(gradients_module, "_SIGNALS", 14 * 4)
    rows = function.rows(x)
    assert not rows.kept

    def fails(*_):
        raise gradients_module.NoStructureError

    monkeypatch.setattr(function.gradients, "_structured", fails)
    close(function.block(rows, rows), expected)
