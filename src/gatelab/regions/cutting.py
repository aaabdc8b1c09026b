"""The lines, or planes, along which a layer of gates cuts the regions that the layers before it have left."""

from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from gatelab.regions.exact import ExactNetwork, TooLargeError
from gatelab.regions.replay import Replay, affine
from gatelab.regions.rounding import UNIT, Magnitudes
from gatelab.regions.states import BoundedStates, States, WinnerStates

Known = dict[str, tuple[Tensor, Tensor]]  # the q of gates on the simplex, and their magnitudes


@dataclass(frozen=True)
class Cut:
    """The lines along which one layer of gates cuts, for each of some regions or for all of them (one row).

    Attributes:
        lines: (regions or 1, lines, 1 + dimensions), constants and slopes.
        errors: (regions or 1, lines), how far a height over the line may be from the truth.
        windows: (windows, taps), the lines that compete in each window of a max-pooling, −1 where there is none;
            without windows every line cuts for itself.
        q: the pre-activations on the simplex.
        sizes: their magnitudes.
    """

    lines: NDArray[np.float64]
    errors: NDArray[np.float64]
    windows: NDArray[np.int64]
    q: Tensor
    sizes: Tensor


class Cutter:
    """Finds the lines of a network's gates.

    Args:
        replay: the network.
        simplex: the inputs at the origin and at the unit points of the coordinates of a line, plane or space.
    """

    def __init__(self, replay: Replay, simplex: Float[Tensor, "corners ..."]):
        self.replay, self.simplex = replay, simplex
        self._magnitudes, self._exact = Magnitudes(replay), ExactNetwork(replay, simplex)
        plan, gates = replay.plan, replay.gates
        self._shares = {name: self._magnitudes.share(name) for name in gates}
        self._sources = {name: set(plan.sources(plan.q(name))) for name in gates}
        self._output_sources = set(plan.sources(plan.output))
        self._deciding = {name: plan.deciding_gates(name) for name in gates}

    def cut(self, name: str, states: States, known: Known) -> Cut:
        """Return the lines of a layer of gates in regions with these states.

        Args:
            name: the layer.
            states: the states of all earlier layers.
            known: what is known of the pre-activations of earlier layers; their sources do not run again.
        """
        states = self._before(name, states)
        known = {source: known[source] for source in self._sources[name] if source in known}
        q = self.replay.on_simplex(self.simplex, states, name, {source: q for source, (q, _) in known.items()})
        return self._lines(name, q, self._magnitudes.of(name, self.simplex, states, known))

    def corrected(self, name: str, cut: Cut, states: States, doubtful: NDArray[np.int64]) -> Cut:
        """Return the lines with those of doubtful regions from exact arithmetic, rounded once.

        Where matrices are too large for that, the signs are those of float64, as in the network itself: bounds of
        rounding errors grow with depth, and a height within its bound is no zero.
        """
        states = self._before(name, states)
        q, sizes = cut.q.clone(), cut.sizes.clone()
        for row in [0] if len(q) == 1 else doubtful.tolist():
            own = {other: state[row : row + 1] for other, state in states.items()}
            try:
                lines = self._exact.lines(name, own).to(q)
            except TooLargeError:
                return replace(cut, errors=np.zeros_like(cut.errors))
            values = torch.cat([lines[:, :1], lines[:, :1] + lines[:, 1:]], 1)
            q[row] = values.T.view(q.shape[1:])
            sizes[row] = 2 * UNIT / self._shares[name] * q[row].abs().amax(0)
        return self._lines(name, q, sizes)

    def outputs(self, states: States, known: Known) -> Float[Tensor, "regions k corners"]:
        """Return the output as affine functions."""
        return affine(
            self.replay.on_simplex(self.simplex, states, None, {source: q for source, (q, _) in known.items()})
        )

    def needed(self, level: int) -> set[str]:
        """Return the layers whose pre-activations are read by layers from a level on, or by the output."""
        return set().union(self._output_sources, *(self._sources[name] for name in self.replay.gates[level:]))

    def state(self, name: str, above: NDArray[np.bool_] | NDArray[np.int64]) -> Tensor:
        """Return the states of a layer, from which lines each region lies above, or from the winners of windows."""
        gate, shape = self.replay.gate(name), tuple(self.replay.plan.q(name).meta["shape"][1:])
        found = torch.as_tensor(above).to(self.replay.device)
        if isinstance(gate, WinnerStates):
            return found.view(len(found), shape[0], *gate.positions.shape[:-1])
        if isinstance(gate, BoundedStates):
            low, high = found.to(torch.int8).chunk(2, 1)
            found = low + high - 1
        return found.view(len(found), *shape)

    def unit(self, name: str, line: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the unit of each line; a unit with two bounds has two lines, a window is a unit."""
        gate = self.replay.gate(name)
        return (
            line % int(np.prod(self.replay.plan.q(name).meta["shape"][1:])) if isinstance(gate, BoundedStates) else line
        )

    def _before(self, name: str, states: States) -> dict[str, Tensor]:
        return {other: states[other] for other in self._deciding[name]}

    def _lines(self, name: str, q: Tensor, sizes: Tensor) -> Cut:
        gate, lines = self.replay.gate(name), np.ascontiguousarray(affine(q).cpu().numpy())
        errors = self._shares[name] * sizes.flatten(1).cpu().numpy()
        windows = np.empty((0, 0), np.int64)
        if isinstance(gate, WinnerStates):
            channels, inputs = q.shape[2], q[0, 0, 0].numel()
            table = gate.positions.flatten(0, -2)
            numbers = torch.where(table >= 0, table + inputs * torch.arange(channels)[:, None, None], -1)
            windows = numbers.flatten(0, 1).numpy()
        elif isinstance(gate, BoundedStates):
            bounds = np.repeat([gate.low, gate.high], lines.shape[1])
            lines, errors = np.concatenate([lines, lines], 1), np.concatenate([errors, errors], 1)
            lines[..., 0] -= bounds
            errors += UNIT * np.abs(bounds)
        return Cut(lines, errors, windows, q, sizes)


def part_of(values: Tensor, rows: Tensor) -> Tensor:
    """Return some rows; a single row stands for all."""
    return values.expand(len(rows), *values.shape[1:]) if len(values) == 1 else values[rows]
