"""The exact partition of a plane through input space into the regions where a network is affine."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray
from torch import Tensor, nn

from gatelab.errors import InputError, TooManyPathsError
from gatelab.gates import GatePattern
from gatelab.observe import batches
from gatelab.regions.graph import Cuts, RegionGraph, region_graph
from gatelab.regions.plane import NOISE, Bounds, Plane, checked_bounds
from gatelab.regions.replay import Replay
from gatelab.regions.units import Unit, path_units, unit_number

BLOCK_ENTRIES = 2**19  # pre-activations of a block of regions; small blocks stay in the cache


@dataclass(frozen=True)
class Partition:
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

    def locate(self, points: Float[Tensor, "n 2"]) -> Int[Tensor, " n"]:
        """Return the region of each point (s, t): any of its regions on a border, −1 outside the rectangle."""
        if points.ndim != 2 or points.shape[1] != 2:
            raise InputError(f"points have shape {tuple(points.shape)}; give coordinates on the plane, (n, 2)")
        scaled, wanted = (_scaled(places.double(), self.bounds).cpu().numpy() for places in (self.corners, points))
        starts, found = self.starts.cpu().numpy(), np.empty(len(points), np.int64)
        edges = [side.reduceat(scaled[:, axis], starts[:-1]) for axis in (0, 1) for side in (np.minimum, np.maximum)]
        _loops().locate(scaled, starts, np.stack(edges, 1), wanted, found)
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
            gates = self.gates[name]
            opened &= gates.flatten(1)[:, unit_number(unit, gates.shape[1:], name)]
        return opened

    def _sums(self, values: Tensor) -> Tensor:
        """Sums over the corners of each region."""
        regions = torch.arange(len(self), device=values.device).repeat_interleave(self.starts.diff())
        return values.new_zeros(len(self), *values.shape[1:]).index_add_(0, regions, values)


def linear_regions_2d(
    model: nn.Module, plane: Plane | None = None, bounds: Bounds = ((-1, 1), (-1, 1)), *, limit: int = 2**21
) -> Partition:
    """Return the regions of a plane on which a ReLU or linearly gated network is affine, exactly.

    Every layer cuts each polygon along the lines where a gate's pre-activation, affine on the polygon, is zero. There
    is no grid, and nothing is sampled. Dense, convolutional and residual networks, LeakyReLU, batch-norm and average
    pooling are all supported. A line closer to a corner than 1e-12 of the rectangle's size passes through the corner.
    All computation is in float64.

    Args:
        model: the network; soft gates count as hard ones.
        plane: the plane that cuts input space; None for a network with two inputs.
        bounds: the rectangle on the plane, ((s low, s high), (t low, t high)).
        limit: the largest number of regions to make.

    Returns:
        The partition of the rectangle.

    Raises:
        UnsupportedModelError: an operation is neither a gate nor affine, or is a max-pooling.
        TooManyPathsError: there are more regions than ``limit``.

    Example:
        >>> net = nn.Sequential(nn.Linear(2, 1, bias=False), nn.ReLU(), nn.Linear(1, 1))
        >>> partition = linear_regions_2d(net)
        >>> len(partition), round(partition.areas.sum().item(), 12)
        (2, 4.0)
    """
    box = checked_bounds(bounds, 2)
    if plane is not None and not isinstance(plane, Plane):
        raise InputError(
            f"plane is a {type(plane).__name__}; give a gatelab.regions.Plane, e.g. Plane.through(a, b, c)"
        )
    replay = Replay(model, shape=None if plane is None else plane.origin.shape)
    replay.plan.check_affine()
    shape = replay.input_shape(None if plane is None else plane.origin.shape)
    if plane is None and shape != (2,):
        raise InputError(
            f"the network takes examples of shape {shape}; to cut them by a plane give one, Plane(origin, first, "
            "second) or Plane.through(a, b, c)"
        )
    cells = _Cells(replay, plane or Plane.of_inputs(), box)
    for name in replay.gates:
        cells.cut(name)
        if len(cells) > limit:
            raise TooManyPathsError(
                f"after gate '{name}' there are {len(cells):,} regions, more than the limit of {limit:,}; take smaller "
                "bounds, or raise limit="
            )
    return cells.partition()


class _Cells:
    """The polygons so far, in coordinates in which the rectangle is [−1, 1]², and their gates."""

    def __init__(self, replay: Replay, plane: Plane, box: tuple[tuple[float, float], ...]):
        self._replay, self._plane, self._box = replay, plane, box
        self._corners = np.array([[-1.0, -1.0, 0.0], [1.0, -1.0, 1.0], [1.0, 1.0, 2.0], [-1.0, 1.0, 3.0]])
        self._starts: NDArray[np.int64] = np.array([0, 4])
        self._layers, self._units = [np.full(4, -1)], [np.arange(4)]  # of every cut so far
        self._gates: dict[str, Tensor] = {}
        # Three points determine an affine function on a plane.
        ends = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]], dtype=torch.float64, device=replay.device)
        self._simplex = plane.at(self._to_plane(ends))
        self._width = replay.pre_activation(replay.gates[0], self._simplex, {})[0].numel() if replay.gates else 1

    def __len__(self) -> int:
        return len(self._starts) - 1

    def cut(self, name: str) -> None:
        """Cut every polygon where the gate changes."""
        replay, deciding = self._replay, self._replay.plan.deciding_gates(name)
        corners, counts, parents, opened = [], [], [], []
        for part in self._blocks():
            regions = range(len(self))[part]
            q = replay.on_simplex(self._simplex, {other: self._gates[other][part] for other in deciding}, name)
            self._width = max(self._width, q[0, 0].numel())
            lines = q.flatten(2).transpose(1, 2).contiguous().cpu().numpy()
            first, last = self._starts[regions[0]], self._starts[regions[-1] + 1]
            errors = np.repeat(NOISE * np.abs(lines).max(axis=(1, 2))[:, None], lines.shape[1], 1)
            cut, starts, parent, made = _loops().split(
                self._corners[first:last],
                self._starts[regions[0] : regions[-1] + 2] - first,
                lines,
                errors,
                sum(map(len, self._units)),
            )
            self._units.append(made)
            self._layers.append(np.full(len(made), replay.gates.index(name)))
            centres = np.add.reduceat(cut[:, :2], starts[:-1]) / np.diff(starts)[:, None]
            opened.append(_signs(lines, parent, centres).reshape(len(parent), *q.shape[2:]))
            corners.append(cut)
            counts.append(np.diff(starts))
            parents.append(parent + regions[0])
        self._corners, parent = np.concatenate(corners), torch.as_tensor(np.concatenate(parents))
        self._starts = np.concatenate([[0], np.cumsum(np.concatenate(counts))]).astype(np.int64)
        self._gates = {other: gates[parent.to(replay.device)] for other, gates in self._gates.items()}
        self._gates[name] = torch.as_tensor(np.concatenate(opened)).to(replay.device)

    def partition(self) -> Partition:
        """Return the polygons in the plane's own coordinates, with their maps and gates."""
        replay, device = self._replay, self._replay.device
        maps = []
        for part in self._blocks():
            gates = {name: gates[part] for name, gates in self._gates.items()}
            values = replay.on_simplex(self._simplex, gates).flatten(2)
            maps.append(values.transpose(1, 2).expand(len(range(len(self))[part]), -1, -1))
        (s, half_s), (t, half_t) = ((low / 2 + high / 2, high / 2 - low / 2) for low, high in self._box)
        constant, along_s, along_t = torch.cat(maps).unbind(2)
        along_s, along_t = along_s / half_s, along_t / half_t
        return Partition(
            self._plane,
            self._box,
            self._to_plane(torch.as_tensor(self._corners[:, :2]).to(device)),
            torch.as_tensor(self._starts).to(device),
            torch.stack([constant - s * along_s - t * along_t, along_s, along_t], 2),
            replay.pattern(self._gates) if self._gates else None,
            replay.plan.path_gates,
            replay,
            Cuts(self._corners[:, 2].astype(np.int64), np.concatenate(self._layers), np.concatenate(self._units)),
        )

    def _blocks(self) -> list[slice]:
        """Regions that are processed together."""
        return list(batches(len(self), max(1, BLOCK_ENTRIES // (3 * self._width))))

    def _to_plane(self, points: Float[Tensor, "n 2"]) -> Float[Tensor, "n 2"]:
        low, high = points.new_tensor(self._box).T
        return (low + high) / 2 + points * (high - low) / 2


def _loops() -> Any:
    """The compiled loops. Their module loads Numba, so it is imported at first use."""
    return import_module("gatelab.regions.splitting")


def _scaled(points: Float[Tensor, "n 2"], box: tuple[tuple[float, float], ...]) -> Float[Tensor, "n 2"]:
    """The points in coordinates in which the rectangle is [−1, 1]²."""
    low, high = points.new_tensor(box).T
    return (points - (low + high) / 2) / ((high - low) / 2)


def _signs(lines: np.ndarray, parent: np.ndarray, centres: np.ndarray) -> np.ndarray:
    """Whether each gate is open inside each part; a value that is zero but for rounding counts as closed."""
    own = lines[parent] if len(lines) > 1 else lines
    q = own[..., 0] + own[..., 1] * centres[:, None, 0] + own[..., 2] * centres[:, None, 1]
    return q > NOISE * np.abs(own).max(axis=(1, 2))[:, None]
