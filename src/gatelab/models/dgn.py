"""The deep gated network: one network holds the gates, another the values (npk, Section 4)."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from gatelab.errors import InputError
from gatelab.gates import HardGate, gated
from gatelab.gates.functions import GateFunction
from gatelab.models.init import dense_layers, initialise


class FeatureValueNetwork(nn.Module):
    """A network with parameters ``feature.…`` for the gates and ``value.…`` for the values."""

    feature: nn.ModuleList
    value: nn.ModuleList

    def feature_parameters(self) -> list[nn.Parameter]:
        """Return Θᶠ, the parameters of the gates."""
        return list(self.feature.parameters())

    def value_parameters(self) -> list[nn.Parameter]:
        """Return Θᵛ, the parameters of the values."""
        return list(self.value.parameters())


class DeepGatedNetwork(FeatureValueNetwork):
    r"""A fully connected deep gated network (DGN); each gate serves ``padding`` value units (npk, Table 3, Def. C.1).

    .. math:: z^V(l) = \Theta^V(l)\, z^V(l-1) \odot G(q^F(l)), \qquad \hat y = \Theta^V(d)\, z^V(d-1)

    The feature network is an ordinary ReLU network without its last weight layer, which would gate nothing.

    Example:
        >>> net = DeepGatedNetwork([2, 3, 1], padding=4)
        >>> [tuple(parameter.shape) for parameter in net.parameters()]
        [(3, 2), (12, 2), (1, 12)]
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
        """Build both networks with independent Glorot weights.

        Args:
            widths: widths of the feature network, input first; the last is the number of outputs.
            gate: the gate function, hard by default; a soft gate can be learnt.
            padding: how many times wider the value network is.
            bias: whether both networks have biases.
            dtype: of the parameters.
            generator: source of the weights.
        """
        super().__init__()
        if len(widths) < 3 or padding < 1:
            raise InputError(
                f"widths are {list(widths)}, padding {padding}; a DGN needs a hidden layer and padding ≥ 1"
            )
        inputs, *hidden, outputs = widths
        self.feature = nn.ModuleList(dense_layers([inputs, *hidden], bias, dtype))
        self.value = nn.ModuleList(dense_layers([inputs, *(padding * w for w in hidden), outputs], bias, dtype))
        self.gate: GateFunction = gate or HardGate()
        self.padding = padding
        initialise(self, generator)

    def forward(self, x: Float[Tensor, "n d"]) -> Float[Tensor, "n k"]:
        """Return the output of the value network under the gates of the feature network."""
        feature, value = x, x
        *hidden, last = self.value
        for feature_layer, value_layer in zip(self.feature, hidden, strict=True):
            q = feature_layer(feature)
            value = gated(value_layer(value), q.repeat(1, self.padding), self.gate)
            feature = torch.relu(q)
        return last(value)
