"""Convolutional kernels at infinite width: against finite networks, dense ones, and loops over positions."""

import json
from math import sqrt
from pathlib import Path

import pytest
import torch
from torch import nn

import gatelab as gl
from gatelab.convert import Regime
from gatelab.errors import InputError
from gatelab.kernels import infinite_width_kernels
from gatelab.kernels.infinite_convolution import convolutional_kernels
from gatelab.kernels.infinite_width import fixed_gates_ntk
from gatelab.lab.measure import Mean


def network(channels: int, pooled: bool, generator: torch.Generator) -> tuple[nn.Sequential, list[float]]:
    """Two convolutions on 3 × 3 images of 2 channels and a readout, and the scale of each layer's weights."""
    scales = [sqrt(1 / 9), sqrt(2 / (9 * channels)), sqrt(2 / channels) if pooled else sqrt(2 / (9 * channels))]
    convolutions = [nn.Conv2d(a, channels, 3, padding=1, bias=False) for a in (2, channels)]
    head = [nn.AdaptiveAvgPool2d(1)] if pooled else []
    readout = nn.Linear(channels if pooled else 9 * channels, 1, bias=False)
    model = nn.Sequential(convolutions[0], nn.ReLU(), convolutions[1], nn.ReLU(), *head, nn.Flatten(), readout)
    for layer, scale in zip((*convolutions, readout), scales, strict=True):
        nn.init.normal_(layer.weight, std=scale, generator=generator)
    return model, scales


@pytest.mark.slow
@pytest.mark.parametrize("pooled", [True, False])
def test_the_mean_of_finite_networks(pooled):
    """Tangent and NNGP kernels of 2w and w channels, extrapolated; a gradient counts with its layer's scale."""
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(3, 2, 3, 3, generator=generator)

    def draw(channels):
        model, scales = network(channels, pooled, generator)
        layers = [layer for layer in model if hasattr(layer, "weight")]
        parts = [s**2 * gl.neural_tangent_kernel(model, x, wrt=layer) for s, layer in zip(scales, layers, strict=True)]
        twin = gl.to_dgn(model, Regime.FRNPF_II, gates_from=network(channels, pooled, generator)[0])
        values = [layer for layer in twin.value.modules() if hasattr(layer, "weight")]
        fixed = [s**2 * gl.neural_tangent_kernel(twin, x, wrt=layer) for s, layer in zip(scales, values, strict=True)]
        return torch.stack([parts[-1], sum(parts), sum(fixed)])

    mean = Mean.of(2 * draw(96) - draw(48) for _ in range(60))
    kernels = convolutional_kernels(x, convolutions=2, pooled=pooled)
    # The readout's own part of the tangent kernel has the NNGP kernel as its mean.
    predicted = torch.stack([kernels.nngp, kernels.ntk, kernels.fixed_gates])
    assert mean.z_score(predicted) < 5
    assert (mean.error / predicted.abs().max()).max() < 0.06, "precise enough to see a wrong layer"
    assert mean.z_score(1.5 * predicted) > 5


# Made by benchmarks/peers/neural_tangents_limits.py.
PEER = json.loads(Path(__file__).with_name("neural_tangents_limits.json").read_text())["cases"]


@pytest.mark.parametrize("name", PEER)
def test_the_values_of_neural_tangents(name):
    """Another library's exact kernels of the same networks, dense and convolutional."""
    case = PEER[name]
    x, y = torch.tensor(case["x"]), torch.tensor(case["y"])
    options = {key: case[key] for key in ("convolutions", "filter_size", "pooled")}
    dense = name.startswith("dense")
    ours = (
        infinite_width_kernels(x, y, depth=options["convolutions"] + 2)
        if dense
        else convolutional_kernels(x, y, **options)
    )
    for kernel in ("nngp", "ntk"):
        torch.testing.assert_close(getattr(ours, kernel), torch.tensor(case[kernel]), rtol=1e-9, atol=1e-11)
    # Contrasts: another readout, another depth.
    if not dense:
        other = convolutional_kernels(x, y, **{**options, "pooled": not options["pooled"]})
        assert not torch.allclose(other.ntk, torch.tensor(case["ntk"]), rtol=1e-3)


def test_one_convolution_by_loops_over_positions():
    """The first layer's covariance at every pair of positions, then one ReLU and the mean over pairs."""
    x, y = torch.randn(2, 2, 3, 4)
    padded = [nn.functional.pad(image, (1, 1, 1, 1)) for image in (x, y)]
    patches = [[image[:, i : i + 3, j : j + 3] / 3 for i in range(3) for j in range(4)] for image in padded]
    values, tangents = [], []
    for a in patches[0]:
        for b in patches[1]:
            norms, inner = a.norm() * b.norm(), (a * b).sum()
            theta = (inner / norms).arccos()
            values.append(norms * (theta.sin() + (torch.pi - theta) * theta.cos()) / torch.pi)
            tangents.append(inner * (1 - theta / torch.pi) + values[-1])
    kernels = convolutional_kernels(x[None], y[None], convolutions=1, pooled=True)
    assert kernels.nngp.item() == pytest.approx(torch.stack(values).mean().item())
    assert kernels.ntk.item() == pytest.approx(torch.stack(tangents).mean().item())


def test_one_pixel_is_a_dense_network():
    x = torch.randn(4, 5, 1, 1)
    dense = infinite_width_kernels(x, depth=4)
    for pooled in (True, False):
        kernels = convolutional_kernels(x, convolutions=3, pooled=pooled, filter_size=1)
        torch.testing.assert_close(kernels.nngp, dense.nngp, rtol=1e-7, atol=1e-9)
        torch.testing.assert_close(kernels.ntk, dense.ntk, rtol=1e-7, atol=1e-9)
        torch.testing.assert_close(kernels.fixed_gates, fixed_gates_ntk(x, depth=4), rtol=1e-7, atol=1e-9)


def test_tiles_and_blocks_agree(monkeypatch):
    x, y = torch.randn(5, 2, 4, 3), torch.randn(3, 2, 4, 3)
    whole = convolutional_kernels(x, y, convolutions=2, pooled=True)
    monkeypatch.setattr("gatelab.kernels.infinite_convolution._ENTRIES", 600)
    tiled = convolutional_kernels(x, y, convolutions=2, pooled=True)
    torch.testing.assert_close(tiled.ntk, whole.ntk)
    swapped = convolutional_kernels(y, x, convolutions=2, pooled=True)
    torch.testing.assert_close(swapped.ntk.T, whole.ntk)


@pytest.mark.parametrize(
    ("shape", "settings", "message"),
    [
        ((1, 1, 2, 2), {"filter_size": 2}, "give an odd one"),
        ((1, 1, 2, 2), {"filter_size": -1}, "filter_size is -1"),
        ((1, 1, 2, 2), {"filter_size": 3.0}, "filter_size is 3.0"),
        ((1, 1, 2, 2), {"convolutions": 0}, "convolutions is 0"),
        ((1, 1, 2, 2), {"y": torch.ones(1, 1, 3, 3, dtype=torch.float64)}, "images of shape"),
        ((1, 1, 2, 2), {"y": torch.ones(1, 1, 2, 2, dtype=torch.float32)}, "use y.to"),
        ((2, 3, 3), {}, "gray ones have one channel"),
        ((2, 0, 3, 3), {}, "none of them empty"),
    ],
)
def test_bad_input(unchecked, shape, settings, message):
    with pytest.raises(InputError, match=message):
        convolutional_kernels(torch.ones(shape), **{"convolutions": 1, "pooled": True, **settings})


def test_kernels_beyond_the_dtype_are_refused():
    with pytest.raises(InputError, match=r"larger than torch\.float32"):
        convolutional_kernels(1e25 * torch.ones(1, 1, 2, 2, dtype=torch.float32), convolutions=1, pooled=True)
