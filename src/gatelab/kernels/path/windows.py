"""The windows of a max-pooling: which position of the field each window takes."""

from math import prod

import torch
from jaxtyping import Int
from torch import Tensor
from torch.fx import Node

from gatelab.errors import UnsupportedModelError
from gatelab.gates.layer import GateLayer
from gatelab.gates.pooling import AdaptiveMaxPool, MaxPool
from gatelab.kernels.path.axes import Reach
from gatelab.network.network import Network


def winners_of(
    network: Network, node: Node, layer: GateLayer, size: tuple[int, ...]
) -> tuple[Int[Tensor, "#n #c p"], tuple[int, ...], tuple[Reach, ...]]:
    """Return the winning positions of a max-pooling, the number of windows along each axis, and their reach.

    Args:
        network: the model.
        node: the max-pooling.
        layer: its gates: for each window, the winning tap.
        size: positions of its input, along each axis.
    """
    pool = network.gating(node).pool
    assert pool is not None
    windows = layer.shape[1:-1]
    taps = layer.gates().int().argmax(dim=-1)  # n, c, *windows
    if size and set(windows) == {1} and layer.shape[-1] == prod(size):  # one window takes all, also behind a flatten
        return taps.flatten(2), (1,) * len(size), tuple(Reach(length, 0, length - 1) for length in size)
    if len(size) != pool.axes:
        raise UnsupportedModelError(f"{network.where(node)}: its input is not an image with {pool.axes} axes")
    if isinstance(pool, AdaptiveMaxPool):
        kernel = tuple(length // windows for length, windows in zip(size, layer.shape[1:-1], strict=True))
        pool = MaxPool(kernel, kernel, (0,) * len(kernel), (1,) * len(kernel))
    flat, rest = torch.zeros_like(taps), taps
    weight = 1
    for axis in reversed(range(pool.axes)):
        tap, rest = rest % pool.kernel[axis], rest // pool.kernel[axis]
        view = [1] * taps.ndim
        view[2 + axis] = -1
        start = torch.arange(windows[axis], device=taps.device).view(view) * pool.stride[axis] - pool.padding[axis]
        flat = flat + (start + tap * pool.dilation[axis]) * weight
        weight *= size[axis]
    reach = tuple(
        Reach(stride, -padding, -padding + dilation * (kernel - 1))
        for stride, padding, dilation, kernel in zip(pool.stride, pool.padding, pool.dilation, pool.kernel, strict=True)
    )
    return flat.flatten(2), tuple(windows), reach
