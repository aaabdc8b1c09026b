"""The linear model on tangent features is the exact fit of the linearised network."""

from dataclasses import replace

import pytest
import torch

from gatelab.data import load
from gatelab.kernels import neural_tangent_kernel
from gatelab.kernels.tangent.features import tangent_features
from gatelab.models import gconv, mlp
from gatelab.papers.halfspace.linearised import linearised_accuracy, moments


class Odd(torch.nn.Module):
    """Uses its parameter outside layers."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(3, 3))

    def forward(self, x):
        return (torch.linalg.matrix_exp(self.weight) @ x.unsqueeze(2)).squeeze(2)


def digits_network():
    net = mlp([64, 12, 10], bias=True, generator=torch.Generator().manual_seed(0))
    return torch.nn.Sequential(torch.nn.Flatten(), *net)


@pytest.mark.parametrize(
    ("model", "shape"),
    [
        (gconv(channels=[3, 4], dense=[5], outputs=4), (3, 6, 6)),
        (mlp([4, 5, 3], bias=True), (4,)),
        (torch.nn.Sequential(torch.nn.Conv2d(2, 4, 3, groups=2), torch.nn.ReLU(), torch.nn.Flatten()), (2, 4, 4)),
        (Odd(), (3,)),
    ],
    ids=["convolutions", "dense", "groups", "no layer"],
)
def test_features_have_the_tangent_kernel_as_their_gram_matrix(model, shape):
    model, x = model.double().eval(), torch.randn(5, *shape, dtype=torch.float64)
    features = tangent_features(model, x)
    assert features.shape == (5, model(x).shape[1], sum(p.numel() for p in model.parameters()))
    gram = torch.einsum("nkp,mlp->nmkl", features, features)
    torch.testing.assert_close(gram, neural_tangent_kernel(model, x, outputs="full"))


def _jacobian(model, x):
    parameters = {name: p.detach() for name, p in model.named_parameters()}
    parts = torch.func.jacrev(lambda own: torch.func.functional_call(model, own, (x,)))(parameters)
    return torch.cat([part.flatten(2) for part in parts.values()], dim=2)


class Backwards(torch.nn.Module):
    """Layers are used in another order than that of the parameters; one is not used at all."""

    def __init__(self):
        super().__init__()
        self.last, self.unused, self.first = torch.nn.Linear(4, 2), torch.nn.Linear(3, 3), torch.nn.Linear(3, 4)

    def forward(self, x):
        return self.last(self.first(x).relu())


@pytest.mark.parametrize(
    ("model", "shape"),
    [
        (gconv(channels=[3, 4], dense=[5], outputs=4), (3, 6, 6)),
        (torch.nn.Sequential(torch.nn.Conv2d(2, 4, (3, 2), groups=2), torch.nn.ReLU(), torch.nn.Flatten()), (2, 4, 4)),
        (Odd(), (3,)),
        (Backwards(), (3,)),
    ],
    ids=["convolutions", "groups", "no layer", "backwards"],
)
@pytest.mark.parametrize("structured", [True, False])
def test_features_are_the_gradients_in_the_order_of_the_parameters(model, shape, structured, monkeypatch):
    model, x = model.double().eval(), torch.randn(5, *shape, dtype=torch.float64)
    if not structured:  # as where a gate is decided by rounding, and a batch's check fails
        monkeypatch.setattr("gatelab.kernels.tangent.gradients._close", lambda *_: False)
        monkeypatch.setattr("gatelab.kernels.tangent.gradients.Gradients._only_rounding", lambda *_: True)
    torch.testing.assert_close(tangent_features(model, x), _jacobian(model, x))


def test_features_have_one_order_for_all_batches():
    model, x = digits_network().double(), torch.randn(6, 64, dtype=torch.float64)
    parts = torch.cat([tangent_features(model, x[:2]), tangent_features(model, x[2:])])
    torch.testing.assert_close(parts, tangent_features(model, x))


def test_the_fit_is_the_ridge_regression_with_the_full_kernel():
    digits = load("digits").subset(60, 20)
    model, ridge = digits_network(), 1e-2
    x, others = (digits.inputs(part) for part in (digits.train_x, digits.test_x))
    targets = torch.nn.functional.one_hot(digits.train_y, 10).double() - 0.1
    features = tangent_features(model.double(), x.double())
    theta = moments(iter([(features, targets)])).solve(ridge)
    flat = features.flatten(0, 1)
    shift = ridge * flat.square().sum(0).mean()
    dual = torch.linalg.solve(flat @ flat.T + shift * torch.eye(len(flat)), targets.flatten())
    predicted = tangent_features(model, others.double())
    assert theta is not None
    torch.testing.assert_close(predicted @ theta, predicted @ (flat.T @ dual), rtol=1e-6, atol=1e-9)
    said = (predicted @ theta).argmax(dim=1)
    found = linearised_accuracy(model, digits, ridges=(ridge,))
    assert found[1] == pytest.approx((said == digits.test_y).double().mean().item(), abs=1e-9)
    assert found[2] == ridge


def test_a_linearised_network_learns_digits_and_noise_does_not():
    digits = load("digits").subset(400, 200)
    train, test, _ = linearised_accuracy(digits_network(), digits, (1e-4, 1e-2))
    assert train > 0.9
    assert test > 0.8
    shuffled = digits.train_y[torch.randperm(400, generator=torch.Generator().manual_seed(0))]
    noise = replace(digits, train_y=shuffled)
    assert linearised_accuracy(digits_network(), noise, (1e-2,))[1] < 0.3


def test_features_that_hardly_vary_are_fitted(single_precision):
    """A deep network at PyTorch's start answers all images almost alike; in float32 the rest is lost."""
    digits, model = load("digits").subset(400, 200), digits_network()
    first, last = (module for module in model.modules() if isinstance(module, torch.nn.Linear))
    with torch.no_grad():
        first.weight *= 1e-5
        first.bias.fill_(1.0)
        last.weight *= 1e-5
    assert linearised_accuracy(model, digits)[1] > 0.8
