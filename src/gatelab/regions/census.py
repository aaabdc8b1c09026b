"""How many paths are active, per input and per region; how many regions paths and patterns have.

A path π = (i₁, …, i_{L−1}) passes one unit in every layer of gates (halfspace, Section 2). With m units in each of
L − 1 layers there are m^(L−1) paths. npk's paths also name the input node where they start, and are d times as many.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from math import comb, prod

import torch
from jaxtyping import Int64
from torch import Tensor, nn

from gatelab.errors import InputError, TooManyPathsError, UnsupportedModelError
from gatelab.gates import GatePattern
from gatelab.gates.bits import pack, popcount
from gatelab.gates.layer import GateKind
from gatelab.network.chain import dense_chain, value_chain
from gatelab.regions.counting import open_paths
from gatelab.regions.halfspace import half_spaces
from gatelab.regions.partition import Partition, linear_regions_2d
from gatelab.regions.plane import Bounds, Plane
from gatelab.regions.replay import Replay


def active_path_counts(gates: GatePattern) -> list[int]:
    r"""Return the number of active paths of each input, \|A(x)\| = Π_l (open gates of layer l), exact at any size.

    This holds for the gates of a chain of dense layers. A pattern does not say how its layers are connected. If signals
    bypass a layer (residual networks), or gates have positions, use :func:`count_active_paths`, which takes the model.

    Example:
        >>> active_path_counts(GatePattern({"1": torch.tensor([[True, True]]), "2": torch.tensor([[True, False]])}))
        [2]
    """
    for name in gates:
        layer = gates.layer(name)
        if len(layer.shape) != 1 or layer.kind is GateKind.MAX_POOL:
            raise UnsupportedModelError(
                f"layer '{name}' ({layer.kind.value}) has gates of shape {layer.shape}; with positions, the number of "
                "paths also depends on the architecture: use count_active_paths(model, x)"
            )
    opened = [popcount(gates.layer(name).words).sum(dim=1).tolist() for name in gates]
    return [prod(layers) for layers in zip(*opened, strict=True)]


@dataclass(frozen=True)
class PathDistribution:
    """The distribution of the number of active paths over the area of a partition.

    Attributes:
        counts: the numbers of active paths that occur, in increasing order.
        shares: the share of the area with each number.
        regions: the number of regions with each number.
    """

    counts: tuple[int, ...]
    shares: tuple[float, ...]
    regions: tuple[int, ...]

    @property
    def mean(self) -> float:
        """The average number of active paths over the area."""
        return float(sum(count * share for count, share in zip(self.counts, self.shares, strict=True)))

    def quantile(self, share: float) -> int:
        """Return the smallest number of paths that is not exceeded on this share of the area."""
        if not 0 <= share <= 1:
            raise InputError(f"share is {share}; it must be between 0 and 1")
        total = 0.0
        for count, own in zip(self.counts, self.shares, strict=True):
            total += own
            if total >= share - 1e-12:
                return count
        return self.counts[-1]


def paths_per_region(partition: Partition) -> PathDistribution:
    """Return the distribution of the number of active paths, each region weighted by its area.

    Paths are counted as by :func:`count_active_paths`, for any network that it supports.
    """
    per_region = _counts(partition)
    weights = (partition.areas / partition.areas.sum()).tolist()
    area, number = Counter[int](), Counter(per_region)
    for count, weight in zip(per_region, weights, strict=True):
        area[count] += weight
    counts = sorted(area)
    return PathDistribution(
        tuple(counts), tuple(float(area[count]) for count in counts), tuple(number[count] for count in counts)
    )


def _counts(partition: Partition) -> list[int]:
    """The number of active paths in each region; exact at any size for a dense chain."""
    if partition.gates is None:
        raise InputError("the network has no gates; all of its paths are active everywhere")
    try:
        dense_chain(partition.replay.model)
    except UnsupportedModelError:
        counts = open_paths(partition.replay, partition.states, len(partition), tuple(partition.plane.origin.shape))
        return [int(count) for count in counts.tolist()]
    return active_path_counts(partition.gates.select(partition.path_layers))


@dataclass(frozen=True)
class RegionCounts:
    """Numbers of active-path regions and of activation-pattern regions on a rectangle of a plane.

    Attributes:
        paths: all paths, m^(L−1).
        active_paths: paths whose region has some area.
        patterns: activation-pattern regions.
        most_patterns: an upper bound for them: N lines cut a plane into at most 1 + N + N(N−1)/2 cells.
    """

    paths: int
    active_paths: int
    patterns: int
    most_patterns: int


def region_counts(
    dlgn: nn.Module, plane: Plane | None = None, bounds: Bounds = ((-1, 1), (-1, 1)), *, limit: int = 2**22
) -> RegionCounts:
    """Count the non-empty path regions A_π and the activation-pattern regions of a DLGN (halfspace, Section 3.1).

    A_π is the union of the pattern regions in which all its gates are open. The search follows paths layer by layer,
    each as a set of regions in packed bits, and drops a path as soon as its set is empty.

    Args:
        dlgn: the network.
        plane: the plane that cuts input space; None for a network with two inputs.
        bounds: the rectangle on the plane.
        limit: the largest number of paths to follow.

    Returns:
        The numbers of regions.

    Raises:
        UnsupportedModelError: the network is not a DLGN that is a chain of dense layers.
        TooManyPathsError: there are more than ``limit`` paths.

    Example:
        >>> from gatelab.models import DeepLinearlyGatedNetwork
        >>> region_counts(DeepLinearlyGatedNetwork([2, 1, 1, 1])).paths
        1
    """
    layers = half_spaces(dlgn, None if plane is None else plane.origin.shape)
    for name, layer in layers.items():
        if len(layer.shape) != 1:
            raise UnsupportedModelError(
                f"layer '{name}' has gates of shape {layer.shape}; region_counts supports only dense networks"
            )
    value_chain(Replay(dlgn, shape=None if plane is None else plane.origin.shape).plan.network)  # refuses residual sums
    units = [layer.shape[0] for layer in layers.values()]
    paths = prod(units)
    if paths > limit:
        raise TooManyPathsError(f"{paths:,} paths are more than the limit of {limit:,}; raise limit=")
    partition = linear_regions_2d(dlgn, plane, bounds)
    assert partition.gates is not None
    most = sum(comb(sum(units), k) for k in range(3))
    return RegionCounts(paths, _open_somewhere(partition.gates), len(partition), most)


def _open_somewhere(gates: GatePattern) -> int:
    """Number of paths whose gates are all open for some example of the pattern."""
    first, *layers = [pack(gates[name].flatten(1).T.contiguous()) for name in gates]
    if not layers:
        return int(first.any(dim=1).sum())
    *middle, last = layers
    prefixes = first[first.any(dim=1)]
    for units in middle:
        prefixes = torch.cat([prefixes[:0], *_open_extensions(prefixes, units)])
    return sum(len(extensions) for extensions in _open_extensions(prefixes, last))


def _open_extensions(prefixes: Int64[Tensor, "open words"], units: Int64[Tensor, "w words"]) -> Iterator[Tensor]:
    """Extend prefixes by every unit, keep those that some example opens; yield a block of prefixes at a time."""
    for rows in prefixes.split(max(1, 2**22 // units.numel())):
        both = (rows.unsqueeze(1) & units).flatten(0, 1)
        yield both[both.any(dim=1)]
