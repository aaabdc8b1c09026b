"""Networks of pytorchcv with random weights: float32 against float64, and against plain autograd."""

import pytest
import torch
from torch import nn

import gatelab as gl
from tests.kernels.tangent import plain

models = pytest.importorskip("pytorchcv.model_provider")

SMALL = {"resnet20_cifar10": 32, "mobilenet_wd4": 32}
LARGE = {"shufflenet_g3_wd4": 64, "alexnetb": 224, "resnet34": 64, "resnet50": 64, "wrn50_2": 64, "densenet121": 64}


def network(name, classes=10):
    model = models.get_model(name, num_classes=classes)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.normal_(module.running_mean, 0, 0.1)
            nn.init.uniform_(module.running_var, 0.5, 1.5)
            nn.init.uniform_(module.weight, 0.5, 1.5)
            nn.init.normal_(module.bias, 0, 0.1)
    for child, module in list(model.features.named_children()):
        if isinstance(module, nn.AvgPool2d):
            setattr(model.features, child, nn.AdaptiveAvgPool2d(1))
    return model.float().eval()


def images_with_the_same_gates(model, size):
    """Two images for which rounding moves no gate: another gate is another network, with another kernel."""
    for seed in range(20):
        x = torch.randn(2, 3, size, size, dtype=torch.float32, generator=torch.Generator().manual_seed(seed))
        single, double = gl.capture_gates(model.float(), x), gl.capture_gates(model.double(), x.double())
        if all(torch.equal(single[name], double[name]) for name in single.layers):
            return x
    pytest.skip("rounding moves a gate for each of 20 pairs of images")


@pytest.mark.parametrize(
    ("name", "size"), [*SMALL.items(), *(pytest.param(*item, marks=pytest.mark.slow) for item in LARGE.items())]
)
def test_single_precision(name, size):
    model = network(name)
    x = images_with_the_same_gates(model, size)
    exact = gl.neural_tangent_kernel(model.double(), x.double())
    kernel = gl.neural_tangent_kernel(model.float(), x)
    assert kernel.dtype == torch.float32
    assert ((kernel.double() - exact).abs() <= 1e-5 * exact.abs()).all()


@pytest.mark.slow
def test_single_precision_of_a_thousand_outputs():
    model = network("resnet18", classes=1000)
    x = images_with_the_same_gates(model, 32)
    exact = gl.neural_tangent_kernel(model.double(), x.double())
    assert ((gl.neural_tangent_kernel(model.float(), x).double() - exact).abs() <= 1e-5 * exact.abs()).all()


@pytest.mark.parametrize("name", SMALL)
def test_all_outputs_agree_with_plain_autograd(name):
    model, x = network(name).double(), torch.randn(2, 3, SMALL[name], SMALL[name])
    full = plain.tangent_kernel(model, x)

    def close(a, b):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9 * b.abs().max().item())

    close(gl.neural_tangent_kernel(model, x, outputs="full"), full)
    close(gl.neural_tangent_kernel(model, x), full.diagonal(dim1=2, dim2=3).sum(-1))
    close(gl.neural_tangent_kernel(model, x, outputs=3), full[:, :, 3, 3])
