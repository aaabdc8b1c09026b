"""Batch norm in evaluation mode is a layer: its parameters need no torch.func."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import gatelab as gl
from gatelab.kernels.tangent.kernel import TangentKernel
from tests.references import explicit


def close(a, b):
    torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-10 * b.abs().max().item())


def norm(kind, channels):
    layer = kind(channels).eval()
    for tensor in (layer.running_mean, layer.weight, layer.bias):
        nn.init.normal_(tensor)
    nn.init.uniform_(layer.running_var, 0.5, 2)
    return layer


class Twice(nn.Module):
    """One batch norm in two places, called with its arguments in torch's own order the second time."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.norm = nn.Linear(4, 5), nn.Linear(5, 5), norm(nn.BatchNorm1d, 5)

    def forward(self, x):
        own = self.norm
        h = torch.relu_(F.batch_norm(self.first(x), own.running_mean, own.running_var, own.weight, bias=own.bias))
        h = self.second(h)
        return torch.batch_norm(h, own.weight, own.bias, own.running_mean, own.running_var, False, 0.1, 1e-5, False)


MODELS = {
    "dense": (lambda: nn.Sequential(nn.Linear(4, 5), norm(nn.BatchNorm1d, 5), nn.ReLU(), nn.Linear(5, 3)), (4,)),
    "sequences": (
        lambda: nn.Sequential(norm(nn.BatchNorm1d, 4), nn.ReLU(), nn.Flatten(), nn.Linear(12, 2)),
        (4, 3),
    ),
    "images": (
        lambda: nn.Sequential(
            nn.Conv2d(2, 4, 3, bias=False), norm(nn.BatchNorm2d, 4), nn.ReLU(inplace=True), nn.Flatten(),
            nn.Linear(64, 3),
        ),
        (2, 6, 6),
    ),
    "volumes": (
        lambda: nn.Sequential(norm(nn.BatchNorm3d, 2), nn.ReLU(), nn.Flatten(), nn.Linear(16, 2)),
        (2, 2, 2, 2),
    ),
    "used twice": (Twice, (4,)),
}  # fmt: skip


@pytest.mark.parametrize("name", MODELS)
def test_agrees_with_dense_jacobians(name):
    make, shape = MODELS[name]
    model, x = make(), torch.randn(5, *shape)
    full = explicit.tangent_kernel(model, x)
    close(gl.neural_tangent_kernel(model, x, outputs="full"), full)
    close(gl.neural_tangent_kernel(model, x), full.diagonal(dim1=2, dim2=3).sum(-1))
    only = [key for key, _ in model.named_parameters() if key.endswith("weight")]
    close(gl.neural_tangent_kernel(model, x, wrt=only, outputs="full"), explicit.tangent_kernel(model, x, names=only))
    rows = TangentKernel(model).on(x).rows(x)
    assert rows.loose == frozenset()  # every parameter belongs to a layer
