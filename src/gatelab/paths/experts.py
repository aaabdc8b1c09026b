"""A network as a mixture of linear experts, one per path through the hidden layers (halfspace, Section 2)."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import torch
from jaxtyping import Float
from torch import Tensor, nn

from gatelab.gates.choice import GateChoice, is_hard
from gatelab.network.capture import capture_gates
from gatelab.network.chain import DenseChain, chain_of
from gatelab.network.network import read
from gatelab.network.unfolding import unfolded_chain
from gatelab.observe import examples, observable
from gatelab.paths.enumeration import DEFAULT_LIMIT, PathIndex
from gatelab.paths.features import extended, gate_factors, input_nodes, outer


@dataclass(frozen=True)
class MixtureOfExperts:
    r"""A network as ŷ(x) = Σ_π f_π(x) g_π(x): a gate f_π and an expert g_π, linear or constant, per path π.

    .. math::
        f_\pi(x) = \prod_\ell G_\ell(x, i_\ell), \qquad
        g_\pi(x) = w_{L, i_{L-1}} \Big[\prod_{\ell=2}^{L-1} w_{\ell, i_\ell, i_{\ell-1}}\Big]
        (w_{1, i_1}^\top x + b_{1, i_1})

    See halfspace, Table 1. The gates are the network's own, of a ReLU network or a deep linearly gated network (DLGN).
    x is 1 in a piecewise constant DLGN, and f is 1 in a deep linear network. A closed LeakyReLU gate counts with its
    slope, a soft gate with its number, unless hard gates are requested.

    A path is the unit passed in each hidden layer, (i₁, …, i_{L−1}). If a later layer l has a bias, there are also
    constant experts that start there, with the shorter paths (i_l, …, i_{L−1}). They are numbered after the others, by
    l. The bias of the output is the expert of the empty path.

    In a convolutional network a unit is a channel at a position, numbered channel by channel and row by row, and the
    weight between units that are not connected is 0. A max-pooling is a layer of gates whose units are the taps of its
    windows, (channel, *window, tap); the gate of the winner is open. Average pooling and batch-norm are part of the
    weights.

    Attributes:
        model: the network.
        chain: its value layers.
        index: numbers the paths by hidden units; its start s is the bias of weight layer s + 1.
        gates: whether the gates are the network's own or hard.
    """

    model: nn.Module
    chain: DenseChain
    index: PathIndex
    gates: GateChoice = "network"

    @property
    def count(self) -> int:
        """Number of experts, m^(L−1) without biases after the first layer."""
        return self.index.count

    def gating(
        self, x: Float[Tensor, "n ..."], path: Sequence[int] | None = None, *, limit: int = DEFAULT_LIMIT
    ) -> Float[Tensor, " n *paths"]:
        """Return f_π(x) of one path, (n,), or of all paths, (n, paths)."""
        x = examples(x, self.model)
        if path is not None:
            start, units = self._located(path)
            chosen = zip(self._gates(x)[start:], units, strict=True)
            return reduce(torch.mul, [gate[:, unit] for gate, unit in chosen], x.new_ones(x.shape[0]))
        self.index.guard(limit, "ask for one path at a time")
        gates, ones = self._gates(x), x.new_ones(x.shape[0], 1)
        return torch.cat([reduce(outer, gates[start:], ones) for start in self.index.starts], dim=1)

    def expert(
        self, x: Float[Tensor, "n ..."], path: Sequence[int] | None = None, *, limit: int = DEFAULT_LIMIT
    ) -> Float[Tensor, "n *paths k"]:
        """Return g_π(x) of one path, (n, k), or of all paths, (n, paths, k)."""
        nodes = input_nodes(x, self.model, self.chain)
        if path is not None:
            start, units = self._located(path)
            first, weights = self._first(nodes, start), self._weights(start)
            if not units:  # the bias of the output
                return first
            inner = [weight[after, before] for weight, before, after in zip(weights, units, units[1:], strict=False)]
            return reduce(torch.mul, inner, first[:, units[0]])[:, None] * weights[-1][:, units[-1]]
        self.index.guard(limit, "ask for one path at a time")
        blocks = [extended(self._first(nodes, start).unsqueeze(1), self._weights(start)) for start in self.index.starts]
        return torch.cat(blocks, dim=1)

    def __call__(self, x: Float[Tensor, "n ..."], *, limit: int = DEFAULT_LIMIT) -> Float[Tensor, "n k"]:
        """Return Σ_π f_π(x) g_π(x): the output of the network with these gates."""
        return torch.einsum("np,npk->nk", self.gating(x, limit=limit), self.expert(x, limit=limit))

    def _gates(self, x: Tensor) -> list[Float[Tensor, "n w"]]:
        if not self.chain.gates:
            return [x.new_ones(x.shape[0], width) for width in self.index.widths]
        pattern = capture_gates(self.model, x)
        return gate_factors(pattern.hard() if is_hard(self.gates) else pattern, self.chain)

    def _first(self, nodes: Tensor, start: int) -> Float[Tensor, "n w"]:
        """Return the inputs of the first units on the paths: w₁ᵀx + b₁, or the bias of a later layer."""
        layer = self.chain.layers[start]
        bias = nodes.new_zeros(()) if layer.bias is None else layer.bias.detach()
        return bias.expand(nodes.shape[0], -1) if start > 0 else nodes @ layer.weight.detach().T + bias

    def _weights(self, start: int) -> list[Tensor]:
        return [layer.weight.detach() for layer in self.chain.layers[start + 1 :]]

    def _located(self, path: Sequence[int]) -> tuple[int, tuple[int, ...]]:
        start = len(self.index.widths) - len(path)
        self.index.number(path, start)  # raises if the path does not exist
        return start, tuple(path)


def mixture_of_experts(
    model: nn.Module, x: Float[Tensor, "n ..."] | None = None, *, gates: GateChoice = "network"
) -> MixtureOfExperts:
    """Read a network as a mixture of experts; no path is listed before a method asks for it.

    Args:
        model: a ReLU network, a deep gated or deep linearly gated network, or a deep linear network; fully connected,
            or any other chain of layers, such as a convolutional network.
        x: examples on which to read the model, needed if its layers do not determine the size of its images.
        gates: "network" takes what the network computes, numbers where its gates are soft; "hard" takes bits.

    Returns:
        The mixture, with its gates (``gating``) and experts (``expert``) by path.

    Example:
        >>> net = nn.Sequential(nn.Linear(2, 2, bias=False), nn.ReLU(), nn.Linear(2, 1, bias=False))
        >>> _ = net[0].weight.data.copy_(torch.tensor([[1.0, 0.0], [-1.0, 0.0]]))
        >>> mixture, x = mixture_of_experts(net), torch.tensor([[3.0, 5.0]])
        >>> mixture.count, mixture.gating(x).tolist()
        (2, [[1.0, 0.0]])
        >>> bool((mixture(x) - net(x)).abs() < 1e-6)
        True
    """
    model = observable(model)
    network = read(model, x)
    dense = all(len(node.meta.get("shape", ())) < 3 for node in network.value_nodes)
    chain = chain_of(network, gates=bool(network.gates)) if dense else unfolded_chain(network)
    biased = tuple(layer.bias is not None for layer in chain.layers[1:])
    is_hard(gates)
    return MixtureOfExperts(model, chain, PathIndex(chain.widths[1:-1], biased), gates)
