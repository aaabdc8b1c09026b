"""Sums of millions of products in float32 keep five digits."""

import pytest
import torch
from torch import nn

import gatelab as gl
from gatelab.kernels.tangent.factors import DenseFactor, ExplicitFactor, PositionFactor, UnitFactor
from gatelab.kernels.tangent.sums import BLOCK, inner_products

SINGLE = torch.float32


def error(measured, exact):
    return ((measured.double() - exact) / exact).abs().max().item()


def positive(*shape):
    """Numbers of one sign: every term makes the sum larger, so that the next one loses more digits."""
    return torch.full(shape, 0.1, dtype=SINGLE) + 0.01 * torch.rand(shape[0], *(1 for _ in shape[1:]), dtype=SINGLE)


@pytest.mark.parametrize("shape", [(2, 3 * 10**6 + 5), (17, BLOCK + 1), (3, 2, 2 * 10**5)])
def test_inner_products(shape):
    left, right = positive(*shape), positive(*shape)
    products = inner_products(left, right)
    assert products.dtype == torch.float64
    assert error(products, left.double() @ right.double().mT) < 1e-5
    assert inner_products(left[..., :BLOCK], right[..., :BLOCK]).dtype == SINGLE  # short products stay as they are


class Scale(nn.Module):
    """One number for each input: no layer, so that the gradients are explicit."""

    def __init__(self, size):
        super().__init__()
        self.scale = nn.Parameter(positive(size))

    def forward(self, x):
        return (x * self.scale).sum(dim=1, keepdim=True)


class Copied(torch.autograd.Function):
    """Without a rule for vmap, so that the gradients are computed one example at a time."""

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        return grad


class OneByOne(Scale):
    def forward(self, x):
        return Copied.apply(super().forward(x))


SIZE = 10**7 + 3


@pytest.mark.parametrize(
    "make",
    [
        lambda: nn.Linear(SIZE, 1, dtype=SINGLE),
        lambda: Scale(SIZE),
        lambda: OneByOne(SIZE),
    ],
    ids=["dense layer", "torch.func", "one by one"],
)
def test_ten_million_weights(make):
    model, x = make(), positive(2, SIZE)
    kernel = gl.neural_tangent_kernel(model, x)
    assert kernel.dtype == SINGLE
    wide = x.double()
    bias = 1 if isinstance(model, nn.Linear) else 0
    assert error(kernel, wide @ wide.T + bias) < 1e-5


FACTORS = {
    "dense, long inputs": lambda: DenseFactor(positive(2, 10**6), positive(2, 2, 3), bias=True),
    "dense, long signals": lambda: DenseFactor(positive(2, 3), positive(2, 50, 20_000), bias=False),
    "bias": lambda: DenseFactor(None, positive(2, 50, 20_000), bias=True),
    "positions, many outputs": lambda: PositionFactor(positive(2, 1, 5, 7), positive(2, 60, 1, 5, 700)),
    "positions, wide": lambda: PositionFactor(positive(2, 2, 3, 70_000), positive(2, 2, 2, 3, 70_000)),
    "explicit": lambda: ExplicitFactor(positive(2, 3, 10**6)),
    "units": lambda: UnitFactor(positive(2, 300, 5000), positive(2, 3, 300)),
}


@pytest.mark.parametrize("name", FACTORS)
def test_every_form(name):
    factor, both = FACTORS[name](), slice(0, 2)
    wide = type(factor)(*(v.double() if isinstance(v, torch.Tensor) else v for v in vars(factor).values()))
    outputs = (factor.scales if isinstance(factor, UnitFactor) else factor.tensors()[-1]).shape[1]
    for shape, add in (((2, 2), "add_trace"), ((2, 2, outputs, outputs), "add_full")):
        measured, exact = torch.zeros(shape, dtype=torch.float64), torch.zeros(shape, dtype=torch.float64)
        getattr(factor, add)(measured, factor, both, both)
        getattr(wide, add)(exact, wide, both, both)
        assert error(measured, exact) < 1e-5, add


def test_many_small_parameters():
    """Each adds little: the sum over layers is long as well."""
    model = nn.Sequential(*(nn.Linear(1, 1, dtype=SINGLE) for _ in range(300)))
    for layer in model:
        nn.init.constant_(layer.weight, 1.0)
        nn.init.constant_(layer.bias, 0.1)
    x = positive(3, 1)
    kernel = gl.neural_tangent_kernel(model, x)
    assert kernel.dtype == SINGLE
    assert error(kernel, gl.neural_tangent_kernel(model.double(), x.double())) < 1e-5


def test_half_precision_adds_up_in_double():
    model, x = nn.Linear(50_000, 1, dtype=torch.bfloat16), torch.full((2, 50_000), 0.5, dtype=torch.bfloat16)
    kernel = gl.neural_tangent_kernel(model, x)
    assert kernel.dtype == torch.bfloat16
    assert error(kernel, torch.full((2, 2), 12_501.0)) < 2**-8  # the rounding of the result
