"""Half-spaces, polyhedra, and the exact regions on which networks are affine.

One convention everywhere: a gate is open where q > 0, closed where q ≤ 0 (the half-space paper opens it at 0, too).
"""

from gatelab.regions.census import (
    PathDistribution,
    RegionCounts,
    active_path_counts,
    paths_per_region,
    region_counts,
)
from gatelab.regions.counting import count_active_paths
from gatelab.regions.drawing import (
    Disc,
    DiscTable,
    RegionPicture,
    disc_panel,
    draw_regions,
    half_space_discs,
    region_picture,
)
from gatelab.regions.halfspace import Filters, HalfSpaceLayer, half_spaces
from gatelab.regions.line import Pieces, linear_regions_1d
from gatelab.regions.partition import Partition, linear_regions_2d
from gatelab.regions.plan import Plan
from gatelab.regions.plane import Plane
from gatelab.regions.polyhedron import Ball, Estimate, Polyhedron
from gatelab.regions.receptive import ReceptiveField
from gatelab.regions.region import ActivationRegion, activation_region, active_region

__all__ = [
    "ActivationRegion",
    "Ball",
    "Disc",
    "DiscTable",
    "Estimate",
    "Filters",
    "HalfSpaceLayer",
    "Partition",
    "PathDistribution",
    "Pieces",
    "Plan",
    "Plane",
    "Polyhedron",
    "ReceptiveField",
    "RegionCounts",
    "RegionPicture",
    "activation_region",
    "active_path_counts",
    "active_region",
    "count_active_paths",
    "disc_panel",
    "draw_regions",
    "half_space_discs",
    "half_spaces",
    "linear_regions_1d",
    "linear_regions_2d",
    "paths_per_region",
    "region_counts",
    "region_picture",
]
