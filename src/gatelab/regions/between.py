"""What a network does on the way from one input to another: regions crossed, gates that flip, how the output bends."""

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from gatelab.errors import InputError
from gatelab.gates import GatePattern
from gatelab.gates.bits import popcount
from gatelab.regions.line import Pieces, pieces_of
from gatelab.regions.replay import Replay


@dataclass(frozen=True)
class Journey:
    """The regions on the straight way, or ways, from one input to the next.

    Attributes:
        inputs: the inputs that the way leads through.
        ways: the pieces of each straight way; s runs from 0 to 1 on it.
        steps: the length of each way in input space.
    """

    inputs: Float[Tensor, "stops ..."]
    ways: tuple[Pieces, ...]
    steps: Float[Tensor, " ways"]

    def __repr__(self) -> str:
        flips = ", ".join(f"{name}: {count}" for name, count in self.flips.items())
        return f"Journey: {self.regions} regions over a length of {float(self.steps.sum()):.4g}; flips {flips}"

    @cached_property
    def gates(self) -> GatePattern:
        """The gates of every piece, in order."""
        first = self.ways[0].gates
        layers = {name: torch.cat([way.gates[name] for way in self.ways]) for name in first}
        return GatePattern(layers, first.dtype, is_chain=first.is_chain)

    @cached_property
    def lengths(self) -> Float[Tensor, " pieces"]:
        """The length of each piece in input space."""
        return torch.cat([step * way.ends.diff(dim=1)[:, 0] for way, step in zip(self.ways, self.steps, strict=True)])

    @cached_property
    def regions(self) -> int:
        """Number of regions on the way, each counted as often as it is entered."""
        return 1 + int(self._changes.sum(1).gt(0).sum())

    @cached_property
    def flips(self) -> dict[str, int]:
        """The number of times that gates of each layer flip on the way."""
        return dict(zip(self.gates.layers, self._changes.sum(0).tolist(), strict=True))

    @cached_property
    def detour(self) -> dict[str, float]:
        """Flips over the gates that differ between the first and the last input: 1 if no gate flips back and forth.

        A layer none of whose gates differ at the ends has infinity if some flip on the way, and 1 otherwise.
        """
        ends = self.gates[[0]].flips(self.gates[[self.gates.n - 1]])
        return {
            n: float("inf") if k and not ends[n] else k / max(1, ends[n]) if k else 1.0 for n, k in self.flips.items()
        }

    @cached_property
    def variation(self) -> Float[Tensor, " k"]:
        """The total variation of each output within the pieces: how far it moves up and down on the way.

        Jumps between pieces, which only networks with hard gates of their own have, are not counted.
        """
        return sum(
            ((way.maps[..., 1] * way.ends.diff(dim=1)).abs().sum(0) for way in self.ways),
            torch.zeros(self.ways[0].maps.shape[1]).to(self.ways[0].maps),
        )

    @cached_property
    def _changes(self) -> Int[Tensor, "borders layers"]:
        """How many gates of each layer differ between each piece and the next."""
        words = [self.gates.layer(name).words for name in self.gates]
        return torch.stack([popcount(layer[1:] ^ layer[:-1]).sum(1) for layer in words], 1)


def regions_between(model: nn.Module, inputs: Float[Tensor, "stops ..."]) -> Journey:
    """Return the regions on the straight way from one input to another, or through several inputs, exactly.

    Args:
        model: the network, as in :func:`linear_regions_2d`.
        inputs: two inputs or more.

    Returns:
        The pieces, with the flips of gates, lengths and the output's variation.

    Example:
        >>> net = nn.Sequential(nn.Linear(1, 2), nn.ReLU(), nn.Linear(2, 1))
        >>> for parameter, value in zip(net.parameters(), ([[1.0], [1.0]], [0.0, -1.0], [[1.0, -2.0]], [0.0])):
        ...     _ = parameter.data.copy_(torch.tensor(value))
        >>> journey = regions_between(net, torch.tensor([[-1.0], [3.0]]))
        >>> journey, journey.variation.tolist()
        (Journey: 3 regions over a length of 4; flips 1: 2, [3.0])
    """
    if not isinstance(inputs, Tensor) or inputs.ndim < 2 or len(inputs) < 2:
        raise InputError("give two inputs or more as one tensor, e.g. torch.stack([a, b])")
    replay = Replay(model, shape=inputs.shape[1:])
    replay.plan.check_affine()
    replay.input_shape(inputs.shape[1:])
    if not replay.gates:
        raise InputError(f"{type(model).__name__} has no gates: it is one affine map everywhere")
    stops = inputs.to(replay.device, torch.float64)
    steps = stops.diff(dim=0).flatten(1).norm(dim=1)
    if not bool((steps.isfinite() & (steps > 0)).all()):
        raise InputError("two inputs that follow each other are equal, or an input is not finite")
    ways = tuple(pieces_of(replay, a, b - a, (0.0, 1.0)) for a, b in pairwise(stops))
    return Journey(inputs, ways, steps)
