"""Half-spaces, polyhedra, and the exact regions on which networks are affine.

One convention everywhere: a gate is open where q > 0 and closed where q ≤ 0 (the half-space paper opens it at 0 too).
"""

from gatelab.regions.between import regions_between
from gatelab.regions.census import paths_per_region, region_counts
from gatelab.regions.components import path_components
from gatelab.regions.counting import count_active_paths
from gatelab.regions.drawing import draw_regions, region_picture
from gatelab.regions.halfspace import half_spaces
from gatelab.regions.line import linear_regions_1d
from gatelab.regions.partition import Partition, linear_regions_2d
from gatelab.regions.plan import RegionPlan
from gatelab.regions.plane import Plane
from gatelab.regions.polyhedron import Polyhedron
from gatelab.regions.region import activation_region, active_region
from gatelab.regions.space import linear_regions_3d
from gatelab.regions.walking import region_walk

__all__ = [
    "Partition",
    "Plane",
    "Polyhedron",
    "RegionPlan",
    "activation_region",
    "active_region",
    "count_active_paths",
    "draw_regions",
    "half_spaces",
    "linear_regions_1d",
    "linear_regions_2d",
    "linear_regions_3d",
    "path_components",
    "paths_per_region",
    "region_counts",
    "region_picture",
    "region_walk",
    "regions_between",
]
