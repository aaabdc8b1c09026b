"""Weight layers as filters: which units each unit reads, and with which weights."""

from math import prod
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor
from torch.fx import Node

from gatelab.gates.pooling import per_axis
from gatelab.network.calls import Call
from gatelab.network.operations import TRANSPOSED
from gatelab.network.padding import paddings
from gatelab.paths.connections import LinkFilter
from gatelab.paths.reading import PathReading


def filter_of(reading: PathReading, node: Node, source: Node) -> tuple[LinkFilter, Float[Tensor, " units"] | None]:
    """Return a weight layer as a filter, and the bias of each of its units."""
    weight, bias, options = _given(reading, node)
    shape, out = reading.shape(source), reading.shape(node)
    dense, transposed = reading.network.operation(node) == "linear", False
    if dense:
        inputs, outputs = (torch.arange(prod(size)).view(-1, size[-1]).T for size in (shape, out))
        columns, groups = torch.arange(inputs.shape[1])[:, None], 1
    else:
        if len(shape) != weight.ndim:
            raise reading.refuse(node, f"it takes one example of shape {shape} without a batch axis; add one")
        inputs, outputs, groups = _by_channel(shape), _by_channel(out), options["groups"]
        transposed = reading.network.operation(node) in TRANSPOSED
        columns = (_transposed_reads if transposed else _plain_reads)(shape, out, weight, options)
        if transposed:  # (in, out / groups, …) to (out, in / groups, …)
            weight = weight.unflatten(0, (groups, -1)).transpose(1, 2).flatten(0, 1)
    constant = None
    if bias is not None:
        constant = torch.empty(outputs.numel()).double()
        constant[outputs] = bias[:, None].expand(outputs.shape)
    return LinkFilter(
        reading.numbers[source],
        weight.flatten(1),
        inputs,
        columns,
        outputs,
        groups,
        not dense,
        transposed,
        _names(reading, node),
    ), constant


def _names(reading: PathReading, node: Node) -> tuple[str | None, str | None]:
    """The first names of weight and bias, which several layers may share; None if they are not parameters."""
    own = {id(parameter): name for name, parameter in reading.network.model.named_parameters()}
    call = reading.network.call(node)
    weight, bias = (own.get(id(reading.value(call[name]))) for name in ("weight", "bias"))
    return weight, bias


def _given(reading: PathReading, node: Node) -> tuple[Tensor, Tensor | None, dict[str, Any]]:
    """Weight and bias in float64, and the options of a convolution."""
    call = reading.network.call(node)
    given = {name: reading.value(value) for name, value in call.arguments.items() if name != "input"}
    weight, bias = (
        None if part is None else part.detach().double().cpu() for part in (given["weight"], given.get("bias"))
    )
    assert weight is not None
    return weight, bias, given


def _by_channel(shape: tuple[int, ...]) -> Int[Tensor, "c p"]:
    """The numbers of the units of a shape (rows, channels, …), by channel and position; positions include rows."""
    return torch.arange(prod(shape)).view(*shape[:2], -1).transpose(0, 1).flatten(1)


def _plain_reads(
    shape: tuple[int, ...], out: tuple[int, ...], weight: Tensor, options: dict[str, Any]
) -> Int[Tensor, "q taps"]:
    """Convolve the numbers of the positions with one unit filter for each tap; the result shows what each tap reads."""
    del out
    numbers, taps = _numbered(shape), weight[0, 0].numel()
    padding = options["padding"]
    if options["padding_mode"] != "zeros":
        around = paddings(Call("conv", options), tuple(weight.shape[2:]))
        numbers = F.pad(numbers, [size for sides in reversed(around) for size in sides], mode=options["padding_mode"])
        padding = 0
    units = torch.eye(taps).double().view(taps, 1, *weight.shape[2:])
    convolve = (F.conv1d, F.conv2d, F.conv3d)[weight.ndim - 3]
    return _as_columns(convolve(numbers, units, None, options["stride"], padding, options["dilation"]))


def _transposed_reads(
    shape: tuple[int, ...], out: tuple[int, ...], weight: Tensor, options: dict[str, Any]
) -> Int[Tensor, "q taps"]:
    """The same for a transposed convolution; no two taps of one output position read the same input."""
    taps, axes = weight[0, 0].numel(), weight.ndim - 2
    stride, padding, dilation = (per_axis(options[name], axes) for name in ("stride", "padding", "dilation"))
    units = torch.eye(taps).double().view(1, taps, *weight.shape[2:])
    # A caller may request an output size, from which the padding then follows.
    rest = tuple(
        out[2 + axis]
        - ((shape[2 + axis] - 1) * stride[axis] - 2 * padding[axis] + dilation[axis] * (weight.shape[2 + axis] - 1) + 1)
        for axis in range(axes)
    )
    convolve = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)[axes - 1]
    return _as_columns(convolve(_numbered(shape), units, None, stride, padding, rest, 1, dilation))


def _numbered(shape: tuple[int, ...]) -> Float[Tensor, "rows 1 ..."]:
    """Return an image whose positions hold their numbers, from 1; 0 means no position."""
    rows, _, *size = shape
    return torch.arange(1, rows * prod(size) + 1).double().view(rows, 1, *size)


def _as_columns(read: Float[Tensor, "rows taps ..."]) -> Int[Tensor, "q taps"]:
    return read.flatten(2).transpose(1, 2).flatten(0, 1).round().long() - 1
