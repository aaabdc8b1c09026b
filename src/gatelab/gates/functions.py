"""Gate functions: what a pre-activation q is turned into, and how it gates a value.

One convention everywhere: a gate is open when q > 0 (npk, Section 1), which is also what autograd takes at 0.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor
from torch.overrides import handle_torch_function, has_torch_function

GateFunction = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class HardGate:
    r"""The ReLU's own gate, :math:`\gamma_r(q) = 1_{q > 0}`; no gradient reaches q."""

    def __call__(self, q: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        """Return 0 or 1 in the dtype of q."""
        return (q > 0).to(q.dtype)


@dataclass(frozen=True)
class SoftGate:
    r"""The soft gate :math:`(1+\varepsilon)\,\sigma(\beta q)` through which gate gradients flow (npk, Appendix B).

    The paper uses β = 8, ε = 0; its authors' code β = 4, ε = 0.1.
    """

    beta: float = 8.0
    epsilon: float = 0.0

    def __call__(self, q: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        """Return the gate's value, between 0 and 1 + ε."""
        soft = torch.sigmoid(self.beta * q)
        return (1 + self.epsilon) * soft if self.epsilon else soft


@dataclass(frozen=True)
class StraightThroughGate:
    """Hard on the way forward, soft (σ(βq)) on the way back."""

    beta: float = 8.0

    def __call__(self, q: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        """Return 0 or 1 exactly; the gradient is the soft gate's."""
        soft = torch.sigmoid(self.beta * q)
        hard = (q > 0).to(q.dtype)
        # (soft - soft.detach()) is exactly zero, so that the forward value stays exactly 0 or 1.
        return hard + (soft - soft.detach())


@dataclass(frozen=True)
class LeakyGate:
    """A gate that lets ``slope`` of the value through when it is closed, as the LeakyReLU's does."""

    gate: GateFunction
    slope: float

    def __call__(self, q: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        """Return the gate's value, between the slope and 1."""
        gate = self.gate(q)
        return gate + self.slope * (1 - gate)  # exactly 1 or the slope if the gate is hard


def gated(
    value: Float[Tensor, " n *shape"], q: Float[Tensor, " n *shape"], gate: GateFunction
) -> Float[Tensor, " n *shape"]:
    """Multiply ``value`` by the gate of another network's pre-activation ``q``.

    In a deep gated network this stands where a ReLU network has its ReLU. It behaves as a torch function, so that
    gate capture and torch.fx see one operation: a path runs through ``value``; ``q`` only decides whether it is open.
    """
    if has_torch_function((value, q)):
        return handle_torch_function(gated, (value, q), value, q, gate)
    if isinstance(gate, HardGate):  # chosen, not multiplied: a closed gate stops infinity, too
        return torch.where(q > 0, value, torch.zeros((), dtype=value.dtype, device=value.device))
    if isinstance(gate, LeakyGate) and isinstance(gate.gate, HardGate):
        return torch.where(q > 0, value, value * gate.slope)
    return value * gate(q)
