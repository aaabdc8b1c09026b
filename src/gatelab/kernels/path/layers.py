"""Weight layers as the path kernel uses them: fan in, groups, and what a convolution reads."""

from collections.abc import Mapping
from typing import Any

import torch
from jaxtyping import Bool, Int
from torch import Tensor
from torch.fx import Node

from gatelab.errors import UnsupportedModelError
from gatelab.gates.pooling import per_axis
from gatelab.kernels.path.pairs import Filter, Geometry, Taps
from gatelab.kernels.path.planning import WeightLayer
from gatelab.kernels.path.signals import Signal
from gatelab.network.evaluation import attribute, run_node
from gatelab.network.network import Network
from gatelab.network.nodes import ancestors
from gatelab.network.operations import TRANSPOSED
from gatelab.network.padding import paddings

Used = Mapping[str, Bool[Tensor, " _"]]  # parameter -> which of its entries


def layer_of(network: Network, node: Node, signal: Signal) -> tuple[WeightLayer, Used]:
    """Read a weight layer.

    Args:
        network: the model.
        node: a dense layer or a convolution, as a module or a function.
        signal: what reaches it.

    Returns:
        The layer, with weights of variance 1 / fan in and biases of variance 1, and which entries of which parameters
        it uses.
    """
    call = network.call(node)
    shape, bias, parameters = _weight(network, node)
    inputs = call["input"].meta["shape"]
    if call.operation == "linear":
        if len(inputs) != 2 or signal.channels * signal.positions != shape[1]:
            raise UnsupportedModelError(
                f"{network.where(node)} takes {shape[1]} units where each example has shape {tuple(inputs[1:])}: it is "
                "shared over positions, for which there is no path-kernel rule; flatten the examples first"
            )
        return WeightLayer(signal, shape[0], 1, 1 / shape[1], bias, None), parameters
    transposed = call.operation in TRANSPOSED
    axes, groups, mode = len(shape) - 2, int(call["groups"]), call["padding_mode"]
    if (signal.channels, signal.size) != (inputs[1], tuple(inputs[2:])):
        raise UnsupportedModelError(f"{network.where(node)}: channels and positions of its input have been mixed")
    taps = torch.Size(shape[2:]).numel()
    channels = shape[1] * groups if transposed else shape[0]
    fan_in = (shape[0] // groups if transposed else shape[1]) * taps
    reads = _transposed_reads if transposed else _plain_reads
    names = ("stride", "dilation", "output_padding") if transposed else ("stride", "dilation")
    sizes = {name: per_axis(call[name], axes) for name in names}
    around = paddings(call, tuple(shape[2:]))
    lines = tuple(
        reads(
            inputs[2 + axis],
            shape[2 + axis],
            {name: value[axis] for name, value in sizes.items()},
            around[axis],
            mode,
        )
        for axis in range(axes)
    )
    device = signal.terms[0].channels.device if signal.terms else torch.device("cpu")
    plain = None
    if not transposed and mode == "zeros":
        before = tuple(padding[0] for padding in around)
        plain = Filter(tuple(shape[2:]), sizes["stride"], before, sizes["dilation"])
    taps = tuple(Taps(line.to(device), length) for line, length in zip(lines, inputs[2:], strict=True))
    geometry = Geometry(taps, plain)
    return WeightLayer(signal, channels, groups, 1 / fan_in, bias, geometry), parameters


def _weight(network: Network, node: Node) -> tuple[tuple[int, ...], float, Used]:
    """Shape of the weight, whether there is a bias (as its variance), and the entries of parameters that it uses."""
    call = network.call(node)
    weight, bias = call["weight"], float(call["bias"] is not None)
    if isinstance(weight, Tensor):  # a module's own
        name = _first_name(network, weight)
        used = {} if name is None else {name: torch.ones(weight.numel(), dtype=torch.bool)}
        return tuple(weight.shape), bias, used
    return tuple(weight.meta["shape"]), bias, _entries_used(network, weight)


def _entries_used(network: Network, weight: Node) -> Used:
    """The entries of parameters that a weight is computed from: a part if it is a slice of one, otherwise all."""
    sources = [node for node in ancestors(weight) if node.op == "get_attr" and "constant" not in node.meta]
    held = {node: attribute(network.model, str(node.target)) for node in sources}
    names = {node: name for node in sources if (name := _first_name(network, held[node])) is not None}
    used = {names[node]: torch.ones(held[node].numel(), dtype=torch.bool) for node in names}
    if len(sources) == len(names) == 1:
        (node,) = names
        numbers = torch.arange(1, held[node].numel() + 1, dtype=torch.float64).view(held[node].shape)

        def value(source: Node) -> Any:
            return numbers if source is node else run_node(source, network.model, value)

        moved = value(weight).flatten()
        entries = moved.round().long().clamp(0, numbers.numel())
        if torch.equal(entries.double(), moved):
            chosen = torch.zeros(numbers.numel() + 1, dtype=torch.bool)
            chosen[entries] = True
            used[names[node]] = chosen[1:]
    return used


def _first_name(network: Network, held: Any) -> str | None:
    """The first name of a parameter, which several layers may share; None for buffers."""
    return next((name for name, parameter in network.model.named_parameters() if parameter is held), None)


def _plain_reads(
    inputs: int, taps: int, sizes: dict[str, int], padding: tuple[int, int], mode: str
) -> Int[Tensor, "taps out"]:
    stride, dilation = sizes["stride"], sizes["dilation"]
    outputs = (inputs + sum(padding) - dilation * (taps - 1) - 1) // stride + 1
    tap = torch.arange(taps)[:, None] * dilation
    reads = torch.arange(outputs)[None] * stride + tap - padding[0]
    if mode == "circular":
        return reads % inputs
    if mode == "replicate":
        return reads.clamp(0, inputs - 1)
    if mode == "reflect":
        return (inputs - 1) - ((inputs - 1) - reads.abs()).abs()
    return torch.where((reads >= 0) & (reads < inputs), reads, -1)


def _transposed_reads(
    inputs: int, taps: int, sizes: dict[str, int], padding: tuple[int, int], mode: str
) -> Int[Tensor, "taps out"]:
    del mode
    stride, dilation = sizes["stride"], sizes["dilation"]
    outputs = (inputs - 1) * stride - sum(padding) + dilation * (taps - 1) + sizes["output_padding"] + 1
    place = torch.arange(outputs)[None] + padding[0] - torch.arange(taps)[:, None] * dilation
    source = place // stride
    return torch.where((place % stride == 0) & (source >= 0) & (source < inputs), source, -1)
