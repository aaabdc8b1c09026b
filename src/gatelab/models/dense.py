"""The fully connected ReLU network (npk, Table 1)."""

from collections.abc import Sequence

import torch
from torch import nn

from gatelab.models.init import dense_layers, initialise


def mlp(
    widths: Sequence[int],
    *,
    bias: bool = False,
    dtype: torch.dtype | None = None,
    generator: torch.Generator | None = None,
) -> nn.Sequential:
    """Return a ReLU network with Glorot weights.

    Args:
        widths: width of each layer, input first, outputs last.
        bias: whether layers have biases; they start at zero.
        dtype: of the parameters.
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
    *hidden, last = dense_layers(widths, bias, dtype)
    layers = [layer for linear in hidden for layer in (linear, nn.ReLU())]
    return initialise(nn.Sequential(*layers, last), generator)
