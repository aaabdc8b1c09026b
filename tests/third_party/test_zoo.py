"""What gatelab promises about any ReLU network, on networks that others wrote.

docs/support.md says which network supports what; a refusal passes only where the page says "refused". The cheap
networks run in the default suite, all others with the slow tests.
"""

from collections.abc import Callable
from itertools import islice
from typing import TypeVar

import pytest
import torch
from tools import support

import gatelab as gl
from gatelab.errors import GatelabError, UnsupportedModelError
from tests.third_party.networks import BY_NAME, NETWORKS, Network
from tests.third_party.random_values import estimated_kernel
from tests.third_party.witness import agree, relu_calls

pytest.importorskip("pytorchcv")
T = TypeVar("T")

LINEAR = [network for network in NETWORKS if network.is_piecewise_linear]
CURVED = [network for network in NETWORKS if not network.is_piecewise_linear]
PAGE = support.known(support.PAGE.read_text(encoding="utf-8"))
# Networks small enough for thousands of runs; two of them also run a few times in the default suite.
SMALL = "nin_cifar10 resnet20_cifar10 preresnet20_cifar10 shakedropresnet20_cifar10 densenet40_k12_bc_cifar10".split()
SMALL += "darknet_tiny squeezenet_v1_1 shufflenet_g3_wd4 mobilenetv2_wd4 dla46c".split()
DRAWS = [("preresnet20_cifar10", 100), ("darknet_tiny", 100)]
DRAWS += [pytest.param(name, 2000, marks=pytest.mark.slow) for name in SMALL]


def cases(networks: list[Network]) -> pytest.MarkDecorator:
    marks = {True: (), False: pytest.mark.slow}
    return pytest.mark.parametrize("network", [pytest.param(n, id=n.name, marks=marks[n.cheap]) for n in networks])


def page_says(network: Network, capability: str, *words: str) -> bool:
    return PAGE[network.name][capability].startswith(words)


def supported(network: Network, capability: str, call: Callable[[], T]) -> T:
    """Return the call's result; skip the test if the call is refused and the page says so."""
    if page_says(network, capability, "too"):
        pytest.skip(f"{PAGE[network.name][capability]}, as docs/support.md says")
    try:
        return call()
    except GatelabError:
        if page_says(network, capability, "refused"):
            pytest.skip("refused, as docs/support.md says")
        raise


def test_the_list_is_long_enough():
    assert len(BY_NAME) == len(NETWORKS) >= 100
    assert len(LINEAR) >= 89


@cases(LINEAR)
def test_gates_are_those_of_the_relu_calls(network):
    net, x = network.build(), network.images()
    assert agree(supported(network, "capture", lambda: gl.capture_gates(net, x)), relu_calls(net, x))


@cases(LINEAR)
def test_a_twin_with_both_copies_equal_is_the_network(network):
    net, x = network.build(), network.images()
    twin = supported(network, "dgn", lambda: gl.to_dgn(net, gl.Regime.FRNPF_DI, x=x))
    with torch.no_grad():
        assert torch.equal(twin(x), net(x))


@cases(LINEAR)
def test_a_linearly_gated_twin_runs(network):
    net, x = network.build(), network.images()
    twin = supported(network, "dlgn", lambda: gl.to_dlgn(net, x=x))
    with torch.no_grad():
        y = net(x)
        assert twin(x).shape == y.shape
        assert twin(x).dtype == y.dtype


MORE_COPIES = ("mobilenetv2_wd4",)  # of cheap networks whose estimates vary more


@pytest.mark.parametrize(
    "network",
    [
        pytest.param(n, id=n.name, marks=() if n.cheap and n.name not in MORE_COPIES else pytest.mark.slow)
        for n in LINEAR
    ],
)
def test_path_features_estimate_the_path_kernel(network):
    net, x = network.build(), network.images()
    copies, width = 16 if network.cheap and network.name not in MORE_COPIES else 48, 64
    generator = torch.Generator().manual_seed(0)
    features = supported(
        network, "features", lambda: gl.path_features(net, x, copies * width, generator, copies=copies)
    )
    exact = supported(network, "npk", lambda: gl.neural_path_kernel(net, x)).double()
    # Each copy has its own block of features, whose inner products times the number of copies estimate the kernel.
    blocks = features.double().view(2, copies, width)
    kernels = copies * torch.einsum("nck,mck->cnm", blocks, blocks)
    assert_within_error(exact, kernels.mean(dim=0), kernels.std(dim=0) / copies**0.5)


@pytest.mark.parametrize(("name", "draws"), DRAWS)
def test_random_values_estimate_the_path_kernel(name, draws):
    net, x = BY_NAME[name].build(), BY_NAME[name].images()
    exact = gl.neural_path_kernel(net, x).double()
    mean, error = estimated_kernel(net, x, draws)
    assert_within_error(exact, mean, error)


def assert_within_error(exact: torch.Tensor, mean: torch.Tensor, error: torch.Tensor) -> None:
    """Within five standard errors, which must be small enough to notice a factor of two."""
    assert ((mean - exact).abs() < 5 * error).all(), f"{exact.tolist()} against {mean.tolist()} ± {error.tolist()}"
    assert (error.diag() < 0.2 * exact.diag()).all(), f"error {error.diag().tolist()} of {exact.diag().tolist()}"


SINGLE = ("resnet20_cifar10", "darknet_tiny", "resnet18_wd4")  # in the fast suite


@pytest.mark.parametrize(
    "network",
    [
        pytest.param(network, id=network.name, marks=[pytest.mark.slow] * (network.name not in SINGLE))
        for network in LINEAR
        if network.cheap
    ],
)
def test_single_precision_gives_the_tangent_kernel_of_double_precision(network):
    single, double = network.build(torch.float32), network.build(torch.float64)
    agreeing = (image for image in network.images(8) if same_gates(single, double, image[None]))
    x = torch.stack(list(islice(agreeing, 2)))
    kernels = [
        gl.neural_tangent_kernel(net, x.to(dtype), outputs=0)
        for net, dtype in ((single, torch.float32), (double, torch.float64))
    ]
    size = kernels[1].diag().sqrt()
    assert ((kernels[0].double() - kernels[1]).abs() < 1e-5 * size * size[:, None]).all()


def same_gates(single: torch.nn.Module, double: torch.nn.Module, x: torch.Tensor) -> bool:
    """Whether rounding flips no gate of one image."""
    flips = gl.capture_gates(single, x).flips(gl.capture_gates(double, x.double()))
    return not any(flips.values())


@pytest.mark.slow
@cases([network for network in CURVED if "norm" in network.curved])
def test_statistics_between_gates_are_refused(network):
    net, x = network.build(), network.images()
    for call in (
        lambda: gl.capture_gates(net, x),
        lambda: gl.to_dgn(net, gl.Regime.FRNPF_DI, x=x),
        lambda: gl.to_dlgn(net, x=x),
        lambda: gl.neural_path_kernel(net, x),
        lambda: gl.path_features(net, x, 8),
    ):
        with pytest.raises(UnsupportedModelError):
            call()


@pytest.mark.parametrize(
    "network",
    [
        pytest.param(network, id=network.name, marks=[pytest.mark.slow] * (network.name != "seresnet10"))
        for network in CURVED
        if "norm" not in network.curved
    ],
)
def test_softly_gated_networks_have_twins(network):
    net, x = network.build().double(), network.images().double()
    assert supported(network, "capture", lambda: gl.capture_gates(net, x)).kind != "bits"
    twin = supported(network, "dgn", lambda: gl.to_dgn(net, gl.Regime.FRNPF_DI, x=x))
    with torch.no_grad():
        torch.testing.assert_close(twin(x), net(x), rtol=1e-10, atol=1e-10)


@cases([network for network in LINEAR if network.tied])
def test_tied_weights_have_no_independent_values(network):
    net, x = network.build(), network.images()
    with pytest.raises(UnsupportedModelError, match="same"):
        gl.neural_path_kernel(net, x)
