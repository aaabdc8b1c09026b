"""The pixels that each unit of a network sees, as boxes of the image."""

from collections.abc import Sequence

import torch
from jaxtyping import Int
from torch import Tensor

from gatelab.paths.connections import LinkFilter, LinkTable, PathLayer

NOTHING = 2**30  # the first row of a unit that sees no pixel


def seen_boxes(layers: Sequence[PathLayer]) -> list[Int[Tensor, "units 4"]] | None:
    """Return the smallest box of the image that holds all pixels with a connection to each unit, layer by layer.

    A box is first row, first column, last row, last column. Connections count whatever their weights are. A unit that
    sees no pixel has a first row of ``NOTHING``.

    Args:
        layers: of :func:`gatelab.paths.rules.layers_of`, with ``all_open=True``, so that a maximum sees its window.

    Returns:
        The boxes, or None if the input is no image of channels, rows and columns.
    """
    found: list[Tensor] = []
    for layer in layers:
        if layer.starts:
            if len(layer.shape) not in (2, 3):
                return None
            height, width = layer.shape[-2:]
            unit = torch.arange(len(layer.constant))
            row, column = unit // width % height, unit % width
            found.append(torch.stack([row, column, -row, -column], 1))
            continue
        # Last rows are kept with a minus, so that one minimum serves all four.
        reached = torch.full((len(layer.constant), 4), NOTHING)
        for part in layer.connections:
            reached = torch.minimum(reached, _through(part, found[part.source], len(reached)))
        found.append(reached)
    return [torch.cat([box[:, :2], -box[:, 2:]], 1) for box in found]


def _through(part: LinkTable | LinkFilter, source: Int[Tensor, "inputs 4"], units: int) -> Int[Tensor, "units 4"]:
    nothing = torch.full((1, 4), NOTHING)
    if isinstance(part, LinkTable):
        return torch.cat([source, nothing])[part.index].amin(1)
    by_group = source[part.inputs].unflatten(0, (part.groups, -1)).amin(1)  # g, p, 4
    padded = torch.cat([by_group, nothing.expand(part.groups, 1, 4)], 1)
    windows = padded[:, part.columns].amin(2)  # g, q, 4
    boxes = torch.full((units, 4), NOTHING)
    boxes[part.outputs] = windows.repeat_interleave(len(part.weight) // part.groups, 0)
    return boxes
