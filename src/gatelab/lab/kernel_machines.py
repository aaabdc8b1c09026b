"""Kernel machines: what ridge regression and a support vector machine learn from a given kernel."""

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from jaxtyping import Float
from sklearn.svm import SVC
from torch import Tensor

from gatelab.data import Dataset

Answers = Callable[[Tensor, Tensor, Tensor, float], Tensor]  # kernel, cross, labels, constant


def ridge_answers(kernel: Float[Tensor, "n n"], cross: Float[Tensor, "m n"], labels: Tensor, ridge: float) -> Tensor:
    """What one-against-all ridge regression says to the m examples of ``cross``."""
    members = F.one_hot(labels).to(kernel)
    targets = members - 1 / members.shape[1]
    system = kernel + ridge * torch.eye(len(kernel), dtype=kernel.dtype, device=kernel.device)
    return (cross @ torch.linalg.solve(system, targets)).argmax(dim=1)


def support_vector_answers(
    kernel: Float[Tensor, "n n"], cross: Float[Tensor, "m n"], labels: Tensor, penalty: float
) -> Tensor:
    """What a support vector machine says, one class against one."""
    machine = SVC(C=penalty, kernel="precomputed").fit(kernel.numpy(force=True), labels.numpy(force=True))
    return torch.from_numpy(machine.predict(cross.numpy(force=True))).to(labels)


def best_accuracy(
    kernel: Float[Tensor, "n n"],
    cross: Float[Tensor, "m n"],
    data: Dataset,
    answers: Answers,
    constants: Sequence[float],
) -> tuple[float, float]:
    """Train and test accuracy of a machine, its constant the one that does best on a fifth of the training examples.

    Kernels are scaled to a mean diagonal of one.
    """
    scale, cut = kernel.diagonal().mean(), len(kernel) * 4 // 5
    kernel, cross = kernel / scale, cross / scale

    def held_out(constant: float) -> float:
        said = answers(kernel[:cut, :cut], kernel[cut:, :cut], data.train_y[:cut], constant)
        return float((said == data.train_y[cut:]).double().mean())

    said = answers(kernel, torch.cat([kernel, cross]), data.train_y, max(constants, key=held_out))
    right = (said == torch.cat([data.train_y, data.test_y])).double()
    return float(right[: len(kernel)].mean()), float(right[len(kernel) :].mean())
