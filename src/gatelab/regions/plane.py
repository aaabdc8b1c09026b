"""Planes through input space, and boxes on them."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite

import torch
from jaxtyping import Float
from torch import Tensor

from gatelab.errors import InputError

Bounds = Sequence[Sequence[float]]


@dataclass(frozen=True)
class Plane:
    """The points origin + s · first + t · second; of the shape of one example.

    Example:
        >>> Plane.through(torch.zeros(3), torch.tensor([1.0, 0, 0]), torch.tensor([0, 2.0, 0])).at(
        ...     torch.tensor([[0.5, 0.5]])).tolist()
        [[0.5, 1.0, 0.0]]
    """

    origin: Float[Tensor, "..."]
    first: Float[Tensor, "..."]
    second: Float[Tensor, "..."]

    def __post_init__(self) -> None:
        """Refuse what is not a plane."""
        shapes = {tuple(part.shape) for part in (self.origin, self.first, self.second)}
        if len(shapes) > 1:
            raise InputError(
                f"a plane's origin and directions have shapes {', '.join(map(str, sorted(shapes)))}; give the shape of "
                "one example to all three"
            )
        if not all(bool(torch.isfinite(part).all()) for part in (self.origin, self.first, self.second)):
            raise InputError("the plane's origin or directions hold NaN or infinite values")
        directions = torch.stack([self.first.flatten(), self.second.flatten()]).double()
        if int(torch.linalg.matrix_rank(directions)) < 2:
            raise InputError("the plane's two directions are zero or parallel; give two that span a plane")

    @classmethod
    def through(cls, a: Float[Tensor, "..."], b: Float[Tensor, "..."], c: Float[Tensor, "..."]) -> "Plane":
        """The plane through three points, at (0, 0), (1, 0) and (0, 1)."""
        return cls(a, b - a, c - a)

    @classmethod
    def of_inputs(cls) -> "Plane":
        """The plane of all inputs, for a network with two."""
        eye = torch.eye(2, dtype=torch.float64)
        return cls(torch.zeros(2, dtype=torch.float64), eye[0], eye[1])

    def at(self, points: Float[Tensor, "n 2"]) -> Float[Tensor, "n ..."]:
        """The inputs at these coordinates (s, t)."""
        origin, directions = self.flat(points)
        return (origin + points @ directions).unflatten(1, self.origin.shape)

    def flat(self, like: Tensor) -> tuple[Float[Tensor, " d"], Float[Tensor, "2 d"]]:
        """Origin and directions as flat vectors, in another tensor's dtype and on its device."""
        return self.origin.flatten().to(like), torch.stack([self.first.flatten(), self.second.flatten()]).to(like)


def checked_bounds(bounds: Bounds, axes: int) -> tuple[tuple[float, float], ...]:
    """A box as ((low, high), …), or a refusal."""
    sides = tuple(tuple(float(end) for end in side) for side in bounds)
    if len(sides) != axes or any(len(side) != 2 for side in sides):
        raise InputError(f"bounds are {bounds}; give (low, high) for each of {axes} axes")
    if not all(isfinite(low) and isfinite(high) and low < high for low, high in sides):
        raise InputError(f"bounds are {bounds}; every low must lie below its high, both finite")
    return tuple((low, high) for low, high in sides)
