"""The convolutional ReLU networks of the papers."""

from collections.abc import Sequence

import torch
from torch import nn

from gatelab.errors import InputError
from gatelab.models.init import initialise


def vconv(
    *,
    channels: Sequence[int] = (64, 64, 128, 128),
    dense: Sequence[int] = (256, 256),
    inputs: tuple[int, int, int] = (3, 32, 32),
    outputs: int = 10,
    bias: bool = True,
    generator: torch.Generator | None = None,
) -> nn.Sequential:
    """The vanilla CNN of npk, Appendix B: 3×3 convolutions that keep the size, flattened into dense layers.

    The paper's "stride of (3, 3)" is the kernel's size; its authors' code has stride 1.
    """
    _, height, width = inputs
    body = _convolutions(inputs[0], channels, bias)
    return _with_head([*body, nn.Flatten()], channels[-1] * height * width, dense, outputs, bias, generator)


def gconv(
    *,
    channels: Sequence[int] = (64, 64, 128, 128),
    dense: Sequence[int] = (256, 256),
    inputs: int = 3,
    outputs: int = 10,
    bias: bool = True,
    generator: torch.Generator | None = None,
) -> nn.Sequential:
    """VCONV with global average pooling between the convolutions and the dense layers (npk, Appendix B)."""
    body = [*_convolutions(inputs, channels, bias), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return _with_head(body, channels[-1], dense, outputs, bias, generator)


def halfspace_cnn(
    *,
    layers: int = 5,
    filters: int = 26,
    dense: int = 64,
    inputs: int = 3,
    outputs: int = 10,
    bias: bool = True,
    generator: torch.Generator | None = None,
) -> nn.Sequential:
    """The CNN of halfspace, Table 1: 5 convolutions of 26 filters, global average pooling, one dense layer of 64."""
    if layers < 1:
        raise InputError(f"layers is {layers}; the network needs at least one convolution")
    return gconv(
        channels=[filters] * layers, dense=[dense], inputs=inputs, outputs=outputs, bias=bias, generator=generator
    )


def _convolutions(inputs: int, channels: Sequence[int], bias: bool) -> list[nn.Module]:
    if not channels or min(channels) < 1:
        raise InputError(f"channels are {list(channels)}; give at least one positive number")
    layers: list[nn.Module] = []
    for before, after in zip([inputs, *channels[:-1]], channels, strict=True):
        layers += [nn.Conv2d(before, after, 3, padding=1, bias=bias), nn.ReLU()]
    return layers


def _with_head(
    body: list[nn.Module],
    features: int,
    dense: Sequence[int],
    outputs: int,
    bias: bool,
    generator: torch.Generator | None,
) -> nn.Sequential:
    head: list[nn.Module] = []
    for before, after in zip([features, *dense[:-1]], dense, strict=True):
        head += [nn.Linear(before, after, bias=bias), nn.ReLU()]
    head.append(nn.Linear(dense[-1] if dense else features, outputs, bias=bias))
    net = nn.Sequential(*body, *head)
    initialise(net, generator)
    return net
