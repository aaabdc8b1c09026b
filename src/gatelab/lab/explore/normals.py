"""The half-spaces of a deep linearly gated network, as pictures of their normals."""

from collections.abc import Sequence
from math import prod

import numpy as np
import torch
from torch import nn

from gatelab.data.dataset import evenly
from gatelab.lab.explore.encoding import array_size
from gatelab.lab.explore.facts import ShownGates, ShownNormals
from gatelab.regions import half_spaces
from gatelab.regions.halfspace import HalfSpaceLayer


def shown_normals(
    model: nn.Module, shape: tuple[int, ...], gates: Sequence[ShownGates], most: int, room: int
) -> list[ShownNormals]:
    """Return normals and offsets of up to ``most`` units of each layer, fewer if they do not fit into ``room`` bytes.

    Raises:
        UnsupportedModelError: some gate is not a half-space of the input.
    """
    layers = half_spaces(model, shape)
    numbers = {layer.name: number for number, layer in enumerate(gates)}
    named = {name: layer for name, layer in layers.items() if name in numbers}
    share = room // max(1, len(named))
    return [_of(layer, shape, numbers[name], most, share) for name, layer in named.items()]


def _of(layer: HalfSpaceLayer, shape: tuple[int, ...], number: int, most: int, room: int) -> ShownNormals:
    filters, units = layer.filters, prod(layer.shape)
    size = prod(shape if filters is None else filters.weight.shape[1:])
    fitting = max(1, min(most, room // array_size(size, 4)))
    if filters is not None:
        channels = evenly(len(filters.weight), fitting)
        positions = prod(layer.shape[1:])
        chosen = tuple(int(channel) * positions for channel in channels)
        weight, offset = filters.weight[channels], filters.offset[channels]
        return _shown(number, chosen, weight, offset, len(filters.weight), is_filter=True)
    places = evenly(units, fitting)
    normals = layer.normals([_index(int(place), layer.shape) for place in places])
    offsets = layer.offsets.flatten()[places]
    return _shown(number, tuple(places.tolist()), normals, offsets, units, is_filter=False)


def _index(place: int, shape: tuple[int, ...]) -> int | tuple[int, ...]:
    return place if len(shape) == 1 else tuple(int(part) for part in np.unravel_index(place, shape))


def _shown(
    number: int, units: tuple[int, ...], normals: torch.Tensor, offsets: torch.Tensor, of: int, *, is_filter: bool
) -> ShownNormals:
    numbers = normals.detach().float().numpy(), offsets.detach().double().numpy()
    return ShownNormals(number, units, *numbers, of, is_filter)
