"""Kernels of gates, paths and gradients."""

from gatelab.kernels.disk.engine import compute
from gatelab.kernels.disk.stored import StoredKernel, open_kernel
from gatelab.kernels.infinite_width import (
    InfiniteWidthKernel,
    InfiniteWidthKernels,
    infinite_width_kernels,
    infinite_width_ntk,
)
from gatelab.kernels.overlap import OverlapKernel, overlap_kernel
from gatelab.kernels.path.kernel import PathKernel, neural_path_kernel
from gatelab.kernels.path.random_features import path_features
from gatelab.kernels.solve.blocks import BlockedKernel, DenseKernel
from gatelab.kernels.solve.eigenpairs import EigenPairs, top_eigenpairs
from gatelab.kernels.solve.nystroem import NystroemFactor, nystroem_factor
from gatelab.kernels.solve.products import kernel_times
from gatelab.kernels.solve.refit import RefittedValues, normalised_features, refit_values
from gatelab.kernels.solve.ridge import RidgeFit, Watch, kernel_ridge, kernel_ridges
from gatelab.kernels.spectra import (
    condition_number,
    cumulative_eigenvalues,
    label_alignment,
    label_complexity,
    spectrum,
    trace_normalised,
)
from gatelab.kernels.tangent.kernel import TangentKernel, neural_tangent_kernel
from gatelab.kernels.tangent.parts import kernel_part
from gatelab.kernels.tangent.value import value_tangent_kernel
from gatelab.kernels.tiles import Kernel, TileFunction

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
