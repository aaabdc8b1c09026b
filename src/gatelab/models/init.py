"""Initial weights. Randomness is always an argument."""

from collections.abc import Sequence
from enum import StrEnum
from itertools import pairwise
from math import sqrt
from numbers import Integral
from typing import TypeVar

import torch
from torch import Tensor, nn

from gatelab.errors import InputError

_Network = TypeVar("_Network", bound=nn.Module)


@torch.no_grad()
def bernoulli_(weight: Tensor, sigma: float, generator: torch.Generator | None = None) -> Tensor:
    """Fill with +σ or −σ, each with probability ½ (npk, Assumption 5.1)."""
    signs = torch.randint(2, weight.shape, generator=generator, device=weight.device)
    return weight.copy_(signs.to(weight.dtype).mul_(2).sub_(1).mul_(sigma))


@torch.no_grad()
def glorot_(weight: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """Fill uniformly with variance 2 / (fan in + fan out)."""
    fan_in, fan_out = fans(weight)
    bound = sqrt(6 / (fan_in + fan_out))
    return weight.uniform_(-bound, bound, generator=generator)


@torch.no_grad()
def he_(weight: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """Fill with Gaussians of variance 2 / fan in."""
    return weight.normal_(0.0, sqrt(2 / fans(weight)[0]), generator=generator)


def fans(weight: Tensor) -> tuple[int, int]:
    """Return fan in and fan out of a dense (out, in) or convolutional (out, in, *taps) weight.

    Example:
        >>> fans(torch.empty(8, 3, 5, 5))
        (75, 200)
    """
    taps = weight[0, 0].numel()
    return weight.shape[1] * taps, weight.shape[0] * taps


class Start(StrEnum):
    """How weights are drawn before training.

    Attributes:
        PYTORCH: weights and biases uniform in ±1/√fan in, PyTorch's default.
        GLOROT: uniform with variance 2/(fan in + fan out), zero biases; npk's experiments.
        KAIMING: Gaussian with variance 2/fan in, zero biases.
        SIGNS: ±√(2/fan in), zero biases; npk, Assumption 5.1.
    """

    PYTORCH = "pytorch"
    GLOROT = "glorot"
    KAIMING = "kaiming"
    SIGNS = "signs"


@torch.no_grad()
def initialise(
    model: _Network, generator: torch.Generator | None = None, start: Start | str = Start.GLOROT
) -> _Network:
    """Redraw the weights of every Linear and Conv layer.

    Args:
        model: the network, changed in place.
        generator: source of the weights; None uses torch's global generator.
        start: the distribution, or its name.

    Returns:
        The same network.

    Raises:
        InputError: there is no such start; the message lists them.

    Example:
        >>> layer = initialise(nn.Linear(4, 3), start=Start.SIGNS)
        >>> layer.weight.abs().unique().numel(), layer.bias.tolist()
        (1, [0.0, 0.0, 0.0])
    """
    if start not in set(Start):
        raise InputError(f"start is {start!r}; it must be one of {', '.join(Start)}")
    start = Start(start)
    for module in model.modules():
        if isinstance(module, nn.Linear | nn.Conv1d | nn.Conv2d | nn.Conv3d):
            _draw(module.weight, start, generator)
            if module.bias is not None:
                bound = fans(module.weight)[0] ** -0.5 if start is Start.PYTORCH else 0.0
                module.bias.uniform_(-bound, bound, generator=generator) if bound else module.bias.zero_()
    return model


def _draw(weight: Tensor, start: Start, generator: torch.Generator | None) -> Tensor:
    if start is Start.PYTORCH:
        bound = fans(weight)[0] ** -0.5
        return weight.uniform_(-bound, bound, generator=generator)
    if start is Start.SIGNS:
        return bernoulli_(weight, sqrt(2 / fans(weight)[0]), generator)
    return he_(weight, generator) if start is Start.KAIMING else glorot_(weight, generator)


def check_counts(**counts: int) -> None:
    """Raise InputError unless every argument is a whole number, at least 1.

    Example:
        >>> try:
        ...     check_counts(dim=3, units=0)
        ... except InputError as error:
        ...     print(error)
        units is 0; give a whole number, at least 1
    """
    for name, count in counts.items():
        if not isinstance(count, Integral) or count < 1:
            raise InputError(f"{name} is {count!r}; give a whole number, at least 1")


def check_widths(what: str, widths: Sequence[int], least: int, example: str) -> None:
    """Raise InputError unless ``widths`` is a sequence of at least ``least`` positive whole numbers."""
    whole = isinstance(widths, Sequence) and all(isinstance(width, Integral) for width in widths)
    if not whole or len(widths) < least or min(widths, default=1) < 1:
        raise InputError(f"{what} are {widths!r:.200}; give at least {least} positive whole numbers, e.g. {example}")


def dense_layers(widths: Sequence[int], bias: bool, dtype: torch.dtype | None) -> list[nn.Linear]:
    """Return the layers of a fully connected network with the given widths, input first."""
    check_widths("widths", widths, 2, "[784, 128, 10]")
    return [nn.Linear(before, after, bias=bias, dtype=dtype) for before, after in pairwise(widths)]
