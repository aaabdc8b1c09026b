"""The deep gated network: one network holds the gates, another the values (npk, Section 4)."""

from collections.abc import Sequence
from itertools import pairwise

import torch
from jaxtyping import Float
from torch import Tensor, nn

from gatelab.errors import InputError
from gatelab.gates import HardGate, gated
from gatelab.gates.functions import GateFunction
from gatelab.models.init import initialise


class DeepGatedNetwork(nn.Module):
    r"""A fully connected DGN, with its gates padded ``padding`` times (npk, Table 3 and Definition C.1).

    .. math:: z^V(l) = \Theta^V(l)\, z^V(l-1) \odot G(q^F(l)), \qquad \hat y = \Theta^V(d)\, z^V(d-1)

    The feature network is an ordinary ReLU network; its last weight layer would gate nothing and does not exist.
    Parameters are named ``feature.…`` and ``value.…``.
    """

    def __init__(
        self,
        widths: Sequence[int],
        *,
        gate: GateFunction | None = None,
        padding: int = 1,
        bias: bool = False,
        dtype: torch.dtype | None = None,
        generator: torch.Generator | None = None,
    ):
        """Make both networks, Glorot-initialised independently of each other.

        Args:
            widths: of the feature network, input first; the last is the number of outputs.
            gate: hard by default; a soft gate lets the gates be learnt.
            padding: the value network is this many times wider.
            bias: whether both networks have biases.
            dtype: of the parameters.
            generator: where the weights come from.
        """
        super().__init__()
        if len(widths) < 3 or padding < 1:
            raise InputError(
                f"widths are {list(widths)}, padding {padding}; a DGN needs a hidden layer and padding ≥ 1"
            )
        inputs, *hidden, outputs = widths
        wide = [inputs, *(padding * w for w in hidden), outputs]
        self.feature = _dense_layers([inputs, *hidden], bias, dtype)
        self.value = _dense_layers(wide, bias, dtype)
        self.gate: GateFunction = gate or HardGate()
        self.padding = padding
        initialise(self, generator)

    def forward(self, x: Float[Tensor, "n d"]) -> Float[Tensor, "n k"]:
        """The output of the value network under the feature network's gates."""
        feature, value = x, x
        *hidden, last = self.value
        for feature_layer, value_layer in zip(self.feature, hidden, strict=True):
            q = feature_layer(feature)
            value = gated(value_layer(value), q.repeat(1, self.padding), self.gate)
            feature = torch.relu(q)
        return last(value)

    def feature_parameters(self) -> list[nn.Parameter]:
        """Θᶠ, which holds the gates."""
        return list(self.feature.parameters())

    def value_parameters(self) -> list[nn.Parameter]:
        """Θᵛ, which holds the values."""
        return list(self.value.parameters())


def _dense_layers(widths: Sequence[int], bias: bool, dtype: torch.dtype | None) -> nn.ModuleList:
    return nn.ModuleList(nn.Linear(a, b, bias=bias, dtype=dtype) for a, b in pairwise(widths))
