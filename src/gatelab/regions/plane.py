"""Planes through input space, and boxes on them."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from math import isfinite
from numbers import Integral
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor

from gatelab.errors import InputError

Bounds = Sequence[Sequence[float]]

# On a rectangle scaled to [−1, 1]², a line closer to a corner than this passes through the corner.
TOUCH = 1e-12


class ByValue:
    """A frozen dataclass (``eq=False``) that equals another if all fields do: tensors by dtype, shape and numbers."""

    def __eq__(self, other: object) -> bool:
        return self._values() == other._values() if type(other) is type(self) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._values())

    def _values(self) -> tuple[Any, ...]:
        owned: Any = self
        values = (getattr(self, field.name) for field in fields(owned))
        return tuple(_hashable(value) if isinstance(value, Tensor) else value for value in values)


def _hashable(values: Tensor) -> tuple[Any, ...]:
    return values.dtype, tuple(values.shape), tuple(values.flatten().tolist())


@dataclass(frozen=True, eq=False)
class Plane(ByValue):
    """The points origin + s · first + t · second.

    Args:
        origin: the input at s = t = 0.
        first: the direction of s, of the shape of one example.
        second: the direction of t.

    Raises:
        InputError: the shapes differ, a number is not finite, or the directions are parallel.

    Example:
        >>> Plane.through(torch.zeros(3), torch.tensor([1.0, 0, 0]), torch.tensor([0, 2.0, 0])).at(
        ...     torch.tensor([[0.5, 0.5]])).tolist()
        [[0.5, 1.0, 0.0]]
    """

    origin: Float[Tensor, "..."]
    first: Float[Tensor, "..."]
    second: Float[Tensor, "..."]

    def __post_init__(self) -> None:
        """Check shapes, numbers and directions."""
        refuse_unless_tensors(origin=self.origin, first=self.first, second=self.second)
        shapes = {tuple(part.shape) for part in (self.origin, self.first, self.second)}
        if len(shapes) > 1:
            raise InputError(
                f"a plane's origin and directions have shapes {', '.join(map(str, sorted(shapes)))}; give all three "
                "the shape of one example"
            )
        if not all(bool(torch.isfinite(part).all()) for part in (self.origin, self.first, self.second)):
            raise InputError("the plane's origin or directions hold NaN or infinite values")
        self._refuse_a_line(_rounding(self.first), _rounding(self.second))

    @classmethod
    def through(cls, a: Float[Tensor, "..."], b: Float[Tensor, "..."], c: Float[Tensor, "..."]) -> "Plane":
        """Return the plane through three points, which get the coordinates (0, 0), (1, 0) and (0, 1).

        Raises:
            InputError: within the rounding of their dtype, the points lie on a line.
        """
        refuse_unless_tensors(a=a, b=b, c=c)
        if not a.shape == b.shape == c.shape:
            raise InputError(f"a, b and c have shapes {a.shape}, {b.shape}, {c.shape}; give the shape of one example")
        origin, first, second = a.double(), b.double() - a.double(), c.double() - a.double()
        plane = cls(origin, first, second)
        errors = (_rounding(a) * origin.norm() + _rounding(point) * point.double().norm() for point in (b, c))
        plane._refuse_a_line(*(float(error / way.norm()) for error, way in zip(errors, (first, second), strict=True)))
        return plane

    @classmethod
    def of_examples(cls, examples: Float[Tensor, "3 ..."]) -> "Plane":
        """Return the plane through three examples with lengths as in input space: its directions are orthonormal.

        The origin is the first example, and the second lies on the axis of s.

        Raises:
            InputError: there are not three, or they lie on a line.

        Example:
            >>> plane = Plane.of_examples(torch.tensor([[0.0, 0, 0], [3.0, 4, 0], [0, 0, 2]]))
            >>> plane.coordinates(torch.tensor([[3.0, 4, 0]])).tolist()
            [[5.0, ...0.0]]
        """
        refuse_unless_tensors(examples=examples)
        if examples.ndim < 2 or len(examples) != 3:
            raise InputError(f"examples have shape {tuple(examples.shape)}; three make a plane, e.g. x[[0, 5, 9]]")
        plane = cls.through(*examples)
        first = _unit(plane.first)
        second = plane.second.flatten() / plane.second.abs().max()
        second = second - (second @ first) * first
        second = second - (second @ first) * first  # once more: the first time may have cancelled most digits
        shape = plane.origin.shape
        return cls(plane.origin, first.view(shape), (second / second.norm()).view(shape))

    def coordinates(self, x: Float[Tensor, "n ..."]) -> Float[Tensor, "n 2"]:
        """Return the coordinates (s, t) of the points of the plane that are nearest to these inputs."""
        origin, directions = self.flat(torch.zeros(0, dtype=torch.float64, device=x.device))
        return torch.linalg.lstsq(directions.T, (x.double().flatten(1) - origin).T).solution.T

    @classmethod
    def of_inputs(cls) -> "Plane":
        """Return the plane of all inputs of a network with two inputs."""
        eye = torch.eye(2, dtype=torch.float64)
        return cls(torch.zeros(2, dtype=torch.float64), eye[0], eye[1])

    def at(self, points: Float[Tensor, "n 2"]) -> Float[Tensor, "n ..."]:
        """Return the inputs at these coordinates (s, t)."""
        origin, directions = self.flat(points)
        return (origin + points @ directions).unflatten(1, self.origin.shape)

    def flat(self, like: Tensor) -> tuple[Float[Tensor, " d"], Float[Tensor, "2 d"]]:
        """Return origin and directions as flat vectors, in another tensor's dtype and on its device."""
        return self.origin.flatten().to(like), torch.stack([self.first.flatten(), self.second.flatten()]).to(like)

    def _refuse_a_line(self, first: float, second: float) -> None:
        """Refuse directions that may be parallel, if each is known to these relative errors."""
        units = torch.stack([_unit(self.first), _unit(self.second)])
        if float(torch.linalg.svdvals(units)[1]) <= first + second:
            raise InputError("the plane's two directions are zero or parallel; give two that span a plane")


def _unit(direction: Float[Tensor, "..."]) -> Float[Tensor, " d"]:
    flat = direction.flatten().double()
    flat = flat / flat.abs().max().clamp(min=torch.finfo(torch.float64).tiny)  # squares of small entries would vanish
    return flat / flat.norm().clamp(min=1.0)  # 0 stays 0


def _rounding(values: Tensor) -> float:
    """Relative error of a number in the tensor's dtype."""
    return torch.finfo(values.dtype if values.is_floating_point() else torch.float64).eps


def refuse_unless_tensors(**arguments: object) -> None:
    """Refuse what is no dense tensor of real numbers, such as a list or an array; the error names the argument."""
    for name, value in arguments.items():
        if not isinstance(value, Tensor):
            raise InputError(f"{name} must be a torch.Tensor, got {type(value).__name__}; use torch.as_tensor({name})")
        if value.layout != torch.strided or value.is_nested:
            raise InputError(f"{name} has layout {value.layout}; give a dense tensor, {name}.to_dense()")
        if value.is_meta or isinstance(value, FakeTensor):
            raise InputError(
                f"{name} holds a shape but no numbers (a meta or fake tensor); give the numbers themselves"
            )
        if value.is_complex():
            raise InputError(f"{name} has dtype {value.dtype}; give real numbers, such as {name}.real")
        if value.is_floating_point() and value.dtype.itemsize < 2:
            raise InputError(f"{name} has dtype {value.dtype}, in which torch does not compute; use {name}.float()")


def refuse_unless_counts(**numbers: object) -> None:
    """Refuse what is no positive whole number; the error names the argument."""
    for name, value in numbers.items():
        if isinstance(value, bool) or not isinstance(value, Integral) or value < 1:
            raise InputError(f"{name} is {value!r}; give a whole number, at least 1")


def checked_bounds(bounds: Bounds, axes: int) -> tuple[tuple[float, float], ...]:
    """Return a box as ((low, high), …), or raise an error."""
    try:
        sides = tuple(tuple(float(end) for end in side) for side in bounds)
    except (TypeError, ValueError):  # no pairs, or no numbers
        sides = ()
    if len(sides) != axes or any(len(side) != 2 for side in sides):
        raise InputError(f"bounds are {bounds}; give (low, high) for each of {axes} axes")
    if not all(isfinite(low) and isfinite(high) and low < high for low, high in sides):
        raise InputError(f"bounds are {bounds}; every low must lie below its high, both finite")
    return tuple((low, high) for low, high in sides)


@dataclass(frozen=True)
class BoxFrame:
    """The coordinates in which a box is [−1, 1]ⁿ, where regions are cut.

    Attributes:
        centre: the middle of the box.
        half: half of its sides.
    """

    centre: Float[Tensor, " n"]
    half: Float[Tensor, " n"]

    @classmethod
    def of(cls, box: tuple[tuple[float, float], ...], device: torch.device) -> "BoxFrame":
        """Return the frame of a box."""
        low, high = torch.tensor(box, dtype=torch.float64, device=device).T
        return cls((low + high) / 2, (high - low) / 2)

    @property
    def rounding(self) -> float:
        """How far a point may move in the frame's coordinates when it goes outside and back."""
        return 4 * torch.finfo(torch.float64).eps * (1 + float((self.centre / self.half).abs().max()))

    def simplex(self) -> Float[Tensor, "corners n"]:
        """Return the frame's origin and unit points: their values determine an affine function."""
        zero = torch.zeros_like(self.half)
        return self.outside(torch.cat([zero[None], torch.eye(len(zero), dtype=zero.dtype, device=zero.device)]))

    def inside(self, points: Float[Tensor, "*m n"]) -> Float[Tensor, "*m n"]:
        """Return points of the box in the frame's coordinates."""
        return (points.to(self.half) - self.centre) / self.half

    def outside(self, points: Float[Tensor, "*m n"]) -> Float[Tensor, "*m n"]:
        """Undo :meth:`inside`."""
        return self.centre + points.to(self.half) * self.half

    def maps(self, values: Float[Tensor, "regions k corners"]) -> Float[Tensor, "regions k corners"]:
        """Return affine functions of the frame's coordinates, constants and slopes, as functions of the box's own."""
        constant, along = values[..., 0], values[..., 1:] / self.half
        return torch.cat([(constant - along @ self.centre).unsqueeze(2), along], 2)
