"""Path features and path kernels as scikit-learn estimators, for pipelines, grid searches and cross-validation."""

from gatelab.estimators.features import PathFeatures
from gatelab.estimators.ridge import PathKernelClassifier, PathKernelRidge

__all__ = ["PathFeatures", "PathKernelClassifier", "PathKernelRidge"]
