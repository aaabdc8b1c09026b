"""Max-pooling as a gate: in each window one input, the winner, is let through."""

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.overrides import handle_torch_function, has_torch_function

from gatelab.errors import InputError

_WITH_INDICES = {1: F.max_pool1d_with_indices, 2: F.max_pool2d_with_indices, 3: F.max_pool3d_with_indices}
_ADAPTIVE = {
    1: F.adaptive_max_pool1d_with_indices,
    2: F.adaptive_max_pool2d_with_indices,
    3: F.adaptive_max_pool3d_with_indices,
}


@dataclass(frozen=True)
class MaxPool:
    """The windows of a max-pooling; sizes are given for each axis of the positions."""

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    ceil_mode: bool = False

    def winners(self, q: Float[Tensor, "n c *positions"]) -> Int[Tensor, "n c *windows"]:
        """The place of each window's largest input, counted through all positions."""
        _check_axes(q, len(self.kernel))
        pool = _WITH_INDICES[len(self.kernel)]
        return pool(q, self.kernel, self.stride, self.padding, self.dilation, self.ceil_mode)[1]

    def winning_taps(self, q: Float[Tensor, "n c *positions"]) -> Bool[Tensor, "n c *windows taps"]:
        """The winner among the window's taps, one-hot."""
        winners = self.winners(q)
        tap, rest, scale = torch.zeros_like(winners), winners, 1
        for axis in reversed(range(len(self.kernel))):
            coordinate, rest = rest % q.shape[2 + axis], rest // q.shape[2 + axis]
            shape = [1] * winners.ndim
            shape[2 + axis] = -1
            window = torch.arange(winners.shape[2 + axis], device=winners.device).view(shape)
            start = window * self.stride[axis] - self.padding[axis]
            tap += (coordinate - start) // self.dilation[axis] * scale
            scale *= self.kernel[axis]
        return F.one_hot(tap, scale).bool()


@dataclass(frozen=True)
class AdaptiveMaxPool:
    """Max-pooling to a given number of windows along each axis (None: one for each position)."""

    output: tuple[int | None, ...]

    def winners(self, q: Float[Tensor, "n c *positions"]) -> Int[Tensor, "n c *windows"]:
        """The place of each window's largest input, counted through all positions."""
        _check_axes(q, len(self.output))
        return _ADAPTIVE[len(self.output)](q, self._output(q))[1]

    def windows(self, q: Float[Tensor, "n c *positions"]) -> MaxPool | None:
        """The same pooling with windows of one size; None if they differ in size."""
        output, sizes = self._output(q), q.shape[2:]
        if any(size % out for size, out in zip(sizes, output, strict=True)):
            return None
        kernel = tuple(size // out for size, out in zip(sizes, output, strict=True))
        return MaxPool(kernel, kernel, (0,) * len(kernel), (1,) * len(kernel))

    def _output(self, q: Tensor) -> tuple[int, ...]:
        return tuple(size if out is None else out for size, out in zip(q.shape[2:], self.output, strict=True))


def _check_axes(q: Tensor, axes: int) -> None:
    if q.ndim != axes + 2:
        raise InputError(
            f"max-pooling over {axes} axes met a tensor of shape {tuple(q.shape)}; it must be (examples, channels, …)"
        )


def pooling_of(axes: int, options: dict[str, Any]) -> MaxPool | AdaptiveMaxPool:
    """The pooling that a module's attributes or a function's arguments describe."""
    if "output_size" in options:
        return AdaptiveMaxPool(per_axis(options["output_size"], axes))
    kernel = per_axis(options["kernel_size"], axes)
    return MaxPool(
        kernel,
        per_axis(options.get("stride") or kernel, axes),
        per_axis(options.get("padding", 0), axes),
        per_axis(options.get("dilation", 1), axes),
        bool(options.get("ceil_mode", False)),
    )


def per_axis(value: Any, axes: int) -> tuple[Any, ...]:
    """A size for each axis, from one for all or one for each."""
    if value is None or isinstance(value, int):
        return (value,) * axes
    return tuple(value) * (axes if len(value) == 1 else 1)


def gated_max_pool(
    value: Float[Tensor, "n c *positions"], q: Float[Tensor, "n c *positions"], pool: MaxPool | AdaptiveMaxPool
) -> Float[Tensor, "n c *windows"]:
    """Take from each window of ``value`` the element that wins in another network's ``q``.

    In a deep gated network this stands where a ReLU network has its max-pooling. Like :func:`gatelab.gates.gated` it is
    one operation to gate capture and torch.fx.
    """
    if has_torch_function((value, q)):
        return handle_torch_function(gated_max_pool, (value, q), value, q, pool)
    return take(value, pool.winners(q))


def take(value: Float[Tensor, "n c *positions"], winners: Int[Tensor, "n c *windows"]) -> Float[Tensor, "n c *windows"]:
    """The value at each window's winner."""
    return value.flatten(2).gather(2, winners.flatten(2)).view(winners.shape)
