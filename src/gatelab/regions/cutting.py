"""The lines, or planes, along which a layer of gates cuts the regions that the layers before it have left."""

import warnings
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
from gatelab.regions.steps import Gated, Step, step_to

Known = dict[str, tuple[Tensor, Tensor]]  # the q of gates on the simplex, and their magnitudes


@dataclass(frozen=True)
class Cut:
    """The lines along which one layer of gates cuts, for each of some regions or for all of them (one row).

    Attributes:
        lines: (regions or 1, 1 + dimensions, lines), constants and slopes.
        errors: (regions or 1, lines), how far a height over the line may be from the truth.
        windows: (windows, taps), the lines that compete in each window of a max-pooling, −1 where there is none;
            without windows every line cuts for itself.
        q: the pre-activations as (regions or 1, 1 + dimensions, units), without the bounds of gates that have two.
        sizes: their magnitudes, (regions or 1, units).
    """

    lines: NDArray[np.float64]
    errors: NDArray[np.float64]
    windows: NDArray[np.int64]
    q: NDArray[np.float64]
    sizes: NDArray[np.float64]


class Cutter:
    """Finds the lines of a network's gates.

    Args:
        replay: the network.
        simplex: the inputs at the origin and at the unit points of the coordinates of a line, plane or space. The
            coordinate of a line is in [0, 1], those of a plane or space in [−1, 1].
    """

    def __init__(self, replay: Replay, simplex: Float[Tensor, "corners ..."]):
        self.replay, self.simplex = replay, simplex
        self._magnitudes, self._exact = Magnitudes(replay), ExactNetwork(replay, simplex)
        plan, gates = replay.plan, replay.gates
        # The error that a gate takes over from the gates before it counts in units of its own share.
        own = [self._magnitudes.share(name) for name in gates]
        self._shares = dict(zip(gates, np.maximum.accumulate(own).tolist(), strict=True))
        dimensions = len(simplex) - 1
        self._reach = 1 if dimensions == 1 else 1 + 2 * dimensions  # Σ |barycentric coordinates| is at most this
        self._sources = {name: set(plan.sources(plan.q(name))) for name in gates}
        self._output_sources = set(plan.sources(plan.output))
        self._deciding = {name: plan.deciding_gates(name) for name in gates}
        self._steps: dict[str | None, Step | None] = {}
        self._warned = False  # one warning is enough: behind a layer that is too large, others are, too

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
        sizes = self._magnitudes.of(name, self.simplex, states, known)
        return self._lines(name, affine(q).cpu().numpy(), sizes.flatten(1).cpu().numpy())

    def step(self, level: int) -> Step | None:
        """Return the step to a level's gates (after the last: to the output) from those before, if one matrix does."""
        gates = (*self.replay.gates, None)
        if level == 0:
            return None
        if gates[level] not in self._steps:
            source, inputs = gates[level - 1], tuple(self.simplex.shape[1:])
            self._steps[gates[level]] = None if source is None else step_to(self.replay, source, gates[level], inputs)
        return self._steps[gates[level]]

    def stepped(self, name: str, step: Step, gated: Gated) -> Cut:
        """Return the lines of a layer of gates behind a step."""
        lines, errors = step.lines(gated), step.errors(gated)
        return Cut(lines, errors, _NO_WINDOWS, lines, errors / (self._reach * self._shares[name]))

    def corrected(
        self, name: str, cut: Cut, states: States, doubtful: NDArray[np.int64], *, all_tied: bool = False
    ) -> Cut:
        """Return the lines with those of doubtful regions from exact arithmetic, rounded once.

        Where matrices are too large for that, lines that are equal to the last bit count as equal (``all_tied``: there
        is no other doubt, and the cut is returned as it is). Other signs are those of float64, as in the network
        itself, and a warning says so: bounds of rounding errors grow with depth, and a height within its bound need not
        be zero.
        """
        states = self._before(name, states)
        q, sizes = cut.q.copy(), np.broadcast_to(cut.sizes, (len(cut.q), cut.sizes.shape[1])).copy()
        for row in [0] if len(q) == 1 else doubtful.tolist():
            own = {other: state[row : row + 1] for other, state in states.items()}
            try:
                lines = self._exact.lines(name, own).cpu().numpy()
            except TooLargeError:
                if all_tied:
                    return cut
                if not self._warned:
                    self._warned = True
                    warnings.warn(
                        f"from {self.replay.plan.where(name)} on, signs lie within the rounding error of float64, and "
                        "matrices are too large to decide them exactly; they are those of float64, so that regions as "
                        "thin as that error may be missing. Another plane or other bounds may avoid it",
                        RuntimeWarning,
                        stacklevel=2,
                    )
                return replace(cut, errors=np.zeros_like(cut.errors))
            q[row] = lines.T
            sizes[row] = 2 * UNIT / self._shares[name] * np.abs(lines).sum(1)
        return self._lines(name, q, sizes)

    def outputs(self, states: States, known: Known) -> Float[Tensor, "regions k corners"]:
        """Return the output as affine functions."""
        values = self.replay.on_simplex(self.simplex, states, None, {source: q for source, (q, _) in known.items()})
        return affine(values).transpose(1, 2)

    def known(self, name: str, cut: Cut) -> tuple[Tensor, Tensor]:
        """Return what later layers need of a layer's cut: its q at the corners of the simplex, and their sizes."""
        values, shape = cut.q.copy(), tuple(self.replay.plan.q(name).meta["shape"][1:])
        values[:, 1:] += values[:, :1]
        q, sizes = (torch.from_numpy(own).to(self.replay.device) for own in (values, cut.sizes))
        return q.unflatten(2, shape), sizes.unflatten(1, shape)

    def needed(self, level: int) -> set[str]:
        """Return the layers whose pre-activations are read, other than by a step, from a level on or by the output."""
        reading = [(self._sources[name], place) for place, name in enumerate(self.replay.gates)]
        reading.append((self._output_sources, len(self.replay.gates)))
        return set().union(*(own for own, place in reading[level:] if self.step(place) is None))

    def state(self, name: str, above: NDArray[np.bool_] | NDArray[np.int64]) -> Tensor:
        """Return the states of a layer, from which lines each region lies above, or from the winners of windows."""
        gate, shape = self.replay.gate(name), tuple(self.replay.plan.q(name).meta["shape"][1:])
        found = torch.as_tensor(above).to(self.replay.device)
        if isinstance(gate, WinnerStates):
            return found.view(len(found), shape[0], *gate.positions.shape[:-1])
        if isinstance(gate, BoundedStates):
            above_low, below_high = found.to(torch.int8).chunk(2, 1)
            found = above_low - below_high
        return found.view(len(found), *shape)

    def unit(self, name: str, line: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the unit of each line; a unit with two bounds has two lines, a window is a unit."""
        gate = self.replay.gate(name)
        return (
            line % int(np.prod(self.replay.plan.q(name).meta["shape"][1:])) if isinstance(gate, BoundedStates) else line
        )

    def _before(self, name: str, states: States) -> dict[str, Tensor]:
        return {other: states[other] for other in self._deciding[name]}

    def _lines(self, name: str, q: NDArray[np.float64], sizes: NDArray[np.float64]) -> Cut:
        gate, lines, windows = self.replay.gate(name), q, _NO_WINDOWS
        errors = self._reach * self._shares[name] * sizes
        if isinstance(gate, WinnerStates):
            channels = self.replay.plan.q(name).meta["shape"][1]
            table = gate.positions.flatten(0, -2)
            numbers = torch.where(
                table >= 0, table + q.shape[2] // channels * torch.arange(channels)[:, None, None], -1
            )
            windows = numbers.flatten(0, 1).numpy()
        elif isinstance(gate, BoundedStates):
            # q − low and high − q: both are positive where the gate is open, so q = high closes it, as q = low does.
            bounds = np.repeat([gate.low, -gate.high], lines.shape[2])
            lines, errors = np.concatenate([lines, -lines], 2), np.concatenate([errors, errors], 1)
            lines[:, 0] -= bounds
            errors += UNIT * np.abs(bounds)
        return Cut(lines, errors, windows, q, sizes)


_NO_WINDOWS = np.empty((0, 0), np.int64)


def part_of(values: Tensor, rows: Tensor) -> Tensor:
    """Return some rows; a single row stands for all."""
    return values.expand(len(rows), *values.shape[1:]) if len(values) == 1 else values[rows]
