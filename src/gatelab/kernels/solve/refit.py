"""The best values for given gates, in closed form: a linear model over paths (halfspace, Section 3.2)."""

from dataclasses import dataclass
from math import prod

import torch
from jaxtyping import Float
from torch import Tensor, nn

from gatelab.errors import InputError, UnsupportedModelError
from gatelab.gates.choice import GateChoice
from gatelab.kernels.path.kernel import PathKernel
from gatelab.kernels.solve.ridge import solve_in_memory, target_columns
from gatelab.kernels.tiles import evaluate
from gatelab.network.chain import DenseChain, dense_chain
from gatelab.observe import examples, observable
from gatelab.paths import PathIndex, neural_path_features
from gatelab.paths.enumeration import DEFAULT_LIMIT


@dataclass(frozen=True)
class RefittedValues:
    r"""A network's gates with the values that fit some data best; the value of each path is free.

    .. math:: \min_v \|Y - \Phi v\|^2 + \lambda \|v\|^2, \qquad v = \Phi^\top \alpha, \quad (H + \lambda I)\,\alpha = Y

    Attributes:
        model: the network; only its gates are used. If they change later, predictions change.
        x: the fitted examples.
        dual: α, in float64: with a small ridge its entries are large and nearly cancel in a prediction.
        ridge: λ.
        biases: whether paths also start at the biases.
        gates: whether the gates are the network's own or hard.
    """

    model: nn.Module
    x: Float[Tensor, "n ..."]
    dual: Float[Tensor, "n k"]
    ridge: float
    biases: bool
    gates: GateChoice = "network"

    def predict(self, x: Float[Tensor, "m ..."]) -> Float[Tensor, "m k"]:
        """Return the refitted network's output, H(x, fitted) α; no path is enumerated."""
        return (_kernel(self.model, x, self.x, self.biases, self.gates) @ self.dual).to(x.dtype)

    def path_values(self, *, limit: int = DEFAULT_LIMIT) -> Float[Tensor, "paths k"]:
        """Return the value v of every path of a small network, in float64; ``normalised_features(...) @ v`` predicts.

        Raises:
            TooManyPathsError: more than ``limit`` paths.
        """
        features = normalised_features(self.model, self.x, biases=self.biases, gates=self.gates, limit=limit)
        return features.T @ self.dual


def refit_values(
    dlgn: nn.Module,
    x: Float[Tensor, "n ..."],
    y: Float[Tensor, " n *k"],
    ridge: float = 1e-6,
    *,
    biases: bool = False,
    gates: GateChoice = "network",
) -> RefittedValues:
    """Fit the values of a network to data in closed form, with its gates fixed.

    Every path has a value of its own (halfspace, 3.2: experts that "can be independently optimised"). The products of
    weights in a value network can express less, so this is the least training error that any values reach. The kernel
    is the path kernel with ``normalise=True``, so the ridge is on values of variance 1 / fan in; for a DLGN-PWC
    (piecewise constant deep linearly gated network) it is the overlap times the number of inputs. Every network with a
    path kernel can be refitted, including ReLU and convolutional ones; paths through the same weights share a value.
    O(n³), in float64; gates are computed in the model's own dtype.

    Args:
        dlgn: the network that gives the gates.
        x: examples.
        y: the target outputs, (n,) or (n, k).
        ridge: λ, not relative to the kernel; 0 takes the best fit of least norm.
        biases: paths may also start at the biases of the value network.
        gates: "network" takes what the network computes, numbers where its gates are soft; "hard" takes bits.

    Returns:
        The refitted network: ``.predict(x)``, ``.path_values()``.

    Raises:
        InputError: y does not fit x or is not finite, or the ridge is negative or below the kernel's rounding.

    Example:
        >>> net = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 1))
        >>> x, y = torch.tensor([[1.0, 0.0], [0.0, 2.0]]), torch.tensor([3.0, -1.0])
        >>> refit_values(net, x, y).predict(x).flatten().round(decimals=2).tolist()
        [3.0, -1.0]
    """
    model = observable(dlgn)
    x = examples(x, model)
    targets = target_columns(y, len(x))
    if not isinstance(ridge, int | float) or not 0 <= ridge < float("inf"):
        raise InputError(f"ridge is {ridge!r}; it must be finite and not negative")
    dual = solve_in_memory(_kernel(model, x, None, biases, gates), targets, ridge)
    return RefittedValues(model, x, dual, ridge, biases, gates)


def _kernel(model: nn.Module, x: Tensor, y: Tensor | None, biases: bool, gates: GateChoice) -> Float[Tensor, "n m"]:
    """The path kernel in float64, of the gates that the model has in its own dtype."""
    kernel = PathKernel(model, biases=biases, batch_size=None, dtype=torch.float64, gates=gates)
    return evaluate(kernel.on(x, y), x, y)


def normalised_features(
    model: nn.Module,
    x: Float[Tensor, "n ..."],
    *,
    biases: bool = False,
    gates: GateChoice = "network",
    limit: int = DEFAULT_LIMIT,
) -> Float[Tensor, "n paths"]:
    """Return the path features whose Gram matrix is the normalised path kernel, in float64.

    They are φ / √(product of the widths after the path's start). The columns are the same as in
    :func:`gatelab.neural_path_features`; without ``biases`` only paths from the input.
    """
    chain = dense_chain(model)
    if len({layer.weight_name for layer in chain.layers}) < len(chain.layers):
        raise UnsupportedModelError("layers share a weight, so paths share values; they cannot be listed")
    index = PathIndex.of(chain)
    features = neural_path_features(model, x, gates=gates, limit=limit).double()
    blocks = features.split([index.count_from(start) for start in index.starts], dim=1)
    scaled = [block * _scale(chain, start) for block, start in zip(blocks, index.starts, strict=True)]
    return torch.cat(scaled if biases else scaled[:1], dim=1)


def _scale(chain: DenseChain, start: int) -> float:
    return prod(chain.widths[max(start, 1) : -1]) ** -0.5
