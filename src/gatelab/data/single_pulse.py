"""The single pulse: one run of ones on a ring of zeros, whose width depends on the class (gdln, Section 1)."""

from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from gatelab.data.ring import TwoClasses, check_label, check_shape
from gatelab.errors import InputError


@dataclass(frozen=True)
class SinglePulse(TwoClasses):
    """Pulses of amplitude 1 with uniform start and uniform width; a square on a torus.

    Attributes:
        widths: least and largest width, both included, of the class y = 1 and of the class y = 0.
        shape: (n,) or (height, width).
        inverted: whether half of the examples are inverted, x → 1 − x.
        centred: whether the mean over both classes is subtracted. With inverted examples, a linear unit then cannot
            infer the class from the number of ones.

    Example:
        >>> SinglePulse(widths=((2, 2), (1, 1)), shape=(3,)).support(1).tolist()
        [[1.0, 1.0, 0.0], [0.0, 1.0, 1.0], [1.0, 0.0, 1.0]]
    """

    widths: tuple[tuple[int, int], tuple[int, int]] = ((8, 10), (2, 4))
    shape: tuple[int, ...] = (40,)
    inverted: bool = False
    centred: bool = False

    def __post_init__(self) -> None:
        check_shape(self.shape)
        if len(self.widths) != 2 or any(not isinstance(pair, Sequence) or len(pair) != 2 for pair in self.widths):
            raise InputError(f"widths are {self.widths}; give least and largest for both classes: ((8, 10), (2, 4))")
        for label, (low, high) in zip((1, 0), self.widths, strict=True):
            whole = isinstance(low, Integral) and isinstance(high, Integral)
            if not whole or not 1 <= low <= high <= min(self.shape):
                raise InputError(
                    f"class {label}: pulse widths {low} to {high} do not fit on {self.shape} sites; "
                    f"give whole numbers, 1 ≤ least ≤ largest ≤ {min(self.shape)}"
                )

    def _bounds(self, label: int) -> tuple[int, int]:
        check_label(label)
        return self.widths[1 - label]

    def _pulses(self, start: Int64[Tensor, "n axes"], width: Int64[Tensor, " n"]) -> Bool[Tensor, "n d"]:
        inside = torch.ones(len(start), 1, dtype=torch.bool, device=start.device)
        for axis, size in enumerate(self.shape):
            offset = (torch.arange(size, device=start.device) - start[:, axis, None]) % size
            inside = (inside[:, :, None] & (offset < width[:, None])[:, None, :]).flatten(1)
        return inside

    def _draw(self, label: int, count: int, generator: torch.Generator | None, dtype: torch.dtype) -> Tensor:
        low, high = self._bounds(label)
        device = None if generator is None else generator.device
        width = torch.randint(low, high + 1, (count,), generator=generator, device=device)
        starts = [torch.randint(size, (count,), generator=generator, device=device) for size in self.shape]
        x = self._pulses(torch.stack(starts, dim=1), width)
        if self.inverted:
            inverted = torch.randint(2, (count, 1), generator=generator, device=device)
            x = x ^ inverted.bool()
        return x.to(dtype).sub_(self.shift)

    def support(self, label: int) -> Float[Tensor, "s d"]:
        """Return all examples of a class, which are equally likely, in float64."""
        return self._plain_support(label) - self.shift

    @property
    def shift(self) -> float:
        """The value that is subtracted from every site."""
        if not self.centred:
            return 0.0
        return sum(self._plain_support(label)[:, 0].mean().item() for label in (0, 1)) / 2

    def _plain_support(self, label: int) -> Float[Tensor, "s d"]:
        low, high = self._bounds(label)
        grids = [torch.arange(low, high + 1), *(torch.arange(size) for size in self.shape)]
        places = torch.cartesian_prod(*grids)
        x = self._pulses(places[:, 1:], places[:, 0]).double()
        return torch.cat([x, 1 - x]) if self.inverted else x

    def mean(self, label: int) -> float:
        """Return the mean share of covered sites (½ if half of the examples are inverted), minus the shift."""
        return self.support(label)[:, 0].mean().item()

    def correlation(self, label: int) -> Float[Tensor, "*shape"]:
        """Return ⟨x_0 x_j⟩, averaged over the support."""
        x = self.support(label)
        return (x[:, :1] * x).mean(dim=0).view(self.shape)
