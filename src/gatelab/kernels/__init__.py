"""Kernels of gates, paths and gradients, in memory or on disk, and solvers for them."""

from gatelab.kernels.disk.engine import compute
from gatelab.kernels.disk.stored import open_kernel
from gatelab.kernels.infinite_width import InfiniteWidthKernel, infinite_width_kernels, infinite_width_ntk
from gatelab.kernels.overlap import OverlapKernel, overlap_kernel
from gatelab.kernels.path.kernel import PathKernel, neural_path_kernel
from gatelab.kernels.path.random_features import path_features
from gatelab.kernels.solve.eigenpairs import top_eigenpairs
from gatelab.kernels.solve.refit import refit_values
from gatelab.kernels.solve.ridge import kernel_ridge, kernel_ridges
from gatelab.kernels.spectra import (
    condition_number,
    cumulative_eigenvalues,
    label_alignment,
    label_complexity,
    spectrum,
)
from gatelab.kernels.tangent.kernel import TangentKernel, neural_tangent_kernel
from gatelab.kernels.tangent.value import value_tangent_kernel

__all__ = [
    "InfiniteWidthKernel",
    "OverlapKernel",
    "PathKernel",
    "TangentKernel",
    "compute",
    "condition_number",
    "cumulative_eigenvalues",
    "infinite_width_kernels",
    "infinite_width_ntk",
    "kernel_ridge",
    "kernel_ridges",
    "label_alignment",
    "label_complexity",
    "neural_path_kernel",
    "neural_tangent_kernel",
    "open_kernel",
    "overlap_kernel",
    "path_features",
    "refit_values",
    "spectrum",
    "top_eigenpairs",
    "value_tangent_kernel",
]
