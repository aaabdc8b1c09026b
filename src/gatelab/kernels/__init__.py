"""Kernels of gates, paths and gradients."""

from gatelab.kernels.infinite_width import InfiniteWidthKernels, infinite_width_kernels, infinite_width_ntk
from gatelab.kernels.overlap import overlap_kernel
from gatelab.kernels.path_features import path_features
from gatelab.kernels.path_kernel import neural_path_kernel
from gatelab.kernels.refit import RefittedValues, normalised_features, refit_values
from gatelab.kernels.spectra import (
    condition_number,
    cumulative_eigenvalues,
    label_alignment,
    label_complexity,
    spectrum,
    trace_normalised,
)
from gatelab.kernels.tangent import neural_tangent_kernel
from gatelab.kernels.value_tangent import value_tangent_kernel

__all__ = [
    "InfiniteWidthKernels",
    "RefittedValues",
    "condition_number",
    "cumulative_eigenvalues",
    "infinite_width_kernels",
    "infinite_width_ntk",
    "label_alignment",
    "label_complexity",
    "neural_path_kernel",
    "neural_tangent_kernel",
    "normalised_features",
    "overlap_kernel",
    "path_features",
    "refit_values",
    "spectrum",
    "trace_normalised",
    "value_tangent_kernel",
]
