"""The linear model on tangent features of halfspace, Table 1: the network, linearised at its start, fitted exactly."""

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from gatelab.data import Dataset
from gatelab.errors import InputError
from gatelab.kernels.tangent.features import tangent_features

_BATCH = 200
_HELD_OUT = 5  # every fifth example is used to choose the ridge
# Relative to the mean square of a feature. At PyTorch's start all but the largest hundred directions of the features
# have less than a millionth of it, so small ridges matter.
RIDGES = (1e-12, 1e-11, 1e-10, 1e-9, 1e-8, 1e-7, 1e-6, 1e-4, 1e-2)


@dataclass(frozen=True)
class Moments:
    """Sums over examples and outputs: Σ φ φᵀ and Σ φ y."""

    squares: Float[Tensor, "p p"]
    products: Float[Tensor, " p"]

    def plus(self, other: "Moments") -> "Moments":
        """The sums over both sets of examples."""
        return Moments(self.squares + other.squares, self.products + other.products)

    def solve(self, ridge: float) -> Float[Tensor, " p"] | None:
        """θ = (Σ φ φᵀ + λ I)⁻¹ Σ φ y, λ relative to the mean diagonal; None if λ is below the rounding of the sums."""
        shift = ridge * self.squares.diagonal().mean()
        factor, failed = torch.linalg.cholesky_ex(self.squares + shift * torch.eye(len(self.squares)).double())
        return None if int(failed) else torch.cholesky_solve(self.products.unsqueeze(1), factor).squeeze(1)


def moments(features: Iterator[tuple[Float[Tensor, "n k p"], Float[Tensor, "n k"]]]) -> Moments:
    """Add up batches of features and targets, in float64."""
    total: Moments | None = None
    for batch, targets in features:
        rows = batch.flatten(0, 1).double()
        part = Moments(rows.T @ rows, rows.T @ targets.flatten().to(rows))
        total = part if total is None else total.plus(part)
    if total is None:
        raise InputError("there are no examples to fit; give at least one")
    return total


def linearised_accuracy(
    model: nn.Module,
    data: Dataset,
    ridges: Sequence[float] = RIDGES,
    tell: Callable[[float], None] = lambda _done: None,
) -> tuple[float, float, float]:
    r"""Return the train and test accuracy of the linearised network, and its ridge.

    .. math::
        \min_\theta \sum_{s, k} (y_{sk} - \langle \nabla_\Theta \hat y_k(x_s), \theta \rangle)^2 + \lambda \|\theta\|^2

    y is one-hot, minus its mean. θ has one entry for each parameter of the network, so the model has as many parameters
    and learns from as many examples. A fifth of the examples is held out to choose the ridge; then all are fitted.
    Everything is computed in float64: what the features tell about the classes may be below the rounding of float32.
    """
    model = copy.deepcopy(model).double()
    places = torch.arange(len(data.train_x))
    held = places % _HELD_OUT == _HELD_OUT - 1
    classes = len(data.classes)

    def features(x: Tensor, chosen: Tensor, share: tuple[float, float]) -> Iterator[tuple[Tensor, Tensor]]:
        low, high = share
        for start in range(0, len(chosen), _BATCH):
            rows = chosen[start : start + _BATCH]
            yield tangent_features(model, data.inputs(x[rows]).double()), rows
            tell(low + (high - low) * min(1.0, (start + _BATCH) / len(chosen)))

    def learnt(chosen: Tensor, share: tuple[float, float]) -> Moments:
        targets = F.one_hot(data.train_y, classes).double() - 1 / classes
        return moments((batch, targets[rows]) for batch, rows in features(data.train_x, chosen, share))

    def accuracies(x: Tensor, y: Tensor, chosen: Tensor, weights: Tensor, share: tuple[float, float]) -> Tensor:
        right = torch.zeros(weights.shape[1], dtype=torch.float64)
        for batch, rows in features(x, chosen, share):
            right += ((batch @ weights.to(batch)).argmax(dim=1) == y[rows, None]).sum(dim=0)
        return right / len(chosen)

    fitted, others = learnt(places[~held], (0.0, 0.5)), learnt(places[held], (0.5, 0.62))
    both = fitted.plus(others)
    usable = [
        (ridge, part, whole)
        for ridge in ridges
        if (part := fitted.solve(ridge)) is not None and (whole := both.solve(ridge)) is not None
    ]
    if not usable:
        raise InputError(f"all ridges ({ridges}) are below the rounding of the features' sums; give larger ones")
    tried = torch.stack([part for _, part, _ in usable], dim=1)
    held_out = accuracies(data.train_x, data.train_y, places[held], tried, (0.62, 0.7))
    ridge, _, whole = usable[int(held_out.argmax())]
    final = whole.unsqueeze(1)
    train = accuracies(data.train_x, data.train_y, places, final, (0.7, 0.9))
    test = accuracies(data.test_x, data.test_y, torch.arange(len(data.test_x)), final, (0.9, 1.0))
    return float(train), float(test), ridge
