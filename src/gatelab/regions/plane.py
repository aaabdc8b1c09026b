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
        refuse_others_than_tensors(origin=self.origin, first=self.first, second=self.second)
        shapes = {tuple(part.shape) for part in (self.origin, self.first, self.second)}
        if len(shapes) > 1:
            raise InputError(
                f"a plane's origin and directions have shapes {', '.join(map(str, sorted(shapes)))}; give the shape of "
                "one example to all three"
            )
        if not all(bool(torch.isfinite(part).all()) for part in (self.origin, self.first, self.second)):
            raise InputError("the plane's origin or directions hold NaN or infinite values")
        self._refuse_a_line(_rounding(self.first), _rounding(self.second))

    @classmethod
    def through(cls, a: Float[Tensor, "..."], b: Float[Tensor, "..."], c: Float[Tensor, "..."]) -> "Plane":
        """The plane through three points, at (0, 0), (1, 0) and (0, 1).

        Raises:
            InputError: they lie on a line, but for the rounding of their own dtype.
        """
        refuse_others_than_tensors(a=a, b=b, c=c)
        if not a.shape == b.shape == c.shape:
            raise InputError(f"a, b and c have shapes {a.shape}, {b.shape}, {c.shape}; give the shape of one example")
        origin, first, second = a.double(), b.double() - a.double(), c.double() - a.double()
        plane = cls(origin, first, second)
        errors = (_rounding(a) * origin.norm() + _rounding(point) * point.double().norm() for point in (b, c))
        plane._refuse_a_line(*(float(error / way.norm()) for error, way in zip(errors, (first, second), strict=True)))
        return plane

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

    def _refuse_a_line(self, first: float, second: float) -> None:
        """Refuse directions that are parallel if each may be wrong by so much of its length."""
        units = torch.stack([_unit(self.first), _unit(self.second)])
        if float(torch.linalg.svdvals(units)[1]) <= first + second:
            raise InputError("the plane's two directions are zero or parallel; give two that span a plane")


def _unit(direction: Float[Tensor, "..."]) -> Float[Tensor, " d"]:
    flat = direction.flatten().double()
    flat = flat / flat.abs().max().clamp(min=torch.finfo(torch.float64).tiny)  # squares of small entries would vanish
    return flat / flat.norm().clamp(min=1.0)


def _rounding(values: Tensor) -> float:
    """How far a number of the tensor's dtype may be off, relative to its size."""
    return torch.finfo(values.dtype if values.is_floating_point() else torch.float64).eps


def refuse_others_than_tensors(**arguments: object) -> None:
    """Refuse an argument that is a list, an array or a number, by its name."""
    for name, value in arguments.items():
        if not isinstance(value, Tensor):
            raise InputError(f"{name} must be a torch.Tensor, got {type(value).__name__}; use torch.as_tensor({name})")


def checked_bounds(bounds: Bounds, axes: int) -> tuple[tuple[float, float], ...]:
    """A box as ((low, high), …), or a refusal."""
    try:
        sides = tuple(tuple(float(end) for end in side) for side in bounds)
    except (TypeError, ValueError):  # no pairs, or no numbers
        sides = ()
    if len(sides) != axes or any(len(side) != 2 for side in sides):
        raise InputError(f"bounds are {bounds}; give (low, high) for each of {axes} axes")
    if not all(isfinite(low) and isfinite(high) and low < high for low, high in sides):
        raise InputError(f"bounds are {bounds}; every low must lie below its high, both finite")
    return tuple((low, high) for low, high in sides)
