"""Random path features as a transformer."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin

from gatelab.errors import InputError
from gatelab.estimators.base import GatedEstimator, ModelChoice
from gatelab.gates.choice import GateChoice
from gatelab.kernels import path_features


class PathFeatures(ClassNamePrefixFeaturesOutMixin, TransformerMixin, GatedEstimator):
    """Map examples to random features whose inner products estimate the path kernel of a network.

    See :func:`gatelab.path_features`. Training and test examples get the same features, drawn when fitted.

    Args:
        model: a network whose gates are used; a function from the number of features to a network; None for an MLP
            with two hidden layers of 128 units and random weights.
        dim: number of random features.
        input_shape: the shape of one example, such as (1, 28, 28), for a network that does not take rows.
        gates: "network" takes what the network computes, "hard" takes bits.
        batch_size: examples at a time; chosen if None.
        random_state: a seed or ``numpy.random.RandomState``, for the features and for the network if none is given.

    Attributes:
        model_: the network, as it was when fitted.
        seed_: the seed of the features.

    Example:
        >>> from sklearn.linear_model import RidgeClassifier
        >>> from sklearn.pipeline import make_pipeline
        >>> X, y = np.random.default_rng(0).normal(size=(60, 3)), np.arange(60) % 2
        >>> X[:, 0] += 3 * y
        >>> make_pipeline(PathFeatures(dim=256, random_state=0), RidgeClassifier()).fit(X, y).score(X, y) > 0.9
        True
    """

    def __init__(
        self,
        model: ModelChoice = None,
        *,
        dim: int = 1024,
        input_shape: Sequence[int] | None = None,
        gates: GateChoice = "network",
        batch_size: int | None = None,
        random_state: Any = None,
    ):
        self.model = model
        self.dim = dim
        self.input_shape = input_shape
        self.gates = gates
        self.batch_size = batch_size
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None) -> "PathFeatures":
        """Copy or make the network, and draw the seed of the features; labels are not used."""
        del y
        if not isinstance(self.dim, int | np.integer) or self.dim < 1:
            raise InputError(f"dim is {self.dim!r}; give the number of features, at least 1")
        x = self._fit_network(self._rows(X, reset=True))
        self._n_features_out = int(self.dim)
        self._features(x[:1])  # refuses a network that does not fit the examples
        return self

    def transform(self, X: Any) -> np.ndarray:
        """Return the features, one row for each example."""
        return self._features(self._new_examples(X)).numpy(force=True)

    def _features(self, x: torch.Tensor) -> torch.Tensor:
        generator = torch.Generator(x.device).manual_seed(self.seed_)
        return path_features(self.model_, x, int(self.dim), generator, gates=self.gates, batch_size=self.batch_size)
