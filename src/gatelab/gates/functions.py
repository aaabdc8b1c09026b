"""Gate functions: how a pre-activation q becomes a gate, and how the gate multiplies a value.

One convention holds everywhere: a gate is open when q > 0 (npk, Section 1). Autograd treats q = 0 the same way.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from numbers import Real

import torch
from jaxtyping import Float
from torch import Tensor
from torch.overrides import handle_torch_function, has_torch_function

from gatelab.errors import InputError

GateFunction = Callable[[Tensor], Tensor]


def refuse_steepness(beta: object) -> None:
    """Raise InputError unless the steepness β is a positive number."""
    if isinstance(beta, bool) or not isinstance(beta, Real) or not 0 < float(beta) < inf:
        raise InputError(f"beta is {beta!r}; it must be a positive number; for a hard gate use HardGate()")


@dataclass(frozen=True)
class HardGate:
    r"""The gate of a ReLU, :math:`\gamma_r(q) = 1_{q > 0}`; no gradient reaches q."""

    def __call__(self, q: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        """Return 0 or 1 in the dtype of q."""
        return (q > 0).to(q.dtype)


@dataclass(frozen=True)
class SoftGate:
    r"""The soft gate :math:`(1+\varepsilon)\,\sigma(\beta q)`, through which gradients reach q (npk, Appendix B).

    The paper uses β = 8, ε = 0; its authors' code uses β = 4, ε = 0.1.

    Attributes:
        beta: the steepness β; the gate becomes hard as β → ∞.
        epsilon: ε, by which an open gate exceeds 1.

    Example:
        >>> SoftGate(beta=4.0, epsilon=0.5)(torch.tensor([0.0, 100.0])).tolist()
        [0.75, 1.5]
    """

    beta: float = 8.0
    epsilon: float = 0.0

    def __post_init__(self) -> None:
        refuse_steepness(self.beta)

    def __call__(self, q: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        """Return the gate, between 0 and 1 + ε."""
        soft = torch.sigmoid(self.beta * q)
        return (1 + self.epsilon) * soft if self.epsilon else soft


@dataclass(frozen=True)
class StraightThroughGate:
    """A gate that is hard in the forward pass and soft, σ(βq), in the backward pass."""

    beta: float = 8.0

    def __post_init__(self) -> None:
        refuse_steepness(self.beta)

    def __call__(self, q: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        """Return exactly 0 or 1, with the gradient of the soft gate."""
        soft = torch.sigmoid(self.beta * q)
        hard = (q > 0).to(q.dtype)
        # soft - soft.detach() is exactly zero, so the forward value stays exactly 0 or 1.
        return hard + (soft - soft.detach())


@dataclass(frozen=True)
class LeakyGate:
    """A gate that still passes ``slope`` of the value when it is closed, like the gate of a LeakyReLU.

    Attributes:
        gate: the gate function, from 0 (closed) to 1 (open).
        slope: the value of a closed gate: one number, or one for each channel.

    Example:
        >>> LeakyGate(HardGate(), slope=0.25)(torch.tensor([-3.0, 3.0])).tolist()
        [0.25, 1.0]
    """

    gate: GateFunction
    slope: float | tuple[float, ...]

    def __post_init__(self) -> None:
        slopes = self.slope if isinstance(self.slope, tuple) else (self.slope,)
        if not callable(self.gate) or not all(isinstance(slope, Real) for slope in slopes):
            raise InputError(
                f"a leaky gate takes a gate function and one or more slopes; got {self.gate!r}, {self.slope!r}"
            )

    def __call__(self, q: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        """Return the gate, between the slope and 1."""
        gate = self.gate(q)
        return gate + self.closed(q) * (1 - gate)  # exact at both ends: 1, or the slope

    def closed(self, q: Float[Tensor, "*shape"]) -> Tensor:
        """Return the value of closed gates; slopes by channel belong to the axis after the examples."""
        slope = torch.tensor(self.slope, dtype=q.dtype, device=q.device)
        return slope.view(-1, *[1] * (q.ndim - 2)) if slope.ndim else slope


@dataclass(frozen=True)
class BoundedGate:
    """The gate of ReLU6, Hardtanh and clamp: open between two bounds; outside, the operation returns the nearer bound.

    Example:
        >>> gate, q = BoundedGate(0.0, 6.0), torch.tensor([-1.0, 2.0, 7.0])
        >>> gate(q).tolist(), gate.offset(q).tolist()
        ([0.0, 1.0, 0.0], [0.0, 0.0, 6.0])
    """

    low: float
    high: float

    def __call__(self, q: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        """Return 1 between the bounds, and 0 outside."""
        return ((q > self.low) & (q < self.high)).to(q.dtype)

    def offset(self, q: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        """Return what the gate adds: the nearer bound where it is closed, 0 where it is open."""
        return q.clamp(self.low, self.high) * (1 - self(q))


@dataclass(frozen=True)
class FactorGate:
    """A gate that is a signal itself, such as the sigmoid of a squeeze-and-excitation block: q is the factor.

    Attributes:
        threshold: the factor above which the gate counts as open.
        low, high: the factors of a closed and an open gate when the gate is hardened: −1 and 1 for a tanh.
    """

    threshold: float = 0.5
    low: float = 0.0
    high: float = 1.0

    @property
    def ends(self) -> tuple[float, float]:
        """``low`` and ``high``."""
        return self.low, self.high

    def __call__(self, q: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        """Return q."""
        return q


def gated(
    value: Float[Tensor, " n *shape"], q: Float[Tensor, " n *shape"], gate: GateFunction
) -> Float[Tensor, " n *shape"]:
    """Multiply ``value`` by a gate that is computed from another network's pre-activation ``q``.

    A deep gated network uses this operation where a ReLU network has its ReLU. It overrides like a torch function, so
    gate capture and torch.fx see one operation: paths run through ``value``, and ``q`` decides which are open.

    Args:
        value: what passes through the gate.
        q: what decides whether the gate is open, of the same shape.
        gate: a gate function, e.g. :class:`HardGate`.

    Returns:
        gate(q) · value; plus ``gate.offset(q)``, if the gate has one.

    Example:
        >>> gated(torch.tensor([[5.0, 7.0]]), torch.tensor([[1.0, -1.0]]), HardGate()).tolist()
        [[5.0, 0.0]]
    """
    if has_torch_function((value, q)):
        return handle_torch_function(gated, (value, q), value, q, gate)
    _refuse_what_cannot_gate(value, q, gate)
    if isinstance(gate, HardGate):  # select instead of multiply: 0 · ∞ would be NaN
        return torch.where(q > 0, value, torch.zeros((), dtype=value.dtype, device=value.device))
    if isinstance(gate, LeakyGate) and isinstance(gate.gate, HardGate):
        return torch.where(q > 0, value, value * gate.closed(q))
    offset = getattr(gate, "offset", None)
    return value * gate(q) if offset is None else value * gate(q) + offset(q)


def _refuse_what_cannot_gate(value: object, q: object, gate: object) -> None:
    if not (isinstance(value, Tensor) and isinstance(q, Tensor)):
        raise InputError(f"gated takes two tensors, got {type(value).__name__} and {type(q).__name__}")
    if not callable(gate):
        raise InputError(f"gate is {gate!r}; give a gate function, for example HardGate()")
    if value.shape != q.shape:
        try:
            torch.broadcast_shapes(value.shape, q.shape)
        except RuntimeError:
            raise InputError(
                f"value has shape {tuple(value.shape)}, q has shape {tuple(q.shape)}; a gate needs a q for each value"
            ) from None
