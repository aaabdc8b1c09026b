"""Deep linear networks, and the deep linearly gated networks between them and ReLU networks (halfspace, Section 2)."""

from collections.abc import Sequence
from itertools import pairwise

import torch
from jaxtyping import Float
from torch import Tensor, nn

from gatelab.errors import InputError
from gatelab.gates import SoftGate, gated
from gatelab.gates.functions import GateFunction
from gatelab.models.init import initialise


def dln(
    widths: Sequence[int],
    *,
    bias: bool = False,
    dtype: torch.dtype | None = None,
    generator: torch.Generator | None = None,
) -> nn.Sequential:
    """The deep linear network: all gates always open (npk, Section 3.1; halfspace, Table 1)."""
    if len(widths) < 2 or min(widths) < 1:
        raise InputError(f"widths are {list(widths)}; give at least input and output, all positive")
    net = nn.Sequential(*(nn.Linear(a, b, bias=bias, dtype=dtype) for a, b in pairwise(widths)))
    initialise(net, generator)
    return net


class DeepLinearlyGatedNetwork(nn.Module):
    r"""A network whose every gate is a half-space of the input (halfspace, Theorem 2).

    .. math::
        \eta_\ell = W_\ell\, \eta_{\ell-1}, \qquad
        h_\ell = G(\eta_\ell) \odot U_\ell\, h_{\ell-1}, \qquad \hat y = U_L\, h_{L-1}

    with η₀ = x and h₀ = x, or h₀ = 1 in the piecewise constant variant (DLGN-PWC), where x acts through gates alone.
    With ``shallow`` every gate layer reads x directly (DLGN-SF). Parameters are named ``feature.…`` and ``value.…``.
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
        """Make both networks, Glorot-initialised.

        Args:
            widths: input first, outputs last, at least one hidden layer between.
            gate: soft with β = 10 by default, so that the half-spaces can be learnt; hard for analysis.
            piecewise_constant: the value network sees ones instead of x.
            shallow: every gate layer reads x.
            gate_bias: half-spaces need not contain the origin on their boundary.
            value_bias: biases in the value network.
            dtype: of the parameters.
            generator: where the weights come from.
        """
        super().__init__()
        if len(widths) < 3 or min(widths) < 1:
            raise InputError(f"widths are {list(widths)}; a DLGN needs input, at least one hidden layer, and output")
        inputs, *hidden, _ = widths
        sources = [inputs] * len(hidden) if shallow else [inputs, *hidden[:-1]]
        self.feature = nn.ModuleList(
            nn.Linear(a, b, bias=gate_bias, dtype=dtype) for a, b in zip(sources, hidden, strict=True)
        )
        self.value = nn.ModuleList(nn.Linear(a, b, bias=value_bias, dtype=dtype) for a, b in pairwise(widths))
        self.gate: GateFunction = gate or SoftGate(beta=10.0)
        self.piecewise_constant = piecewise_constant
        self.shallow = shallow
        initialise(self, generator)

    def forward(self, x: Float[Tensor, "n d"]) -> Float[Tensor, "n k"]:
        """The output of the value network under linear gates."""
        eta, h = x, torch.ones_like(x) if self.piecewise_constant else x
        *hidden, last = self.value
        for feature_layer, value_layer in zip(self.feature, hidden, strict=True):
            eta = feature_layer(x if self.shallow else eta)
            h = gated(value_layer(h), eta, self.gate)
        return last(h)

    def feature_parameters(self) -> list[nn.Parameter]:
        """The parameters that place the half-spaces."""
        return list(self.feature.parameters())

    def value_parameters(self) -> list[nn.Parameter]:
        """The parameters that give the paths their worth."""
        return list(self.value.parameters())
