"""The networks of gdln: a hidden layer with a fixed mean readout, its gated linear twin, and deeper pathways."""

from collections import OrderedDict
from collections.abc import Sequence
from math import inf, isfinite, sqrt
from typing import cast

import torch
from jaxtyping import Float
from torch import Tensor, nn

from gatelab.errors import InputError
from gatelab.gates import HardGate, gated
from gatelab.models.init import check_counts, check_widths, dense_layers, initialise
from gatelab.models.node_gates import HalfSpaceGates, NodeGates


class Erf(nn.Module):
    """The activation σ(h) = erf(h/√2) (gdln, Section 1)."""

    def forward(self, h: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        """Apply the activation."""
        return torch.erf(h / sqrt(2))


class MeanReadoutNetwork(nn.Sequential):
    r"""The network :math:`\hat y = \frac{1}{K} \mathbf{1}^\top \sigma(W_1 x + b_1) + b_2` (gdln, Eq. 1).

    The readout 1/K is fixed. W₁ is trained, and b₁, b₂ if there are biases. W₁ starts Gaussian with variance scale²/d.

    Args:
        dim: input dimension d.
        units: number K of hidden units.
        activation: ReLU by default. :class:`Erf` and ``nn.Sigmoid()`` are nearly odd about zero: to separate
            zero-mean classes they need a bias that does not start at zero.
        bias: initial value of b₁ (b₂ starts at 0); None leaves both out.
        scale: scale of W₁.
        dtype: of the parameters.
        generator: source of W₁.

    Example:
        >>> MeanReadoutNetwork(dim=4, units=8)(torch.zeros(3, 4)).shape
        torch.Size([3, 1])
    """

    hidden: nn.Linear

    def __init__(
        self,
        dim: int,
        units: int,
        activation: nn.Module | None = None,
        *,
        bias: float | None = None,
        scale: float = 0.1,
        dtype: torch.dtype | None = None,
        generator: torch.Generator | None = None,
    ):
        check_counts(dim=dim, units=units)
        if not 0 <= scale < inf or (bias is not None and not isfinite(bias)):
            raise InputError(f"scale is {scale}, bias {bias}; give finite numbers, and a scale of at least 0")
        if activation is not None and not isinstance(activation, nn.Module):
            raise InputError(f"activation is {activation!r}; give a module, such as nn.ReLU()")
        hidden = nn.Linear(dim, units, bias=bias is not None, dtype=dtype)
        readout = _mean_readout(units, bias is not None, dtype)
        super().__init__(OrderedDict(hidden=hidden, activation=activation or nn.ReLU(), readout=readout))
        with torch.no_grad():
            hidden.weight.normal_(0.0, scale / sqrt(dim), generator=generator)
            if bias is not None:
                hidden.bias.fill_(bias)

    @property
    def weights(self) -> Float[Tensor, "k d"]:
        """W₁ (gdln, Eq. 4): the receptive fields."""
        return self.hidden.weight

    def frozen_gates(self) -> HalfSpaceGates:
        """Return copies of the current half-spaces W₁x + b₁ > 0 (gdln, Eq. 2, with > for ≥)."""
        return HalfSpaceGates(self.hidden.weight, self.hidden.bias)


class GatedDeepLinearNetwork(nn.Module):
    r"""The network :math:`\hat y = \frac{1}{K} \sum_k g_k(x)\, w_k^\top x` (gdln, Eq. 3). W starts at zero.

    Args:
        dim: input dimension d.
        gates: the K gates.
        dtype: of the parameters.

    Example:
        >>> GatedDeepLinearNetwork(2, HalfSpaceGates(torch.eye(2))).weights.tolist()
        [[0.0, 0.0], [0.0, 0.0]]
    """

    def __init__(self, dim: int, gates: NodeGates, *, dtype: torch.dtype | None = None):
        super().__init__()
        check_counts(dim=dim)
        _check_gates(gates, dim)
        self.gates = gates
        self.hidden = nn.Linear(dim, gates.count, bias=False, dtype=dtype)
        self.readout = _mean_readout(gates.count, False, dtype)
        nn.init.zeros_(self.hidden.weight)

    @property
    def weights(self) -> Float[Tensor, "k d"]:
        """W₁ (gdln, Eq. 4)."""
        return self.hidden.weight

    def forward(self, x: Float[Tensor, "n d"]) -> Float[Tensor, "n 1"]:
        """Return the mean over the gated units."""
        return self.readout(gated(self.hidden(x), self.gates(x), HardGate()))


class PathwayNetwork(nn.Module):
    r"""A deep linear network with gated hidden nodes; a node is a group of units that open together.

    .. math:: h_0 = x,\qquad h_\ell = G_\ell(x) \odot W_\ell h_{\ell-1},\qquad \hat y = W_L h_{L-1}

    A pathway is one node from each hidden layer; it is open when all its nodes are. Weights start Glorot.

    Args:
        dim: input dimension d.
        outputs: number k of outputs.
        gates: the gates of the nodes of each hidden layer, as functions of x.
        node_widths: the number of units in a node, for each hidden layer.
        dtype: of the weights.
        generator: source of the weights.

    Example:
        >>> net = PathwayNetwork(2, 1, [HalfSpaceGates(torch.eye(2))], node_widths=[3])
        >>> [tuple(weight.shape) for weight in net.weights()]
        [(6, 2), (1, 6)]
    """

    def __init__(
        self,
        dim: int,
        outputs: int,
        gates: Sequence[NodeGates],
        node_widths: Sequence[int],
        *,
        dtype: torch.dtype | None = None,
        generator: torch.Generator | None = None,
    ):
        super().__init__()
        check_counts(dim=dim, outputs=outputs)
        check_widths("node widths", node_widths, 1, "[4, 4]")
        if len(gates) != len(node_widths):
            raise InputError(f"{len(gates)} sets of gates, node widths {list(node_widths)}; give one width per set")
        for of_layer in gates:
            _check_gates(of_layer, dim)
        self.gates = nn.ModuleList(gates)
        self.node_widths = tuple(node_widths)
        hidden = [gate.count * width for gate, width in zip(gates, node_widths, strict=True)]
        self.layers = nn.ModuleList(dense_layers([dim, *hidden, outputs], False, dtype))
        initialise(self, generator)

    def node_gates(self) -> list[NodeGates]:
        """Return the gates of every hidden layer."""
        return [cast("NodeGates", gates) for gates in self.gates]

    def weights(self) -> list[Tensor]:
        """Return W of every layer."""
        return [cast("nn.Linear", layer).weight for layer in self.layers]

    def forward(self, x: Float[Tensor, "n d"]) -> Float[Tensor, "n k"]:
        """Return the output of the open pathways."""
        *hidden, last = self.layers
        h = x
        for layer, gates, width in zip(hidden, self.gates, self.node_widths, strict=True):
            h = gated(layer(h), gates(x).repeat_interleave(width, dim=1), HardGate())
        return last(h)


def _check_gates(gates: NodeGates, dim: int) -> None:
    if not isinstance(gates, NodeGates):
        raise InputError(f"gates are {type(gates).__name__}; give node gates, e.g. HalfSpaceGates(normals)")
    gates.check_inputs(dim)


def _mean_readout(units: int, bias: bool, dtype: torch.dtype | None) -> nn.Linear:
    readout = nn.Linear(units, 1, bias=bias, dtype=dtype)
    nn.init.constant_(readout.weight, 1 / units).requires_grad_(False)
    if bias:
        nn.init.zeros_(readout.bias)
    return readout
