"""Level sets and decision boundaries in a plane, exactly: straight pieces, one or more in each region they pass."""

from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from gatelab.regions.graph import RegionGraph


@dataclass(frozen=True)
class Boundary:
    """Straight pieces of a curve in the plane.

    Attributes:
        pieces: both ends of each piece, in the plane's coordinates (s, t).
        regions: the regions on the left and right of each piece, on the way from its first end to its second: the same
            one, unless the output jumps there.
        classes: the classes on the left and right; for a level set, 1 where the output is above the level and 0 where
            it is not.
    """

    pieces: Float[Tensor, "pieces 2 2"]
    regions: Int[Tensor, "pieces 2"]
    classes: Int[Tensor, "pieces 2"]

    def __len__(self) -> int:
        """Number of pieces."""
        return len(self.pieces)

    def __repr__(self) -> str:
        return f"Boundary: {len(self)} pieces, length {self.length:.6g}"

    @cached_property
    def length(self) -> float:
        """The total length, in units of the plane's coordinates."""
        return float((self.pieces[:, 1] - self.pieces[:, 0]).norm(dim=1).sum())


def boundary(
    corners: Float[Tensor, "corners 2"],
    starts: Int[Tensor, " starts"],
    maps: Float[Tensor, "regions classes 3"],
    graph: RegionGraph | None,
    region: Int[Tensor, " polygons"] | None = None,
) -> Boundary:
    """Return where the largest of several functions changes, within regions and, if they jump, between them.

    Args:
        corners: the corners of convex polygons.
        starts: where each polygon's corners begin.
        maps: the functions of each region.
        graph: the regions' graph; None if the functions are continuous.
        region: the region of each polygon; None if the polygons are the regions.
    """
    loops: Any = import_module("gatelab.regions.contouring")
    polygons = corners.double().cpu().numpy(), starts.cpu().numpy()
    own = maps if region is None else maps[region]
    pieces, owners, classes = loops.contours(*polygons, np.ascontiguousarray(own.cpu().numpy()))
    found = [(pieces, owners if region is None else region.cpu().numpy()[owners], classes)]
    if graph is not None and bool(graph.inner.any()):
        pairs, ends = graph.pairs[graph.inner], graph.vertices[graph.ends[graph.inner]]
        at_ends = torch.cat([torch.ones_like(ends[..., :1]), ends], 2).to(maps)  # (edges, ends, 3)
        heights = torch.einsum("esct,eat->esac", maps[pairs], at_ends)  # (edges, sides, ends, classes)
        found.append(loops.jumps(ends.double().cpu().numpy(), pairs.cpu().numpy(), heights.cpu().numpy()))
    return Boundary(*(torch.as_tensor(np.concatenate(part)).to(corners.device) for part in zip(*found, strict=True)))
