"""The best values for given gates, in closed form: a linear model in path space (halfspace, Section 3.2)."""

from dataclasses import dataclass
from math import prod

import torch
from jaxtyping import Float
from torch import Tensor, nn

from gatelab.errors import InputError, UnsupportedModelError
from gatelab.graph import DenseChain, dense_chain
from gatelab.kernels.path_kernel import neural_path_kernel
from gatelab.observe import examples, observable
from gatelab.paths import PathIndex, neural_path_features
from gatelab.paths.enumeration import DEFAULT_LIMIT


@dataclass(frozen=True)
class RefittedValues:
    r"""A network's gates with the values that fit some data best, each path's value free of the others.

    .. math:: \min_v \|Y - \Phi v\|^2 + \lambda \|v\|^2, \qquad v = \Phi^\top \alpha, \quad (H + \lambda I)\,\alpha = Y

    Attributes:
        model: the network, whose gates alone are used; later changes to them change predictions.
        x: the examples that were fitted.
        dual: α.
        ridge: λ.
        biases: whether paths also start at the biases.
    """

    model: nn.Module
    x: Float[Tensor, "n ..."]
    dual: Float[Tensor, "n k"]
    ridge: float
    biases: bool

    def predict(self, x: Float[Tensor, "m ..."]) -> Float[Tensor, "m k"]:
        """The refitted network's output, H(x, fitted) α; no path is listed."""
        return neural_path_kernel(self.model, x, self.x, biases=self.biases) @ self.dual

    def path_values(self, *, limit: int = DEFAULT_LIMIT) -> Float[Tensor, "paths k"]:
        """The value v of every path, for small networks; ``normalised_features(...) @ v`` are the predictions.

        Raises:
            TooManyPathsError: more than ``limit`` paths.
        """
        return normalised_features(self.model, self.x, biases=self.biases, limit=limit).T @ self.dual


def refit_values(
    dlgn: nn.Module, x: Float[Tensor, "n ..."], y: Float[Tensor, "n *k"], ridge: float = 1e-6, *, biases: bool = False
) -> RefittedValues:
    """Fit the values of a network to data, its gates fixed, in closed form.

    Every path has a value of its own (halfspace, 3.2: experts that "can be independently optimised"), which is more
    than the products of weights of a value network can express: this is the least training error that any values reach.
    The kernel is the path kernel with ``normalise=True``, for a DLGN-PWC the overlap times the number of inputs; so the
    ridge is on values of variance 1 / fan in. Works for whatever has a path kernel, ReLU and convolutional networks
    (where paths through the same weights share a value) included. O(n³); in float64.

    Args:
        dlgn: the network that gives the gates.
        x: examples.
        y: what the network should answer, (n,) or (n, k).
        ridge: λ; 0 takes the least values among those that fit best.
        biases: paths may also start at the biases of the value network.
    """
    model = observable(dlgn)
    x = examples(x, model)
    if y.ndim not in (1, 2) or y.shape[0] != x.shape[0] or not y.is_floating_point():
        raise InputError(
            f"y has shape {tuple(y.shape)} and dtype {y.dtype}; give n = {x.shape[0]} floating-point targets, (n,) or "
            "(n, k)"
        )
    if not ridge >= 0:
        raise InputError(f"ridge is {ridge}; it must not be negative")
    kernel = neural_path_kernel(model, x, biases=biases).double()
    targets = y.detach().reshape(len(y), -1).double()
    if ridge > 0:
        shifted = kernel + ridge * torch.eye(len(x), dtype=kernel.dtype, device=kernel.device)
        dual = torch.cholesky_solve(targets, torch.linalg.cholesky(shifted))
    else:
        dual = torch.linalg.pinv(kernel, hermitian=True) @ targets
    return RefittedValues(model, x, dual.to(x.dtype), ridge, biases)


def normalised_features(
    model: nn.Module, x: Float[Tensor, "n ..."], *, biases: bool = False, limit: int = DEFAULT_LIMIT
) -> Float[Tensor, "n paths"]:
    """The path features whose Gram matrix is the normalised path kernel: φ over √(widths behind the start).

    Columns are those of :func:`gatelab.neural_path_features`; without ``biases`` only paths from the input.
    """
    chain = dense_chain(model)
    if len({layer.weight_name for layer in chain.layers}) < len(chain.layers):
        raise UnsupportedModelError("layers share a weight, so that paths share values; they cannot be listed")
    index = PathIndex.of(chain)
    features = neural_path_features(model, x, limit=limit)
    blocks = features.split([index.count_from(start) for start in index.starts], dim=1)
    scaled = [block * _scale(chain, start) for block, start in zip(blocks, index.starts, strict=True)]
    return torch.cat(scaled if biases else scaled[:1], dim=1)


def _scale(chain: DenseChain, start: int) -> float:
    """1 / √(the widths of the hidden layers that a path from ``start`` passes)."""
    return prod(chain.widths[max(start, 1) : -1]) ** -0.5
