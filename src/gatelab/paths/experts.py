"""A network as a mixture of linear experts, one for each path through the hidden layers (halfspace, Section 2)."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import torch
from jaxtyping import Float
from torch import Tensor, nn

from gatelab.errors import InputError
from gatelab.gates import capture_gates
from gatelab.network import DenseChain, dense_chain, gate_names, trace
from gatelab.observe import examples, observable
from gatelab.paths.enumeration import DEFAULT_LIMIT, PathIndex
from gatelab.paths.features import gate_factors, outer


@dataclass(frozen=True)
class MixtureOfExperts:
    r"""ŷ(x) = Σ_π f_π(x) g_π(x): a gating model f_π and an expert g_π, linear or constant, for each path π.

    .. math::
        f_\pi(x) = \prod_\ell G_\ell(x, i_\ell), \qquad
        g_\pi(x) = w_{L, i_{L-1}} \Big[\prod_{\ell=2}^{L-1} w_{\ell, i_\ell, i_{\ell-1}}\Big]
        (w_{1, i_1}^\top x + b_{1, i_1})

    (halfspace, Table 1.) The gates are those of the ReLU network or of the DLGN, x is 1 in a DLGN-PWC, and f is 1 in a
    deep linear network. A LeakyReLU's closed gate counts with its slope, soft gates as hard ones.

    A path is the unit passed in each hidden layer, (i₁, …, i_{L−1}). Where a later layer l has a bias there are also
    constant experts that start there, with the shorter paths (i_l, …, i_{L−1}), numbered behind the others, by l; the
    bias of the output is the expert of the empty path.

    Attributes:
        model: the network.
        chain: its value layers.
        index: numbers the paths, by hidden units; in it start s is the bias of weight layer s + 1.
    """

    model: nn.Module
    chain: DenseChain
    index: PathIndex

    @property
    def count(self) -> int:
        """Number of experts, m^(L−1) without biases behind the first layer."""
        return self.index.count

    def gating(
        self, x: Float[Tensor, "n ..."], path: Sequence[int] | None = None, *, limit: int = DEFAULT_LIMIT
    ) -> Float[Tensor, " n *paths"]:
        """f_π(x) of one path, (n,), or of all, (n, paths)."""
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
        """g_π(x) of one path, (n, k), or of all, (n, paths, k)."""
        x = examples(x, self.model).flatten(1)
        if x.shape[1] != self.chain.widths[0]:
            raise InputError(f"x has {x.shape[1]} values per example, the first layer takes {self.chain.widths[0]}")
        if path is not None:
            start, units = self._located(path)
            # The expert of a path alone is the one expert of the network that has no other unit.
            weights = self._weights(start)
            for layer, unit in enumerate(units):
                weights[layer] = weights[layer][:, [unit]]
            inner = [weight[[unit]] for weight, unit in zip(weights, units[1:], strict=False)]
            return _through(self._first(x, start)[:, [*units[:1]] or slice(None)], [*inner, *weights[-1:]])[:, 0]
        self.index.guard(limit, "ask for one path at a time")
        return torch.cat([_through(self._first(x, s), self._weights(s)) for s in self.index.starts], dim=1)

    def __call__(self, x: Float[Tensor, "n ..."], *, limit: int = DEFAULT_LIMIT) -> Float[Tensor, "n k"]:
        """Σ_π f_π(x) g_π(x) over all paths: the network's output, with hard gates in the place of soft ones."""
        return torch.einsum("np,npk->nk", self.gating(x, limit=limit), self.expert(x, limit=limit))

    def _gates(self, x: Tensor) -> list[Float[Tensor, "n w"]]:
        if not self.chain.gates:
            return [x.new_ones(x.shape[0], width) for width in self.index.widths]
        return gate_factors(capture_gates(self.model, x), self.chain)

    def _first(self, x: Tensor, start: int) -> Float[Tensor, "n w"]:
        """What the first units on the paths from a start are given: w₁ᵀx + b₁, or the bias of a later layer."""
        layer = self.chain.layers[start]
        bias = torch.zeros(()) if layer.bias is None else layer.bias.detach()
        if start > 0:
            return bias.expand(x.shape[0], -1)
        nodes = torch.ones_like(x) if self.chain.constant_input else x
        return nodes @ layer.weight.detach().T + bias.to(x)

    def _weights(self, start: int) -> list[Tensor]:
        return [layer.weight.detach() for layer in self.chain.layers[start + 1 :]]

    def _located(self, path: Sequence[int]) -> tuple[int, tuple[int, ...]]:
        start = len(self.index.widths) - len(path)
        self.index.number(path, start)  # refuses paths that do not exist
        return start, tuple(path)


def mixture_of_experts(model: nn.Module) -> MixtureOfExperts:
    """A fully connected network as a mixture of experts; nothing is listed until it is asked for.

    Args:
        model: a ReLU network, DGN, DLGN, DLGN-PWC or deep linear network, with or without biases.

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
    chain = dense_chain(model, gates=bool(gate_names(trace(model), dict(model.named_modules()))))
    biased = tuple(layer.bias is not None for layer in chain.layers[1:])
    return MixtureOfExperts(model, chain, PathIndex(chain.widths[1:-1], biased))


def _through(first: Float[Tensor, "n w"], weights: list[Tensor]) -> Float[Tensor, "n paths k"]:
    """Extend every path through every unit of the next layer."""
    values = first.unsqueeze(1)
    for weight in weights:
        values = (values.unsqueeze(-1) * weight.T).flatten(1, 2)
    return values
