"""What the estimators share: a network whose gates give the features, and rows of numbers as its examples."""

from collections.abc import Callable, Sequence
from copy import deepcopy
from math import prod
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor, nn

from gatelab.errors import InputError
from gatelab.gates.choice import GateChoice
from gatelab.models import mlp
from gatelab.models.init import check_widths

WIDTH = 128  # width of the two hidden layers of the default network

ModelChoice = nn.Module | Callable[[int], nn.Module] | None


class GatedEstimator(BaseEstimator):
    """An estimator that represents examples by the gates of a network.

    Subclasses have the parameters ``model``, ``input_shape``, ``gates`` and ``random_state``. Fitting copies the
    network, so training it later does not change a fitted estimator.
    """

    model: ModelChoice
    input_shape: Sequence[int] | None
    gates: GateChoice
    random_state: Any

    def _fit_network(self, X: np.ndarray) -> Float[Tensor, "n ..."]:
        """Set ``model_`` and ``seed_``, and return the examples for it."""
        self.seed_ = int(check_random_state(self.random_state).randint(2**31 - 1))
        self.model_ = self._network(X.shape[1])
        return self._examples(X)

    def _network(self, features: int) -> nn.Module:
        if isinstance(self.model, nn.Module):
            try:
                return deepcopy(self.model).eval()
            except Exception as error:  # a user's module may hold anything
                raise InputError(
                    f"the network cannot be copied ({error}), and a fitted estimator keeps a copy; give a function "
                    "that makes it"
                ) from error
        if self.model is None:
            generator = torch.Generator().manual_seed(self.seed_)
            return mlp([features, WIDTH, WIDTH, 1], bias=True, generator=generator, dtype=torch.float64).eval()
        if not callable(self.model):
            raise InputError(
                f"model is {type(self.model).__name__}; give a network, a function from the number of features to a "
                "network, or None for one with random gates"
            )
        made = self.model(features)
        if not isinstance(made, nn.Module):
            raise InputError(f"model({features}) returned {type(made).__name__}; make it return an nn.Module")
        return made.eval()

    def _examples(self, X: np.ndarray) -> Float[Tensor, "n ..."]:
        """Rows as examples in the network's dtype and on its device."""
        parameter = next(self.model_.parameters(), torch.zeros(()))
        # A copy: torch may write to shared memory, and does not accept negative strides.
        x = torch.from_numpy(X.copy()).to(parameter)
        if self.input_shape is None:
            return x
        check_widths("input_shape: the sizes of one example", self.input_shape, 1, "(1, 28, 28)")
        if prod(self.input_shape) != X.shape[1]:
            raise InputError(
                f"input_shape {tuple(self.input_shape)} holds {prod(self.input_shape)} numbers, X has {X.shape[1]} "
                "features; give the shape of one example"
            )
        return x.reshape(len(x), *self.input_shape)

    def _new_examples(self, X: Any) -> Float[Tensor, "n ..."]:
        """Check examples that come after the fit."""
        check_is_fitted(self)
        return self._examples(self._rows(X, reset=False))

    def _rows(self, X: Any, *, reset: bool) -> np.ndarray:
        """Check examples by scikit-learn's rules: rows of finite numbers, as many as were fitted unless ``reset``."""
        return np.asarray(validate_data(self, X, reset=reset, dtype=np.float64))
