"""What training minimises and how networks are evaluated: losses and metrics by name, for many networks at once."""

from collections.abc import Callable, Mapping
from enum import StrEnum

import torch
import torch.nn.functional as F
from jaxtyping import Float, Num
from torch import Tensor


class Loss(StrEnum):
    """The loss of an example; with classes, y is one-hot (several outputs) or ±1 (one output).

    Attributes:
        CROSS_ENTROPY: of the classes; with one output the logistic loss.
        SQUARED: ½ Σ (ŷ − y)².
        LOGISTIC: Σ log(1 + exp(−y ŷ)), each class against the rest.
        ABSOLUTE: Σ |ŷ − y|.
        HUBER: squared near 0, absolute beyond 1.
        HINGE: Σ max(0, 1 − ŷ_label + ŷ_other) / k, or max(0, 1 − yŷ) with one output.
        LIKELIHOOD: −ŷ_label, for networks that end with a log-softmax.
    """

    CROSS_ENTROPY = "cross-entropy"
    SQUARED = "squared"
    LOGISTIC = "logistic"
    ABSOLUTE = "absolute"
    HUBER = "huber"
    HINGE = "hinge"
    LIKELIHOOD = "likelihood"


class Metric(StrEnum):
    """How a network is evaluated on the test examples.

    Attributes:
        ACCURACY: the share of right classes.
        BALANCED: the mean over classes of the accuracy within the class: rare classes count as much as frequent ones.
        R2: R² = 1 − Σ (ŷ − y)² / Σ (ȳ − y)², for real targets; the mean over outputs.
    """

    ACCURACY = "accuracy"
    BALANCED = "balanced"
    R2 = "r2"


NEEDS_CLASSES = frozenset({Loss.CROSS_ENTROPY, Loss.LOGISTIC, Loss.HINGE, Loss.LIKELIHOOD})


def losses(answers: Float[Tensor, "e b k"], labels: Num[Tensor, "e b *t"], loss: Loss) -> Float[Tensor, " e"]:
    """Each member's mean loss."""
    flat, wanted = answers.flatten(0, 1), labels.flatten(0, 1)
    return _LOSSES[loss](flat, wanted).view(labels.shape[:2]).mean(dim=1)


def _cross_entropy(answers: Tensor, labels: Tensor) -> Tensor:
    if answers.shape[1] == 1:
        return _logistic(answers, labels)
    return F.cross_entropy(answers, labels, reduction="none")


def _squared(answers: Tensor, labels: Tensor) -> Tensor:
    return 0.5 * (answers - _targets(labels, answers)).square().sum(dim=1)


def _logistic(answers: Tensor, labels: Tensor) -> Tensor:
    signs = _targets(labels, answers)
    return F.softplus(-(signs if answers.shape[1] == 1 else 2 * signs - 1) * answers).sum(dim=1)


def _absolute(answers: Tensor, labels: Tensor) -> Tensor:
    return (answers - _targets(labels, answers)).abs().sum(dim=1)


def _huber(answers: Tensor, labels: Tensor) -> Tensor:
    return F.huber_loss(answers, _targets(labels, answers), reduction="none").sum(dim=1)


def _hinge(answers: Tensor, labels: Tensor) -> Tensor:
    if answers.shape[1] == 1:
        return F.relu(1 - _targets(labels, answers) * answers)[:, 0]
    return F.multi_margin_loss(answers, labels, reduction="none")


def _likelihood(answers: Tensor, labels: Tensor) -> Tensor:
    return F.nll_loss(answers, labels, reduction="none")


_LOSSES: Mapping[Loss, Callable[[Tensor, Tensor], Tensor]] = {
    Loss.CROSS_ENTROPY: _cross_entropy,
    Loss.SQUARED: _squared,
    Loss.LOGISTIC: _logistic,
    Loss.ABSOLUTE: _absolute,
    Loss.HUBER: _huber,
    Loss.HINGE: _hinge,
    Loss.LIKELIHOOD: _likelihood,
}


def _targets(labels: Num[Tensor, " n *t"], answers: Float[Tensor, "n k"]) -> Float[Tensor, "n k"]:
    """Labels as numbers: ±1 for one output, one-hot for several; real targets unchanged."""
    if labels.is_floating_point():
        return (labels if labels.ndim == 2 else labels.unsqueeze(1)).to(answers)
    one = answers.shape[1] == 1
    return ((2 * labels - 1).unsqueeze(1) if one else F.one_hot(labels, answers.shape[1])).to(answers)


def predicted_classes(answers: Float[Tensor, "*n k"]) -> Num[Tensor, "*n"]:
    """The class of the largest output; of a single output, whether it is positive."""
    return (answers[..., 0] > 0).long() if answers.shape[-1] == 1 else answers.argmax(dim=-1)


class Score:
    """A metric, batch by batch, for each of several networks."""

    def __init__(self, metric: Metric, members: int):
        self._metric, self._members = metric, members
        self._right = self._count = torch.zeros(members, 1, dtype=torch.float64)
        self._sums: Tensor | None = None

    def add(self, answers: Float[Tensor, "e b k"], labels: Num[Tensor, " b *t"]) -> None:
        """Add a batch that all networks have classified."""
        if self._metric is Metric.R2:
            y = (labels if labels.ndim == 2 else labels.unsqueeze(1)).double()
            errors = (answers.double() - y).square().sum(dim=1)
            moments = torch.stack([y.sum(dim=0), y.square().sum(dim=0), torch.full(y.shape[1:], len(y)).double()])
            new = torch.cat([errors, moments])
            self._sums = new if self._sums is None else self._sums + new
            return
        right = predicted_classes(answers) == labels
        classes = labels if self._metric is Metric.BALANCED else torch.zeros_like(labels)
        size = max(int(classes.max()) + 1, self._right.shape[1])
        members = F.one_hot(classes, size).double()
        self._right = F.pad(self._right, (0, size - self._right.shape[1])) + right.double() @ members
        self._count = F.pad(self._count, (0, size - self._count.shape[1])) + members.sum(dim=0)

    def value(self) -> Float[Tensor, " e"]:
        """The metric of each network."""
        if self._sums is not None:
            errors, (total, squares, count) = self._sums[: self._members], self._sums[self._members :]
            spread = (squares - total.square() / count).clamp(min=torch.finfo(torch.float64).tiny)
            return (1 - errors / spread).mean(dim=1)
        seen = self._count > 0
        return torch.where(seen, self._right / self._count.clamp(min=1), 0.0).sum(dim=1) / seen.sum(dim=1)
