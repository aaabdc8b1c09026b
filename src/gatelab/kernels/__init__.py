"""Kernels of gates, paths and gradients."""

from gatelab.kernels.blocks import BlockedKernel, DenseKernel
from gatelab.kernels.eigenpairs import EigenPairs, top_eigenpairs
from gatelab.kernels.engine import Progress, compute
from gatelab.kernels.infinite_width import (
    InfiniteWidthKernel,
    InfiniteWidthKernels,
    infinite_width_kernels,
    infinite_width_ntk,
)
from gatelab.kernels.nystroem import NystroemFactor, nystroem_factor
from gatelab.kernels.overlap import OverlapKernel, overlap_kernel
from gatelab.kernels.parts import kernel_part
from gatelab.kernels.path_features import path_features
from gatelab.kernels.path_kernel import PathKernel, neural_path_kernel
from gatelab.kernels.plan import Plan
from gatelab.kernels.products import kernel_times
from gatelab.kernels.refit import RefittedValues, normalised_features, refit_values
from gatelab.kernels.ridge import RidgeFit, Watch, kernel_ridge, kernel_ridges
from gatelab.kernels.spectra import (
    condition_number,
    cumulative_eigenvalues,
    label_alignment,
    label_complexity,
    spectrum,
    trace_normalised,
)
from gatelab.kernels.stored import StoredKernel, open_kernel
from gatelab.kernels.tangent import TangentKernel, neural_tangent_kernel
from gatelab.kernels.tiles import Kernel, TileFunction
from gatelab.kernels.value_tangent import value_tangent_kernel

__all__ = [
    "BlockedKernel",
    "DenseKernel",
    "EigenPairs",
    "InfiniteWidthKernel",
    "InfiniteWidthKernels",
    "Kernel",
    "NystroemFactor",
    "OverlapKernel",
    "PathKernel",
    "Plan",
    "Progress",
    "RefittedValues",
    "RidgeFit",
    "StoredKernel",
    "TangentKernel",
    "TileFunction",
    "Watch",
    "compute",
    "condition_number",
    "cumulative_eigenvalues",
    "infinite_width_kernels",
    "infinite_width_ntk",
    "kernel_part",
    "kernel_ridge",
    "kernel_ridges",
    "kernel_times",
    "label_alignment",
    "label_complexity",
    "neural_path_kernel",
    "neural_tangent_kernel",
    "normalised_features",
    "nystroem_factor",
    "open_kernel",
    "overlap_kernel",
    "path_features",
    "refit_values",
    "spectrum",
    "top_eigenpairs",
    "trace_normalised",
    "value_tangent_kernel",
]
