"""Deep linear networks, and the deep linearly gated networks between them and ReLU networks (halfspace, Section 2)."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from gatelab.errors import InputError
from gatelab.gates import SoftGate, gated
from gatelab.gates.functions import GateFunction
from gatelab.models.dgn import FeatureValueNetwork
from gatelab.models.init import dense_layers, initialise


def dln(
    widths: Sequence[int],
    *,
    bias: bool = False,
    dtype: torch.dtype | None = None,
    generator: torch.Generator | None = None,
) -> nn.Sequential:
    """Return a deep linear network: all gates are always open (npk, Section 3.1; halfspace, Table 1).

    Args:
        widths: width of each layer, input first, outputs last.
        bias: whether layers have biases; they start at zero.
        dtype: of the parameters.
        generator: source of the weights.

    Returns:
        ``nn.Linear`` layers with Glorot weights.

    Example:
        >>> len(dln([4, 3, 2]))
        2
    """
    return initialise(nn.Sequential(*dense_layers(widths, bias, dtype)), generator)


class DeepLinearlyGatedNetwork(FeatureValueNetwork):
    r"""A deep linearly gated network (DLGN): each gate is a half-space of the input (halfspace, Theorem 2).

    .. math::
        \eta_\ell = W_\ell\, \eta_{\ell-1}, \qquad
        h_\ell = G(\eta_\ell) \odot U_\ell\, h_{\ell-1}, \qquad \hat y = U_L\, h_{L-1}

    with η₀ = x and h₀ = x, or h₀ = 1 in the piecewise constant variant (DLGN-PWC), where x acts through gates alone.
    With ``shallow`` every gate layer reads x directly (DLGN-SF).

    Example:
        >>> net = DeepLinearlyGatedNetwork([2, 3, 3, 1])
        >>> [name for name, _ in net.named_parameters() if name.startswith("value")]
        ['value.0.weight', 'value.1.weight', 'value.2.weight']
    """

    def __init__(
        self,
        widths: Sequence[int],
        *,
        gate: GateFunction | None = None,
        piecewise_constant: bool = False,
        shallow: bool = False,
        gate_bias: bool = True,
        value_bias: bool = False,
        dtype: torch.dtype | None = None,
        generator: torch.Generator | None = None,
    ):
        """Build both networks with Glorot weights.

        Args:
            widths: input first, outputs last, at least one hidden layer between.
            gate: soft with β = 10 by default, so that half-spaces can be learnt; use a hard one for analysis.
            piecewise_constant: feed ones to the value network instead of x.
            shallow: every gate layer reads x.
            gate_bias: give half-spaces an offset, so that their boundary need not contain the origin.
            value_bias: give the value network biases.
            dtype: of the parameters.
            generator: source of the weights.
        """
        super().__init__()
        if len(widths) < 3 or min(widths) < 1:
            raise InputError(f"widths are {list(widths)}; a DLGN needs input, at least one hidden layer, and output")
        inputs, *hidden, _ = widths
        sources = [inputs] * len(hidden) if shallow else [inputs, *hidden[:-1]]
        self.feature = nn.ModuleList(
            nn.Linear(a, b, bias=gate_bias, dtype=dtype) for a, b in zip(sources, hidden, strict=True)
        )
        self.value = nn.ModuleList(dense_layers(widths, value_bias, dtype))
        self.gate: GateFunction = gate or SoftGate(beta=10.0)
        self.piecewise_constant = piecewise_constant
        self.shallow = shallow
        initialise(self, generator)

    def forward(self, x: Float[Tensor, "n d"]) -> Float[Tensor, "n k"]:
        """Return the output of the value network under linear gates."""
        eta, h = x, torch.ones_like(x) if self.piecewise_constant else x
        *hidden, last = self.value
        for feature_layer, value_layer in zip(self.feature, hidden, strict=True):
            eta = feature_layer(x if self.shallow else eta)
            h = gated(value_layer(h), eta, self.gate)
        return last(h)
