"""Rules of the path kernel for operations that move units: views, slices, shuffles, padding; joining what they cut."""

from math import isfinite, prod
from typing import Any

import torch
from torch import Tensor
from torch.fx import Node

from gatelab.kernels.path.reading import Reading, Value
from gatelab.kernels.path.rearranging import Moved, moved
from gatelab.kernels.path.signals import Signal, input_signal
from gatelab.network.evaluation import run_node, run_on
from gatelab.network.padding import written


def rearrangement(reading: Reading, node: Node, signals: dict[Node, Value]) -> Value:
    """Move the units of a signal; the input itself is moved as numbers."""
    source = next(source for source in node.all_input_nodes if source in signals)
    value = signals[source]
    if isinstance(value, tuple):  # one of several results
        place = node.args[1]
        if not isinstance(place, int) or place >= len(value):
            raise reading.refuse(node, "it takes the winners of a maximum, which are not a signal")
        return value[place]
    shape = source.meta["shape"][1:]
    if isinstance(value, Signal) and is_whole_input(value):
        made = _rearranged(reading, node, images_of(value, source))
        return tuple(map(input_signal, made)) if isinstance(made, tuple | list) else input_signal(made)
    # Each unit carries its number, so the result shows where it went; 0 means no unit.
    numbers = torch.arange(1, prod(shape) + 1, dtype=torch.float64, device=reading.x.device).view(1, *shape)
    places = _rearranged(reading, node, numbers)
    parts = [moved(value, part, node) for part in (places if isinstance(places, tuple | list) else [places])]
    known = tuple(part for part in parts if part is not None)
    if len(known) < len(parts):
        raise reading.refuse(node, "it does not only move units")
    return known if isinstance(places, tuple | list) else known[0]


def _rearranged(reading: Reading, node: Node, images: Tensor) -> Any:
    """Run a rearrangement, with zero in place of a constant that it writes: no path starts there."""
    made = run_on(node, reading.network.model, images)
    constant = written(reading.network.call(node))
    if not constant:
        return made
    if reading.biases and isfinite(constant):  # padding by -inf never wins the maximum that follows
        raise reading.refuse(node, "it pads with a constant, from which paths have no rule; use biases=False")
    zeros, ones = (run_on(node, reading.network.model, torch.full_like(images, number)) for number in (0, 1))
    return made.masked_fill(zeros == ones, 0)


def is_whole_input(signal: Signal) -> bool:
    """Whether a signal is nothing but the input, whose values are known."""
    return len(signal.terms) == 1 and signal.is_input and len(signal.terms[0].channels) == signal.channels


def images_of(value: Value, node: Node) -> Tensor:
    """The values of an input signal, in the shape of its node."""
    assert isinstance(value, Signal)
    return value.terms[0].multiplier.reshape(-1, *node.meta["shape"][1:]).contiguous()


def joined_while_moving(reading: Reading, node: Node, signals: dict[Node, Value]) -> Value:
    """Join pieces of one signal that rearrangements have cut, before they are analysed as a whole."""
    pieces = {source: signals[source] for source in node.all_input_nodes if source in signals}
    bases = {id(piece.signal) for piece in pieces.values() if isinstance(piece, Moved)}
    if len(bases) != 1 or not all(isinstance(piece, Moved) for piece in pieces.values()):
        raise reading.refuse(node, "it joins signals whose channels and positions are mixed")
    numbers = {
        source: (piece.units + 1.0).double().view(1, *piece.shape)
        for source, piece in pieces.items()
        if isinstance(piece, Moved)
    }
    places = run_node(node, reading.network.model, lambda source: numbers[source])
    first = next(piece for piece in pieces.values() if isinstance(piece, Moved))
    joined = moved(first.signal, places, first.node)
    if joined is None:
        raise reading.refuse(node, "it does not only move units")
    return joined
