"""Receptive fields: the window of the input that a unit of a convolutional layer sees."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn
from torch.fx import Node
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.conv import _ConvNd, _ConvTransposeNd
from torch.nn.modules.dropout import _DropoutNd

from gatelab.gates.pooling import per_axis
from gatelab.network.nodes import node_operation
from gatelab.regions.interpreter import argument

_POOLING = (nn.AvgPool1d, nn.AvgPool2d, nn.AvgPool3d)
_SUMS = frozenset({"add", "radd", "iadd", "sub", "isub", "subtract", "neg"})
_JOINTS = frozenset({"cat", "concat", "concatenate"})


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
    nodes: list[Node], modules: Mapping[str, nn.Module], constants: Mapping[Node, Any], inputs: tuple[int, ...]
) -> ReceptiveField | None:
    """Return the field of the last of these nodes; None if it is not one fixed window.

    Args:
        nodes: the nodes from the input to it, in order.
        modules: the model's modules by path.
        constants: values that these nodes use and that do not depend on the data.
        inputs: the shape of one example, (c, *positions).
    """
    fields: dict[Node, ReceptiveField | None] = {}
    axes = len(inputs) - 1
    for node in nodes:
        sources = [fields[source] for source in node.all_input_nodes if source in fields]
        even = all(_is_even(constants[source], axes) for source in node.all_input_nodes if source in constants)
        fields[node] = _behind(node, sources, modules, axes) if even else None
    return fields[nodes[-1]]


def _is_even(constant: Any, axes: int) -> bool:
    """Whether a constant is the same at every position."""
    return not isinstance(constant, Tensor) or all(size == 1 for size in constant.shape[-axes:])


def _behind(
    node: Node, sources: list[ReceptiveField | None], modules: Mapping[str, nn.Module], axes: int
) -> ReceptiveField | None:
    if node.op == "placeholder":
        return ReceptiveField((0,) * axes, (1,) * axes, (1,) * axes)
    field = sources[0] if sources else None
    if field is None:
        return None
    if node.op == "call_module":
        return _behind_module(field, modules[str(node.target)], axes)
    if node_operation(node) not in _SUMS and not _joins_channels(node, axes):
        return None
    for other in sources[1:]:
        field = None if field is None or other is None else field.joined(other)
    return field


def _joins_channels(node: Node, axes: int) -> bool:
    """Whether a node concatenates images along the axis of channels, and not along one of positions."""
    return node_operation(node) in _JOINTS and argument(node, 1, "dim", 0) in (1, -1 - axes)


def _behind_module(field: ReceptiveField, module: nn.Module, axes: int) -> ReceptiveField | None:
    if isinstance(module, _BatchNorm | _DropoutNd | nn.Identity):
        return field
    if isinstance(module, _ConvTransposeNd):
        return None
    if isinstance(module, _ConvNd) and len(module.kernel_size) == axes:
        kernel = tuple(d * (k - 1) + 1 for d, k in zip(module.dilation, module.kernel_size, strict=True))
        padding = module.padding
        if isinstance(padding, str):  # 'same' pads by half of the kernel, the smaller half first
            padding = tuple((k - 1) // 2 if padding == "same" else 0 for k in kernel)
        return field.through(kernel, module.stride, padding)
    if isinstance(module, _POOLING):
        kernel, stride, padding = (per_axis(v, axes) for v in (module.kernel_size, module.stride, module.padding))
        return field.through(kernel, stride, padding) if len(kernel) == axes else None
    return None
