"""Averages, sums and interpolations: which units each unit reads, found by running the operation on single units."""

from math import prod

import torch
from torch import Tensor
from torch.fx import Node

from gatelab.errors import UnsupportedModelError
from gatelab.gates.pooling import AdaptiveMaxPool, MaxPool, take
from gatelab.paths.connections import LinkTable, table_of
from gatelab.paths.reading import PathReading

BLOCK = 2**22  # entries of a block of images with one unit each
LIMIT = 2**30  # the largest number of connections to try


def linear_table(reading: PathReading, node: Node, source: Node) -> LinkTable:
    """Return the connections of an operation that is linear and treats all examples alike.

    An operation that treats all channels alike runs on one channel only.
    """
    rows, *shape = reading.shape(source)
    alone = len(shape) > 1 and _treats_channels_alike(reading, node, source)
    blocks, size = (rows * shape[0], (1, *shape[1:])) if alone else (rows, tuple(shape))
    inputs, units = prod(size), prod(reading.shape(node)) // blocks
    if inputs * units > LIMIT:
        raise reading.refuse(
            node, f"it may join any of {inputs} units with any of {units}, too many to try; pool channels separately"
        )
    found: list[tuple[Tensor, Tensor, Tensor]] = []
    step = max(1, BLOCK // max(inputs, units))
    for start in range(0, inputs, step):
        numbers = torch.arange(start, min(start + step, inputs))
        images = torch.zeros(len(numbers), inputs).double()
        images[torch.arange(len(numbers)), numbers] = 1
        answers = _run(reading, node, source, images.view(-1, *size))
        if answers.numel() != len(numbers) * units:
            raise _mixes(reading, node)
        answers = answers.reshape(len(numbers), units)
        image, unit = answers.nonzero().T
        found.append((unit, numbers[image], answers[image, unit]))
    unit, number, value = (torch.cat(parts) for parts in zip(*found, strict=True))
    index, factor = table_of(unit, number, value, units)
    shift = torch.arange(blocks)[:, None, None] * inputs  # the same in every channel
    table = LinkTable(
        reading.numbers[source], torch.where(index >= 0, index + shift, -1).flatten(0, 1), factor.repeat(blocks, 1)
    )
    _check(reading, node, source, table)
    return table


def window_table(reading: PathReading, source: Node, pool: MaxPool | AdaptiveMaxPool) -> LinkTable:
    """Return a table in which each window of a max-pooling reads all of its units.

    A unit that is larger than all others wins in every window that it belongs to.
    """
    rows, channels, *size = reading.shape(source)
    inputs = prod(size)
    alone = torch.eye(inputs).double().view(inputs, 1, *size)
    member = take(alone, pool.winners(alone)).flatten(1)  # unit, window
    number, window = member.nonzero().T
    index, factor = table_of(window, number, torch.ones(len(window)).double(), member.shape[1])
    shift = torch.arange(rows * channels)[:, None, None] * inputs  # the same in every channel
    return LinkTable(
        reading.numbers[source],
        torch.where(index >= 0, index + shift, -1).flatten(0, 1),
        factor.repeat(rows * channels, 1),
    )


def _check(reading: PathReading, node: Node, source: Node, table: LinkTable) -> None:
    """Refuse an operation that a table does not describe, such as a mean over examples."""
    signals = torch.rand(source.meta["shape"], generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    answers = reading.first(_run(reading, node, source, signals))
    expected = table.applied(reading.first(signals))
    if answers.shape != expected.shape or not torch.allclose(answers, expected):
        raise _mixes(reading, node)


def _mixes(reading: PathReading, node: Node) -> UnsupportedModelError:
    return reading.refuse(node, "it mixes examples; keep them apart, on the first axis")


def _treats_channels_alike(reading: PathReading, node: Node, source: Node) -> bool:
    size = reading.shape(source)[2:]
    images = torch.rand(1, 2, *size, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    together, apart = (_run(reading, node, source, part) for part in (images, images.transpose(0, 1)))
    return together.numel() == apart.numel() and torch.allclose(together.flatten(), apart.flatten())


def _run(reading: PathReading, node: Node, source: Node, images: Tensor) -> Tensor:
    return reading.run(node, {source: images.to(reading.value(source).device)}).cpu()
