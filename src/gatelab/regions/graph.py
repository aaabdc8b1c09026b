"""The regions of a plane as a planar graph: which are neighbours, and which unit's gate lies between them."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from torch import Tensor

from gatelab.errors import InputError

BORDER, SEAM = -1, -2  # layers of cuts that no gate made


@dataclass(frozen=True)
class Cuts:
    """Where the sides of all polygons come from.

    Attributes:
        sides: the cut on which the side from each corner to the next lies.
        layer: the number of the gate layer that made each cut; BORDER for a side of the domain, SEAM for a side that
            two convex parts of the domain share.
        unit: the unit that made each cut, by its number in the layer; for a side of the domain its own number.
    """

    sides: NDArray[np.int64]
    layer: NDArray[np.int64]
    unit: NDArray[np.int64]


@dataclass(frozen=True)
class RegionGraph:
    """A plane's regions as the faces of a planar graph; an edge is where exactly two of them meet.

    If several units change on the same line, an edge names the one that cut first. With V vertices, E edges and F
    regions, V − E + F = 1 (Euler).

    Attributes:
        pairs: the regions on the left and on the right of each edge, on the way from its first end to its second;
            −1 is the outside of the domain.
        layers: names of the layers of gates.
        layer: the layer whose gate changes at each edge, by its place in ``layers``; −1 on the domain's border.
        unit: the unit whose gate changes, by its number in the layer; on the domain's border the number of the side.
        ends: the vertices where each edge begins and ends.
        vertices: the vertices' coordinates.
        outline: the vertex of every corner of every polygon, in the order of ``Partition.corners``.
    """

    pairs: Int[Tensor, "edges 2"]
    layers: tuple[str, ...]
    layer: Int[Tensor, " edges"]
    unit: Int[Tensor, " edges"]
    ends: Int[Tensor, "edges 2"]
    vertices: Float[Tensor, "vertices 2"]
    outline: Int[Tensor, " corners"]
    regions: int

    def __len__(self) -> int:
        """Number of edges."""
        return len(self.pairs)

    def __repr__(self) -> str:
        return f"RegionGraph: {self.regions} regions, {len(self)} edges, {len(self.vertices)} vertices"

    @cached_property
    def inner(self) -> Bool[Tensor, " edges"]:
        """Whether each edge lies between two regions, not on the border of the domain."""
        return self.pairs[:, 1] >= 0

    @cached_property
    def lengths(self) -> Float[Tensor, " edges"]:
        """The edges' lengths, in units of the plane's coordinates."""
        return (self.vertices[self.ends[:, 1]] - self.vertices[self.ends[:, 0]]).norm(dim=1)

    @cached_property
    def adjacent(self) -> Int[Tensor, "pairs 2"]:
        """Each pair of neighbours once, the smaller number first, in increasing order."""
        return self.pairs[self.inner].sort(dim=1).values.unique(dim=0)

    @cached_property
    def degrees(self) -> Int[Tensor, " regions"]:
        """The number of neighbours of each region."""
        return torch.bincount(self.adjacent.flatten(), minlength=self.regions)

    def label(self, edge: int) -> tuple[str, int] | None:
        """Return the layer and the unit whose gate changes at an edge; None on the border of the domain."""
        layer = int(self.layer[edge])
        return None if layer < 0 else (self.layers[layer], int(self.unit[edge]))

    def neighbours(self, region: int) -> Int[Tensor, " neighbours"]:
        """Return the regions that share an edge with a region, in increasing order."""
        if not 0 <= region < self.regions:
            raise InputError(f"region {region} does not exist; there are {self.regions}")
        pairs = self.adjacent
        touching = pairs[(pairs == region).any(1)]
        return touching[touching != region].sort().values

    def components(self, chosen: Bool[Tensor, " regions"]) -> Int[Tensor, " regions"]:
        """Return the connected component of each chosen region, numbered from 0, and −1 for the other regions.

        Regions are connected if they share an edge; a common corner does not connect them.
        """
        if chosen.shape != (self.regions,) or chosen.dtype != torch.bool:
            raise InputError(f"chosen is {tuple(chosen.shape)} of {chosen.dtype}; give a truth value for each region")
        pairs = self.adjacent
        a, b = pairs[chosen[pairs].all(1)].T.cpu().numpy()
        links = coo_array((np.ones(len(a), bool), (a, b)), shape=(self.regions, self.regions))
        found = torch.as_tensor(connected_components(links, directed=False)[1]).to(self.pairs)
        numbers = torch.full_like(found, -1)
        numbers[chosen] = found[chosen].unique(return_inverse=True)[1]
        return numbers


def region_graph(
    corners: Float[Tensor, "corners 2"],
    scaled: NDArray[np.float64],
    starts: NDArray[np.int64],
    cuts: Cuts,
    layers: Sequence[str],
    *,
    one_to_one: bool,
) -> RegionGraph:
    """Return the graph of polygons that cuts have made.

    Args:
        corners: the corners, in the plane's coordinates.
        scaled: the corners in the coordinates in which they were cut.
        starts: where each polygon's corners begin.
        cuts: the cuts on which the polygons' sides lie.
        layers: names of the layers of gates.
        one_to_one: whether each line that reaches a cut continues behind it: all pre-activations are continuous.
    """
    loops: Any = import_module("gatelab.regions.joining")
    edges, same = loops.neighbours(
        np.c_[scaled, cuts.sides], starts, len(cuts.layer), int((cuts.layer == BORDER).sum()), one_to_one
    )
    first, outline = np.unique(same, return_inverse=True)
    left, right, cut, begin, end = edges.T

    def tensor(values: np.ndarray) -> Tensor:
        return torch.as_tensor(values).to(corners.device)

    return RegionGraph(
        tensor(np.stack([left, right], 1)),
        tuple(layers),
        tensor(cuts.layer[cut]),
        tensor(cuts.unit[cut]),
        tensor(outline[np.stack([begin, end], 1)]),
        corners[tensor(first)],
        tensor(outline),
        len(starts) - 1,
    )
