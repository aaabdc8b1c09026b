"""The gradients themselves: the features of which the tangent kernel is the Gram matrix."""

from collections.abc import Mapping

import torch
from jaxtyping import Float
from torch import Tensor, nn

from gatelab.kernels.tangent.factors import DenseFactor, ExplicitFactor, Factor, PositionFactor, UnitFactor, form
from gatelab.kernels.tangent.kernel import TangentKernel, Wrt
from gatelab.kernels.tangent.layers import Names

_MANY = 2**30  # a number of columns so large that forming gradients is always the cheapest


def tangent_features(
    model: nn.Module, x: Float[Tensor, "n ..."], wrt: Wrt = None, *, batch_size: int | None = None
) -> Float[Tensor, "n k parameters"]:
    r"""Return ∇_Θ ŷ_k(x) for every example and output: the features of the linearised network.

    .. math:: \hat y(x; \Theta + \theta) \approx \hat y(x; \Theta) + \Phi(x)\, \theta, \qquad \Phi(x)\,\Phi(x')^\top = K

    The product is the tangent kernel with ``outputs="full"``. Parameters are in the order of
    ``model.named_parameters()``. Memory is n · k · parameters: call it for a batch at a time.

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
    sizes = tiles.gradients.sizes()
    groups = tiles.rows(x).kept
    return torch.cat([_in_order(group, sizes) for group in groups], dim=1)


def _in_order(group: dict[Names, Factor], sizes: Mapping[str, int]) -> Float[Tensor, "n k parameters"]:
    """Return the gradients of some outputs, parameter by parameter."""
    parts: dict[str, Tensor] = {}
    for names, factor in group.items():
        parts |= zip(names, _formed(factor).split([sizes[name] for name in names], dim=2), strict=True)
    like = next(iter(parts.values()))
    unused = {name: like.new_zeros(*like.shape[:2], size) for name, size in sizes.items() if name not in parts}
    return torch.cat([(parts | unused)[name] for name in sizes], dim=2)


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
