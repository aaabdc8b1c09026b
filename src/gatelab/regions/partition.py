"""The exact partition of a plane through input space into the regions where a network is affine."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from gatelab.errors import InputError
from gatelab.gates import GatePattern
from gatelab.gates.bits import one
from gatelab.printing import Brief
from gatelab.regions.boundaries import Boundary, Edges, boundary
from gatelab.regions.cells import Cells, loops
from gatelab.regions.domain import Box, Domain, domain_of
from gatelab.regions.graph import Cuts, RegionGraph, region_graph
from gatelab.regions.plane import Bounds, BoxFrame, Plane, refuse_unless_tensors
from gatelab.regions.replay import Replay
from gatelab.regions.seams import ConvexParts, mended
from gatelab.regions.states import States
from gatelab.regions.units import Unit, path_units, unit_number


@dataclass(frozen=True, repr=False)
class Partition(Brief):
    """A rectangle or polygon of a plane, cut into polygons; on each the network is one affine map.

    A region is where all gates are constant: each pattern of gates that occurs belongs to exactly one region, a convex
    polygon. If the domain has dents, a region may have them too, and a pattern whose polygon the domain's border
    divides has several regions. Regions overlap only in their borders, where some q is zero and its gate therefore
    closed. The network may be the same map on two neighbours, if nothing passes the gate between them.

    Attributes:
        plane: the plane; the coordinates (s, t) below are on it.
        bounds: the rectangle, or the rectangle around the polygon.
        corners: corners of all polygons, one polygon after another, each counter-clockwise.
        starts: where each region's corners begin, and where the last region's end.
        maps: output k on a region is maps[r, k] · (1, s, t).
        gates: the pattern of each region; n is the number of regions. None for a network without gates.
        path_layers: the layers of gates that paths pass; in a deep gated network the others decide these.
        replay: a snapshot of the network.
        cuts: where the polygons' sides come from.
        states: the state of every gate in each region (see :mod:`gatelab.regions.states`); for half-space gates these
            are the bits of ``gates``.
        parts: the convex parts of which regions consist; None if all regions are convex.
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
    parts: ConvexParts | None = field(default=None, repr=False)

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
        """A point inside each region: the mean of its corners; with dents, that of its largest convex part's."""
        if self.parts is None:
            return self._sums(self.corners) / self.starts.diff().unsqueeze(1)
        parts, frame = self.parts, self._frame
        means = np.add.reduceat(parts.corners, parts.starts[:-1]) / np.diff(parts.starts)[:, None]
        here, following = parts.corners, np.arange(1, len(parts.corners) + 1)
        following[parts.starts[1:] - 1] = parts.starts[:-1]
        twice = np.add.reduceat(here[:, 0] * here[following, 1] - here[:, 1] * here[following, 0], parts.starts[:-1])
        order = np.lexsort((-twice, parts.region))  # the largest part of each region first
        largest = order[np.unique(parts.region[order], return_index=True)[1]]
        return frame.outside(torch.as_tensor(means[largest]))

    @cached_property
    def graph(self) -> RegionGraph:
        """The regions as a planar graph: neighbours, and the unit whose gate lies between them."""
        scaled, starts = self._frame.inside(self.corners).cpu().numpy(), self.starts.cpu().numpy()
        continuous = self.replay.plan.is_continuous
        return region_graph(self.corners, scaled, starts, self.cuts, self.replay.gates, one_to_one=continuous)

    def level_set(self, level: float = 0.0, output: int = 0) -> Boundary:
        """Return the border between where an output is above a level and where it is not, exactly.

        A region on which the output equals the level is not above it. The output of a ReLU network is continuous. That
        of a deep linearly gated network with hard gates jumps where a gate changes, so that part of its level set runs
        along edges of the regions.

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

        Where several outputs are the largest, the first one decides, as in ``argmax``.

        Example:
            >>> net = nn.Linear(2, 2, bias=False)
            >>> linear_regions_2d(net).decision_boundary().classes.sort().values.tolist()
            [[0, 1]]
        """
        return self.level_set() if self.maps.shape[1] == 1 else self._boundary(self.maps)

    def _boundary(self, maps: Float[Tensor, "regions classes 3"]) -> Boundary:
        jumps = not self.replay.plan.is_output_continuous
        if self.parts is None:
            return boundary(self.corners, self.starts, maps, self._edges, jumps=jumps)
        corners = self._frame.outside(torch.as_tensor(self.parts.corners))
        starts, region = (torch.as_tensor(own).to(maps.device) for own in (self.parts.starts, self.parts.region))
        return boundary(corners, starts, maps, self._edges, jumps=jumps, region=region)

    def _edges(self) -> Edges:
        """The edges between regions, and those between the parts of a region."""
        graph = self.graph
        ends, pairs = graph.vertices[graph.ends[graph.inner]], graph.pairs[graph.inner]
        if self.parts is None:
            return Edges(ends, pairs)
        seams = self._frame.outside(torch.as_tensor(self.parts.seams).flatten(0, 1)).unflatten(0, (-1, 2))
        same = torch.as_tensor(self.parts.seam_regions).to(pairs).unsqueeze(1).expand(-1, 2)
        return Edges(torch.cat([ends, seams.to(ends)]), torch.cat([pairs, same]))

    def locate(self, points: Float[Tensor, "n 2"]) -> Int[Tensor, " n"]:
        """Return the region of each point (s, t): any of its regions on a border, −1 outside the domain."""
        refuse_unless_tensors(points=points)
        if points.ndim != 2 or points.shape[1] != 2:
            raise InputError(f"points have shape {tuple(points.shape)}; give coordinates on the plane, (n, 2)")
        scaled, wanted = (self._frame.inside(places).cpu().numpy() for places in (self.corners, points))
        starts, found = self.starts.cpu().numpy(), np.empty(len(points), np.int64)
        if self.parts is not None:
            scaled, starts = self.parts.corners, self.parts.starts
        rounding = self._frame.rounding
        boxes = [
            side.reduceat(scaled[:, axis], starts[:-1]) + room
            for axis in (0, 1)
            for side, room in ((np.minimum, -rounding), (np.maximum, rounding))
        ]
        loops().locate(scaled, starts, np.stack(boxes, 1), wanted, rounding, found)
        if self.parts is not None:
            found = np.where(found < 0, -1, self.parts.region[found])
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

    @cached_property
    def _frame(self) -> BoxFrame:
        return BoxFrame.of(self.bounds, self.corners.device)

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
        bounds: the rectangle on the plane, ((s low, s high), (t low, t high)); or the corners of a polygon, three or
            more points (s, t) in order, dents allowed. None is [−1, 1]², and for three examples a rectangle with room
            around them.
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
    domain = domain_of(((-1, 1), (-1, 1)) if bounds is None else bounds)
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
    return _partition(replay, plane or Plane.of_inputs(), domain, limit)


def _partition(replay: Replay, plane: Plane, domain: Domain, limit: int) -> Partition:
    """Cut the domain in coordinates in which its bounding box is [−1, 1]², and return to the plane's."""
    frame, parts = BoxFrame.of(domain.box, replay.device), None
    corners, starts, states, values, cuts = Cells(replay, plane.at(frame.simplex()), domain, limit).result()
    if len(domain.parts) > 1:
        flat = [state.flatten(1).cpu().numpy() for state in states.values()]
        whole = mended(corners, starts, flat, cuts, one_to_one=replay.plan.is_continuous)
        corners, starts, cuts, parts = whole.corners, whole.starts, whole.cuts, whole.parts
        rows = torch.as_tensor(whole.first).to(replay.device)
        states, values = {name: state[rows] for name, state in states.items()}, values[rows]
    return Partition(
        plane,
        domain.box,
        frame.outside(torch.as_tensor(corners)),
        torch.as_tensor(starts).to(replay.device),
        frame.maps(values),
        replay.pattern(states) if states else None,
        replay.plan.path_gates,
        replay,
        cuts,
        states,
        parts,
    )


def _around(points: Float[Tensor, "n 2"]) -> Box:
    """A rectangle around some points, with a quarter of its larger side to spare on each side."""
    low, high = points.amin(0), points.amax(0)
    room = 0.25 * float((high - low).max())
    return tuple((float(a) - room, float(b) + room) for a, b in zip(low, high, strict=True))
