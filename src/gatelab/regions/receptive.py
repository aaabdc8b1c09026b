"""Receptive fields: the window of the input that a unit of a convolutional layer sees."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor
from torch.fx import Node

from gatelab.gates.pooling import per_axis
from gatelab.network.network import Network
from gatelab.network.operations import CONVOLUTIONS, TRANSPOSED, Kind
from gatelab.network.padding import paddings

_PASSING = frozenset({Kind.NORMALISATION, Kind.DROPOUT, Kind.PASSING})


@dataclass(frozen=True)
class ReceptiveField:
    """The window that a unit at position p sees along each axis: it begins at start + p · step and is ``size`` long.

    Attributes:
        start: where the window of position 0 begins; negative if it reaches into the padding.
        size: the window's length.
        step: how far the window moves from one position to the next.
    """

    start: tuple[int, ...]
    size: tuple[int, ...]
    step: tuple[int, ...]

    def is_interior(self, position: tuple[int, ...], image: tuple[int, ...]) -> bool:
        """Whether the window lies inside the image, so the unit sees no padding of any layer."""
        first = (start + p * step for start, p, step in zip(self.start, position, self.step, strict=True))
        return all(
            begin >= 0 and begin + size <= extent for begin, size, extent in zip(first, self.size, image, strict=True)
        )

    def through(self, kernel: tuple[int, ...], stride: tuple[int, ...], padding: tuple[int, ...]) -> "ReceptiveField":
        """Return the field behind windows of this size (dilation included), stride and padding."""
        return ReceptiveField(
            tuple(start - pad * step for start, pad, step in zip(self.start, padding, self.step, strict=True)),
            tuple(size + (k - 1) * step for size, k, step in zip(self.size, kernel, self.step, strict=True)),
            tuple(step * s for step, s in zip(self.step, stride, strict=True)),
        )

    def joined(self, other: "ReceptiveField") -> "ReceptiveField | None":
        """Return the smallest field that contains both; None if their steps differ."""
        if self.step != other.step:
            return None
        start = tuple(map(min, self.start, other.start))
        ends = (max(a + m, b + n) for a, m, b, n in zip(self.start, self.size, other.start, other.size, strict=True))
        return ReceptiveField(start, tuple(end - begin for end, begin in zip(ends, start, strict=True)), self.step)


def receptive_field(
    network: Network, nodes: list[Node], constants: Mapping[Node, Any], inputs: tuple[int, ...]
) -> ReceptiveField | None:
    """Return the field of the last of these nodes; None if it is not one fixed window.

    Args:
        network: the network as it was read.
        nodes: the nodes from the input to it, in order.
        constants: values that these nodes use and that do not depend on the data.
        inputs: the shape of one example, (c, *positions).
    """
    fields: dict[Node, ReceptiveField | None] = {}
    axes = len(inputs) - 1
    for node in nodes:
        sources = [fields[source] for source in node.all_input_nodes if source in fields]
        even = all(_is_even(constants[source], axes) for source in node.all_input_nodes if source in constants)
        fields[node] = _behind(network, node, sources, axes) if even else None
    return fields[nodes[-1]]


def _is_even(constant: Any, axes: int) -> bool:
    """Whether a constant is the same at every position; weights are, whatever their shape."""
    return not isinstance(constant, Tensor) or all(size == 1 for size in constant.shape[-axes:])


def _behind(network: Network, node: Node, sources: list[ReceptiveField | None], axes: int) -> ReceptiveField | None:
    if node.op == "placeholder":
        return ReceptiveField((0,) * axes, (1,) * axes, (1,) * axes)
    field, kind = sources[0] if sources else None, network.kind(node)
    if field is None or kind in _PASSING:
        return field
    if kind in (Kind.WEIGHT, Kind.SPATIAL):
        return _behind_windows(network, node, field, axes)
    negation = kind is Kind.SCALE and "other" not in network.call(node).arguments
    joins = kind is Kind.CONCATENATION and network.call(node)["dim"] in (1, -1 - axes)
    if not (kind is Kind.SUM or negation or joins):
        return None
    for other in sources[1:]:
        field = None if field is None or other is None else field.joined(other)
    return field


def _behind_windows(network: Network, node: Node, field: ReceptiveField, axes: int) -> ReceptiveField | None:
    call = network.call(node)
    if call.operation in CONVOLUTIONS - TRANSPOSED:
        weight = call["weight"]
        shape = weight.meta["shape"] if isinstance(weight, Node) else weight.shape
        sizes = tuple(shape[2:])
        kernel = tuple(d * (k - 1) + 1 for d, k in zip(per_axis(call["dilation"], axes), sizes, strict=True))
        around = paddings(call, sizes)
        return field.through(kernel, per_axis(call["stride"], axes), tuple(before for before, _ in around))
    if "kernel_size" not in call.arguments:
        return None
    kernel = per_axis(call["kernel_size"], axes)  # of an average; only maxima, which have no field, dilate windows
    stride = per_axis(call["stride"] or kernel, axes)
    return field.through(kernel, stride, per_axis(call["padding"], axes))
