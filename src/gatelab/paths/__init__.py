"""Paths of networks: the largest contributions, their number, features and values; and, in chains, experts."""

from gatelab.paths.bundles import PathBundles
from gatelab.paths.counting import count_paths
from gatelab.paths.enumeration import PathIndex
from gatelab.paths.experts import mixture_of_experts
from gatelab.paths.features import neural_path_features, neural_path_values
from gatelab.paths.hardening import HardeningGap, hardening_gap
from gatelab.paths.top import Path, top_paths

__all__ = [
    "HardeningGap",
    "Path",
    "PathBundles",
    "PathIndex",
    "count_paths",
    "hardening_gap",
    "mixture_of_experts",
    "neural_path_features",
    "neural_path_values",
    "top_paths",
]
