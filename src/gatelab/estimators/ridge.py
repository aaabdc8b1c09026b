"""Kernel machines with the exact path kernel of a network, in memory or, if that is too small, on disk."""

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from sklearn.base import ClassifierMixin, MultiOutputMixin, RegressorMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import validate_data
from torch import Tensor

from gatelab.errors import InputError
from gatelab.estimators.base import GatedEstimator, ModelChoice
from gatelab.gates.choice import GateChoice
from gatelab.kernels import PathKernel, compute, kernel_ridge, neural_path_kernel
from gatelab.kernels.disk.memory import memory_budget

# Bytes per entry while a kernel is solved in memory: itself, in float64, and its factor.
_SOLVE_BYTES = 24
_PREDICTED_ENTRIES = 2**24  # entries of the kernel of new with fitted examples held at a time


class _PathKernelMachine(GatedEstimator):
    """Ridge regression with the path kernel; subclasses define the targets."""

    def __init__(
        self,
        model: ModelChoice = None,
        *,
        ridge: float = 1e-3,
        biases: bool = False,
        input_shape: Sequence[int] | None = None,
        gates: GateChoice = "network",
        memory: str | int | None = None,
        store: str | Path | None = None,
        random_state: Any = None,
    ):
        self.model = model
        self.ridge = ridge
        self.biases = biases
        self.input_shape = input_shape
        self.gates = gates
        self.memory = memory
        self.store = store
        self.random_state = random_state

    def _solve(self, X: np.ndarray, targets: np.ndarray) -> None:
        """Set ``dual_coef_`` and what predictions need."""
        x = self._fit_network(X)
        self.X_fit_ = x
        self.intercept_ = targets.mean(axis=0)
        centred = torch.from_numpy(targets - self.intercept_).to(x.device)
        self.in_memory_ = self.store is None and _SOLVE_BYTES * len(x) ** 2 <= memory_budget(self.memory)
        if self.in_memory_:
            kernel = neural_path_kernel(self.model_, x, biases=self.biases, gates=self.gates)
            self._keep(kernel, centred)
            return
        with TemporaryDirectory(prefix="gatelab-") as folder:  # unused if the caller gave a store
            store = Path(folder, "kernel.zarr") if self.store is None else self.store
            kernel = PathKernel(self.model_, biases=self.biases, gates=self.gates)
            self._keep(compute(kernel, x, store=store, memory=self.memory), centred)

    def _keep(self, kernel: Any, targets: Tensor) -> None:
        generator = torch.Generator().manual_seed(self.seed_)
        fit = kernel_ridge(kernel, targets, self.ridge, generator=generator)
        self.dual_coef_ = fit.dual.numpy(force=True)
        self.n_iter_ = max(1, fit.iterations)

    def _answers(self, X: Any) -> np.ndarray:
        """Return the prediction for every target, a few new examples at a time."""
        x = self._new_examples(X)
        dual = torch.from_numpy(self.dual_coef_).to(x.device)
        size = max(1, _PREDICTED_ENTRIES // len(self.X_fit_))
        parts = [
            neural_path_kernel(self.model_, part, self.X_fit_, biases=self.biases, gates=self.gates).double() @ dual
            for part in x.split(size)
        ]
        return torch.cat(parts).numpy(force=True) + self.intercept_


class PathKernelRidge(RegressorMixin, MultiOutputMixin, _PathKernelMachine):
    """Ridge regression with the exact path kernel of a network, about the mean of the targets.

    A kernel that would not fit into memory is computed and solved in blocks on disk.

    Args:
        model: a network whose gates are used; a function from the number of features to a network; None for an MLP
            with two hidden layers of 128 units and random weights.
        ridge: λ > 0, relative to the kernel's mean diagonal.
        biases: whether paths may also start at biases.
        input_shape: the shape of one example, such as (1, 28, 28), for a network that does not take rows.
        gates: "network" takes what the network computes, "hard" takes bits.
        memory: what a solution in memory may take, such as "4GB"; None means half of the machine's.
        store: a directory for the kernel on disk, which is then kept; None means memory, or a temporary directory.
        random_state: a seed or ``numpy.random.RandomState``, for the network if none is given.

    Attributes:
        dual_coef_: α, a row for each fitted example.
        intercept_: the mean of the targets.
        X_fit_: the fitted examples.
        in_memory_: whether the kernel was solved in memory.
        model_: the network, as it was when fitted.

    Example:
        >>> X = np.linspace(-1, 1, 40)[:, None]
        >>> PathKernelRidge(biases=True, random_state=0).fit(X, X[:, 0] ** 2).score(X, X[:, 0] ** 2) > 0.9
        True
    """

    def fit(self, X: Any, y: Any) -> "PathKernelRidge":
        """Solve for the dual coefficients."""
        X, y = validate_data(self, X, y, multi_output=True, y_numeric=True, dtype=np.float64)
        self._one_target = y.ndim == 1
        self._solve(X, np.asarray(y, np.float64).reshape(len(y), -1))
        return self

    def predict(self, X: Any) -> np.ndarray:
        """Return the predicted targets."""
        answers = self._answers(X)
        return answers[:, 0] if self._one_target else answers


class PathKernelClassifier(ClassifierMixin, _PathKernelMachine):
    """Classify by ridge regression on one-hot labels with the exact path kernel of a network.

    A kernel that would not fit into memory is computed and solved in blocks on disk.

    Args:
        model: a network whose gates are used; a function from the number of features to a network; None for an MLP
            with two hidden layers of 128 units and random weights.
        ridge: λ > 0, relative to the kernel's mean diagonal.
        biases: whether paths may also start at biases.
        input_shape: the shape of one example, such as (1, 28, 28), for a network that does not take rows.
        gates: "network" takes what the network computes, "hard" takes bits.
        memory: what a solution in memory may take, such as "4GB"; None means half of the machine's.
        store: a directory for the kernel on disk, which is then kept; None means memory, or a temporary directory.
        random_state: a seed or ``numpy.random.RandomState``, for the network if none is given.

    Attributes:
        classes_: the classes.
        dual_coef_: α, a row for each fitted example and a column for each class.
        X_fit_: the fitted examples.
        in_memory_: whether the kernel was solved in memory.
        model_: the network, as it was when fitted.

    Example:
        >>> from sklearn.datasets import load_iris
        >>> X, y = load_iris(return_X_y=True)
        >>> PathKernelClassifier(biases=True, random_state=0).fit(X, y).score(X, y) > 0.95
        True
    """

    def fit(self, X: Any, y: Any) -> "PathKernelClassifier":
        """Solve for the dual coefficients of every class."""
        X, y = validate_data(self, X, y, dtype=np.float64)
        check_classification_targets(y)
        self.classes_, number = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise InputError(f"y holds one class, {self.classes_[0]!r}; a classifier needs at least two")
        self._solve(X, np.eye(len(self.classes_))[number])
        return self

    def decision_function(self, X: Any) -> np.ndarray:
        """Return a score for each class; of two classes, the second's minus the first's."""
        answers = self._answers(X)
        return answers[:, 1] - answers[:, 0] if len(self.classes_) == 2 else answers

    def predict(self, X: Any) -> np.ndarray:
        """Return the class with the largest score."""
        best = self._answers(X).argmax(axis=1)
        return self.classes_[best]
