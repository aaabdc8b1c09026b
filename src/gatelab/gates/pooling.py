"""Max-pooling as a gate: each window passes one input, the winner."""

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.overrides import handle_torch_function, has_torch_function

from gatelab.errors import InputError


@dataclass(frozen=True)
class MaxPool:
    """The windows of a max-pooling; each tuple has one entry per position axis."""

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    ceil_mode: bool = False

    @property
    def axes(self) -> int:
        """Number of position axes."""
        return len(self.kernel)

    def positions(self, sizes: tuple[int, ...]) -> Int[Tensor, "*windows taps"]:
        """Return the flat position of each window's taps in an image of this size; −1 in the padding.

        Example:
            >>> MaxPool((2,), (2,), (0,), (1,)).positions((4,)).tolist()
            [[0, 1], [2, 3]]
        """
        windows = self.winners(torch.empty(1, 1, *sizes, device="meta")).shape[2:]
        flat, inside = torch.zeros((), dtype=torch.int64), torch.ones((), dtype=torch.bool)
        for axis, size in enumerate(sizes):
            window, tap = torch.arange(windows[axis]), torch.arange(self.kernel[axis])
            place = window[:, None] * self.stride[axis] - self.padding[axis] + tap * self.dilation[axis]
            shape = [1] * 2 * self.axes
            shape[axis], shape[self.axes + axis] = len(window), len(tap)
            flat = flat * size + place.view(shape)
            inside = inside & ((place >= 0) & (place < size)).view(shape)
        return torch.where(inside, flat, -1).flatten(self.axes)

    def winners(self, q: Float[Tensor, "n c *positions"]) -> Int[Tensor, "n c *windows"]:
        """Return the flat position of the largest input in each window."""
        _check_axes(q, self.axes)
        pool = getattr(F, f"max_pool{self.axes}d_with_indices")
        return pool(q, self.kernel, self.stride, self.padding, self.dilation, self.ceil_mode)[1]

    def winning_taps(self, q: Float[Tensor, "n c *positions"]) -> Bool[Tensor, "n c *windows taps"]:
        """Return the winner of each window as a one-hot vector over the window's taps."""
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
    """Max-pooling to a given number of windows along each axis (None: one window per position)."""

    output: tuple[int | None, ...]

    @property
    def axes(self) -> int:
        """Number of position axes."""
        return len(self.output)

    def winners(self, q: Float[Tensor, "n c *positions"]) -> Int[Tensor, "n c *windows"]:
        """Return the flat position of the largest input in each window."""
        _check_axes(q, self.axes)
        pool = getattr(F, f"adaptive_max_pool{self.axes}d_with_indices")
        return pool(q, self._output(q))[1]

    def windows(self, q: Float[Tensor, "n c *positions"]) -> MaxPool | None:
        """Return the same pooling with fixed windows, or None if the windows differ in size."""
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
            f"max-pooling over {axes} axes got a tensor of shape {tuple(q.shape)}; it must be (examples, channels, …)"
        )


def per_axis(value: Any, axes: int) -> tuple[Any, ...]:
    """Return one size per axis, from one size for all axes or one for each."""
    if value is None or isinstance(value, int):
        return (value,) * axes
    return tuple(value) * (axes if len(value) == 1 else 1)


def gated_max_pool(
    value: Float[Tensor, "n c *positions"], q: Float[Tensor, "n c *positions"], pool: MaxPool | AdaptiveMaxPool
) -> Float[Tensor, "n c *windows"]:
    """Take from each window of ``value`` the element at the position that wins in another network's ``q``.

    A deep gated network uses this operation where a ReLU network has its max-pooling. Like
    :func:`gatelab.gates.gated`, it appears as one operation to gate capture and torch.fx.
    """
    if has_torch_function((value, q)):
        return handle_torch_function(gated_max_pool, (value, q), value, q, pool)
    return take(value, pool.winners(q))


def take(value: Float[Tensor, "n c *positions"], winners: Int[Tensor, "n c *windows"]) -> Float[Tensor, "n c *windows"]:
    """Return the value at the winning position of each window."""
    return value.flatten(2).gather(2, winners.flatten(2)).view(winners.shape)
