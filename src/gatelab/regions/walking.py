"""A walk from region to region in any dimension: one facet after the other is crossed, found by a linear programme.

Linear programmes are solved in the coordinates in which the box is [−1, 1]ᵈ: tolerances are shares of the box, however
small it is.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from gatelab.errors import InputError
from gatelab.observe import examples
from gatelab.regions.plane import Bounds, BoxFrame, checked_bounds
from gatelab.regions.polyhedron import Estimate, Polyhedron
from gatelab.regions.programmes import solved
from gatelab.regions.region import ActivationRegion, region_of
from gatelab.regions.replay import Replay
from gatelab.regions.states import States
from gatelab.regions.view import TOLERANCE
from gatelab.regions.volume import log_volume_estimate

_STEP = 1e-7  # behind a facet, as a share of the box


@dataclass(frozen=True)
class Facet:
    """A facet of a region.

    Attributes:
        faces: the faces of the region's polyhedron on this facet's hyperplane; several if several units change there.
        units: their layers and units.
        point: a point in the middle of the facet.
    """

    faces: tuple[int, ...]
    units: tuple[tuple[str, int], ...]
    point: Float[Tensor, " d"]


class RegionWalker:
    """Finds the facets of regions, and the regions behind them.

    Args:
        model: the network.
        x: one input; it tells the shape.
        bounds: the box to stay in, (low, high) for each input, flattened.
    """

    def __init__(self, model: nn.Module, x: Float[Tensor, "1 ..."], bounds: Bounds):
        self._replay = Replay(model, shape=x.shape[1:])
        self._replay.plan.check_affine()
        self._x = x.to(self._replay.device, torch.float64, copy=True)
        self._replay.input_shape(x.shape[1:])
        self.bounds = checked_bounds(bounds, x.numel())
        self._frame = BoxFrame.of(self.bounds, self._x.device)

    def region(self, x: Float[Tensor, "1 ..."]) -> ActivationRegion:
        """Return the region of an input."""
        x = x.to(self._x).view_as(self._x)
        return region_of(self._replay, self._x, self._replay.states(x))

    def facets(self, region: ActivationRegion, generator: torch.Generator | None = None) -> Iterator[Facet]:
        """Yield the facets of a region inside the box, in random order; one linear programme for each hyperplane."""
        normals, offsets, groups = self._hyperplanes(region)
        for number in torch.randperm(len(groups), generator=generator).tolist():
            others = np.setdiff1d(np.arange(len(offsets)), groups[number])
            own = groups[number][0]
            point = _inside(normals[own], float(offsets[own]), normals[others], offsets[others])
            if point is not None:
                faces = tuple(groups[number])
                units = tuple(region.units[face] for face in faces)
                yield Facet(faces, units, self._frame.outside(torch.as_tensor(point).to(region.weight)))

    def across(self, region: ActivationRegion, facet: Facet) -> ActivationRegion:
        """Return the region behind a facet."""
        states = {name: state.clone() for name, state in region.states.items()}
        for face, (name, unit) in zip(facet.faces, facet.units, strict=True):
            flat = states[name].view(-1)
            flat[unit] = region.beyond[face].to(flat.dtype)
        found = region_of(self._replay, self._x, states)
        (normal,), _ = _units(_framed(region.polyhedron, self._frame).normals[facet.faces[0]][None].cpu().numpy())
        behind = self._frame.inside(facet.point) + _STEP * torch.as_tensor(normal).to(facet.point)
        polyhedron = _framed(found.polyhedron, self._frame)
        if bool(polyhedron.contains(behind.unsqueeze(0)).all()):
            return found
        if _within(polyhedron).is_empty():  # units that follow others change there, too
            return self.region(self._frame.outside(behind).unsqueeze(0))
        return found

    def _hyperplanes(self, region: ActivationRegion) -> tuple[np.ndarray, np.ndarray, list[list[int]]]:
        """Unit normals and offsets of the region's faces and of the box's, and the faces grouped by hyperplane."""
        inside = _within(_framed(region.polyhedron, self._frame))
        normals, offsets = inside.normals.cpu().numpy(), inside.offsets.cpu().numpy()
        normals, length = _units(normals)
        usable = np.flatnonzero(length > 0)
        offsets = np.divide(offsets, length, out=np.ones_like(offsets), where=length > 0)
        rows = np.round(np.c_[normals, offsets], 9)
        groups: dict[bytes, list[int]] = {}
        for face in usable[usable < region.polyhedron.faces].tolist():
            groups.setdefault((rows[face] + 0.0).tobytes(), []).append(face)
        return normals, offsets, list(groups.values())


def _framed(polyhedron: Polyhedron, frame: BoxFrame) -> Polyhedron:
    """The polyhedron in the coordinates of a frame."""
    normals = polyhedron.normals
    return Polyhedron(normals * frame.half, polyhedron.offsets - normals @ frame.centre, polyhedron.strict)


def _within(framed: Polyhedron) -> Polyhedron:
    """The part inside the frame's box."""
    return framed.within(((-1.0, 1.0),) * framed.dimension)


def _units(normals: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Normals of length 1, and the lengths that they had; 0 stays 0."""
    largest = np.abs(normals).max(axis=1)  # squares of small or large entries would underflow or overflow
    units = normals / np.where(largest > 0, largest, 1.0)[:, None]
    length = np.linalg.norm(units, axis=1)
    return units / np.where(largest > 0, length, 1.0)[:, None], largest * length


def _inside(normal: np.ndarray, offset: float, others: np.ndarray, bounds: np.ndarray) -> np.ndarray | None:
    """The point of a hyperplane farthest from all other faces; None if there is no facet."""
    rows = np.c_[others, np.linalg.norm(others, axis=1)]
    cost = np.r_[np.zeros(len(normal)), -1.0]
    ranges = [(None, None)] * len(normal) + [(None, 1.0)]
    best = solved(cost, rows, bounds, np.r_[normal, 0.0][None], [offset], bounds=ranges)
    return best.x[:-1] if best.status == 0 and best.x[-1] > TOLERANCE else None


@dataclass(frozen=True)
class RegionWalk:
    """A random walk over regions.

    Attributes:
        regions: the regions that were visited, each once, in the order of the first visit.
        visits: the number of the region after each step; the first entry is the start.
        crossed: the units whose gates changed at each step.
        bounds: the box that the walk stays in.
    """

    regions: tuple[ActivationRegion, ...]
    visits: Int[Tensor, " steps"]
    crossed: tuple[tuple[tuple[str, int], ...], ...]
    bounds: tuple[tuple[float, float], ...]

    def __repr__(self) -> str:
        return f"RegionWalk: {len(self.crossed)} steps, {len(self.regions)} regions"

    @cached_property
    def crossings(self) -> dict[str, int]:
        """How many gates of each layer changed on the walk."""
        names = [name for step in self.crossed for name, _ in step]
        return {name: names.count(name) for name in self.regions[0].states}

    def log_volumes(self, *, rounds: int = 8, generator: torch.Generator | None = None) -> list[Estimate]:
        """Estimate the logarithm of each visited region's volume inside the box, see :mod:`gatelab.regions.volume`."""
        frame = BoxFrame.of(self.bounds, self.regions[0].weight.device)
        size = float(frame.half.log().sum())
        inside = (_within(_framed(region.polyhedron, frame)) for region in self.regions)
        framed = (log_volume_estimate(part, rounds=rounds, generator=generator) for part in inside)
        return [replace(estimate, value=estimate.value + size) for estimate in framed]


def region_walk(
    model: nn.Module,
    x: Float[Tensor, "..."],
    steps: int,
    bounds: Bounds,
    *,
    generator: torch.Generator | None = None,
) -> RegionWalk:
    """Walk at random from region to region: each step crosses a facet, all facets of a region equally likely.

    In the long run a region is visited in proportion to its number of facets. A step needs one linear programme for
    each face that is tried, in any number of dimensions.

    Args:
        model: the network, as in :func:`activation_region`.
        x: the input in whose region the walk starts, (d,) or (1, …).
        steps: the number of steps.
        bounds: the box to stay in, (low, high) for each input, flattened.
        generator: source of randomness.

    Returns:
        The walk.

    Raises:
        InputError: x lies outside the box, or its region has no facet inside it.

    Example:
        >>> net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1)).double()
        >>> region_walk(net, torch.zeros(3), 5, ((-9, 9),) * 3, generator=torch.Generator().manual_seed(0)).visits.shape
        torch.Size([6])
    """
    one = examples(x.unsqueeze(0) if x.ndim == 1 else x)
    walker = RegionWalker(model, one, bounds)
    low, high = torch.tensor(walker.bounds, dtype=torch.float64).T
    flat = one.double().flatten().cpu()
    if len(one) != 1 or bool(((flat < low) | (flat > high)).any()):
        raise InputError("give one input x inside the bounds")
    if not isinstance(steps, int) or steps < 0:
        raise InputError(f"steps is {steps!r}; give a whole number, at least 0")
    here = walker.region(one)
    regions, numbers, visits, crossed = [here], {_key(here.states): 0}, [0], []
    for _ in range(steps):
        facet = next(walker.facets(here, generator), None)
        if facet is None:
            raise InputError("the region of x fills the box: it has no facet inside the bounds; take larger bounds")
        before, here = here, walker.across(here, facet)
        number = numbers.setdefault(_key(here.states), len(regions))
        if number == len(regions):
            regions.append(here)
        here = regions[number]
        visits.append(number)
        crossed.append(_changed(before.states, here.states))
    return RegionWalk(tuple(regions), torch.tensor(visits), tuple(crossed), walker.bounds)


def _changed(before: States, after: States) -> tuple[tuple[str, int], ...]:
    """The layers and units whose states differ: on a hyperplane of several units not all of them need change."""
    differ = {name: (before[name] != after[name]).flatten().nonzero()[:, 0].tolist() for name in before}
    return tuple((name, unit) for name, units in differ.items() for unit in units)


def _key(states: States) -> bytes:
    return b"".join(state.cpu().numpy().tobytes() for state in states.values())
