"""Paths of fully connected networks: numbering, features, values, experts, and the largest contributions."""

from gatelab.paths.enumeration import PathIndex
from gatelab.paths.experts import mixture_of_experts
from gatelab.paths.features import neural_path_features, neural_path_values
from gatelab.paths.top import Path, top_paths

__all__ = [
    "Path",
    "PathIndex",
    "mixture_of_experts",
    "neural_path_features",
    "neural_path_values",
    "top_paths",
]
