"""Initial weights. Randomness is always an argument."""

from collections.abc import Sequence
from itertools import pairwise
from math import sqrt
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


def initialise(model: _Network, generator: torch.Generator | None = None) -> _Network:
    """Set Glorot weights and zero biases in every Linear and Conv layer, as in npk's experiments."""
    for module in model.modules():
        if isinstance(module, nn.Linear | nn.Conv1d | nn.Conv2d | nn.Conv3d):
            glorot_(module.weight, generator)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
    return model


def dense_layers(widths: Sequence[int], bias: bool, dtype: torch.dtype | None) -> list[nn.Linear]:
    """Return the layers of a fully connected network with the given widths, input first."""
    whole = isinstance(widths, Sequence) and all(isinstance(width, int) for width in widths)
    if not whole or len(widths) < 2 or min(widths) < 1:
        raise InputError(f"widths are {widths}; give at least input and output, all positive, e.g. [784, 128, 10]")
    return [nn.Linear(before, after, bias=bias, dtype=dtype) for before, after in pairwise(widths)]
