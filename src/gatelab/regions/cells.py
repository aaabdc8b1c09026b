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
from gatelab.regions.graph import Cuts
from gatelab.regions.replay import Replay

BLOCK_ENTRIES = 2**19  # pre-activations of a block of regions; small blocks stay in the cache


@dataclass(frozen=True)
class Block:
    """Some polygons, the states of their gates, and what is known of their pre-activations."""

    corners: NDArray[np.float64]
    starts: NDArray[np.int64]
    states: dict[str, Tensor]
    known: Known

    def __len__(self) -> int:
        return len(self.starts) - 1

    def some(self, rows: slice, parents: Tensor, known: Known) -> "Block":
        """Return some of the polygons; ``parents`` are the rows of ``known`` that they come from."""
        first, last = self.starts[rows.start], self.starts[rows.stop]
        states = {name: state[rows] for name, state in self.states.items()}
        index = parents[rows]
        own = {name: (part_of(q, index), part_of(size, index)) for name, (q, size) in known.items()}
        return Block(self.corners[first:last], self.starts[rows.start : rows.stop + 1] - first, states, own)


class Cells:
    """Cuts a convex polygon of a plane.

    Args:
        replay: the network.
        simplex: the inputs at (0, 0), (1, 0) and (0, 1), in coordinates in which the domain fits [−1, 1]².
        domain: the corners of the domain in these coordinates, counter-clockwise.
        limit: the largest number of polygons to make.
    """

    def __init__(self, replay: Replay, simplex: Float[Tensor, "3 ..."], domain: NDArray[np.float64], limit: int):
        self._gates, self._limit, self._cutter = replay.gates, limit, Cutter(replay, simplex)
        sides = len(domain)
        self._layers, self._units = [np.full(sides, -1)], [np.arange(sides)]  # of every cut
        self._cuts, self._count, self._width = sides, 1, 1
        self._done: list[tuple[Block, Tensor]] = []
        self._descend(Block(np.c_[domain, np.arange(float(sides))], np.array([0, sides]), {}, {}), 0)

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
            values = self._cutter.outputs(block.states, block.known)
            self._done.append((block, values.expand(len(block), -1, -1)))
            return
        for part in self._parts(block, level):
            self._descend(part, level + 1)

    def _parts(self, block: Block, level: int) -> Iterator[Block]:
        """Cut every polygon where the gates of a level change; yield the parts in blocks."""
        name = self._gates[level]
        cut = self._cutter.cut(name, block.states, block.known)
        corners, starts, parents, made, doubts = self._split(block, cut)
        if doubts.any():
            cut = self._cutter.corrected(name, cut, block.states, np.flatnonzero(doubts))
            corners, starts, parents, made, _ = self._split(block, cut)
        self._layers.append(np.full(len(made), level))
        self._units.append(self._cutter.unit(name, made))
        self._cuts += len(made)
        self._refuse_too_many(len(parents) - len(block), name)
        where = (corners, starts, parents, cut.lines, cut.errors)
        state = self._cutter.state(
            name, loops().winners(*where, cut.windows) if len(cut.windows) else loops().above(*where)
        )
        index = torch.as_tensor(parents).to(state.device)
        parts = Block(corners, starts, {other: own[index] for other, own in block.states.items()} | {name: state}, {})
        needed = self._cutter.needed(level + 1)
        known = {other: own for other, own in (block.known | {name: (cut.q, cut.sizes)}).items() if other in needed}
        self._width = max(self._width, cut.q[0, 0].numel())
        for rows in batches(len(parts), max(1, BLOCK_ENTRIES // (3 * self._width))):
            yield parts.some(rows, index, known)

    def _split(self, block: Block, cut: Cut) -> Any:
        return loops().split(block.corners, block.starts, cut.lines, cut.errors, cut.windows, self._cuts)

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
