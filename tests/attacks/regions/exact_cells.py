"""A plane cut into the cells of a small network, in fractions: slow, obvious, and without any rounding.

It shares nothing with ``gatelab.regions``: no floating-point number, no tolerance, no graph of operations.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import sqrt
from typing import Any

import torch
from torch import nn

Point = tuple[Fraction, Fraction]
Line = tuple[Fraction, Fraction, Fraction]  # c + a s + b t
SQUARE = ((-1, -1), (1, -1), (1, 1), (-1, 1))


@dataclass(frozen=True)
class Cell:
    """A convex polygon, the values of the current layer on it, and the state of every gate that was passed."""

    corners: tuple[Point, ...]
    values: tuple[Line, ...]
    states: tuple[tuple[int, ...], ...] = ()

    @property
    def area(self) -> Fraction:
        """The area, by the shoelace formula."""
        following = self.corners[1:] + self.corners[:1]
        return sum((p[0] * q[1] - p[1] * q[0] for p, q in zip(self.corners, following, strict=True)), Fraction(0)) / 2

    @property
    def centre(self) -> Point:
        """The mean of the corners."""
        count = len(self.corners)
        return sum(p[0] for p in self.corners) / count, sum(p[1] for p in self.corners) / count


def height(line: Line, point: Point) -> Fraction:
    """The value of an affine function at a point."""
    return line[0] + line[1] * point[0] + line[2] * point[1]


def minus(line: Line, other: Line | Fraction) -> Line:
    """The difference of two affine functions, or of one and a number."""
    c, a, b = other if isinstance(other, tuple) else (other, 0, 0)
    return line[0] - c, line[1] - a, line[2] - b


def above(corners: Sequence[Point], line: Line) -> tuple[Point, ...]:
    """The part of a polygon where an affine function is not negative; nothing if that part has no area."""
    kept = []
    for p, q in zip(corners, (*corners[1:], *corners[:1]), strict=True):
        hp, hq = height(line, p), height(line, q)
        if hp >= 0:
            kept.append(p)
        if hp * hq < 0:
            share = hp / (hp - hq)
            kept.append((p[0] + share * (q[0] - p[0]), p[1] + share * (q[1] - p[1])))
    kept = [p for p, q in zip(kept, kept[1:] + kept[:1], strict=True) if p != q]
    return tuple(kept) if len(kept) > 2 and Cell(tuple(kept), ()).area > 0 else ()


def negative(line: Line) -> Line:
    """The function with the other sign."""
    return -line[0], -line[1], -line[2]


def cells(
    layers: Sequence[nn.Module], domain: Sequence[Sequence[Any]] = SQUARE, plane: Sequence[Line] | None = None
) -> list[Cell]:
    """The cells of a chain of layers on a convex polygon (counter-clockwise).

    Args:
        layers: ``nn.Linear``, activations with kinks, ``nn.MaxPool1d`` over neighbouring units.
        domain: the corners.
        plane: the inputs as affine functions of (s, t); None: the inputs are s and t.
    """
    corners = tuple((Fraction(s), Fraction(t)) for s, t in domain)
    inputs = plane or ((Fraction(0), Fraction(1), Fraction(0)), (Fraction(0), Fraction(0), Fraction(1)))
    found = [Cell(corners, tuple(inputs))]
    for layer in layers:
        found = [part for cell in found for part in _through(layer, cell)]
    return found


def fractions(values: torch.Tensor) -> list[Any]:
    """A tensor as nested lists of exact numbers."""
    return [fractions(part) if part.ndim else Fraction(part.item()) for part in values.detach()]


def _through(layer: nn.Module, cell: Cell) -> list[Cell]:
    match layer:
        case nn.Linear():
            return [replace(cell, values=_affine(layer, cell.values))]
        case nn.MaxPool1d(kernel_size=size):
            return _pooled(cell, size)
        case nn.ReLU6() | nn.Hardtanh():
            return _bent(cell, [(Fraction(layer.min_val), Fraction(layer.max_val))] * len(cell.values))
        case nn.PReLU():
            slopes = fractions(layer.weight)
            return _kinked(cell, slopes * (len(cell.values) if len(slopes) == 1 else 1))
        case nn.LeakyReLU():
            return _kinked(cell, [Fraction(layer.negative_slope)] * len(cell.values))
        case nn.ReLU():
            return _kinked(cell, [Fraction(0)] * len(cell.values))
    raise TypeError(layer)


def _affine(layer: nn.Linear, values: tuple[Line, ...]) -> tuple[Line, ...]:
    weight = fractions(layer.weight)
    bias = fractions(layer.bias) if layer.bias is not None else [Fraction(0)] * len(weight)
    return tuple(
        tuple(
            sum((w * v[i] for w, v in zip(row, values, strict=True)), start if i == 0 else Fraction(0))
            for i in range(3)
        )
        for row, start in zip(weight, bias, strict=True)
    )


def _split(cell: Cell, unit: int, thresholds: Sequence[Fraction]) -> list[tuple[Cell, int]]:
    """The parts of a cell by how many thresholds a unit exceeds; a unit that equals one everywhere does not."""
    parts = [(cell, 0)]
    for threshold in thresholds:
        cut = []
        for part, passed in parts:
            line = minus(part.values[unit], threshold)
            if any(line):
                cut += [(above(part.corners, line), passed + 1), (above(part.corners, negative(line)), passed)]
            else:
                cut += [(part.corners, passed)]
        parts = [(replace(cell, corners=corners), passed) for corners, passed in cut if corners]
    return parts


def _gated(cell: Cell, thresholds: Sequence[Sequence[Fraction]], outcome: Any) -> list[Cell]:
    parts = [(cell, ())]
    for unit, own in enumerate(thresholds):
        parts = [(piece, (*before, passed)) for part, before in parts for piece, passed in _split(part, unit, own)]
    return [
        replace(
            part,
            values=tuple(outcome(unit, state, part.values[unit]) for unit, state in enumerate(states)),
            states=(*part.states, states),
        )
        for part, states in parts
    ]


def _kinked(cell: Cell, slopes: Sequence[Fraction]) -> list[Cell]:
    def outcome(unit: int, opened: int, value: Line) -> Line:
        factor = 1 if opened else slopes[unit]
        return tuple(factor * part for part in value)

    return _gated(cell, [(Fraction(0),)] * len(slopes), outcome)


def _bent(cell: Cell, bounds: Sequence[tuple[Fraction, Fraction]]) -> list[Cell]:
    def outcome(unit: int, passed: int, value: Line) -> Line:
        low, high = bounds[unit]
        return value if passed == 1 else (low if passed == 0 else high, Fraction(0), Fraction(0))

    return _gated(cell, bounds, outcome)


def _pooled(cell: Cell, size: int) -> list[Cell]:
    parts = [(cell, ())]
    for first in range(0, len(cell.values), size):
        window = range(first, first + size)
        parts = [
            (replace(part, corners=corners), (*winners, tap - first))
            for part, winners in parts
            for tap in window
            if (corners := _winning(part, tap, window))
        ]
    return [
        replace(
            part,
            values=tuple(part.values[size * number + tap] for number, tap in enumerate(winners)),
            states=(*part.states, winners),
        )
        for part, winners in parts
    ]


def _winning(cell: Cell, tap: int, window: Sequence[int]) -> tuple[Point, ...]:
    """Where a unit is the largest of its window; of equal functions the first wins."""
    corners = cell.corners
    for other in window:
        line = minus(cell.values[tap], cell.values[other])
        if other != tap and not any(line) and other < tap:
            return ()
        corners = above(corners, line) if other != tap and any(line) and corners else corners
    return corners


def level_length(found: Sequence[Cell], level: Any, output: int = 0) -> float:
    """The length of the set where an output equals a level; cells on which it does so everywhere count nothing."""
    pieces: dict[Any, float] = {}
    for cell in found:
        line = minus(cell.values[output], Fraction(level))
        ends = set()
        for p, q in zip(cell.corners, cell.corners[1:] + cell.corners[:1], strict=True):
            hp, hq = height(line, p), height(line, q)
            if hp == 0:
                ends.add(p)
            if hp * hq < 0:
                share = hp / (hp - hq)
                ends.add((p[0] + share * (q[0] - p[0]), p[1] + share * (q[1] - p[1])))
        if any(line) and len(ends) == 2:
            (s, t), (u, v) = sorted(ends)
            pieces[(s, t), (u, v)] = sqrt((u - s) ** 2 + (v - t) ** 2)
    return sum(pieces.values())


def components(found: Sequence[Cell], chosen: Sequence[bool]) -> int:
    """The number of connected components of some cells; two are connected if they share a piece of an edge."""
    numbers = [number for number, wanted in enumerate(chosen) if wanted]
    root = {number: number for number in numbers}

    def top(number: int) -> int:
        return number if root[number] == number else top(root[number])

    for place, one in enumerate(numbers):
        for other in numbers[:place]:
            if _touch(found[one].corners, found[other].corners):
                root[top(one)] = top(other)
    return len({top(number) for number in numbers})


def _touch(one: Sequence[Point], other: Sequence[Point]) -> bool:
    """Whether two convex polygons without common inner points share more than a point."""
    for p, q in zip(one, (*one[1:], *one[:1]), strict=True):
        direction = q[0] - p[0], q[1] - p[1]
        on_line = [r for r in other if direction[0] * (r[1] - p[1]) == direction[1] * (r[0] - p[0])]
        if len(on_line) < 2:
            continue
        along = [direction[0] * (r[0] - p[0]) + direction[1] * (r[1] - p[1]) for r in on_line]
        full = direction[0] ** 2 + direction[1] ** 2
        if min(max(along), full) > max(min(along), 0):
            return True
    return False
