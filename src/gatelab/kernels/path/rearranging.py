"""Rearrangements of units: views, slices, shuffles, padding, transpositions."""

from collections.abc import Callable
from dataclasses import replace
from math import prod

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.fx import Node

from gatelab.errors import UnsupportedModelError
from gatelab.kernels.path.signals import Signal


def rearranged(
    signal: Signal,
    moved: Float[Tensor, "1 ..."],
    refuse: Callable[[Node, str], UnsupportedModelError],
    node: Node,
) -> Signal:
    """Apply a rearrangement to a signal.

    Args:
        signal: what is rearranged.
        moved: the numbers of the units, from 1, where they have gone; 0 where there is no unit.
        refuse: makes the error about a node.
        node: the operation.
    """
    units = moved.flatten().long() - 1
    shape = tuple(moved.shape[1:])
    if not torch.equal(units + 1.0, moved.flatten()) or len(units) == 0 or moved.shape[0] != 1:
        raise refuse(node, "it does not only move units")
    positions = signal.positions
    if len(units) % positions == 0:
        channels = _whole_channels(units.view(-1, positions))
        if channels is not None:
            size = shape[1:] if prod(shape[1:]) == positions and len(shape) > 1 else signal.size
            size = size if len(size) == len(signal.size) else signal.size
            return replace(signal.with_channels(channels), size=size)
    natural = units.view(shape[0], -1)
    sources = torch.where(natural >= 0, natural // positions, -1)
    channels = sources.max(dim=1).values
    if bool(((sources >= 0) & (sources != channels[:, None])).any()):
        raise refuse(node, "it moves units between channels and positions")
    places = torch.where(natural >= 0, natural % positions, -1)
    chosen = signal.with_channels(channels)
    alike = bool((places == places[:1]).all())
    return chosen.selected(places[None, :1] if alike else places[None], shape[1:] or signal.size, None)


def _whole_channels(units: Int[Tensor, "c p"]) -> Int[Tensor, " c"] | None:
    """The channel that each row holds, -1 for none; None if a row is not one whole channel in order."""
    positions = units.shape[1]
    first = units[:, 0]
    channels = torch.where(first >= 0, first // positions, -1)
    inside = torch.arange(positions, device=units.device)
    wanted = torch.where(channels[:, None] >= 0, channels[:, None] * positions + inside, -1)
    return channels if torch.equal(wanted, units) else None
