"""The best values for given gates, in closed form: a linear model in path space (halfspace, Section 3.2)."""

from dataclasses import dataclass
from math import prod

import torch
from jaxtyping import Float
from torch import Tensor, nn

from gatelab.errors import InputError, UnsupportedModelError
from gatelab.kernels.path.kernel import PathKernel
from gatelab.kernels.tiles import evaluate
from gatelab.network import DenseChain, dense_chain
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
        dual: α, in float64: with a small ridge it is large, and predictions are what is left of it.
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
        return (_kernel(self.model, x, self.x, self.biases) @ self.dual).to(x.dtype)

    def path_values(self, *, limit: int = DEFAULT_LIMIT) -> Float[Tensor, "paths k"]:
        """The value v of every path, in float64, for small networks; ``normalised_features(...) @ v`` predicts.

        Raises:
            TooManyPathsError: more than ``limit`` paths.
        """
        return normalised_features(self.model, self.x, biases=self.biases, limit=limit).T @ self.dual


def refit_values(
    dlgn: nn.Module, x: Float[Tensor, "n ..."], y: Float[Tensor, " n *k"], ridge: float = 1e-6, *, biases: bool = False
) -> RefittedValues:
    """Fit the values of a network to data, its gates fixed, in closed form.

    Every path has a value of its own (halfspace, 3.2: experts that "can be independently optimised"), which is more
    than the products of weights of a value network can express: this is the least training error that any values reach.
    The kernel is the path kernel with ``normalise=True``, for a DLGN-PWC the overlap times the number of inputs; so the
    ridge is on values of variance 1 / fan in. Works for whatever has a path kernel, ReLU and convolutional networks
    (where paths through the same weights share a value) included. O(n³); in float64, whatever the model's dtype, which
    decides over the gates.

    Args:
        dlgn: the network that gives the gates.
        x: examples.
        y: what the network should answer, (n,) or (n, k).
        ridge: λ; 0 takes the least values among those that fit best.
        biases: paths may also start at the biases of the value network.

    Raises:
        InputError: y does not fit x or is not finite, or the ridge is negative, or below the kernel's rounding.
    """
    model = observable(dlgn)
    x = examples(x, model)
    if y.ndim not in (1, 2) or y.shape[0] != x.shape[0] or not y.is_floating_point():
        raise InputError(
            f"y has shape {tuple(y.shape)} and dtype {y.dtype}; give n = {x.shape[0]} floating-point targets, (n,) or "
            "(n, k)"
        )
    if not bool(torch.isfinite(y).all()):
        raise InputError("y holds NaN or infinite values; clean the data")
    if not 0 <= ridge < float("inf"):
        raise InputError(f"ridge is {ridge}; it must be finite and not negative")
    kernel = _kernel(model, x, None, biases)
    targets = y.detach().reshape(len(y), -1).double()
    if ridge > 0:
        lower, failed = torch.linalg.cholesky_ex(
            kernel + ridge * torch.eye(len(x), dtype=kernel.dtype, device=x.device)
        )
        if bool(failed):
            largest = kernel.abs().max().item()
            raise InputError(
                f"ridge {ridge:g} is below the rounding of a kernel with entries up to {largest:.3g}; "
                "give a larger one, scale the examples down, or give 0 for the least values among the best"
            )
        dual = torch.cholesky_solve(targets, lower)
    else:
        dual = torch.linalg.pinv(kernel, hermitian=True) @ targets
    return RefittedValues(model, x, dual, ridge, biases)


def _kernel(model: nn.Module, x: Tensor, y: Tensor | None, biases: bool) -> Float[Tensor, "n m"]:
    """The path kernel in float64, of the gates that the model has in its own dtype."""
    kernel = PathKernel(model, biases=biases, batch_size=None, dtype=torch.float64)
    return evaluate(kernel.on(x, y), x, y)


def normalised_features(
    model: nn.Module, x: Float[Tensor, "n ..."], *, biases: bool = False, limit: int = DEFAULT_LIMIT
) -> Float[Tensor, "n paths"]:
    """The path features whose Gram matrix is the normalised path kernel, φ over √(widths behind the start), in float64.

    Columns are those of :func:`gatelab.neural_path_features`; without ``biases`` only paths from the input.
    """
    chain = dense_chain(model)
    if len({layer.weight_name for layer in chain.layers}) < len(chain.layers):
        raise UnsupportedModelError("layers share a weight, so that paths share values; they cannot be listed")
    index = PathIndex.of(chain)
    features = neural_path_features(model, x, limit=limit).double()
    blocks = features.split([index.count_from(start) for start in index.starts], dim=1)
    scaled = [block * _scale(chain, start) for block, start in zip(blocks, index.starts, strict=True)]
    return torch.cat(scaled if biases else scaled[:1], dim=1)


def _scale(chain: DenseChain, start: int) -> float:
    """1 / √(the widths of the hidden layers that a path from ``start`` passes)."""
    return prod(chain.widths[max(start, 1) : -1]) ** -0.5
