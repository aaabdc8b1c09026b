"""Targets on the unit circle, smooth on the upper half and rough on the lower (halfspace, Section 4)."""

from dataclasses import dataclass
from math import pi
from numbers import Integral

import torch
from jaxtyping import Float
from torch import Tensor

from gatelab.errors import InputError
from gatelab.printing import Brief


@dataclass(frozen=True, repr=False)
class Regression(Brief):
    """Inputs and real targets, split for training and test; ``title`` is the name in print."""

    title: str
    train_x: Float[Tensor, "n d"]
    train_y: Float[Tensor, " n"]
    test_x: Float[Tensor, "m d"]
    test_y: Float[Tensor, " m"]

    def inputs(self, x: Float[Tensor, "..."], dtype: torch.dtype | None = None) -> Float[Tensor, "..."]:
        """Return the inputs, in another dtype if asked."""
        return x.to(dtype or torch.get_default_dtype())


def circle_target(angle: Float[Tensor, "*shape"], low: int = 1, high: int = 8) -> Float[Tensor, "*shape"]:
    """Return y = sin(kθ) with k = ``low`` on the upper half and ``high`` on the lower; it is continuous."""
    upper = torch.remainder(angle, 2 * pi) < pi
    return torch.where(upper, (low * angle).sin(), (high * angle).sin())


def circle(points: int = 200, low: int = 1, high: int = 8) -> Regression:
    """Return evenly spaced points on the unit circle, ordered by angle; test points lie halfway between them.

    Args:
        points: number of training points, and of test points.
        low: frequency on the upper half.
        high: frequency on the lower half.

    Returns:
        Inputs (cos θ, sin θ) and targets, see :func:`circle_target`.

    Example:
        >>> data = circle(4, low=1, high=3)
        >>> [round(float(y), 3) for y in data.train_y]
        [0.707, 0.707, -0.707, -0.707]
    """
    if not all(isinstance(number, Integral) for number in (points, low, high)) or points < 2 or min(low, high) < 1:
        raise InputError(
            f"{points} points, frequencies {low} and {high}; give whole numbers, at least 2 points, frequencies from 1"
        )
    parts = []
    for shift in (0.5, 1.0):
        angle = (torch.arange(points, dtype=torch.float64) + shift) * (2 * pi / points)
        x, y = torch.stack([angle.cos(), angle.sin()], dim=1), circle_target(angle, low, high)
        parts += [x.to(torch.get_default_dtype()), y.to(torch.get_default_dtype())]
    return Regression(f"circle, frequencies {low} and {high}", parts[0], parts[1], parts[2], parts[3])
