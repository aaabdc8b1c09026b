"""The exact pieces of a line through input space on which a network is affine."""

from dataclasses import dataclass
from itertools import combinations

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from gatelab.errors import InputError
from gatelab.gates import GatePattern
from gatelab.printing import Brief
from gatelab.regions.cutting import Cut, Cutter, Known, part_of
from gatelab.regions.plane import TOUCH, checked_bounds
from gatelab.regions.replay import Replay


@dataclass(frozen=True, repr=False)
class Pieces(Brief):
    """A segment origin + s · direction, cut where a gate changes.

    Attributes:
        ends: low and high s of each piece, in order.
        maps: output k on a piece is maps[r, k] · (1, s).
        gates: the pattern of each piece; n is the number of pieces.
    """

    ends: Float[Tensor, "pieces 2"]
    maps: Float[Tensor, "pieces k 2"]
    gates: GatePattern

    def __len__(self) -> int:
        """Number of pieces."""
        return len(self.ends)

    def intervals(self, chosen: Bool[Tensor, " pieces"]) -> list[tuple[float, float]]:
        """Return the chosen pieces as intervals, neighbours joined."""
        joined: list[tuple[float, float]] = []
        for low, high in self.ends[chosen].tolist():
            if joined and joined[-1][1] == low:
                joined[-1] = (joined[-1][0], high)
            else:
                joined.append((low, high))
        return joined


def linear_regions_1d(
    model: nn.Module,
    bounds: tuple[float, float],
    *,
    origin: Float[Tensor, "..."] | None = None,
    direction: Float[Tensor, "..."] | None = None,
) -> Pieces:
    """Return the pieces of a segment of input space on which a ReLU or linearly gated network is affine, exactly.

    Args:
        model: the network, as in :func:`linear_regions_2d`.
        bounds: low and high s.
        origin: the point at s = 0; None for a network with one input.
        direction: the direction of growing s; None for a network with one input.

    Returns:
        The pieces in order, each with its affine map and its gates.

    Example:
        >>> net = nn.Sequential(nn.Linear(1, 1, bias=False), nn.ReLU(), nn.Linear(1, 1))
        >>> linear_regions_1d(net, (-1, 3)).ends.tolist()
        [[-1.0, 0.0], [0.0, 3.0]]
    """
    return pieces_of(*_line(model, bounds, origin, direction))


def _line(
    model: nn.Module, bounds: tuple[float, float], origin: Tensor | None, direction: Tensor | None
) -> tuple[Replay, Tensor, Tensor, tuple[float, float]]:
    """Check what describes a line."""
    ((low, high),) = checked_bounds([bounds], 1)
    replay = Replay(model, shape=None if origin is None else origin.shape)
    replay.plan.check_affine()
    if not replay.gates:
        raise InputError(f"{type(model).__name__} has no gates: it is one affine map everywhere")
    if origin is None or direction is None:
        if (shape := replay.input_shape(None)) != (1,):
            raise InputError(f"the network takes examples of shape {shape}; give origin= and direction= of a line")
        origin, direction = torch.zeros(1), torch.ones(1)
    if origin.shape != direction.shape or not bool(direction.isfinite().all() & (direction != 0).any()):
        raise InputError(
            "origin and direction must have the shape of one example; direction must be finite and not zero"
        )
    replay.input_shape(origin.shape)
    start, along = (part.to(replay.device, torch.float64) for part in (origin, direction))
    return replay, start, along, (low, high)


def pieces_of(
    replay: Replay, start: Float[Tensor, "..."], along: Float[Tensor, "..."], bounds: tuple[float, float]
) -> Pieces:
    """Cut a segment, layer by layer."""
    low, high = bounds
    cutter = Cutter(replay, torch.stack([start + low * along, start + high * along]))
    ends, states, known = np.array([[0.0, 1.0]]), dict[str, Tensor](), dict[str, tuple[Tensor, Tensor]]()
    for name in replay.gates:
        ends, parents, state, cut = _pieces(cutter, name, ends, states, known)
        rows = torch.as_tensor(parents).to(replay.device)
        states = {other: own[rows] for other, own in states.items()} | {name: state}
        known = {
            other: (part_of(q, rows), part_of(size, rows))
            for other, (q, size) in (known | {name: cutter.known(name, cut)}).items()
        }
    constant, slope = cutter.outputs(states, known).expand(len(ends), -1, -1).unbind(2)
    slope = slope / (high - low)
    return Pieces(
        torch.as_tensor(low + ends * (high - low)).to(replay.device),
        torch.stack([constant - low * slope, slope], 2),
        replay.pattern(states),
    )


def _pieces(
    cutter: Cutter, name: str, ends: np.ndarray, states: dict[str, Tensor], known: Known
) -> tuple[np.ndarray, np.ndarray, Tensor, Cut]:
    """Cut intervals by one layer of gates: the parts, the interval that each belongs to, their states, the lines."""
    cut = cutter.cut(name, states, known)
    doubts = _doubts(ends, cut)
    if doubts.any():
        cut = cutter.corrected(name, cut, states, np.flatnonzero(doubts))
    parts, parents = _cut(ends, cut)
    own = np.zeros(len(parts), np.int64) if len(cut.lines) == 1 else parents
    heights = cut.lines[own, 0] + cut.lines[own, 1] * parts.mean(1)[:, None]
    if not len(cut.windows):
        at_ends = np.abs(cut.lines[own, 0, :, None] + cut.lines[own, 1, :, None] * ends[parents][:, None, :])
        zero = (at_ends <= cut.errors[own][..., None]).all(2)  # all over the interval: a part may be too short
        return parts, parents, cutter.state(name, (heights > 0) & ~zero), cut
    winners = _winners(heights, cut.errors[own], cut.windows)
    starts = np.r_[
        True, (winners[1:] != winners[:-1]).any(1) | (parents[1:] != parents[:-1])
    ]  # joined where none changes
    first, last = np.flatnonzero(starts), np.r_[np.flatnonzero(starts)[1:], len(parts)] - 1
    joined = np.c_[parts[first, 0], parts[last, 1]]
    return joined, parents[first], cutter.state(name, winners[first]), cut


def _crossing(cut: Cut) -> tuple[np.ndarray, np.ndarray]:
    """The functions that change their sign where a gate changes, and their errors: of a window all differences."""
    if not len(cut.windows):
        return cut.lines, cut.errors
    pairs = [(a, b) for window in cut.windows.tolist() for a, b in combinations([t for t in window if t >= 0], 2)]
    one, other = np.array(pairs, np.int64).reshape(-1, 2).T
    return cut.lines[..., one] - cut.lines[..., other], cut.errors[:, one] + cut.errors[:, other]


def _doubts(ends: np.ndarray, cut: Cut) -> np.ndarray:
    """Which intervals have an end over which the height of a line may be zero, but is not known to TOUCH."""
    lines, errors = _crossing(cut)
    near = TOUCH * np.abs(lines[:, 1])
    heights = np.abs(lines[:, 0, :, None] + lines[:, 1, :, None] * ends[:, None, :]).min(2)
    return ((heights <= errors + near) & (errors > near)).any(1)


def _cut(ends: np.ndarray, cut: Cut) -> tuple[np.ndarray, np.ndarray]:
    """Cut each interval where a gate changes; return the parts and the interval that each belongs to."""
    lines, errors = _crossing(cut)
    lines = np.broadcast_to(lines, (len(ends), *lines.shape[1:]))
    parts, parents = [], []
    for number, (low, high) in enumerate(ends):
        constant, slope = lines[number]
        touch = TOUCH * np.abs(slope) + errors[number if len(errors) > 1 else 0]
        at_low, at_high = constant + slope * low, constant + slope * high
        cuts = (np.minimum(at_low, at_high) < -touch) & (np.maximum(at_low, at_high) > touch)
        places = np.unique(-constant[cuts] / slope[cuts])
        places = places[np.diff(places, prepend=-1.0) > TOUCH]
        corners = np.r_[low, places, high]
        parts.append(np.c_[corners[:-1], corners[1:]])
        parents += [number] * (len(corners) - 1)
    return np.concatenate(parts), np.array(parents)


def _winners(heights: np.ndarray, errors: np.ndarray, windows: np.ndarray) -> np.ndarray:
    """The first tap of each window that is the highest."""
    taps = np.where(windows >= 0, heights[:, windows.clip(min=0)], -np.inf)
    slack = np.where(windows >= 0, errors[:, windows.clip(min=0)], 0)
    return (taps >= taps.max(2, keepdims=True) - slack).argmax(2)
