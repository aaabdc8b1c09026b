"""Gates that change in time: the closed form restarts at every switch and stays continuous (gdln, 2.3 and 5)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import inf
from numbers import Integral

import torch
from jaxtyping import Float
from torch import Tensor

from gatelab.dynamics.gated_flow import GatedLinearFlow, Times, as_times
from gatelab.dynamics.moments import GatedMoments, moments_of
from gatelab.errors import InputError


class PiecewiseFlow:
    """The flow under gates that are constant between given instants.

    Attributes:
        starts: when each segment begins; the first is 0.
        flows: the closed form of each segment, in time since its start.
        end: the time up to which the last gates hold; later times raise an error. Infinite unless set.

    Args:
        starts: instants at which the gates switch, 0 first.
        moments: moments under the gates from each instant on.
        tau: τ, the time constant.
        initial: w(0); zeros by default.

    Example:
        >>> moments = GatedMoments(torch.eye(2), torch.ones(2), units=1, power=1.0)
        >>> flow = PiecewiseFlow([0.0, 1.0], [moments, moments])
        >>> torch.allclose(flow.weights(2.0), GatedLinearFlow.from_moments(moments).weights(2.0))
        True
    """

    def __init__(
        self,
        starts: Sequence[float],
        moments: Sequence[GatedMoments],
        tau: float = 1.0,
        *,
        initial: Float[Tensor, "k d"] | None = None,
    ):
        if len(starts) != len(moments) or not starts or starts[0] != 0 or any(b <= a for a, b in pairwise(starts)):
            raise InputError(
                f"{len(moments)} moments for instants {list(starts)[:5]}…; give one for each instant, 0 first, rising"
            )
        self._tau = tau
        self.end = inf
        self.starts = [0.0]
        self.flows = [GatedLinearFlow.from_moments(moments[0], tau, initial=initial)]
        for start, of_segment in zip(starts[1:], moments[1:], strict=True):
            self.switch(start, of_segment)

    def switch(self, instant: float, moments: GatedMoments) -> None:
        """Change the gates at an instant after all others.

        Args:
            instant: when the gates change.
            moments: moments under the gates from then on.
        """
        if not instant > self.starts[-1]:
            raise InputError(f"a switch at {instant} is not after the last, at {self.starts[-1]}; give a later instant")
        # Weights do not jump when gates do.
        reached = self.flows[-1].weights(instant - self.starts[-1])
        self.flows.append(GatedLinearFlow.from_moments(moments, self._tau, initial=reached))
        self.starts.append(instant)

    def weights(self, t: Times) -> Float[Tensor, "*times k d"]:
        """Return w(t) for one time or a tensor of times."""
        return self._by_segment(t, GatedLinearFlow.weights, self.flows[0].initial.shape)

    def loss(self, t: Times) -> Float[Tensor, "*times"]:
        """Return L(t) under the gates of time t; it may jump where gates switch."""
        return self._by_segment(t, GatedLinearFlow.loss, torch.Size())

    def limit(self) -> Float[Tensor, "k d"]:
        """Return w(∞) under the last gates."""
        if self.end < inf:
            raise InputError(
                f"the gates are known only up to t = {self.end:g}, so there is no limit; ask for weights({self.end:g})"
            )
        return self.flows[-1].limit()

    def _by_segment(self, t: Times, method: Callable[..., Tensor], shape: torch.Size) -> Tensor:
        """Call a method of the flow that holds at each time, with the time since its start."""
        times = as_times(t, self.flows[0].initial)
        flat = times.flatten()
        if len(flat) and float(flat.max()) > self.end:
            raise InputError(
                f"t = {float(flat.max()):g}, but gates are known only up to t = {self.end:g}; ask for earlier times, "
                "or follow the flow further (self_gated_flow: raise most= or tolerance=, or use relu_flow)"
            )
        segment = torch.bucketize(flat, flat.new_tensor(self.starts), right=True) - 1
        values = flat.new_zeros(len(flat), *shape)
        for place in segment.unique().tolist():
            chosen = segment == place
            values[chosen] = method(self.flows[place], flat[chosen] - self.starts[place])
        return values.view(times.shape + shape)


@dataclass(frozen=True)
class SelfGatedFlow:
    """A piecewise flow, and the share of gates that flipped at each of its switches.

    The flow ends at the time ``reached``, before the horizon if it needed more than ``most`` switches.
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
    """Follow a bias-free ReLU network by closed forms, and update its gates whenever enough of them have flipped.

    From w(t₀) on, the gates 1(w_k(t₀)ᵀx > 0) stay fixed until a share ``tolerance`` of all gates (examples × units)
    would differ under w(t). Bisection finds that instant, and the closed form restarts there. As the tolerance
    falls, this approaches the flow of the ReLU network, as long as that flow crosses the boundaries of its gates. If
    it slides along them instead, switches pile up and the flow ends early.
    :func:`~gatelab.dynamics.sliding.relu_flow` follows the sliding mode.

    Args:
        x: examples, taken as the population.
        y: their targets.
        initial: w(0).
        horizon: when to stop.
        tau: τ, the time constant.
        tolerance: share of flipped gates at which to switch.
        most: the largest number of switches.

    Returns:
        The piecewise flow, the flips at each switch and the time reached.

    Example:
        >>> x, y = torch.tensor([[1.0], [-1.0]]), torch.tensor([1.0, 0.0])
        >>> result = self_gated_flow(x, y, torch.tensor([[0.1]]), horizon=5.0)
        >>> len(result.flips), result.reached
        (0, 5.0)
    """
    if x.ndim != 2 or initial.shape[1:] != x.shape[1:]:
        raise InputError(f"x has shape {tuple(x.shape)}, w(0) {tuple(initial.shape)}; give (n, d) and (k, d)")
    if not 0 <= tolerance < 1 or not 0 < horizon < inf or not isinstance(most, Integral) or most < 0:
        raise InputError(
            f"tolerance = {tolerance}, horizon = {horizon}, most = {most}; "
            "need 0 ≤ tolerance < 1, horizon > 0 and a whole number most ≥ 0"
        )
    x, y, initial = x.double(), y.double(), initial.double()
    gates = x @ initial.T > 0
    flow = PiecewiseFlow([0.0], [moments_of(x, y, gates)], tau, initial=initial)
    flips: list[float] = []
    while len(flips) < most:
        instant = _first_switch(flow, x, gates, horizon, tolerance)
        if instant is None:
            flow.end = horizon
            return SelfGatedFlow(flow, tuple(flips), horizon)
        if instant <= flow.starts[-1]:  # switches have piled up so closely that rounding makes them one
            break
        now = x @ flow.weights(instant).T > 0
        flips.append((now != gates).double().mean().item())
        gates = now
        flow.switch(instant, moments_of(x, y, gates))
    flow.end = flow.starts[-1]
    return SelfGatedFlow(flow, tuple(flips), flow.end)


def _first_switch(flow: PiecewiseFlow, x: Tensor, gates: Tensor, horizon: float, tolerance: float) -> float | None:
    """Find when more than ``tolerance`` of the gates will have flipped: bracket it on a grid, then bisect."""
    start, last = flow.starts[-1], flow.flows[-1]

    def flipped(after: Tensor) -> Tensor:
        return ((last.weights(after) @ x.T > 0) != gates.T).flatten(1).to(x).mean(dim=1)

    # Fine steps come first, because a flow that just switched may switch again soon. Eight points at a time keep the
    # table of gates (points × units × examples) small.
    low, high = 0.0, None
    grid = (horizon - start) * torch.logspace(-6, 0, 49, dtype=x.dtype, device=x.device)
    for part in grid.split(8):
        beyond = (flipped(part) > tolerance).nonzero()
        if len(beyond):
            place = int(beyond[0])
            low, high = (float(part[place - 1]) if place else low), float(part[place])
            break
        low = float(part[-1])
    if high is None:
        return None
    for _ in range(30):  # the bracket shrinks to 1e-9 of its width
        middle = (low + high) / 2
        low, high = (low, middle) if float(flipped(x.new_tensor([middle]))) > tolerance else (middle, high)
    return start + high
