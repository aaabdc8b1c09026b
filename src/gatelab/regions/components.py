"""The active region of a path as a set in the plane: its connected components (halfspace, Section 3.1)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from scipy.spatial import ConvexHull
from torch import Tensor

from gatelab.regions.partition import Partition
from gatelab.regions.units import Unit


@dataclass(frozen=True)
class PathComponents:
    """The part of a plane where all gates of a path are open, A_π, and its connected components.

    A_π of a deep linearly gated network is one convex polygon. A_π of a ReLU network is a union of the polygons of
    linear regions, which need be neither convex nor connected.

    Attributes:
        partition: the regions of the plane.
        regions: the regions in which the path is active.
        labels: the component of each region, the largest component first; −1 where the path is not active.
        areas: the components' areas.
    """

    partition: Partition
    regions: Bool[Tensor, " regions"]
    labels: Int[Tensor, " regions"]
    areas: Float[Tensor, " components"]

    @property
    def count(self) -> int:
        """Number of connected components; 0 if the path is active nowhere."""
        return len(self.areas)

    @property
    def polygons(self) -> int:
        """Number of linear regions that A_π consists of."""
        return int(self.regions.sum())

    @cached_property
    def convexity(self) -> Float[Tensor, " components"]:
        """Each component's area over the area of its convex hull; 1 means convex."""
        hulls = [ConvexHull(self._corners(component)).volume for component in range(self.count)]
        return self.areas / self.areas.new_tensor(hulls)

    @cached_property
    def holes(self) -> Int[Tensor, " components"]:
        """The number of holes in each component, by Euler's formula: 1 − holes = V − E + F."""
        graph = self.partition.graph
        owner = torch.where(self.regions[graph.pairs] & (graph.pairs >= 0), self.labels[graph.pairs], -1).amax(1)
        each = [self._euler(owner == component, component) for component in range(self.count)]
        return torch.tensor(each, dtype=torch.int64, device=self.labels.device)

    def _euler(self, edges: Bool[Tensor, " edges"], component: int) -> int:
        """Holes of one component with these edges, border included."""
        graph, starts = self.partition.graph, self.partition.starts
        faces = (self.labels == component).nonzero()[:, 0]
        corners = torch.cat([graph.outline[starts[face] : starts[face + 1]] for face in faces.tolist()])
        return 1 - (len(corners.unique()) - int(edges.sum()) + len(faces))

    def _corners(self, component: int) -> np.ndarray:
        chosen = (self.labels == component).repeat_interleave(self.partition.starts.diff())
        return self.partition.corners[chosen].cpu().numpy()


def path_components(partition: Partition, path: Sequence[Unit] | Mapping[str, Unit] | Any) -> PathComponents:
    r"""Return where a path is active in the plane, and the connected components of that set, exactly.

    .. math:: A_\pi = \{x : q_{\ell, i_\ell}(x) > 0, \ \ell = 1 \ldots L-1\}      (halfspace, Section 2.2)

    Two regions are connected if they share an edge, since A_π is open: at a common corner some gate of the path is
    closed. The plane is one section of input space; parts that are apart in the plane may meet outside of it.

    :func:`component_counts` only counts, for many paths at once, which is cheap enough to follow over training.

    Args:
        partition: the regions of a plane, from :func:`linear_regions_2d`; it serves any number of paths.
        path: the unit passed in each layer of gates, as to :func:`active_region`.

    Returns:
        The regions, their components and areas.

    Example:
        >>> from torch import nn
        >>> from gatelab.regions import linear_regions_2d
        >>> net = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 1), nn.ReLU(), nn.Linear(1, 1)).double()
        >>> for layer, weight, bias in ((0, [[1.0, 0], [-1, 0]], [0.0, 0]), (2, [[1.0, 1]], [-0.5])):
        ...     _ = net[layer].weight.data.copy_(torch.tensor(weight)), net[layer].bias.data.copy_(torch.tensor(bias))
        >>> path_components(linear_regions_2d(net), {"3": 0}).count  # |x₁| > ½
        2
    """
    chosen = partition.along(path)
    found = partition.graph.components(chosen)
    areas = partition.areas.new_zeros(int(found.max()) + 1).index_add_(0, found[chosen], partition.areas[chosen])
    order = areas.argsort(descending=True)
    labels = torch.where(chosen, order.argsort()[found.clamp(min=0)] if len(areas) else found, -1)
    return PathComponents(partition, chosen, labels, areas[order])


def component_counts(
    partition: Partition, paths: Sequence[Sequence[Unit] | Mapping[str, Unit] | Any]
) -> Int[Tensor, " paths"]:
    """Return the number of connected components of A_π for each of some paths; 0 for a path that is active nowhere.

    One pass over the edges of the partition's graph for each path: microseconds for a thousand regions.

    Args:
        partition: the regions of a plane.
        paths: the paths, each as to :func:`path_components`.

    Example:
        >>> from torch import nn
        >>> from gatelab.regions import linear_regions_2d
        >>> net = nn.Sequential(nn.Linear(2, 3, bias=False), nn.ReLU(), nn.Linear(3, 1))
        >>> component_counts(linear_regions_2d(net), [(0,), (1,), (2,)]).tolist()
        [1, 1, 1]
    """
    if not len(paths):
        return torch.zeros(0, dtype=torch.int64, device=partition.starts.device)
    loops: Any = import_module("gatelab.regions.joining")
    pairs, chosen = partition.graph.adjacent, torch.stack([partition.along(path) for path in paths])
    return torch.as_tensor(loops.count_components(pairs.cpu().numpy(), chosen.cpu().numpy())).to(partition.starts)
