"""A ReLU network's flow as closed forms between events; ``sliding`` finds the events."""

from dataclasses import dataclass, field

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from gatelab.dynamics.gated_flow import Times, as_times
from gatelab.errors import InputError


@dataclass(frozen=True)
class Segment:
    """The closed form between two events: w(t) = Q V v(t), each mode v relaxing at its own rate."""

    start: float
    vectors: np.ndarray  # (kd, m)
    rates: np.ndarray
    drive: np.ndarray
    initial: np.ndarray
    sides: np.ndarray  # (facets, k): +1, −1, or 0 where a unit slides

    def at(self, after: np.ndarray) -> np.ndarray:
        """Return w and ẇ at times since the start, (2, times, kd)."""
        z = np.outer(after, self.rates)
        grown = np.where(
            z > 1e-8, -np.expm1(-z) / np.where(self.rates > 0, self.rates, 1), after[:, None] * (1 - z / 2)
        )
        modes = np.exp(-z) * self.initial + grown * self.drive
        return np.stack([modes, self.drive - self.rates * modes]) @ self.vectors.T


@dataclass
class ReluFlow:
    """The flow of a bias-free ReLU network with mean readout, in closed form between events.

    Attributes:
        x: examples.
        y: their targets.
        units: number of units.
        horizon: the time up to which the flow is known; later times raise an error.
        switches: times at which a gate opened or closed.
        slides: times at which a unit began to slide along a gate's boundary.
        segments: the closed form between every two events.
    """

    x: np.ndarray
    y: np.ndarray
    units: int
    horizon: float
    switches: list[float] = field(default_factory=list)
    slides: list[float] = field(default_factory=list)
    segments: list[Segment] = field(default_factory=list)

    def weights(self, t: Times) -> Float[Tensor, "*times k d"]:
        """Return w(t) for one time or a tensor of times."""
        times = as_times(t, torch.zeros((), dtype=torch.float64))
        flat = times.flatten().numpy()
        if len(flat) and flat.max() > self.horizon * (1 + 1e-12):
            raise InputError(f"t = {flat.max():g} lies beyond the horizon {self.horizon:g}; follow the flow further")
        starts = np.array([segment.start for segment in self.segments])
        places = np.searchsorted(starts, flat, side="right") - 1
        found = np.empty((len(flat), self.units * self.x.shape[1]))
        for place in np.unique(places):
            own = places == place
            found[own] = self.segments[place].at(flat[own] - starts[place])[0]
        return torch.from_numpy(found).view(*times.shape, self.units, -1)

    def loss(self, t: Times) -> Float[Tensor, "*times"]:
        """Return L(t) = ½⟨(y − ŷ)²⟩, which is continuous and never rises."""
        hidden = self.weights(t) @ torch.from_numpy(self.x).T
        error = torch.from_numpy(self.y) - hidden.clamp(min=0).mean(dim=-2)
        return error.square().mean(dim=-1) / 2

    def gates(self, t: float) -> Bool[Tensor, "k n"]:
        """Return which gates are open at a given time."""
        return self.weights(t) @ torch.from_numpy(self.x).T > 0

    def sliding(self, t: float) -> int:
        """Return the number of boundaries along which units slide at a given time."""
        starts = [segment.start for segment in self.segments]
        return int((self.segments[int(np.searchsorted(starts, t, side="right")) - 1].sides == 0).sum())
