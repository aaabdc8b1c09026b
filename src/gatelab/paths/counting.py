"""The number of paths that contribute, exactly."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from gatelab.paths.example import one_example
from gatelab.paths.rules import layers_of
from gatelab.paths.top import ends

BASE = 2**32  # base of the digits: a sum of 2²¹ digits is exact in float64


def count_paths(model: nn.Module, x: Float[Tensor, "..."], output: int | None = None) -> int:
    """Return the number of paths that contribute to the output for one input, the most that ``top_paths`` could list.

    A path from an input node or a bias contributes if its gates are open (or have a slope), and neither its weights nor
    its start are zero. :func:`gatelab.regions.count_active_paths` counts only paths between gates, whatever
    the weights and the input are.

    Args:
        model: a network, as in :func:`gatelab.top_paths`.
        x: one example, with or without a batch axis of length one.
        output: count only paths to this output; None counts the paths to all outputs.

    Returns:
        The number, exact whatever its size.

    Example:
        >>> net = nn.Sequential(nn.Linear(2, 2, bias=False), nn.ReLU(), nn.Linear(2, 1))
        >>> _ = net[0].weight.data.copy_(torch.tensor([[1.0, 2.0], [-1.0, -2.0]]))
        >>> count_paths(net, torch.tensor([3.0, 5.0]))  # two through the open unit, and the bias of the output
        3
    """
    with torch.device("cpu"):
        layers = layers_of(model, one_example(model, x))
    counts: list[Tensor] = []  # digits in base BASE, lowest first: one row for each
    for layer in layers:
        total = (layer.constant != 0).double()[None]
        for part in layer.connections:
            total = _carried(_added(total, _carried(part.total(counts[part.source]))))
        counts.append(total)
    chosen = counts[-1][:, ends(layers[-1], output)]
    return sum(int(digit) * BASE**place for place, row in enumerate(chosen) for digit in row.tolist())


def _added(one: Float[Tensor, "a units"], other: Float[Tensor, "b units"]) -> Float[Tensor, "c units"]:
    digits = max(len(one), len(other))
    one, other = (torch.cat([part, part.new_zeros(digits - len(part), part.shape[1])]) for part in (one, other))
    return one + other


def _carried(numbers: Float[Tensor, "a units"]) -> Float[Tensor, "b units"]:
    """Carry digits until each is smaller than the base."""
    digits, carry = [], numbers.new_zeros(numbers.shape[1])
    for row in numbers:
        whole = row + carry
        carry = (whole / BASE).floor()
        digits.append(whole - carry * BASE)
    return torch.stack([*digits, carry] if bool(carry.any()) else digits)
