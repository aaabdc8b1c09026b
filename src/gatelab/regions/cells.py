"""The polygons into which the gates of a network cut a part of a plane, layer by layer.

Blocks of polygons go through all layers, one block after the other (depth first), so that what a layer has computed
is still at hand for the next one, and little memory is held.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from gatelab.errors import TooManyPathsError
from gatelab.observe import batches
from gatelab.regions.cutting import Cut, Cutter, Known, part_of
from gatelab.regions.domain import Domain
from gatelab.regions.graph import BORDER, SEAM, Cuts
from gatelab.regions.replay import Replay
from gatelab.regions.steps import Gated

BLOCK_ENTRIES = 2**18  # pre-activations of a block of regions; small blocks stay in the cache


@dataclass(frozen=True)
class Block:
    """Some polygons, the states of their gates, and what is known of their pre-activations.

    Attributes:
        corners: (corners, 3), see ``splitting``.
        starts: where each polygon's corners begin, and where the last one's end.
        states: the states of all layers so far.
        known: the pre-activations of layers that later ones read.
        gated: the last layer's, if a step leads from it to the next.
    """

    corners: NDArray[np.float64]
    starts: NDArray[np.int64]
    states: dict[str, Tensor]
    known: Known
    gated: Gated | None

    def __len__(self) -> int:
        return len(self.starts) - 1

    def some(self, rows: slice, parents: Tensor, known: Known) -> "Block":
        """Return some of the polygons; ``parents`` are the rows of ``known`` that they come from."""
        first, last = self.starts[rows.start], self.starts[rows.stop]
        states = {name: state[rows] for name, state in self.states.items()}
        index = parents[rows]
        own = {name: (part_of(q, index), part_of(size, index)) for name, (q, size) in known.items()}
        starts, gated = self.starts[rows.start : rows.stop + 1] - first, self.gated and self.gated.some(rows)
        return Block(self.corners[first:last], starts, states, own, gated)


class Cells:
    """Cuts the convex parts of a domain of a plane.

    Args:
        replay: the network.
        simplex: the inputs at (0, 0), (1, 0) and (0, 1), in coordinates in which the domain fits [−1, 1]².
        domain: the domain in these coordinates.
        limit: the largest number of polygons to make.
    """

    def __init__(self, replay: Replay, simplex: Float[Tensor, "3 ..."], domain: Domain, limit: int):
        self._gates, self._limit, self._cutter = replay.gates, limit, Cutter(replay, simplex)
        corners, starts = domain.polygons()
        sides, seams = len(domain.corners), len(domain.seams())
        self._layers = [np.full(sides, BORDER), np.full(seams, SEAM)]  # of every cut
        self._units = [np.arange(sides), np.arange(seams)]
        self._cuts, self._count, self._width = sides + seams, len(domain.parts), 1
        self._done: list[tuple[Block, Tensor]] = []
        self._descend(Block(corners, starts, {}, {}, None), 0)

    def result(self) -> tuple[NDArray[np.float64], NDArray[np.int64], dict[str, Tensor], Tensor, Cuts]:
        """Return all corners and starts, the states of gates, the output on the simplex, and the cuts."""
        blocks = [block for block, _ in self._done]
        corners = np.concatenate([block.corners for block in blocks])
        counts = np.concatenate([np.diff(block.starts) for block in blocks])
        states = {name: torch.cat([block.states[name] for block in blocks]) for name in self._gates}
        cuts = Cuts(corners[:, 2].astype(np.int64), np.concatenate(self._layers), np.concatenate(self._units))
        starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        return corners[:, :2].copy(), starts, states, torch.cat([values for _, values in self._done]), cuts

    def _descend(self, block: Block, level: int) -> None:
        """Cut a block by the gates from one level on."""
        if level == len(self._gates):
            self._done.append((block, self._outputs(block)))
            return
        for part in self._parts(block, level):
            self._descend(part, level + 1)

    def _outputs(self, block: Block) -> Float[Tensor, "regions k 3"]:
        step = self._cutter.step(len(self._gates))
        if step is None or block.gated is None:
            return self._cutter.outputs(block.states, block.known).expand(len(block), -1, -1)
        return torch.from_numpy(step.lines(block.gated)).to(self._cutter.replay.device).transpose(1, 2)

    def _parts(self, block: Block, level: int) -> Iterator[Block]:
        """Cut every polygon where the gates of a level change; yield the parts in blocks."""
        name, cut = self._gates[level], self._cut(block, level)
        corners, starts, parents, made, doubts, above = self._split(block, cut)
        if doubts.any():
            tied = bool((doubts <= 0).all())  # negative: lines of a window that are equal to the last bit
            better = self._cutter.corrected(name, cut, block.states, np.flatnonzero(doubts), all_tied=tied)
            if better is not cut:
                cut = better
                corners, starts, parents, made, _, above = self._split(block, cut)
        self._layers.append(np.full(len(made), level))
        self._units.append(self._cutter.unit(name, made))
        self._cuts += len(made)
        self._refuse_too_many(len(parents) - len(block), name)
        state = self._cutter.state(name, above)
        index = torch.as_tensor(parents).to(state.device)
        states = {other: own[index] for other, own in block.states.items()} | {name: state}
        gated = None if self._cutter.step(level + 1) is None else Gated(cut.lines, cut.errors, parents, above)
        parts, needed = Block(corners, starts, states, {}, gated), self._cutter.needed(level + 1)
        known = {other: own for other, own in block.known.items() if other in needed}
        if name in needed:
            known[name] = self._cutter.known(name, cut)
        self._width = max(self._width, cut.q.shape[2])
        for rows in batches(len(parts), max(1, BLOCK_ENTRIES // (3 * self._width))):
            yield parts.some(rows, index, known)

    def _cut(self, block: Block, level: int) -> Cut:
        name, step = self._gates[level], self._cutter.step(level)
        if step is None or block.gated is None:
            return self._cutter.cut(name, block.states, block.known)
        return self._cutter.stepped(name, step, block.gated)

    def _split(self, block: Block, cut: Cut) -> Any:
        where = block.corners, block.starts, cut.lines, cut.errors
        if len(cut.windows):
            return import_module("gatelab.regions.winning").divide(*where, cut.windows, self._cuts)
        return loops().split(*where, self._cuts)

    def _refuse_too_many(self, more: int, name: str) -> None:
        self._count += more
        if self._count > self._limit:
            raise TooManyPathsError(
                f"at gate '{name}' there are more regions than the limit of {self._limit:,}; take smaller bounds, or "
                "raise limit="
            )


def loops() -> Any:
    """Return the compiled loops. Their module loads Numba, so it is imported at first use."""
    return import_module("gatelab.regions.splitting")
