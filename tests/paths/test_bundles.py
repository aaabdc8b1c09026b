"""Bundles of paths: the sum over them is the output, and their kernels are the network's."""

from collections import Counter

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import gatelab as gl
from gatelab.errors import InputError, TooManyPathsError, UnsupportedModelError
from gatelab.paths import PathBundles
from gatelab.paths.features import path_gradients
from tests.paths import networks
from tests.paths.networks import Written


def plain(seed=0):
    """A convolution, an average and a dense layer, all with biases."""
    torch.manual_seed(seed)
    layers = (nn.Conv1d(1, 2, 2), nn.ReLU(), nn.Conv1d(2, 2, 2), nn.ReLU(), nn.AdaptiveAvgPool1d(1), nn.Flatten())
    return nn.Sequential(*layers, nn.Linear(2, 2)), torch.randn(3, 1, 4)


def residual(seed=0, *, bias=True):
    torch.manual_seed(seed)

    def forward(net, x):
        h = net.stem(x)
        h = h + net.out(torch.relu(net.into(h)))
        return net.head(torch.relu(h))

    def layer(a, b):
        return nn.Linear(a, b, bias=bias)

    return Written(forward, stem=layer(2, 3), into=layer(3, 2), out=layer(2, 3), head=layer(3, 2)), torch.randn(4, 2)


def shared(seed=0):
    """One convolution used twice, a maximum, a skip past both."""
    torch.manual_seed(seed)

    def forward(net, x):
        h = torch.relu(net.conv(torch.relu(net.conv(x)))) + x
        return net.head(F.max_pool2d(h, 2).flatten(1))

    return Written(forward, conv=nn.Conv2d(1, 1, 3, padding=1), head=nn.Linear(4, 1)), torch.randn(3, 1, 4, 4)


def headless(seed=0):
    """No dense layer at the end: two averages of gated channels."""
    torch.manual_seed(seed)
    net = nn.Sequential(nn.Conv1d(1, 2, 2), nn.ReLU(), nn.AdaptiveAvgPool1d(1), nn.Flatten())
    return net, torch.randn(3, 1, 4)


def upward(seed=0):
    torch.manual_seed(seed)
    net = nn.Sequential(
        nn.ConvTranspose1d(2, 4, 2, stride=2, groups=2, bias=False), nn.ReLU(), nn.Flatten(), nn.Linear(16, 1)
    )
    return net, torch.randn(3, 2, 2)


CASES = {"convolutional": plain, "residual": residual, "shared": shared, "no head": headless, "transposed": upward}


@pytest.fixture(params=CASES.values(), ids=CASES)
def case(request):
    return request.param()


def test_the_sum_over_bundles_is_the_output(case):
    model, x = case
    product = gl.neural_path_features(model, x) @ gl.neural_path_values(model, x)
    torch.testing.assert_close(product, model(x).detach(), rtol=1e-10, atol=1e-12)


def test_values_and_features_give_the_tangent_kernel(case):
    """K = φᵀ𝒱φ' (npk, Proposition 3.1), summed over outputs; and a value alone does not."""
    model, x = case
    phi, kernel = gl.neural_path_features(model, x), gl.neural_tangent_kernel(model, x)
    torch.testing.assert_close(phi @ gl.value_tangent_kernel(model, x) @ phi.T, kernel, rtol=1e-9, atol=1e-11)
    values = gl.neural_path_values(model, x)
    assert not torch.allclose(phi @ values @ values.T @ phi.T, kernel, rtol=0.01)


@pytest.mark.parametrize("make", [residual, upward], ids=["residual", "transposed"])
def test_inner_products_of_features_are_the_path_kernel(make):
    model, x = make() if make is upward else make(bias=False)
    if make is upward:
        model[3].bias = None
    phi = gl.neural_path_features(model, x)
    torch.testing.assert_close(phi @ phi.T, gl.neural_path_kernel(model, x, normalise=False), rtol=1e-10, atol=1e-12)


def test_pooling_makes_bundles_of_shifted_paths():
    """By hand: 2 taps · 2 channels · 2 taps · 2 channels, each at the two positions that are left."""
    model, x = plain()
    bundles = PathBundles(model, x)
    tally = Counter(bundles.paths)
    assert tally[2] == 2 * 2 * 2 * 2 + 2 * 2 * 2 + 2  # from the input, and from the biases of both convolutions
    assert tally[1] == 1  # the bias of the output
    names = [name for name, _ in bundles.weights(0, output=1)]
    assert names == ["0.weight", "2.weight", "6.weight"]
    assert set(tally) == {1, 2}


def test_a_weight_that_is_passed_twice_counts_twice():
    """Its value is a square, whose gradient is 2θ."""
    model, x = shared()
    bundles, weight = PathBundles(model, x), model.conv.weight.detach()
    twice = [b for b in range(len(bundles)) if [n for n, _ in bundles.weights(b)].count("conv.weight") == 2]
    alike = [b for b in twice if len(set(bundles.weights(b))) == 2]
    assert alike
    b = alike[0]
    (_, place), _, (_, end) = bundles.weights(b)
    head = model.head.weight.detach()[end]
    assert bundles.values()[b, 0] == pytest.approx(float(weight[place] ** 2 * head))
    gradients = path_gradients(model, x)[b, 0]
    assert gradients[torch.tensor(place) @ torch.tensor([9, 9, 3, 1])] == pytest.approx(float(2 * weight[place] * head))


def test_a_chain_of_dense_layers_has_the_same_paths():
    """As bundles, the paths of a dense network are its paths."""
    torch.manual_seed(3)
    model, x = gl.models.mlp([3, 4, 2, 2], bias=True).double(), torch.randn(5, 3)
    bundles = PathBundles(model, x)
    assert set(bundles.paths) == {1}

    def rows(features, values):
        return sorted(map(tuple, torch.cat([features.T, values], 1).round(decimals=9).add(0.0).tolist()))

    listed = rows(gl.neural_path_features(model, x), gl.neural_path_values(model))
    assert rows(bundles.features(x), bundles.values()) == listed


def test_twins_and_soft_gates():
    """Gates of another network, hard or soft, are part of the features."""
    model, x = plain()
    for regime in (gl.Regime.FRNPF_II, gl.Regime.DNPFL):
        twin = gl.to_dgn(model, regime)
        product = gl.neural_path_features(twin, x) @ gl.neural_path_values(twin, x)
        torch.testing.assert_close(product, twin(x).detach(), rtol=1e-10, atol=1e-12)
    hard = gl.neural_path_features(twin, x, gates="hard") @ gl.neural_path_values(twin, x)
    assert not torch.allclose(hard, twin(x), rtol=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("name", networks.NETWORKS)
def test_every_kind_of_network(name):
    model, x = networks.network(name)
    x = torch.cat([x, torch.randn_like(x)])
    values = gl.neural_path_values(model, x)
    answer = (model[:-1] if name == "no gate" else model)(x).detach()  # paths end before the softmax
    product = gl.neural_path_features(model, x) @ values
    torch.testing.assert_close(product, answer.flatten(1), rtol=1e-9, atol=1e-10)


def test_errors_say_what_to_do():
    model, x = plain()
    with pytest.raises(TooManyPathsError, match=r"53 paths.*limit=") as raised:
        gl.neural_path_features(model, x, limit=52)
    assert "neural_path_kernel" in str(raised.value)
    with pytest.raises(UnsupportedModelError, match="give x="):
        gl.neural_path_values(model)
    with pytest.raises(InputError, match="list them for these examples"):
        PathBundles(model, x).features(torch.randn(1, 1, 5))


@pytest.mark.parametrize(
    "model", [nn.Sequential(nn.ReLU()), nn.Sequential(nn.BatchNorm1d(2), nn.ReLU()).double().eval()]
)
def test_paths_without_weights_are_worth_one(model):
    x = torch.randn(3, 2)
    values = gl.neural_path_values(model, x)
    torch.testing.assert_close(gl.neural_path_features(model, x) @ values, model(x))
    assert torch.equal(values, torch.eye(2))
    assert torch.equal(gl.value_tangent_kernel(model, x), torch.zeros(2, 2))


def test_bundles_and_parameters_that_do_not_exist():
    bundles = PathBundles(nn.Sequential(nn.Conv1d(1, 1, 2), nn.ReLU()), torch.ones(1, 1, 3))
    for number, output in ((10**6, 0), (-1, 0), (0, 5)):
        with pytest.raises(InputError, match="there is no bundle"):
            bundles.weights(number, output)
    with pytest.raises(InputError, match=r"no parameter '0\.weight' is given"):
        bundles.values_of({})


def test_examples_of_another_size_are_refused_where_they_do_not_matter_too():
    with pytest.raises(InputError, match="x has 3 values per example"):
        gl.neural_path_values(gl.models.mlp([2, 3, 1]), torch.ones(1, 3))
