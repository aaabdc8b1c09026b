"""The gradients themselves: the features of which the tangent kernel is the Gram matrix."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from gatelab.errors import UnsupportedModelError
from gatelab.kernels.tangent.factors import DenseFactor, ExplicitFactor, Factor, PositionFactor, UnitFactor, form
from gatelab.kernels.tangent.kernel import TangentKernel, Wrt

_MANY = 2**30  # a number of columns so large that forming gradients is always the cheapest


def tangent_features(
    model: nn.Module, x: Float[Tensor, "n ..."], wrt: Wrt = None, *, batch_size: int | None = None
) -> Float[Tensor, "n k parameters"]:
    r"""Return ∇_Θ ŷ_k(x) for every example and output: the features of the linearised network.

    .. math:: \hat y(x; \Theta + \theta) \approx \hat y(x; \Theta) + \Phi(x)\, \theta, \qquad \Phi(x)\,\Phi(x')^\top = K

    The product is the tangent kernel with ``outputs="full"``. Parameters are in the order in which the layers
    are used, the same for all batches of one model. Memory is n · k · parameters: call it for a batch at a time.

    Args:
        model: see :func:`gatelab.neural_tangent_kernel`.
        x: examples.
        wrt: the parameters to differentiate by; None means all.
        batch_size: examples per forward and backward pass.

    Returns:
        One vector for each example and output, in the dtype of x.

    Example:
        >>> tangent_features(nn.Linear(2, 1), torch.tensor([[3.0, 2.0]])).tolist()
        [[[3.0, 2.0, 1.0]]]
    """
    tiles = TangentKernel(model, wrt, "full", batch_size).on(x)
    tiles.columns = _MANY
    rows = tiles.rows(x)
    if rows.loose is None:
        raise UnsupportedModelError(
            f"{type(model).__name__} uses its parameters outside layers, so the order of its gradients is not known; "
            "use neural_tangent_kernel"
        )
    groups = rows.kept
    return torch.cat([torch.cat([_formed(factor) for factor in group.values()], dim=2) for group in groups], dim=1)


def _formed(factor: Factor) -> Float[Tensor, "n k parameters"]:
    if isinstance(factor, ExplicitFactor | UnitFactor):
        return factor.explicit(slice(None)).gradients
    if isinstance(factor, PositionFactor):
        return form(factor.inputs, factor.signals).flatten(2)
    return _dense(factor)


def _dense(factor: DenseFactor) -> Float[Tensor, "n k parameters"]:
    """δ aᵀ, and δ if there is a bias."""
    if factor.inputs is None:
        return factor.signals
    weights = (factor.signals[..., None] * factor.inputs[:, None, None, :]).flatten(2)
    return torch.cat([weights, factor.signals], dim=2) if factor.bias else weights
