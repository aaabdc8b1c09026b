"""The exact partition of a plane through input space into the regions where a network is affine."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray
from torch import Tensor, nn

from gatelab.errors import InputError
from gatelab.gates import GatePattern
from gatelab.gates.bits import one
from gatelab.printing import Brief
from gatelab.regions.boundaries import Boundary, boundary
from gatelab.regions.cells import Cells, loops
from gatelab.regions.graph import Cuts, RegionGraph, region_graph
from gatelab.regions.plane import Bounds, Plane, checked_bounds
from gatelab.regions.replay import Replay
from gatelab.regions.states import States
from gatelab.regions.units import Unit, path_units, unit_number

Box = tuple[tuple[float, float], ...]


@dataclass(frozen=True, repr=False)
class Partition(Brief):
    """A rectangle of a plane, cut into convex polygons; on each the network is one affine map.

    A region is where all gates are constant: each pattern of gates that occurs belongs to exactly one region. Regions
    overlap only in their borders, where some q is zero and its gate therefore closed. The network may be the same map
    on two neighbours, if nothing passes the gate between them.

    Attributes:
        plane: the plane; the coordinates (s, t) below are on it.
        bounds: the rectangle.
        corners: corners of all polygons, one polygon after another, each counter-clockwise.
        starts: where each region's corners begin, and where the last region's end.
        maps: output k on a region is maps[r, k] · (1, s, t).
        gates: the pattern of each region; n is the number of regions. None for a network without gates.
        path_layers: the layers of gates that paths pass; in a deep gated network the others decide these.
        replay: a snapshot of the network.
        cuts: where the polygons' sides come from.
        states: the state of every gate in each region (see :mod:`gatelab.regions.states`); for half-space gates these
            are the bits of ``gates``.
    """

    plane: Plane
    bounds: tuple[tuple[float, float], ...]
    corners: Float[Tensor, "corners 2"]
    starts: Int[Tensor, " starts"]
    maps: Float[Tensor, "regions k 3"]
    gates: GatePattern | None
    path_layers: tuple[str, ...]
    replay: Replay = field(repr=False)
    cuts: Cuts = field(repr=False)
    states: States = field(repr=False)

    def facts(self) -> dict[str, str]:
        """Return what a prompt and a notebook show."""
        gates = "none" if self.gates is None else f"{len(self.gates)} layers"
        return {
            "regions": f"{len(self):,}",
            "bounds": str(self.bounds),
            "outputs": str(self.maps.shape[1]),
            "gates": gates,
        }

    def __len__(self) -> int:
        """Number of regions."""
        return len(self.starts) - 1

    def polygon(self, region: int) -> Float[Tensor, "corners 2"]:
        """Return the corners of a region, counter-clockwise."""
        if not 0 <= region < len(self):
            raise InputError(f"region {region} does not exist; there are {len(self)}")
        return self.corners[self.starts[region] : self.starts[region + 1]]

    @cached_property
    def areas(self) -> Float[Tensor, " regions"]:
        """The regions' areas, in units of the plane's coordinates."""
        following = torch.arange(1, len(self.corners) + 1, device=self.corners.device)
        following[self.starts[1:] - 1] = self.starts[:-1]
        # Relative to a corner of the same polygon, so that small polygons lose no digits.
        here = self.corners - self.corners[self.starts[:-1]].repeat_interleave(self.starts.diff(), 0)
        there = here[following]
        return self._sums(here[:, 0] * there[:, 1] - here[:, 1] * there[:, 0]) / 2

    @cached_property
    def centres(self) -> Float[Tensor, "regions 2"]:
        """The mean of each region's corners, a point inside the region."""
        return self._sums(self.corners) / self.starts.diff().unsqueeze(1)

    @cached_property
    def graph(self) -> RegionGraph:
        """The regions as a planar graph: neighbours, and the unit whose gate lies between them."""
        scaled, starts = _scaled(self.corners.double(), self.bounds).cpu().numpy(), self.starts.cpu().numpy()
        continuous = self.replay.plan.is_continuous
        return region_graph(self.corners, scaled, starts, self.cuts, self.replay.gates, one_to_one=continuous)

    def level_set(self, level: float = 0.0, output: int = 0) -> Boundary:
        """Return where an output crosses a level, exactly: where it equals the level, and where it jumps over it.

        The output of a ReLU network is continuous. That of a deep linearly gated network with hard gates jumps where a
        gate changes, so part of its level set runs along edges of the regions.

        Args:
            level: the level.
            output: the number of the output.

        Example:
            >>> net = nn.Sequential(nn.Linear(2, 1, bias=False), nn.ReLU(), nn.Linear(1, 1))
            >>> for parameter, value in zip(net.parameters(), ([[1.0, 0]], [[2.0]], [-1.0])):
            ...     _ = parameter.data.copy_(torch.tensor(value))
            >>> linear_regions_2d(net).level_set().pieces[..., 0].tolist()  # 2 max(s, 0) = 1
            [[0.5, 0.5]]
        """
        if not 0 <= output < self.maps.shape[1]:
            raise InputError(f"output {output} does not exist; there are {self.maps.shape[1]}")
        above = self.maps[:, output : output + 1]
        constant = torch.zeros_like(above)
        constant[..., 0] = level
        return self._boundary(torch.cat([constant, above], 1))

    def decision_boundary(self) -> Boundary:
        """Return where the decision of a classifier changes, exactly: the sign of one output, the largest of several.

        Example:
            >>> net = nn.Linear(2, 2, bias=False)
            >>> linear_regions_2d(net).decision_boundary().classes.sort().values.tolist()
            [[0, 1]]
        """
        return self.level_set() if self.maps.shape[1] == 1 else self._boundary(self.maps)

    def _boundary(self, maps: Float[Tensor, "regions classes 3"]) -> Boundary:
        graph = None if self.replay.plan.is_output_continuous else self.graph
        return boundary(self.corners, self.starts, maps, graph)

    def locate(self, points: Float[Tensor, "n 2"]) -> Int[Tensor, " n"]:
        """Return the region of each point (s, t): any of its regions on a border, −1 outside the rectangle."""
        if points.ndim != 2 or points.shape[1] != 2:
            raise InputError(f"points have shape {tuple(points.shape)}; give coordinates on the plane, (n, 2)")
        scaled, wanted = (_scaled(places.double(), self.bounds).cpu().numpy() for places in (self.corners, points))
        starts, found = self.starts.cpu().numpy(), np.empty(len(points), np.int64)
        edges = [side.reduceat(scaled[:, axis], starts[:-1]) for axis in (0, 1) for side in (np.minimum, np.maximum)]
        loops().locate(scaled, starts, np.stack(edges, 1), wanted, found)
        return torch.as_tensor(found).to(self.starts.device)

    def evaluate(self, points: Float[Tensor, "n 2"]) -> Float[Tensor, "n k"]:
        """Return the network's output at points of the rectangle, computed from the regions' maps."""
        regions = self.locate(points)
        if bool((regions < 0).any()):
            outside = points[regions < 0][0].tolist()
            raise InputError(f"point {outside} lies outside the partition's bounds {self.bounds}")
        homogeneous = torch.cat([torch.ones_like(points[:, :1]), points], 1).to(self.maps)
        return torch.einsum("nkc,nc->nk", self.maps[regions], homogeneous)

    def along(self, path: Sequence[Unit] | Mapping[str, Unit] | Any) -> Bool[Tensor, " regions"]:
        """Whether every gate on a path is open in each region; these regions form the path's active region A_π.

        ``path`` is given as to :func:`active_region`.
        """
        if self.gates is None:
            raise InputError("the network has no gates, hence no paths to open")
        opened = torch.ones(len(self), dtype=torch.bool, device=self.corners.device)
        for name, unit in path_units(path, self.path_layers, self.gates.layers).items():
            layer = self.gates.layer(name)
            opened &= one(layer.words, unit_number(unit, layer.shape, name))
        return opened

    def _sums(self, values: Tensor) -> Tensor:
        """Sums over the corners of each region."""
        regions = torch.arange(len(self), device=values.device).repeat_interleave(self.starts.diff())
        return values.new_zeros(len(self), *values.shape[1:]).index_add_(0, regions, values)


def linear_regions_2d(
    model: nn.Module,
    plane: Plane | Float[Tensor, "3 ..."] | None = None,
    bounds: Bounds | Float[Tensor, "corners 2"] | None = None,
    *,
    limit: int = 2**21,
) -> Partition:
    """Return the regions of a plane on which a ReLU or linearly gated network is affine, exactly.

    Every layer cuts each polygon along the lines where a gate's pre-activation, affine on the polygon, is zero. There
    is no grid, and nothing is sampled. Dense, convolutional and residual networks, LeakyReLU, PReLU, ReLU6, Hardtanh,
    batch-norm, average pooling and max-pooling are all supported. A line closer to a corner than 1e-12 of the
    rectangle's size passes through the corner. All computation is in float64, with a bound of the rounding error of
    every unit in every region; where a line is not known to 1e-12 and a decision depends on it, exact arithmetic
    decides.

    Args:
        model: the network; soft gates count as hard ones.
        plane: the plane that cuts input space; or three examples, for the plane through them in which lengths are those
            of input space (:meth:`Plane.of_examples`); None for a network with two inputs.
        bounds: the rectangle on the plane, ((s low, s high), (t low, t high)); or the corners of a convex polygon,
            three or more points (s, t) in order. None is [−1, 1]², and for three examples a rectangle with room around
            them.
        limit: the largest number of regions to make.

    Returns:
        The partition of the rectangle.

    Raises:
        UnsupportedModelError: an operation is neither a gate nor affine.
        TooManyPathsError: there are more regions than ``limit``.

    Example:
        >>> net = nn.Sequential(nn.Linear(2, 1, bias=False), nn.ReLU(), nn.Linear(1, 1))
        >>> partition = linear_regions_2d(net)
        >>> len(partition), round(partition.areas.sum().item(), 12)
        (2, 4.0)
    """
    if isinstance(plane, Tensor):
        examples, plane = plane, Plane.of_examples(plane)
        bounds = _around(plane.coordinates(examples)) if bounds is None else bounds
    box, domain = _domain(((-1, 1), (-1, 1)) if bounds is None else bounds)
    if plane is not None and not isinstance(plane, Plane):
        raise InputError(
            f"plane is a {type(plane).__name__}; give a gatelab.regions.Plane, e.g. Plane.through(a, b, c), or a "
            "tensor of three examples"
        )
    replay = Replay(model, shape=None if plane is None else plane.origin.shape)
    replay.plan.check_affine()
    shape = replay.input_shape(None if plane is None else plane.origin.shape)
    if plane is None and shape != (2,):
        raise InputError(
            f"the network takes examples of shape {shape}; to cut them by a plane give one, Plane(origin, first, "
            "second) or Plane.through(a, b, c)"
        )
    return _partition(replay, plane or Plane.of_inputs(), box, domain, limit)


def _partition(replay: Replay, plane: Plane, box: Box, domain: NDArray[np.float64], limit: int) -> Partition:
    """Cut the domain in coordinates in which its bounding box is [−1, 1]², and return to the plane's."""
    device = replay.device
    low, high = torch.tensor(box, dtype=torch.float64, device=device).T
    centre, half = (low + high) / 2, (high - low) / 2
    # Three points determine an affine function on a plane.
    ends = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]], dtype=torch.float64, device=device)
    simplex = plane.at(centre + ends * half)
    corners, starts, states, values, cuts = Cells(replay, simplex, domain, limit).result()
    constant, along = values[..., 0], values[..., 1:] / half
    return Partition(
        plane,
        box,
        centre + torch.as_tensor(corners).to(device) * half,
        torch.as_tensor(starts).to(device),
        torch.cat([(constant - along @ centre).unsqueeze(2), along], 2),
        replay.pattern(states) if states else None,
        replay.plan.path_gates,
        replay,
        cuts,
        states,
    )


def _around(points: Float[Tensor, "n 2"]) -> Box:
    """A rectangle around some points, with a quarter of its larger side to spare on each side."""
    low, high = points.amin(0), points.amax(0)
    room = 0.25 * float((high - low).max())
    return tuple((float(a) - room, float(b) + room) for a, b in zip(low, high, strict=True))


def _domain(bounds: Bounds | Float[Tensor, "corners 2"]) -> tuple[Box, NDArray[np.float64]]:
    """The bounding box of a rectangle or polygon, and its corners where that box is [−1, 1]², counter-clockwise."""
    given: Any = bounds
    try:
        corners = np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError):  # no numbers, or no pairs
        corners = np.empty((0, 0))
    if corners.ndim != 2 or corners.shape[-1] != 2 or len(corners) < 3:
        box = checked_bounds(given, 2)
        return box, np.array([[-1.0, -1.0], [1.0, -1.0], [1.0, 1.0], [-1.0, 1.0]])
    box = checked_bounds(np.c_[corners.min(0), corners.max(0)].tolist(), 2)
    low, high = np.array(box).T
    scaled = (corners - (low + high) / 2) / ((high - low) / 2)
    sides = np.roll(scaled, -1, 0) - scaled
    after = np.roll(sides, -1, 0)
    turns = np.arctan2(sides[:, 0] * after[:, 1] - sides[:, 1] * after[:, 0], (sides * after).sum(1))
    scaled, turns = (scaled[::-1].copy(), -turns) if turns.sum() < 0 else (scaled, turns)
    if not (turns > 1e-9).all() or turns.sum() > 7:  # once around is 2π
        raise InputError(
            "the corners of the domain are no convex polygon; give them in order around it, three or more, no three of "
            "them on a line, and take a domain with a dent in convex parts"
        )
    return box, scaled


def _scaled(points: Float[Tensor, "n 2"], box: tuple[tuple[float, float], ...]) -> Float[Tensor, "n 2"]:
    """The points in coordinates in which the rectangle is [−1, 1]²."""
    low, high = points.new_tensor(box).T
    return (points - (low + high) / 2) / ((high - low) / 2)
