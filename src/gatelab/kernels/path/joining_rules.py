"""Rules of the path kernel for operations that join signals: sums, concatenations, means over branches."""

from dataclasses import replace
from math import prod

import torch
from torch.fx import Node

from gatelab.kernels.path.moving_rules import images_of, is_whole_input, joined_while_moving
from gatelab.kernels.path.reading import Reading, Value
from gatelab.kernels.path.rearranging import Moved
from gatelab.kernels.path.signals import Signal, input_signal
from gatelab.network.evaluation import run_node
from gatelab.network.operations import DIFFERENCES


def sum_of_signals(reading: Reading, node: Node, signals: dict[Node, Value]) -> Signal:
    """Add the terms of both signals; a constant starts no path."""
    call = reading.network.call(node)
    scale = -float(call["alpha"]) if call.operation in DIFFERENCES else float(call["alpha"])
    parts = []
    for place, argument in enumerate((call["input"], call["other"])):
        if isinstance(argument, Node) and argument in signals:
            part = reading.signal(argument, signals)
            if argument.meta["shape"] != node.meta["shape"]:
                raise reading.refuse(node, "it adds signals of different shapes")
            parts.append(part.scaled(scale) if place and scale != 1 else part)
        elif reading.biases:
            raise reading.refuse(node, "it adds a constant, from which paths have no rule; use biases=False")
    if len(parts) == 1:
        return parts[0]
    if (parts[0].channels, parts[0].positions) != (parts[1].channels, parts[1].positions):
        raise reading.refuse(node, "it adds signals whose channels do not correspond")
    return parts[0].plus(parts[1])


def concatenation(reading: Reading, node: Node, signals: dict[Node, Value]) -> Value:
    """Put the channels of signals side by side."""
    call = reading.network.call(node)
    parts, dim = call["tensors"], call["dim"]
    axes = len(node.meta["shape"])
    found = [signals.get(part) for part in parts] if isinstance(parts, list | tuple) else []
    if any(isinstance(value, Moved) for value in found):
        return joined_while_moving(reading, node, signals)
    if all(isinstance(value, Signal) and is_whole_input(value) for value in found):
        images = {part: images_of(signals[part], part) for part in parts}
        return input_signal(run_node(node, reading.network.model, images.__getitem__))
    if call.operation == "stack" and dim == 0:  # branches side by side, to be averaged
        return tuple(reading.signal(part, signals) for part in parts)
    if not isinstance(parts, list | tuple) or not isinstance(dim, int) or dim % axes != 1:
        raise reading.refuse(node, "only signals side by side on axis 1 have a path-kernel rule")
    first = next(reading.signal(part, signals) for part in parts if part in signals)
    total: Signal | None = None
    for part in parts:
        assert isinstance(part, Node)
        if part in signals:
            signal = reading.signal(part, signals)
        else:  # a constant: no path starts there
            if reading.biases and bool(torch.as_tensor(reading.network.constant(part)).any()):
                raise reading.refuse(node, "it joins a constant, from which paths have no rule; use biases=False")
            signal = replace(first, terms=(), channels=part.meta["shape"][1])
        if signal.positions != first.positions or signal.channels * signal.positions != prod(part.meta["shape"][1:]):
            raise reading.refuse(node, "it joins signals with different positions")
        total = signal if total is None else total.beside(signal)
    assert total is not None
    return replace(total, size=first.size)


def mean_of_branches(reading: Reading, node: Node, branches: tuple[Signal | Moved, ...]) -> Signal:
    """The mean or sum over an axis on which signals were stacked."""
    call = reading.network.call(node)
    if call.operation not in ("mean", "sum") or call["dim"] not in (0, (0,), [0]):
        raise reading.refuse(node, "of signals side by side only the mean or sum has a path-kernel rule")
    total: Signal | None = None
    for branch in branches:
        assert isinstance(branch, Signal)
        total = branch if total is None else total.plus(branch)
    assert total is not None
    return total.scaled(1 / len(branches)) if call.operation == "mean" else total
