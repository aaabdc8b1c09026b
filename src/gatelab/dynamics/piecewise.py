"""Gates that change in time: the closed form restarts at every switch and stays continuous (gdln, 2.3 and 5)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from jaxtyping import Float
from torch import Tensor

from gatelab.dynamics.gated_flow import GatedLinearFlow, Times
from gatelab.dynamics.moments import GatedMoments, moments_of
from gatelab.errors import InputError


class PiecewiseFlow:
    """The flow under gates that are constant between given instants.

    Attributes:
        starts: when each segment begins; the first at 0.
        flows: the closed form of each segment, in time since its start.
    """

    def __init__(
        self,
        starts: Sequence[float],
        moments: Sequence[GatedMoments],
        tau: float = 1.0,
        *,
        initial: Float[Tensor, "k d"] | None = None,
    ):
        """Chain the segments: each starts where the one before ends.

        Args:
            starts: instants at which the gates switch, 0 first.
            moments: under the gates from each instant on.
            tau: τ.
            initial: w(0); zeros if left out.
        """
        if len(starts) != len(moments) or not starts or starts[0] != 0 or any(b <= a for a, b in pairwise(starts)):
            raise InputError(
                f"{len(moments)} moments for instants {list(starts)[:5]}…; give one for each instant, 0 first, rising"
            )
        self.starts: list[float] = []
        self.flows: list[GatedLinearFlow] = []
        self._tau = tau
        for start, of_segment in zip(starts, moments, strict=True):
            self.switch(start, of_segment, initial)

    def switch(self, instant: float, moments: GatedMoments, initial: Tensor | None = None) -> None:
        """Change the gates at an instant behind all others; ``initial`` counts for the first segment alone."""
        if self.flows:
            initial = self.flows[-1].weights(instant - self.starts[-1])
        self.flows.append(GatedLinearFlow.from_moments(moments, self._tau, initial=initial))
        self.starts.append(instant)

    def weights(self, t: Times) -> Float[Tensor, "*times k d"]:
        """w(t), for one time or for a tensor of times."""
        return self._in_segments(t, GatedLinearFlow.weights, self.flows[0].initial.shape)

    def loss(self, t: Times) -> Float[Tensor, "*times"]:
        """L(t) under the gates of time t; it may jump where gates switch."""
        return self._in_segments(t, GatedLinearFlow.loss, torch.Size())

    def limit(self) -> Float[Tensor, "k d"]:
        """w(∞) under the last gates."""
        return self.flows[-1].limit()

    def _in_segments(self, t: Times, method: Callable[..., Tensor], shape: torch.Size) -> Tensor:
        initial = self.flows[0].initial
        times = torch.as_tensor(t, dtype=initial.dtype, device=initial.device)
        flat = times.flatten()
        starts = torch.tensor(self.starts, dtype=initial.dtype, device=initial.device)
        segment = torch.bucketize(flat, starts, right=True) - 1
        if flat.numel() and not flat.min() >= 0:
            raise InputError(f"t = {float(flat.min())}; the flow starts at 0")
        found = initial.new_zeros(len(flat), *shape)
        for place in segment.unique().tolist():
            chosen = segment == place
            found[chosen] = method(self.flows[place], flat[chosen] - self.starts[place])
        return found.view(times.shape + shape)


@dataclass(frozen=True)
class SelfGatedFlow:
    """What :func:`self_gated_flow` found.

    Attributes:
        flow: the piecewise flow.
        flips: share of gates that changed at each switch.
        reached: the time up to which switches were looked for; less than asked if they ran out.
    """

    flow: PiecewiseFlow
    flips: tuple[float, ...]
    reached: float


def self_gated_flow(
    x: Float[Tensor, "n d"],
    y: Float[Tensor, " n"],
    initial: Float[Tensor, "k d"],
    horizon: float,
    tau: float = 1.0,
    *,
    tolerance: float = 0.01,
    most: int = 1000,
) -> SelfGatedFlow:
    """A bias-free ReLU network's gradient flow by closed forms alone, its gates renewed when enough of them flipped.

    From w(t₀) on, the gates 1(w_k(t₀)ᵀx > 0) are held until a share ``tolerance`` of all gates (examples × units)
    would be another under w(t); that instant is found by bisection, and the closed form restarts there. As the
    tolerance falls, this becomes the flow of the ReLU network itself.

    Args:
        x: examples that stand for the population.
        y: their targets.
        initial: w(0).
        horizon: until when.
        tau: τ.
        tolerance: share of flipped gates that makes a switch.
        most: switches at most.
    """
    if not 0 <= tolerance < 1 or horizon <= 0 or most < 0:
        raise InputError(
            f"tolerance = {tolerance}, horizon = {horizon}, most = {most}: need 0 ≤ tolerance < 1, horizon > 0"
        )
    gates = x @ initial.T > 0
    flow = PiecewiseFlow([0.0], [moments_of(x, y, gates)], tau, initial=initial)
    flips: list[float] = []
    while len(flips) < most:
        instant = _first_switch(flow, x, gates, horizon, tolerance)
        if instant is None:
            return SelfGatedFlow(flow, tuple(flips), horizon)
        now = x @ flow.weights(instant).T > 0
        flips.append((now != gates).double().mean().item())
        gates = now
        flow.switch(instant, moments_of(x, y, gates))
    return SelfGatedFlow(flow, tuple(flips), flow.starts[-1])


def _first_switch(flow: PiecewiseFlow, x: Tensor, gates: Tensor, horizon: float, tolerance: float) -> float | None:
    """When more than ``tolerance`` of the gates will have flipped: bracketed on a grid, then bisected."""
    start, last = flow.starts[-1], flow.flows[-1]
    span = horizon - start

    def flipped(after: Tensor) -> Tensor:
        return ((last.weights(after) @ x.T > 0) != gates.T).flatten(1).to(x).mean(dim=1)

    # Fine steps first: a flow that just switched may switch again soon.
    low, high = 0.0, None
    grid = span * torch.logspace(-6, 0, 49, dtype=x.dtype, device=x.device)
    for part in grid.split(8):
        beyond = (flipped(part) > tolerance).nonzero()
        if len(beyond):
            place = int(beyond[0])
            low, high = (float(part[place - 1]) if place else low), float(part[place])
            break
        low = float(part[-1])
    if high is None:
        return None
    for _ in range(30):
        middle = (low + high) / 2
        after = torch.tensor([middle], dtype=x.dtype, device=x.device)
        low, high = (low, middle) if float(flipped(after)) > tolerance else (middle, high)
    return start + high
