"""The exact partition of a box in three dimensions into the regions where a network is affine."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from scipy.spatial import ConvexHull
from torch import Tensor, nn

from gatelab.errors import InputError, TooManyPathsError
from gatelab.gates import GatePattern
from gatelab.regions.cutting import Cutter, Known, part_of
from gatelab.regions.plane import TOUCH, Bounds, BoxFrame, checked_bounds, refuse_unless_tensors
from gatelab.regions.replay import Replay
from gatelab.regions.solids import Solid, cube, sides
from gatelab.regions.states import States


@dataclass(frozen=True)
class SolidPartition:
    """A box, cut into convex polyhedra; on each the network is one affine map.

    Attributes:
        bounds: the box.
        solids: the polyhedra, in coordinates in which the box is [−1, 1]³; see :meth:`vertices`.
        maps: output k on a region is maps[r, k] · (1, x, y, z).
        gates: the pattern of each region; n is the number of regions.
        states: the state of every gate in each region.
        layer: the number of the gate layer that made each cut; −1 for a side of the box.
        unit: the unit that made each cut.
        replay: a snapshot of the network.
    """

    bounds: tuple[tuple[float, float], ...]
    solids: tuple[Solid, ...] = field(repr=False)
    maps: Float[Tensor, "regions k 4"]
    gates: GatePattern
    states: States = field(repr=False)
    layer: NDArray[np.int64] = field(repr=False)
    unit: NDArray[np.int64] = field(repr=False)
    replay: Replay = field(repr=False)

    def __len__(self) -> int:
        """Number of regions."""
        return len(self.solids)

    def __repr__(self) -> str:
        return f"SolidPartition: {len(self)} regions of {self.bounds}"

    def vertices(self, region: int) -> Float[Tensor, "vertices 3"]:
        """Return the vertices of a region, in the network's coordinates."""
        if not 0 <= region < len(self):
            raise InputError(f"region {region} does not exist; there are {len(self)}")
        return self._frame.outside(torch.as_tensor(self.solids[region].vertices))

    @cached_property
    def volumes(self) -> Float[Tensor, " regions"]:
        """The regions' volumes."""
        scaled = [
            ConvexHull(solid.vertices, qhull_options="QJ Pp" if _is_flat(solid) else "Qt").volume
            for solid in self.solids
        ]
        return torch.tensor(scaled, dtype=torch.float64).to(self._frame.half) * self._frame.half.prod()

    @cached_property
    def centres(self) -> Float[Tensor, "regions 3"]:
        """The mean of each region's vertices, a point inside the region."""
        return self._frame.outside(torch.as_tensor(np.stack([solid.vertices.mean(0) for solid in self.solids])))

    @cached_property
    def neighbours(self) -> Int[Tensor, "pairs 2"]:
        """The pairs of regions that share a facet, the smaller number first.

        Behind a facet all gates but those that change there are the same; so the neighbour is the region with that
        pattern. Where several units change on one plane, the pattern of a point just behind the facet tells.
        """
        keys = {key: region for region, key in enumerate(self._keys)}
        pairs = {tuple(sorted((region, other))) for region, other in self._crossings(keys) if other is not None}
        found = torch.tensor(sorted(pairs), dtype=torch.int64).reshape(-1, 2)
        return found.to(self.maps.device)

    def locate(self, points: Float[Tensor, "n 3"]) -> Int[Tensor, " n"]:
        """Return the region of each point; −1 outside the box, or if rounding gives a pattern that no region has."""
        refuse_unless_tensors(points=points)
        inside = (self._frame.inside(points).abs() <= 1).all(1).tolist()
        keys = {key: region for region, key in enumerate(self._keys)}
        states = self.replay.states(points.to(self.replay.device, torch.float64))
        found = [keys.get(key, -1) if own else -1 for key, own in zip(_keys(states), inside, strict=True)]
        return torch.tensor(found, dtype=torch.int64, device=self.maps.device)

    @cached_property
    def _frame(self) -> BoxFrame:
        return BoxFrame.of(self.bounds, self.maps.device)

    @cached_property
    def _keys(self) -> list[bytes]:
        return _keys(self.states)

    def _crossings(self, keys: dict[bytes, int]) -> Iterator[tuple[int, int | None]]:
        """Each region with the neighbour behind each of its facets; None at the sides of the box."""
        names = tuple(self.states)
        flat = {name: state.flatten(1).cpu().numpy() for name, state in self.states.items()}
        unknown: list[tuple[int, NDArray[np.float64]]] = []
        for region, solid in enumerate(self.solids):
            rows = {name: own[region].copy() for name, own in flat.items()}
            for facet, cut in enumerate(solid.cuts):
                if self.layer[cut] < 0:
                    continue
                name, unit, other = names[self.layer[cut]], self.unit[cut], None
                if rows[name].dtype == np.bool_:
                    rows[name][unit] ^= True
                    other = keys.get(b"".join(row.tobytes() for row in rows.values()))
                    rows[name][unit] ^= True
                if other is None:
                    middle = solid.of_facet(facet).mean(0)
                    unknown.append((region, middle + 1e-9 * (middle - solid.vertices.mean(0))))
                else:
                    yield region, other
        if unknown:
            points = self._frame.outside(torch.as_tensor(np.stack([point for _, point in unknown])))
            for (region, _), other in zip(unknown, self.locate(points).tolist(), strict=True):
                yield region, other if other >= 0 and other != region else None


def linear_regions_3d(model: nn.Module, bounds: Bounds = ((-1, 1),) * 3, *, limit: int = 2**18) -> SolidPartition:
    """Return the regions of a box on which a network with three inputs is affine, exactly.

    Every layer cuts each polyhedron along the planes where a gate's pre-activation is zero, as
    :func:`linear_regions_2d` does in a plane.

    Args:
        model: the network; soft gates count as hard ones.
        bounds: the box, ((low, high), …).
        limit: the largest number of regions to make.

    Returns:
        The partition of the box.

    Raises:
        UnsupportedModelError: an operation is neither a gate nor affine.
        TooManyPathsError: there are more regions than ``limit``.

    Example:
        >>> net = nn.Sequential(nn.Linear(3, 3, bias=False), nn.ReLU(), nn.Linear(3, 1))
        >>> _ = net[0].weight.data.copy_(torch.eye(3))
        >>> partition = linear_regions_3d(net)
        >>> len(partition), partition.volumes.tolist()
        (8, [1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0])
    """
    box = checked_bounds(bounds, 3)
    replay = Replay(model, shape=(3,))
    replay.plan.check_affine()
    replay.input_shape((3,))
    if not replay.gates:
        raise InputError(f"{type(model).__name__} has no gates: it is one affine map everywhere")
    frame = BoxFrame.of(box, replay.device)
    cutter = Cutter(replay, frame.simplex())
    solids, states, known = [cube()], dict[str, Tensor](), Known()
    layer, unit = [np.full(6, -1)], [np.arange(6)]
    for level, name in enumerate(replay.gates):
        pieces = _Pieces(cutter, name, solids, states, known, sum(map(len, unit)), limit)
        solids, rows = pieces.solids, torch.tensor(pieces.parents, device=replay.device)
        states = {other: own[rows] for other, own in states.items()} | {name: pieces.state}
        both = (known | {name: cutter.known(name, pieces.cut)}).items()
        known = {other: (part_of(q, rows), part_of(size, rows)) for other, (q, size) in both}
        layer.append(np.full(len(pieces.made), level))
        unit.append(cutter.unit(name, np.array(pieces.made, np.int64)))
    values = cutter.outputs(states, known).expand(len(solids), -1, -1)
    return SolidPartition(
        box,
        tuple(solids),
        frame.maps(values),
        replay.pattern(states),
        states,
        np.concatenate(layer),
        np.concatenate(unit),
        replay,
    )


class _Pieces:
    """Solids, cut by one layer of gates: the parts, the solid that each belongs to, their states, each cut's unit."""

    def __init__(
        self,
        cutter: Cutter,
        name: str,
        solids: Sequence[Solid],
        states: States,
        known: Known,
        first_cut: int,
        limit: int,
    ):
        self._first_cut, self.made = first_cut, list[int]()
        self.cut = cutter.cut(name, states, known)
        doubts = np.array([self._in_doubt(solid, *self._planes(row)) for row, solid in enumerate(solids)])
        if doubts.any():
            self.cut = cutter.corrected(name, self.cut, states, np.flatnonzero(doubts))
        self.solids, self.parents, found = list[Solid](), list[int](), []
        for row, solid in enumerate(solids):
            planes, errors = self._planes(row)
            parts = (
                self._divided(solid, planes, errors) if len(self.cut.windows) else self._split(solid, planes, errors)
            )
            self.solids += parts
            self.parents += [row] * len(parts)
            found += [self._found(part, planes, errors) for part in parts]
            if len(self.solids) > limit:
                raise TooManyPathsError(
                    f"at gate '{name}' there are more regions than the limit of {limit:,}; take smaller bounds, or "
                    "raise limit="
                )
        self.state = cutter.state(name, np.stack(found))

    def _planes(self, row: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        own = row if len(self.cut.lines) > 1 else 0
        return self.cut.lines[own].T, self.cut.errors[own]

    def _in_doubt(self, solid: Solid, planes: NDArray[np.float64], errors: NDArray[np.float64]) -> bool:
        """Whether a vertex may lie on a plane that is not known to TOUCH."""
        near = TOUCH * np.abs(planes[:, 1:]).sum(1)
        if len(self.cut.windows):
            return bool((errors > near).any())
        return bool(((np.abs(solid.heights(planes)) <= near + errors).any(0) & (errors > near)).any())

    def _split(self, solid: Solid, planes: NDArray[np.float64], errors: NDArray[np.float64]) -> list[Solid]:
        parts, heights = [solid], solid.heights(planes)
        touch = TOUCH * np.abs(planes[:, 1:]).sum(1) + errors
        for k in np.flatnonzero((heights.min(0) < -touch) & (heights.max(0) > touch)).tolist():
            after = []
            for part in parts:
                height = sides(part.heights(planes[k : k + 1])[:, 0], planes[k], errors[k])
                if height.min() < 0 < height.max():
                    cut = self._new_cut(k)
                    after += [part.part(height, cut), part.part(-height, cut)]
                else:
                    after.append(part)
            parts = after
        return parts

    def _divided(self, solid: Solid, planes: NDArray[np.float64], errors: NDArray[np.float64]) -> list[Solid]:
        """The parts on which every window has one winner."""
        parts = [solid]
        for window, lines in enumerate(self.cut.windows.tolist()):
            taps = [line for line in lines if line >= 0]
            after = []
            for part in parts:
                cuts: dict[frozenset[int], int] = {}
                cells = (self._winning(part, tap, taps, planes, errors, window, cuts) for tap in taps)
                after += [cell for cell in cells if cell is not None]
            parts = after
        return parts

    def _winning(
        self,
        solid: Solid,
        tap: int,
        taps: list[int],
        planes: NDArray[np.float64],
        errors: NDArray[np.float64],
        window: int,
        cuts: dict[frozenset[int], int],
    ) -> Solid | None:
        """The part where one tap of a window wins; of equal ones the first."""
        for other in taps:
            if other == tap:
                continue
            plane = planes[tap] - planes[other]
            height = sides(solid.heights(plane[None])[:, 0], plane, errors[tap] + errors[other])
            if height.max() <= 0 and (height.min() < 0 or taps.index(other) < taps.index(tap)):
                return None
            if height.min() < 0:
                pair = frozenset((tap, other))
                cuts[pair] = cuts[pair] if pair in cuts else self._new_cut(window)
                solid = solid.part(height, cuts[pair])
        return solid

    def _found(self, solid: Solid, planes: NDArray[np.float64], errors: NDArray[np.float64]) -> NDArray[Any]:
        """Which planes the middle of a solid lies above, or the winners of windows there."""
        heights = planes[:, 0] + planes[:, 1:] @ solid.vertices.mean(0)
        if not len(self.cut.windows):
            return heights > errors
        inside, lines = self.cut.windows >= 0, self.cut.windows.clip(min=0)
        taps = np.where(inside, heights[lines], -np.inf)
        return (taps >= taps.max(1, keepdims=True) - np.where(inside, errors[lines], 0)).argmax(1)

    def _new_cut(self, line: int) -> int:
        self.made.append(line)
        return self._first_cut + len(self.made) - 1


def _keys(states: States) -> list[bytes]:
    """The states of each region as bytes, to look them up."""
    flat = [state.flatten(1).cpu().numpy() for state in states.values()]
    return [b"".join(part[row].tobytes() for part in flat) for row in range(len(flat[0]))]


def _is_flat(solid: Solid) -> bool:
    """Whether a solid is so thin that the hull needs a joggle."""
    return float(np.linalg.svd(solid.vertices - solid.vertices.mean(0), compute_uv=False)[-1]) < 1e-9
