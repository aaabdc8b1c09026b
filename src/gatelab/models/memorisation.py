"""The memorisation network: a look-up table made of gates (npk, Appendix E)."""

from math import sqrt

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from gatelab.errors import InputError
from gatelab.models.init import bernoulli_, check_counts, dense_layers


class MemorisationNetwork(nn.Module):
    """A value network with input 1 and a fixed random gate pattern for each of n indices (npk, Table 4).

    The gates are drawn once from Ber(μ) and stored in the buffer ``gates`` (depth − 1, n, width). The weights start at
    ±σ with σ = √(1/(μ width)), for which E[K₀(s, s)]/d = 1.

    Args:
        n: the number of values to memorise.
        width: width of each hidden layer.
        depth: number of weight layers, at least 2.
        mu: probability that a gate is open.
        dtype: of weights and gates.
        generator: source of gates and weights.

    Example:
        >>> MemorisationNetwork(n=5, width=8, depth=3)(torch.tensor([0, 4])).shape
        torch.Size([2, 1])
    """

    gates: Tensor

    def __init__(
        self,
        n: int,
        width: int,
        depth: int,
        mu: float = 0.5,
        *,
        dtype: torch.dtype | None = None,
        generator: torch.Generator | None = None,
    ):
        super().__init__()
        check_counts(n=n, width=width, depth=depth)
        if depth < 2 or not 0 < mu <= 1:
            raise InputError(f"depth = {depth}, mu = {mu}; give depth ≥ 2 and 0 < mu ≤ 1")
        widths = [1, *[width] * (depth - 1), 1]
        self.value = nn.ModuleList(dense_layers(widths, False, dtype))
        open_gates = torch.rand(depth - 1, n, width, generator=generator) < mu
        self.register_buffer("gates", open_gates.to(dtype or torch.get_default_dtype()))
        for weight in self.value.parameters():
            bernoulli_(weight, sqrt(1 / (mu * width)), generator)

    def forward(self, index: Int[Tensor, " n"]) -> Float[Tensor, "n 1"]:
        """Return the memorised value of each index."""
        *hidden, last = self.value
        z = self.gates.new_ones(index.shape[0], 1)
        for layer, gates in zip(hidden, self.gates, strict=True):
            z = layer(z) * gates[index]
        return last(z)
