"""Level sets and decision boundaries in a plane, exactly: straight pieces, one or more in each region they pass."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from gatelab.regions.plane import TOUCH


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


@dataclass(frozen=True)
class Edges:
    """Edges on which the largest of several functions may change.

    Attributes:
        ends: both ends of each edge.
        pairs: the regions on its left and right; the same one where a region consists of several polygons.
    """

    ends: Float[Tensor, "edges 2 2"]
    pairs: Int[Tensor, "edges 2"]


def boundary(
    corners: Float[Tensor, "corners 2"],
    starts: Int[Tensor, " starts"],
    maps: Float[Tensor, "regions classes 3"],
    edges: Callable[[], Edges],
    *,
    jumps: bool,
    region: Int[Tensor, " polygons"] | None = None,
) -> Boundary:
    """Return where the largest of several functions changes; where some are equal, the first counts as the largest.

    Args:
        corners: the corners of convex polygons.
        starts: where each polygon's corners begin.
        maps: the functions of each region.
        edges: makes the edges between polygons; called only if the largest function can change on one.
        jumps: whether the functions may jump from region to region.
        region: the region of each polygon; None if the polygons are the regions.
    """
    loops: Any = import_module("gatelab.regions.contouring")
    own = torch.arange(len(maps), device=maps.device) if region is None else region
    noise = _noise(corners, maps)
    (pieces, owners, classes), on_sides = loops.contours(
        *(
            part.double().cpu().numpy() if part.is_floating_point() else part.cpu().numpy()
            for part in (corners, starts)
        ),
        *(np.ascontiguousarray(part[own].cpu().numpy()) for part in (maps, noise)),
    )
    found = [(pieces, own.cpu().numpy()[owners], classes)]
    if jumps or on_sides:
        found.append(loops.jumps(*_beside(edges(), corners, maps, noise)))
    return Boundary(*(torch.as_tensor(np.concatenate(part)).to(corners.device) for part in zip(*found, strict=True)))


def _noise(
    corners: Float[Tensor, "corners 2"], maps: Float[Tensor, "regions classes 3"]
) -> Float[Tensor, "regions classes"]:
    """How much of a function's values may be rounding: of its terms, and of how much it varies around the middle."""
    low, high = corners.amin(0).to(maps), corners.amax(0).to(maps)
    middle, farthest = (low + high) / 2, torch.maximum(low.abs(), high.abs())
    terms = maps[..., 0].abs() + (maps[..., 1:].abs() * farthest).sum(-1)
    values = (maps[..., 0] + maps[..., 1:] @ middle).abs() + (maps[..., 1:].abs() * (high - low) / 2).sum(-1)
    return TOUCH * values + 8 * torch.finfo(torch.float64).eps * terms


def _beside(
    edges: Edges,
    corners: Float[Tensor, "corners 2"],
    maps: Float[Tensor, "regions classes 3"],
    noise: Float[Tensor, "regions classes"],
) -> Iterator[np.ndarray]:
    """Yield edges and their regions, and the functions on both sides: at the ends, how they rise, their noise."""
    ends = edges.ends.to(maps)
    at_ends = torch.cat([torch.ones_like(ends[..., :1]), ends], 2)  # (edges, ends, 3)
    beside = maps[edges.pairs]  # (edges, sides, classes, 3)
    way = ends[:, 1] - ends[:, 0]
    reach = (corners.amax(0) - corners.amin(0)).to(maps).norm() / 2
    left = torch.stack([-way[:, 1], way[:, 0]], 1) / way.norm(dim=1, keepdim=True) * reach
    rises = torch.einsum("esct,est->esc", beside[..., 1:], torch.stack([left, -left], 1))
    heights = torch.einsum("esct,eat->esac", beside, at_ends)
    for part in (ends, edges.pairs, heights, rises, noise[edges.pairs]):
        yield np.ascontiguousarray(part.cpu().numpy())
