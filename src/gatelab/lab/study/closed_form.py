"""Values in closed form: the fast answer beside the trained one."""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from gatelab.data.user_data import Examples
from gatelab.errors import InputError
from gatelab.kernels import kernel_ridge, neural_path_kernel
from gatelab.lab.objectives import Metric, Score

_RIDGES = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1)
MOST_TESTED = 2000  # test examples of a refit: each needs its kernel with all fitted examples


def refit_score(network: nn.Module, data: Examples, examples: int, metric: Metric) -> float:
    """Fit the values of a network's gates to some training examples, and return the metric on test examples.

    Every path has a value of its own: the fit is that of :func:`gatelab.kernels.refit_values`, with one kernel for all
    ridges. The ridge is chosen on a held-out fifth.

    Args:
        network: gives the gates.
        data: examples and targets.
        examples: how many training examples are fitted, a random choice that is the same for all networks.
        metric: what to return.
    """
    order = torch.randperm(len(data.train_x), generator=torch.Generator().manual_seed(0))[:examples]
    x, y = data.inputs(data.train_x[order]), data.train_y[order]
    tested, wanted = data.inputs(data.test_x[:MOST_TESTED]), data.test_y[:MOST_TESTED]
    kernel, cross = neural_path_kernel(network, x), neural_path_kernel(network, tested, x)
    targets, cut = _columns(data, y), len(x) * 4 // 5

    def held_out(ridge: float) -> float:
        try:
            answers = kernel_ridge(kernel[:cut, :cut], targets[:cut], ridge).predict(kernel[cut:, :cut])
        except InputError:  # a ridge below the rounding of this kernel; if all are, the last fit says so
            return float("-inf")
        return _score(answers, y[cut:], metric)

    fit = kernel_ridge(kernel, targets, max(_RIDGES, key=held_out))
    return _score(fit.predict(cross), wanted, metric)


def _columns(data: Examples, y: Tensor) -> Float[Tensor, "n k"]:
    """One-hot classes around their mean, or the targets as columns."""
    if y.is_floating_point():
        return y.double() if y.ndim == 2 else y.double().unsqueeze(1)
    members = F.one_hot(y, max(2, len(getattr(data, "classes", ())))).double()
    return members - 1 / members.shape[1]


def _score(answers: Float[Tensor, "n k"], y: Tensor, metric: Metric) -> float:
    score = Score(metric, 1)
    score.add(answers.unsqueeze(0), y)
    return float(score.value())
