import pytest
import torch
from torch import nn

import gatelab as gl
from gatelab.errors import InputError
from gatelab.models import gconv, halfspace_cnn, resnet, vconv
from gatelab.models.residual import ResidualBlock
from tests.references import explicit


def count(model) -> int:
    return sum(p.numel() for p in model.parameters())


def test_vconv_and_gconv_have_the_papers_sizes():
    convolutions = (3 * 64 + 64 * 64 + 64 * 128 + 128 * 128) * 9 + 64 + 64 + 128 + 128
    head = 256 * 256 + 256 + 256 * 10 + 10
    with torch.device("meta"):  # 34 million weights that need no memory
        assert count(gconv()) == convolutions + 128 * 256 + 256 + head
        assert count(vconv()) == convolutions + 128 * 32 * 32 * 256 + 256 + head
    assert gconv()(torch.randn(2, 3, 8, 8)).shape == (2, 10)


def test_half_space_cnn():
    model = halfspace_cnn()
    assert [m.out_channels for m in model if isinstance(m, nn.Conv2d)] == [26] * 5
    assert model(torch.randn(2, 3, 16, 16)).shape == (2, 10)


@pytest.mark.parametrize(("depth", "weights"), [(20, 20), (34, 34), (110, 110)])
def test_resnets_are_as_deep_as_they_say(depth, weights):
    with torch.device("meta"):
        model = resnet(depth)
    main_path = [
        name for name, m in model.named_modules() if isinstance(m, nn.Conv2d | nn.Linear) and "shortcut" not in name
    ]
    assert len(main_path) == weights


def test_resnet20_runs_and_shows_its_gates():
    model = resnet(20, generator=torch.Generator().manual_seed(0)).eval()
    x = torch.randn(2, 3, 16, 16)
    pattern = gl.capture_gates(model, x)
    assert len(pattern) == 19
    assert pattern["blocks.0.relu1"].shape == (2, 16, 16, 16)
    assert model(x).shape == (2, 10)


def test_residual_block_adds_its_shortcut():
    block, x = ResidualBlock(3, 3).eval(), torch.randn(2, 3, 5, 5)
    nn.init.zeros_(block.conv2.weight)
    torch.testing.assert_close(block(x), torch.relu(x))
    assert ResidualBlock(3, 4, stride=2)(torch.randn(2, 3, 6, 6)).shape == (2, 4, 3, 3)


def test_tangent_kernel_of_small_versions():
    small = {"channels": (2, 3), "dense": (4,), "outputs": 2}
    x = torch.randn(3, 3, 4, 4)
    for model in (gconv(**small), vconv(inputs=(3, 4, 4), **small)):
        torch.testing.assert_close(
            gl.neural_tangent_kernel(model, x, outputs="full"), explicit.tangent_kernel(model, x)
        )


def test_initialisation_is_reproducible():
    a, b = (gconv(channels=(4,), dense=(4,), generator=torch.Generator().manual_seed(1)) for _ in range(2))
    assert all(torch.equal(p, q) for p, q in zip(a.parameters(), b.parameters(), strict=True))


@pytest.mark.parametrize("make", [lambda: resnet(21), lambda: gconv(channels=()), lambda: halfspace_cnn(layers=0)])
def test_impossible_networks_are_refused(make):
    with pytest.raises(InputError):
        make()
