"""Rearrangements of units: views, slices, shuffles, padding, transpositions."""

from dataclasses import dataclass, replace
from math import prod

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.fx import Node

from gatelab.kernels.path.signals import Signal


@dataclass(frozen=True, eq=False)
class Moved:
    """A signal in the middle of a rearrangement that, so far, mixes channels and positions.

    Several rearrangements in a row may keep channels apart where one alone does not: view, permute and view shuffle
    channels, or turn positions into channels. They are collected and analysed together.

    Attributes:
        signal: the signal before the first of them.
        units: for each unit now, its number in the signal, or -1 for zero.
        shape: the shape of an example now.
        node: the first rearrangement.
    """

    signal: Signal
    units: Int[Tensor, " units"]
    shape: tuple[int, ...]
    node: Node


def moved(source: Signal | Moved, places: Float[Tensor, "1 ..."], node: Node) -> Signal | Moved | None:
    """Apply a rearrangement.

    Args:
        source: what is rearranged.
        places: at each new position, the number (from 1) of the source's unit that moved there; 0 for none.
        node: the operation.

    Returns:
        The signal if channels stay apart, otherwise the unfinished rearrangement; None if units are not merely moved.
    """
    units = places.flatten().long() - 1
    if not torch.equal(units + 1.0, places.flatten()) or len(units) == 0 or places.shape[0] != 1:
        return None
    if isinstance(source, Moved):
        known = torch.cat([source.units, source.units.new_tensor([-1])])  # -1 stays -1
        source, units, node = source.signal, known[units], source.node
    shape = tuple(places.shape[1:])
    settled = _settled(source, units, shape)
    return Moved(source, units, shape, node) if settled is None else settled


def _settled(signal: Signal, units: Int[Tensor, " units"], shape: tuple[int, ...]) -> Signal | None:
    """The rearranged signal; None if units move between channels and positions."""
    # With one position every unit is a whole channel, but an image that has been padded keeps its channels.
    padded = signal.positions == 1 and len(shape) == 1 + len(signal.size) > 1 and bool((units < 0).any())
    for read in (_by_axis, _by_channel) if padded else (_by_channel, _by_axis):
        settled = read(signal, units, shape)
        if settled is not None:
            return settled
    return None


def _by_channel(signal: Signal, units: Int[Tensor, " units"], shape: tuple[int, ...]) -> Signal | None:
    """The signal if whole channels were moved, whatever the shape."""
    if len(units) % signal.positions:
        return None
    channels = _whole_channels(units.view(-1, signal.positions))
    if channels is None:
        return None
    fits = prod(shape[1:]) == signal.positions and len(shape) - 1 == len(signal.size)
    return replace(signal.with_channels(channels), size=shape[1:] if fits else signal.size)


def _by_axis(signal: Signal, units: Int[Tensor, " units"], shape: tuple[int, ...]) -> Signal | None:
    """The signal if the first axis of the shape holds channels, and positions moved inside them."""
    natural = units.view(shape[0], -1)
    sources = torch.where(natural >= 0, natural // signal.positions, -1)
    channels = sources.max(dim=1).values
    if bool(((sources >= 0) & (sources != channels[:, None])).any()):
        return None
    places = torch.where(natural >= 0, natural % signal.positions, -1)
    alike = bool((places == places[:1]).all())
    chosen = signal.with_channels(channels)
    return chosen.selected(places[None, :1] if alike else places[None], shape[1:] or signal.size, None)


def _whole_channels(units: Int[Tensor, "c p"]) -> Int[Tensor, " c"] | None:
    """The channel that each row holds, -1 for none; None if a row is not one whole channel in order."""
    positions = units.shape[1]
    first = units[:, 0]
    channels = torch.where(first >= 0, first // positions, -1)
    inside = torch.arange(positions, device=units.device)
    wanted = torch.where(channels[:, None] >= 0, channels[:, None] * positions + inside, -1)
    return channels if torch.equal(wanted, units) else None
