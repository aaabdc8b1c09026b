"""The gradient flow of a ReLU network on a fixed data set, event by event, including slides along gate boundaries."""

from collections.abc import Callable
from math import inf
from numbers import Integral

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from gatelab.dynamics.facets import Facets, settle
from gatelab.dynamics.gated_flow import FlowStoppedError, check_tau
from gatelab.dynamics.segments import ReluFlow, Segment
from gatelab.errors import InputError

_STALLED = 200  # events without progress in time after which the flow stops


def relu_flow(
    x: Float[Tensor, "n d"],
    y: Float[Tensor, " n"],
    initial: Float[Tensor, "k d"],
    horizon: float,
    tau: float = 1.0,
    *,
    most: int = 100_000,
) -> ReluFlow:
    """Follow the gradient flow of ŷ = (1/K) Σ ReLU(w_kᵀx) on L = ½⟨(y − ŷ)²⟩ exactly, event by event.

    Between events the flow is linear and has a closed form. When wᵀx of a unit and an example reaches 0, Filippov's
    rule decides: the unit crosses if the velocities on both sides point the same way, and slides along the boundary
    if both point to it. A sliding unit moves in the subspace w ⊥ x, where its flow is again linear.

    Args:
        x: examples, taken as the population.
        y: their targets.
        initial: w(0).
        horizon: when to stop.
        tau: τ, the time constant.
        most: the largest number of events.

    Returns:
        The flow, known up to the horizon.

    Raises:
        FlowStoppedError: events pile up at one time, or there are more than ``most``.

    Example:
        >>> x, y = torch.tensor([[1.0], [-1.0]]), torch.tensor([1.0, 0.0])
        >>> round(relu_flow(x, y, torch.tensor([[0.1]]), horizon=100.0).weights(100.0).item(), 6)
        1.0
    """
    if x.ndim != 2 or y.shape != x.shape[:1] or initial.ndim != 2 or initial.shape[1:] != x.shape[1:] or not len(x):
        raise InputError(
            f"x has shape {tuple(x.shape)}, y {tuple(y.shape)}, w(0) {tuple(initial.shape)}; need (n, d), (n,), (k, d)"
        )
    if not all(bool(torch.isfinite(part).all()) for part in (x, y, initial)):
        raise InputError("x, y or w(0) holds NaN or infinite values; clean the data")
    if not 0 < horizon < inf or not isinstance(most, Integral) or most < 1:
        raise InputError(f"horizon = {horizon}, most = {most}; need a positive horizon and a whole number most ≥ 1")
    check_tau(tau)
    flow = ReluFlow(x.double().numpy(), y.double().numpy(), len(initial), horizon)
    _Follower(flow, tau).run(initial.double().numpy(), most)
    return flow


class _Follower:
    """Finds the events of a flow one after the other."""

    def __init__(self, flow: ReluFlow, tau: float):
        self.flow, self.tau = flow, tau
        seen = np.abs(flow.x).max(axis=1) > 0  # an example of zeros moves nothing
        self.x, self.y = flow.x[seen], flow.y[seen]
        self.share = 1 / (len(flow.x) * flow.units)
        self.facets = Facets.among(self.x)
        self.units, self.dim = flow.units, flow.x.shape[1]

    def run(self, w: np.ndarray, most: int) -> None:
        """Go from event to event up to the horizon."""
        sides = np.where(self.facets.normals @ w.T > 0, 1, -1)
        now, stalled = 0.0, 0
        for _ in range(most):
            segment = self._segment(now, w.ravel(), sides)
            self.flow.segments.append(segment)
            event = self._first_event(segment, self.flow.horizon - now)
            if event is None:
                return
            after, leaving = event
            stalled = stalled + 1 if after <= 1e-13 * max(now, 1e-300) else 0
            if stalled > _STALLED:
                break
            now += after
            w = segment.at(np.array([after]))[0, 0].reshape(self.units, self.dim)
            sides = self._after(w, sides, leaving, now)
        raise FlowStoppedError(
            f"the flow could not be followed beyond t = {now:g} of {self.flow.horizon:g}: "
            + (f"{stalled} events at one time" if stalled else f"more than {most} events")
            + "; lower the horizon, raise most=, or move w(0) a little"
        )

    def _open(self, sides: np.ndarray) -> np.ndarray:
        """Return the open gates, (n, k); a gate on whose boundary its unit slides counts as closed."""
        return sides[self.facets.of] * np.sign(self.facets.along)[:, None] > 0

    def _segment(self, now: float, w: np.ndarray, sides: np.ndarray) -> Segment:
        """Solve the flow under given sides, in the subspace to which sliding confines it."""
        gates = self._open(sides)
        features = (gates[:, :, None] * self.x[:, None, :]).reshape(len(self.x), -1)
        A = features.T @ features * (self.share / self.units / self.tau)
        b = features.T @ self.y * (self.share / self.tau)
        bases = []
        for unit in range(self.units):
            normals = self.facets.normals[sides[:, unit] == 0]
            if len(normals):
                q, r = np.linalg.qr(normals.T, mode="complete")
                rank = int((np.abs(np.diag(r)) > 1e-9).sum())
                bases.append(q[:, rank:])
            else:
                bases.append(np.eye(self.dim))
        Q = np.zeros((self.units * self.dim, sum(basis.shape[1] for basis in bases)))
        column = 0
        for unit, basis in enumerate(bases):
            Q[unit * self.dim : (unit + 1) * self.dim, column : column + basis.shape[1]] = basis
            column += basis.shape[1]
        rates, V = np.linalg.eigh(Q.T @ A @ Q)
        rates = np.where(rates > 1e-14 * max(float(np.abs(rates).max(initial=0.0)), 1e-300), rates, 0.0)
        vectors = Q @ V
        return Segment(now, vectors, rates, np.where(rates > 0, vectors.T @ b, 0.0), vectors.T @ w, sides)

    def _errors(self, w: np.ndarray, gates: np.ndarray) -> np.ndarray:
        """Return y − ŷ, (…, n), for weights (…, k, d)."""
        return self.y - ((w @ self.x.T) * gates.T).mean(axis=-2)

    def _margins(self, segment: Segment, w: np.ndarray, constant: float = 1.0) -> np.ndarray:
        """Return what must stay above zero, (times, facets × k × 2): distances from facets, margins of sliding units.

        All are affine in w; ``constant=0`` leaves out the constant part, which gives their derivatives for ẇ.
        """
        w = w.reshape(-1, self.units, self.dim)
        sides, gates = segment.sides, self._open(segment.sides)
        found = np.full((len(w), *sides.shape, 2), np.inf)
        found[..., 0] = np.where(sides != 0, np.einsum("fd,tkd->tfk", self.facets.normals, w) * sides, np.inf)
        if (sides == 0).any():
            error = constant * self.y - ((w @ self.x.T) * gates.T).mean(axis=-2)
            pull = error * self.facets.along * self.share
            plus, minus = (self._per_facet(np.where(sign * self.facets.along > 0, pull, 0.0)) for sign in (1, -1))
            for unit in np.unique(np.nonzero(sides == 0)[1]):
                own = np.nonzero(sides[:, unit] == 0)[0]
                normals = self.facets.normals[own]
                push = (error * gates[:, unit]) @ self.x * self.share
                m = -np.linalg.solve(normals @ normals.T, normals @ push.T).T
                found[:, own, unit, 0] = (m - plus[:, own]) / self.share
                found[:, own, unit, 1] = (minus[:, own] - m) / self.share
        return found.reshape(len(w), -1)

    def _per_facet(self, values: np.ndarray) -> np.ndarray:
        """Return sums over the examples of each facet, (times, facets)."""
        sums = np.zeros((len(values), len(self.facets.normals)))
        np.add.at(sums.T, self.facets.of, values.T)
        return sums

    def _first_event(self, segment: Segment, rest: float) -> tuple[float, list[tuple[int, int, int]]] | None:
        """Find when the first margin falls below zero, and which: bracket it on a grid, then bisect."""
        start = self._margins(segment, segment.at(np.zeros(1))[0])
        scale = 1e-12 * np.nanmax(np.where(np.isfinite(start), np.abs(start), 0.0), initial=1e-300)
        # Margins that start at zero up to rounding belong to the last event, and are measured from their start.
        shift = np.where(np.isfinite(start) & (start < scale), start, 0.0)

        def margins(after: float) -> np.ndarray:
            return (self._margins(segment, segment.at(np.array([after]))[0]) - shift)[0] + scale

        grid = np.union1d(np.logspace(-9, 0, 46), np.linspace(0.02, 1, 50)) * rest
        low, before, slope_before = 0.0, None, None
        for part in np.array_split(grid, 12):
            w, speed = segment.at(part)
            values = self._margins(segment, w) - shift + scale
            slopes = np.where(np.isfinite(values), self._margins(segment, speed, 0.0), 0.0)
            for place, after in enumerate(part):
                high = float(after)
                if before is not None and slope_before is not None and not (values[place] < 0).any():
                    # A margin may dip below zero and return between two points of the grid.
                    dips = (slope_before < 0) & (slopes[place] > 0) & (before + slope_before * (high - low) < 0)
                    bottoms = (self._bottom(segment, int(margin), low, high) for margin in np.nonzero(dips)[0])
                    high = next((bottom for bottom in bottoms if (margins(bottom) < 0).any()), high)
                if (margins(high) < 0).any() if high < after else (values[place] < 0).any():
                    return self._bisect(margins, low, high, segment)
                low, before, slope_before = float(after), values[place], slopes[place]
        return None

    def _bottom(self, segment: Segment, margin: int, low: float, high: float) -> float:
        """Return where a margin is lowest in an interval in which its slope changes sign once."""
        for _ in range(40):
            middle = (low + high) / 2
            slope = self._margins(segment, segment.at(np.array([middle]))[1], 0.0)[0, margin]
            low, high = (middle, high) if slope < 0 else (low, middle)
        return high

    def _bisect(
        self, margins: Callable[[float], np.ndarray], low: float, high: float, segment: Segment
    ) -> tuple[float, list[tuple[int, int, int]]]:
        """Return the first time, to the last digit, at which a margin is below zero, and the margins that are."""
        while True:
            middle = (low + high) / 2
            if not low < middle < high:
                break
            low, high = (low, middle) if (margins(middle) < 0).any() else (middle, high)
        below = np.nonzero(margins(high) < 0)[0]
        facets, units, bounds = np.unravel_index(below, (*segment.sides.shape, 2))
        return high, list(zip(facets.tolist(), units.tolist(), bounds.tolist(), strict=True))

    def _after(self, w: np.ndarray, sides: np.ndarray, leaving: list[tuple[int, int, int]], now: float) -> np.ndarray:
        """Return the sides after an event."""
        new = sides.copy()
        for facet, unit, bound in leaving:
            if sides[facet, unit] == 0:  # m has reached its bound on one side, and the unit leaves to that side
                new[facet, unit] = 1 if bound == 0 else -1
                self.flow.switches.append(now)
        for unit in {unit for facet, unit, _ in leaving if sides[facet, unit] != 0}:
            hit = [facet for facet, own, _ in leaving if own == unit and sides[facet, unit] != 0]
            slid = [int(facet) for facet in np.nonzero(new[:, unit] == 0)[0]]
            places = np.array(hit + slid)
            came = np.array([sides[facet, unit] for facet in hit] + [0] * len(slid))
            trial = new.copy()
            trial[places, unit] = 0
            gates = self._open(trial)
            error = self._errors(w, gates)
            pull = error * self.facets.along * self.share
            plus, minus = (
                self._per_facet(np.where(sign * self.facets.along > 0, pull, 0.0)[None])[0, places] for sign in (1, -1)
            )
            push = (error * gates[:, unit]) @ self.x * self.share
            new[places, unit], _ = settle(push, self.facets.normals[places], plus, minus, came)
            began = new[hit, unit] == 0
            self.flow.slides.extend([now] * int(began.sum()))
            self.flow.switches.extend([now] * int((~began).sum()))
        return new
