"""The plain networks of the papers: dense, linear, and convolutional with a dense head."""

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import nn

from gatelab.errors import InputError
from gatelab.models.init import Start, check_counts, check_widths, dense_layers, initialise


def mlp(
    widths: Sequence[int],
    *,
    bias: bool = False,
    dtype: torch.dtype | None = None,
    start: Start = Start.GLOROT,
    generator: torch.Generator | None = None,
) -> nn.Sequential:
    """Return a ReLU network.

    Args:
        widths: width of each layer, input first, outputs last.
        bias: whether layers have biases.
        dtype: of the parameters.
        start: how weights and biases are drawn.
        generator: source of the weights.

    Returns:
        Alternating ``nn.Linear`` and ``nn.ReLU`` layers.

    Example:
        >>> mlp([2, 3, 1])
        Sequential(
          (0): Linear(in_features=2, out_features=3, bias=False)
          (1): ReLU()
          (2): Linear(in_features=3, out_features=1, bias=False)
        )
    """
    return _with_head([], widths, bias, dtype, start, generator)


def dln(
    widths: Sequence[int],
    *,
    bias: bool = False,
    dtype: torch.dtype | None = None,
    start: Start = Start.GLOROT,
    generator: torch.Generator | None = None,
) -> nn.Sequential:
    """Return a deep linear network: all gates are always open (npk, Section 3.1; halfspace, Table 1).

    Args:
        widths: width of each layer, input first, outputs last.
        bias: whether layers have biases.
        dtype: of the parameters.
        start: how weights and biases are drawn.
        generator: source of the weights.

    Returns:
        ``nn.Linear`` layers.

    Example:
        >>> len(dln([4, 3, 2]))
        2
    """
    return initialise(nn.Sequential(*dense_layers(widths, bias, dtype)), generator, start)


def vconv(
    *,
    channels: Sequence[int] = (64, 64, 128, 128),
    dense: Sequence[int] = (256, 256),
    inputs: tuple[int, int, int] = (3, 32, 32),
    outputs: int = 10,
    bias: bool = True,
    start: Start = Start.GLOROT,
    generator: torch.Generator | None = None,
) -> nn.Sequential:
    """Return the vanilla CNN of npk, Appendix B: 3×3 convolutions that keep the size, then dense layers.

    The paper's "stride of (3, 3)" is the size of the kernel; its authors' code has stride 1.

    Args:
        channels: channels of each convolution.
        dense: widths of the hidden dense layers.
        inputs: channels, height and width of an image.
        outputs: number of outputs.
        bias: whether layers have biases.
        start: how weights and biases are drawn.
        generator: source of the weights.

    Returns:
        The network.

    Example:
        >>> vconv(channels=[4], dense=[8], inputs=(1, 6, 6))(torch.zeros(2, 1, 6, 6)).shape
        torch.Size([2, 10])
    """
    if not isinstance(inputs, Sequence) or len(inputs) != 3:
        raise InputError(f"inputs are {inputs!r}; give channels, height and width of an image, e.g. (3, 32, 32)")
    planes, height, width = inputs
    check_counts(height=height, width=width, outputs=outputs)
    body = [*_convolutions(planes, channels, bias), nn.Flatten()]
    return _with_head(body, [channels[-1] * height * width, *dense, outputs], bias, None, start, generator)


def gconv(
    *,
    channels: Sequence[int] = (64, 64, 128, 128),
    dense: Sequence[int] = (256, 256),
    inputs: int = 3,
    outputs: int = 10,
    bias: bool = True,
    start: Start = Start.GLOROT,
    generator: torch.Generator | None = None,
) -> nn.Sequential:
    """Return :func:`vconv` with global average pooling before the dense layers (npk, Appendix B).

    Args:
        channels: channels of each convolution.
        dense: widths of the hidden dense layers.
        inputs: channels of an image.
        outputs: number of outputs.
        bias: whether layers have biases.
        start: how weights and biases are drawn.
        generator: source of the weights.

    Returns:
        The network.

    Example:
        >>> gconv(channels=[4], dense=[8])(torch.zeros(2, 3, 9, 9)).shape
        torch.Size([2, 10])
    """
    check_counts(outputs=outputs)
    body = [*_convolutions(inputs, channels, bias), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return _with_head(body, [channels[-1], *dense, outputs], bias, None, start, generator)


def halfspace_cnn(
    *,
    layers: int = 5,
    filters: int = 26,
    dense: int = 64,
    inputs: int = 3,
    outputs: int = 10,
    bias: bool = True,
    start: Start = Start.GLOROT,
    generator: torch.Generator | None = None,
) -> nn.Sequential:
    """Return the CNN of halfspace, Table 1: convolutions, global average pooling, one hidden dense layer.

    Args:
        layers: number of convolutions.
        filters: channels of each convolution.
        dense: width of the hidden dense layer.
        inputs: channels of an image.
        outputs: number of outputs.
        bias: whether layers have biases.
        start: how weights and biases are drawn.
        generator: source of the weights.

    Returns:
        The network.

    Example:
        >>> len([layer for layer in halfspace_cnn() if isinstance(layer, nn.ReLU)])
        6
    """
    check_counts(layers=layers, filters=filters, dense=dense)
    return gconv(
        channels=[filters] * layers,
        dense=[dense],
        inputs=inputs,
        outputs=outputs,
        bias=bias,
        start=start,
        generator=generator,
    )


def _convolutions(inputs: int, channels: Sequence[int], bias: bool) -> list[nn.Module]:
    check_counts(inputs=inputs)
    check_widths("channels", channels, 1, "[64, 128]")
    layers: list[nn.Module] = []
    for before, after in pairwise([inputs, *channels]):
        layers += [nn.Conv2d(before, after, 3, padding=1, bias=bias), nn.ReLU()]
    return layers


def _with_head(
    body: list[nn.Module],
    widths: Sequence[int],
    bias: bool,
    dtype: torch.dtype | None,
    start: Start,
    generator: torch.Generator | None,
) -> nn.Sequential:
    """End a body with dense layers, a ReLU between any two, and draw the weights."""
    *hidden, last = dense_layers(widths, bias, dtype)
    head = [layer for linear in hidden for layer in (linear, nn.ReLU())]
    return initialise(nn.Sequential(*body, *head, last), generator, start)
