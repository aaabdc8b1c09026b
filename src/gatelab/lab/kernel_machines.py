"""The accuracy that kernel machines reach with a given kernel."""

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from jaxtyping import Float
from sklearn.svm import SVC
from torch import Tensor

from gatelab.data import Dataset
from gatelab.errors import InputError
from gatelab.kernels import kernel_ridge

Answers = Callable[[Tensor, Tensor, Tensor, float], Tensor]  # kernel, cross, labels, constant


def ridge_answers(kernel: Float[Tensor, "n n"], cross: Float[Tensor, "m n"], labels: Tensor, ridge: float) -> Tensor:
    """Classify the m examples of ``cross`` by one-against-all ridge regression."""
    members = F.one_hot(labels).double()
    return kernel_ridge(kernel, members - 1 / members.shape[1], ridge).classes(cross)


def support_vector_answers(
    kernel: Float[Tensor, "n n"], cross: Float[Tensor, "m n"], labels: Tensor, penalty: float
) -> Tensor:
    """Classify the m examples of ``cross`` by a support vector machine, one class against one."""
    machine = SVC(C=penalty, kernel="precomputed").fit(kernel.numpy(force=True), labels.numpy(force=True))
    return torch.from_numpy(machine.predict(cross.numpy(force=True))).to(labels)


def best_accuracy(
    kernel: Float[Tensor, "n n"],
    cross: Float[Tensor, "m n"],
    data: Dataset,
    answers: Answers,
    constants: Sequence[float],
) -> tuple[float, float]:
    """Return the train and test accuracy of a machine with the constant that does best on a held-out fifth.

    Kernels are scaled to a mean diagonal of one.
    """
    scale, cut = kernel.diagonal().mean(), len(kernel) * 4 // 5
    kernel, cross = kernel / scale, cross / scale

    def held_out(constant: float) -> float:
        try:
            predicted = answers(kernel[:cut, :cut], kernel[cut:, :cut], data.train_y[:cut], constant)
        except InputError:  # a ridge below this kernel's rounding; if all are, the last fit raises the error
            return -1.0
        return float((predicted == data.train_y[cut:]).double().mean())

    predicted = answers(kernel, torch.cat([kernel, cross]), data.train_y, max(constants, key=held_out))
    right = (predicted == torch.cat([data.train_y, data.test_y])).double()
    return float(right[: len(kernel)].mean()), float(right[len(kernel) :].mean())
