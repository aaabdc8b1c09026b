"""The fully connected ReLU network (npk, Table 1)."""

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import nn

from gatelab.errors import InputError
from gatelab.models.init import initialise


def mlp(
    widths: Sequence[int],
    *,
    bias: bool = False,
    dtype: torch.dtype | None = None,
    generator: torch.Generator | None = None,
) -> nn.Sequential:
    """A ReLU network with the given widths, input first, Glorot-initialised.

    Example:
        >>> mlp([2, 3, 1])
        Sequential(
          (0): Linear(in_features=2, out_features=3, bias=False)
          (1): ReLU()
          (2): Linear(in_features=3, out_features=1, bias=False)
        )
    """
    if len(widths) < 2 or min(widths) < 1:
        raise InputError(
            f"widths are {list(widths)}; give at least input and output, all positive, e.g. [784, 128, 10]"
        )
    layers: list[nn.Module] = []
    for fan_in, fan_out in pairwise(widths):
        layers += [nn.Linear(fan_in, fan_out, bias=bias, dtype=dtype), nn.ReLU()]
    net = nn.Sequential(*layers[:-1])
    initialise(net, generator)
    return net
