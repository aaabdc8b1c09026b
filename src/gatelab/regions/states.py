"""The state of a gate: what it does to the value that passes it, on a region where that does not change.

A half-space gate is open or closed: a truth value. A gate with two bounds (ReLU6, Hardtanh) is below (−1), between (0)
or above them (1). A max-pooling has a winner, the number of a tap, for each window.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from gatelab.gates.layer import Slope, factors_of
from gatelab.gates.pooling import AdaptiveMaxPool, take
from gatelab.network.gating import Gating

States = Mapping[str, Shaped[Tensor, "n ..."]]


@dataclass(frozen=True)
class Faces:
    """The inequalities under which the gates of a layer have their states: constant + ⟨slope, x⟩ > 0, or ≥ 0.

    Attributes:
        constants: one for each inequality.
        slopes: one row for each.
        strict: whether it is >, not ≥.
        units: the unit that each belongs to; a window of a max-pooling is a unit.
        beyond: the unit's state where this inequality alone fails.
    """

    constants: Float[Tensor, " faces"]
    slopes: Float[Tensor, "faces d"]
    strict: Bool[Tensor, " faces"]
    units: Int[Tensor, " faces"]
    beyond: Int[Tensor, " faces"]


@dataclass(frozen=True)
class HalfSpaceStates:
    """A gate that is open where q > 0."""

    slope: Slope

    def of(self, q: Tensor) -> Bool[Tensor, "n ..."]:
        """Return the states at these pre-activations."""
        return q > 0

    def opened(self, state: Tensor) -> Bool[Tensor, "n ..."]:
        """Return which gates of a GatePattern are open."""
        return state

    def action(self, state: Tensor, *, plain: bool = False) -> Callable[[Tensor], Any]:
        """Return what gates in this state do to the value; if ``plain``, closed gates and bounds pass nothing."""
        factor = self.factor(state, plain=plain)
        return lambda value: value * factor

    def factor(self, state: Tensor, *, plain: bool = False) -> Float[Tensor, "n ..."]:
        """Return what gates in this state multiply by."""
        return factors_of(state, 0.0 if plain else self.slope, torch.float64)

    def faces(self, constants: Tensor, slopes: Tensor, state: Tensor) -> Faces:
        """Return the inequalities of one example's states, from each unit's q as an affine function."""
        flat = state.flatten()
        sign = torch.where(flat, 1.0, -1.0).to(constants)
        units = torch.arange(len(flat), device=flat.device)
        return Faces(sign * constants, sign[:, None] * slopes, flat, units, (~flat).long())


@dataclass(frozen=True)
class BoundedStates:
    """A gate that is open where low < q < high."""

    low: float
    high: float

    def of(self, q: Tensor) -> Int[Tensor, "n ..."]:
        """Return the states at these pre-activations."""
        return (q >= self.high).to(torch.int8) - (q <= self.low).to(torch.int8)

    def opened(self, state: Tensor) -> Bool[Tensor, "n ..."]:
        """Return which gates of a GatePattern are open."""
        return state == 0

    def action(self, state: Tensor, *, plain: bool = False) -> Callable[[Tensor], Any]:
        """Return what gates in this state do to the value; if ``plain``, closed gates and bounds pass nothing."""
        if plain:
            return lambda value: value * (state == 0)
        constant = self._bounds(state.device)[(state > 0).long()]
        return lambda value: torch.where(state == 0, value, constant)

    def faces(self, constants: Tensor, slopes: Tensor, state: Tensor) -> Faces:
        """Return the inequalities of one example's states, from each unit's q as an affine function."""
        flat = state.flatten().long()
        low, high = (flat <= 0).nonzero()[:, 0], (flat >= 0).nonzero()[:, 0]  # the bounds that matter to each unit
        units, bound = torch.cat([low, high]), torch.cat([torch.full_like(low, -1), torch.full_like(high, 1)])
        inside = flat[units] == 0
        sign = torch.where(inside, -bound, bound).to(constants)  # q > low, q < high; or q ≤ low, q ≥ high
        limit = self._bounds(constants.device)[(bound > 0).long()]
        beyond = torch.where(inside, bound, 0)
        return Faces(sign * (constants[units] - limit), sign[:, None] * slopes[units], inside, units, beyond)

    def _bounds(self, device: torch.device) -> Float[Tensor, "2"]:
        """Both bounds in float64: ``torch.where`` of two numbers would round them to float32."""
        return torch.tensor([self.low, self.high], dtype=torch.float64, device=device)


@dataclass(frozen=True)
class WinnerStates:
    """A max-pooling, whose windows pass the value of their winner; of equal inputs the first wins.

    Attributes:
        positions: the flat position of each window's taps; −1 in the padding.
        with_indices: whether the operation returns the winners' positions too.
    """

    positions: Int[Tensor, "*windows taps"]
    with_indices: bool

    def of(self, q: Tensor) -> Int[Tensor, "n ..."]:
        """Return the states at these pre-activations."""
        return self.taps(q).argmax(-1)

    def taps(self, q: Tensor) -> Tensor:
        """Return the inputs of each window; −∞ in the padding."""
        places = self.positions.to(q.device)
        values = q.flatten(2)[:, :, places.clamp(min=0)]
        return values.masked_fill(places < 0, -torch.inf)

    def opened(self, state: Tensor) -> Bool[Tensor, "n ..."]:
        """Return which gates of a GatePattern are open."""
        return state.unsqueeze(-1) == torch.arange(self.positions.shape[-1], device=state.device)

    def action(self, state: Tensor, *, plain: bool = False) -> Callable[[Tensor], Any]:
        """Return what gates in this state do to the value."""
        del plain  # a winner passes all of it
        places = self.positions.to(state.device).expand(*state.shape, -1)
        winners = places.gather(-1, state.long().unsqueeze(-1)).squeeze(-1)
        return lambda value: (take(value, winners), winners) if self.with_indices else take(value, winners)

    def faces(self, constants: Tensor, slopes: Tensor, state: Tensor) -> Faces:
        """Return the inequalities of one example's states, from each unit's q as an affine function."""
        windows, taps = self.positions.flatten(0, -2).to(state.device).shape
        channels = state.numel() // windows
        inputs = torch.arange(channels, device=state.device)[:, None, None] * (len(constants) // channels)
        table = torch.where(self.positions.flatten(0, -2).to(state.device) >= 0, 0, -1) * len(constants)
        table = (table + self.positions.flatten(0, -2).to(state.device) + inputs).view(-1, taps)  # negative: padding
        winner = state.flatten().long()
        rivals = (table >= 0) & (torch.arange(taps, device=state.device) != winner[:, None])
        units, tap = rivals.nonzero().T
        own, other = table[units, winner[units]], table[units, tap]
        return Faces(constants[own] - constants[other], slopes[own] - slopes[other], tap < winner[units], units, tap)


GateStates = HalfSpaceStates | BoundedStates | WinnerStates


def states_of(gating: Gating, slope: Slope, q_shape: tuple[int, ...], *, with_indices: bool) -> GateStates:
    """Return how the states of a gate are told, for pre-activations of this shape."""
    if gating.pool is not None:
        pool = gating.pool
        fixed = pool.windows(torch.empty(q_shape, device="meta")) if isinstance(pool, AdaptiveMaxPool) else pool
        assert fixed is not None  # windows of different sizes are no gate
        return WinnerStates(fixed.positions(tuple(q_shape[2:])), with_indices)
    return HalfSpaceStates(slope) if gating.bounds is None else BoundedStates(*gating.bounds)
