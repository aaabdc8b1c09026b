"""The exact pieces of a line through input space on which a network is affine."""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from gatelab.errors import InputError
from gatelab.gates import GatePattern
from gatelab.printing import Brief
from gatelab.regions.plane import NOISE, TOUCH, checked_bounds
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
    segment = torch.stack([start + low * along, start + high * along])
    ends, gates = np.array([[0.0, 1.0]]), dict[str, Tensor]()
    for name in replay.gates:
        q = replay.on_simplex(segment, {other: gates[other] for other in replay.plan.deciding_gates(name)}, name)
        lines = q.flatten(2).expand(len(ends), -1, -1).cpu().numpy()
        ends, parent = _cut(ends, lines)
        opened = torch.as_tensor(_signs(ends, lines[parent])).to(replay.device).unflatten(1, q.shape[2:])
        rows = torch.as_tensor(parent).to(replay.device)
        gates = {other: state[rows] for other, state in gates.items()} | {name: opened}
    output = replay.on_simplex(segment, gates).flatten(2)
    slope = output[:, 1] / (high - low)
    return Pieces(
        torch.as_tensor(low + ends * (high - low)).to(replay.device),
        torch.stack([output[:, 0] - low * slope, slope], 2),
        replay.pattern(gates),
    )


def _cut(ends: np.ndarray, lines: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Cut each interval where one of its lines is zero; return the parts and the interval that each belongs to."""
    cut, parents = [], []
    for number, ((low, high), (constant, slope)) in enumerate(zip(ends, lines, strict=True)):
        with np.errstate(divide="ignore", invalid="ignore"):
            roots = -constant / slope
        inside = np.isfinite(roots) & (roots > low + TOUCH) & (roots < high - TOUCH)
        places = np.unique(roots[inside & (np.abs(slope) > NOISE * np.abs(lines[number]).max())])
        places = places[np.diff(places, prepend=-1.0) > TOUCH]
        corners = np.r_[low, places, high]
        cut.append(np.c_[corners[:-1], corners[1:]])
        parents += [number] * (len(corners) - 1)
    return np.concatenate(cut), np.array(parents)


def _signs(ends: np.ndarray, lines: np.ndarray) -> np.ndarray:
    """Whether each gate is open inside each part; a value that is zero but for rounding counts as closed."""
    q = lines[:, 0] + lines[:, 1] * ends.mean(axis=1)[:, None]
    return q > NOISE * np.abs(lines).max(axis=(1, 2))[:, None]
