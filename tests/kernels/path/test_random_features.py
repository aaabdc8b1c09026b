"""Random features that estimate the path kernel."""

import pytest
import torch
from torch import nn

import gatelab as gl
from gatelab.convert.values import halves
from gatelab.errors import InputError, UnsupportedModelError
from tests import image_zoo, zoo
from tests.contracts.gated_model import snapshot


def _seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def _grams(features, sizes):
    """One estimate of the kernel from each share of the features, which come from independent networks."""
    dim = features.shape[1]
    return torch.stack([part @ part.T * dim / part.shape[1] for part in features.split(sizes, dim=1)])


GROUPED = nn.Sequential(
    nn.Conv2d(2, 8, 2), nn.ReLU(), nn.ConvTranspose2d(8, 4, 2, groups=4), nn.ReLU(), nn.Flatten(), nn.Linear(64, 2)
)
EXACT = [
    (zoo.Functional(), torch.randn(4, 5)),
    (zoo.Residual(), torch.randn(4, 5)),
    (zoo.leaky(), torch.randn(4, 5)),
    (zoo.cnn(), torch.randn(4, 4, 8, 8)),
    *((image_zoo.made(kind), kind.images()) for kind in (image_zoo.LeNet, image_zoo.Vgg, image_zoo.Residual)),
    (image_zoo.made(image_zoo.PreActivation), image_zoo.PreActivation.images()),
    (image_zoo.made(image_zoo.Dense), image_zoo.Dense.images()),
    (GROUPED, torch.randn(3, 2, 4, 4)),
]


@pytest.mark.parametrize(("model", "x"), EXACT, ids=lambda value: type(value).__name__)
def test_inner_products_have_the_path_kernel_as_their_mean(model, x):
    """With all units of each network, with one feature of each, and with uneven shares."""
    model, x = model.double(), x.double()
    exact, network = gl.neural_path_kernel(model, x), halves(model)
    units = network.values.run(x[:1], *network.deciding.run(x[:1]))[0].numel()
    for sizes, copies in (([units] * 400, None), ([1] * 80, 80), ([3] * 40 + [2] * 40, 80)):
        features = gl.path_features(model, x, sum(sizes), _seeded(7), copies=copies)
        assert features.shape == (len(x), sum(sizes))
        grams, weights = _grams(features, sizes), torch.tensor(sizes) / sum(sizes)
        # The error of a weighted mean of independent estimates. The largest |z| of some 10 entries is rarely over 4.
        error = grams.std(dim=0) * weights.square().sum().sqrt()
        assert ((features @ features.T - exact).abs() / (error + 1e-12 * exact.abs().max())).max() < 5


@pytest.mark.parametrize("kind", [image_zoo.FunctionalStyle, image_zoo.Signals])
def test_features_kernel_and_gradients_agree(kind):
    """Against ŷ ŷ' over random sign weights, by gradients: a network with fixed gates is affine in its input.

    Its linear part at x is the directional derivative along x, which constants and biases do not touch.
    """
    model, x = image_zoo.made(kind), kind.images()
    twin = gl.to_dgn(model, gl.Regime.FRNPF_DI).requires_grad_(False)
    weights = [parameter for parameter in twin.value.parameters() if parameter.ndim > 1]
    products, generator = [], _seeded(0)
    for _ in range(300):
        for place, weight in enumerate(weights):
            gl.models.init.bernoulli_(weight, weight[0].numel() ** -0.5 if place else 1.0, generator)
        y = _linear_part(twin, x)
        products.append(torch.outer(y, y))
    reference = torch.stack(products)
    estimates = _grams(gl.path_features(model, x, 300, _seeded(1), copies=300), 1)
    error = (estimates.var(0) / len(estimates) + reference.var(0) / len(reference)).sqrt()
    assert ((estimates.mean(0) - reference.mean(0)).abs() / error).max() < 5
    exact = gl.neural_path_kernel(model, x)
    assert ((reference.mean(0) - exact).abs() / (reference.var(0) / len(reference)).sqrt()).max() < 5


def _linear_part(twin, x):
    """⟨x, ∂ŷ/∂x⟩ of the first output before any softmax."""
    kept = []
    layers = [module for module in twin.value.modules() if isinstance(module, nn.Linear)]
    hooks = [layer.register_forward_hook(lambda _module, _inputs, output: kept.append(output)) for layer in layers]
    x = x.clone().requires_grad_()
    y = twin(x)
    for hook in hooks:
        hook.remove()
    (slope,) = torch.autograd.grad((kept[-1] if kept else y)[:, 0].sum(), x)
    return (x * slope).detach().flatten(1).sum(1)


@pytest.mark.parametrize("copies", [None, 20])
def test_features_depend_on_the_seed_alone(copies):
    model, x = image_zoo.made(image_zoo.Vgg), image_zoo.Vgg.images()

    def features(rows, seed, **options):
        return gl.path_features(model, rows, 100, _seeded(seed), copies=copies, **options)

    whole = features(x, 3)
    torch.testing.assert_close(features(x, 3, batch_size=1), whole, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(features(x[1:3], 3), whole[1:3], rtol=1e-12, atol=1e-12)
    assert not torch.allclose(features(x, 4), whole)


def test_more_copies_make_the_error_smaller():
    model, x = gl.models.mlp([5, 8, 8, 40, 1]), torch.randn(6, 5)
    # Estimates with 40 features each: from all units of one network, and from four features of ten networks.
    one, ten = (gl.path_features(model, x, 40 * 40, _seeded(0), copies=copies) for copies in (40, 400))
    assert _grams(ten, 40).var(dim=0).mean() < 0.5 * _grams(one, 40).var(dim=0).mean()


def test_error_falls_with_the_root_of_the_dimension():
    model, x = image_zoo.made(image_zoo.Residual), image_zoo.Residual.images()
    exact = gl.neural_path_kernel(model, x)
    dims = torch.tensor([48.0, 192.0, 768.0])  # multiples of the six units of one network
    features = gl.path_features(model, x, 8 * 768, _seeded(0))
    errors = [(_grams(features, int(dim)) - exact).square().mean().sqrt() for dim in dims]
    slope = torch.linalg.lstsq(
        torch.stack([dims.log(), torch.ones(3)], dim=1), torch.stack(errors).log()[:, None]
    ).solution[0]
    assert -0.6 < slope < -0.4


def test_no_trace_is_left():
    model, x = image_zoo.made(image_zoo.Vgg), image_zoo.Vgg.images()
    before = snapshot(model)
    gl.path_features(model, x, 10, _seeded(0))
    assert snapshot(model) == before


@pytest.mark.parametrize("options", [{"dim": 0}, {"dim": 4, "copies": 5}, {"dim": 4, "copies": 0}])
def test_bad_sizes(options):
    with pytest.raises(InputError, match="dim must be at least 1"):
        gl.path_features(zoo.Functional(), torch.randn(2, 5), **options)


def test_what_does_not_convert_has_no_features_and_no_pointer():
    with pytest.raises(UnsupportedModelError, match="same weight"):
        gl.path_features(zoo.Tied(), torch.randn(2, 5), 4)
    with pytest.raises(UnsupportedModelError) as caught:
        gl.neural_path_kernel(zoo.Tied(), torch.randn(2, 5))
    assert "path_features" not in str(caught.value)
