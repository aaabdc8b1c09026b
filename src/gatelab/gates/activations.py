"""Activations as value times gate: f(q) = g(q) q + f(0), with a gate g that is a number."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import log, sqrt

import torch
from jaxtyping import Float
from torch import Tensor

# torch's constants of SELU.
_SELU_ALPHA, _SELU_SCALE = 1.6732632423543772, 1.0507009873554805


@dataclass(frozen=True)
class ActivationGate:
    r"""The gate :math:`g(q) = (f(q) - f(0)) / q` of an activation f, in a form that does not cancel near 0.

    =============  ==========================================================
    activation     gate
    =============  ==========================================================
    silu           σ(q)
    gelu           Φ(q), or ½ (1 + tanh(√(2/π) (q + 0.044715 q³)))
    hardswish      min(1, max(0, q/6 + ½))
    mish           tanh(log(1 + e^q))
    elu, celu      1 for q > 0, α (e^q − 1)/q or α (e^(q/α) − 1)/q otherwise
    selu           1.0507 times the gate of an ELU with α = 1.6733
    softplus       ½ + log cosh(βq/2) / (βq), and f(0) = log(2)/β is added
    =============  ==========================================================

    Attributes:
        name: the activation, as in the table.
        option: its parameter: α, β, or 1 for the tanh form of GELU.
        threshold: for Softplus only: where βq exceeds it, torch returns q itself.

    Example:
        >>> q = torch.tensor([-1.0, 0.0, 2.0])
        >>> bool(torch.allclose(ActivationGate("silu")(q) * q, torch.nn.functional.silu(q)))
        True
    """

    name: str
    option: float = 0.0
    threshold: float = 20.0

    def __call__(self, q: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        """Return the gate at q."""
        return _GATES[self.name](q, self)

    def offset(self, q: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        """Return f(0), which does not depend on q."""
        return torch.full_like(q, self.constant)

    @property
    def ends(self) -> tuple[float, float]:
        """The gate's limits far below and far above 0: 0 and 1, except 1.0507 above for a SELU."""
        return 0.0, _SELU_SCALE if self.name == "selu" else 1.0

    @property
    def constant(self) -> float:
        """f(0): log(2)/β for Softplus, 0 for the others."""
        return log(2) / self.option if self.name == "softplus" else 0.0


def _gelu(q: Tensor, gate: ActivationGate) -> Tensor:
    if gate.option:
        return 0.5 * (1 + torch.tanh(sqrt(2 / torch.pi) * (q + 0.044715 * q**3)))
    return 0.5 * (1 + torch.erf(q / sqrt(2)))


def _exponential(q: Tensor, alpha: float, rate: float) -> Tensor:
    """1 where q > 0, and α (exp(rate · q) − 1)/q elsewhere, whose limit at 0 is α · rate."""
    below = torch.where(q < 0, q, -1.0)  # keeps the unused branch free of division by zero and overflow
    return torch.where(q > 0, 1.0, torch.where(q < 0, alpha * torch.expm1(rate * below) / below, alpha * rate))


def _softplus(q: Tensor, gate: ActivationGate) -> Tensor:
    half = gate.option * q / 2
    near = half.clamp(-1, 1)
    log_cosh = torch.where(
        half.abs() < 1,
        torch.log1p(2 * torch.sinh(near / 2) ** 2),
        half.abs() + torch.log1p(torch.exp(-2 * half.abs())) - log(2),
    )
    nonzero = torch.where(half == 0, 1.0, half)
    soft = 0.5 + torch.where(half == 0, 0.0, log_cosh / (2 * nonzero))
    linear = 1 - gate.constant / torch.where(q == 0, 1.0, q)
    return torch.where(gate.option * q > gate.threshold, linear, soft)


_GATES: Mapping[str, Callable[[Tensor, ActivationGate], Tensor]] = {
    "silu": lambda q, _: torch.sigmoid(q),
    "gelu": _gelu,
    "hardswish": lambda q, _: (q / 6 + 0.5).clamp(0, 1),
    "mish": lambda q, _: torch.tanh(torch.nn.functional.softplus(q)),
    "elu": lambda q, gate: _exponential(q, gate.option, 1.0),
    "celu": lambda q, gate: _exponential(q, gate.option, 1 / gate.option),
    "selu": lambda q, _: _SELU_SCALE * _exponential(q, _SELU_ALPHA, 1.0),
    "softplus": _softplus,
}
