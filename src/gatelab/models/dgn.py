"""Networks whose gates and values have weights of their own (npk, Section 4; halfspace, Section 2)."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from gatelab.errors import InputError
from gatelab.gates import HardGate, SoftGate, gated
from gatelab.gates.functions import GateFunction
from gatelab.models.init import Start, check_counts, check_widths, dense_layers, initialise


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

    The feature network is an ordinary ReLU network without its last weight layer, which would gate nothing. Both start
    with independent weights.

    Args:
        widths: widths of the feature network, input first; the last is the number of outputs.
        gate: the gate function, hard by default; a soft gate can be learnt.
        padding: how many times wider the value network is.
        bias: whether both networks have biases.
        dtype: of the parameters.
        start: how weights and biases are drawn.
        generator: source of the weights.

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
        start: Start = Start.GLOROT,
        generator: torch.Generator | None = None,
    ):
        super().__init__()
        _check_gate(gate)
        check_counts(padding=padding)
        check_widths("widths of a DGN", widths, 3, "[784, 128, 10]")
        inputs, *hidden, outputs = widths
        self.feature = nn.ModuleList(dense_layers([inputs, *hidden], bias, dtype))
        self.value = nn.ModuleList(dense_layers([inputs, *(padding * w for w in hidden), outputs], bias, dtype))
        self.gate: GateFunction = gate or HardGate()
        self.padding = padding
        initialise(self, generator, start)

    def forward(self, x: Float[Tensor, "n d"]) -> Float[Tensor, "n k"]:
        """Return the output of the value network under the gates of the feature network."""
        feature, value = x, x
        *hidden, last = self.value
        for feature_layer, value_layer in zip(self.feature, hidden, strict=True):
            q = feature_layer(feature)
            value = gated(value_layer(value), q.repeat(1, self.padding), self.gate)
            feature = torch.relu(q)
        return last(value)


class DeepLinearlyGatedNetwork(FeatureValueNetwork):
    r"""A deep linearly gated network (DLGN): each gate is a half-space of the input (halfspace, Theorem 2).

    .. math::
        \eta_\ell = W_\ell\, \eta_{\ell-1}, \qquad
        h_\ell = G(\eta_\ell) \odot U_\ell\, h_{\ell-1}, \qquad \hat y = U_L\, h_{L-1}

    with η₀ = x and h₀ = x, or h₀ = 1 in the piecewise constant variant (DLGN-PWC), where x acts through gates alone.
    With ``shallow`` every gate layer reads x directly (DLGN-SF).

    Args:
        widths: input first, outputs last, at least one hidden layer between.
        gate: soft with β = 10 by default, so that half-spaces can be learnt; use a hard one for analysis.
        piecewise_constant: feed ones to the value network instead of x.
        shallow: every gate layer reads x.
        gate_bias: give half-spaces an offset, so that their boundary need not contain the origin.
        value_bias: give the value network biases.
        dtype: of the parameters.
        start: how weights and biases are drawn.
        generator: source of the weights.

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
        start: Start = Start.GLOROT,
        generator: torch.Generator | None = None,
    ):
        super().__init__()
        _check_gate(gate)
        check_widths("widths of a DLGN", widths, 3, "[784, 128, 10]")
        inputs, *hidden, _ = widths
        sources = [inputs] * len(hidden) if shallow else [inputs, *hidden[:-1]]
        self.feature = nn.ModuleList(
            nn.Linear(a, b, bias=gate_bias, dtype=dtype) for a, b in zip(sources, hidden, strict=True)
        )
        self.value = nn.ModuleList(dense_layers(widths, value_bias, dtype))
        self.gate: GateFunction = gate or SoftGate(beta=10.0)
        self.piecewise_constant = piecewise_constant
        self.shallow = shallow
        initialise(self, generator, start)

    def forward(self, x: Float[Tensor, "n d"]) -> Float[Tensor, "n k"]:
        """Return the output of the value network under linear gates."""
        eta, h = x, torch.ones_like(x) if self.piecewise_constant else x
        *hidden, last = self.value
        for feature_layer, value_layer in zip(self.feature, hidden, strict=True):
            eta = feature_layer(x if self.shallow else eta)
            h = gated(value_layer(h), eta, self.gate)
        return last(h)


def _check_gate(gate: GateFunction | None) -> None:
    if gate is not None and not callable(gate):
        raise InputError(f"gate is {gate!r}; give a gate function, for example HardGate() or SoftGate(8.0)")
