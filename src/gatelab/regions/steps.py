"""From one layer of gates to the next by one matrix, for many regions at once."""

from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from math import prod
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.fx import Node

from gatelab.network.unfolding import affine_map
from gatelab.regions.replay import Replay
from gatelab.regions.rounding import UNIT
from gatelab.regions.states import HalfSpaceStates

MOST_ENTRIES = 2**22  # of a matrix
FEWEST_NONZEROS = 0.25  # a sparser matrix is a convolution's, which runs faster as a convolution


@dataclass(frozen=True)
class Gated:
    """Parts of regions behind a layer of gates: the functions of the regions, and the gates of the parts.

    Attributes:
        lines: (regions or 1, 1 + dimensions, units), the pre-activations of the gates.
        errors: (regions or 1, units), how far their heights may be from the truth.
        parents: (parts,), the region of each part.
        above: (parts, units), which gates are open.
    """

    lines: NDArray[np.float64]
    errors: NDArray[np.float64]
    parents: NDArray[np.int64]
    above: NDArray[np.bool_]

    def some(self, rows: slice) -> "Gated":
        """Return some of the parts."""
        return Gated(self.lines, self.errors, self.parents[rows], self.above[rows])


@dataclass(frozen=True)
class Step:
    """The only way from one layer of half-space gates to another, or to the output: W h + b.

    Two parts of a region whose gates differ in unit i alone have functions that differ by W[:, i] q_i alone. So one
    product with W for each region is enough, and one with a column of it for each further part.

    Attributes:
        weight: (source units, units), W transposed.
        constant: (units,), b.
        closed: (source units,), what closed gates multiply by.
    """

    weight: NDArray[np.float64]
    constant: NDArray[np.float64]
    closed: NDArray[np.float64]

    def lines(self, gated: Gated) -> NDArray[np.float64]:
        """Return the functions of all parts, (parts, 1 + dimensions, units)."""
        loops = _loops()
        before, unit = loops.neighbours(gated.above, gated.parents)
        first = np.flatnonzero(before < 0)
        columns = np.flatnonzero(gated.above[first].any(0) | (self.closed != 0))
        passed = np.empty((len(first), gated.lines.shape[1], len(columns)))
        loops.gated(gated.lines, gated.parents, gated.above, self.closed, first, columns, passed)
        weight = torch.from_numpy(self.weight if len(columns) == len(self.weight) else self.weight[columns])
        products = torch.from_numpy(passed).flatten(0, 1).mm(weight).numpy().reshape(*passed.shape[:2], -1)
        out = np.empty((len(before), *products.shape[1:]))
        loops.follow(
            gated.lines,
            gated.parents,
            gated.above,
            self.closed,
            self.weight,
            self.constant,
            before,
            unit,
            products,
            out,
        )
        return out

    def errors(self, gated: Gated) -> NDArray[np.float64]:
        """Return a bound of the rounding errors of these functions' heights, one for all parts, (1, units).

        A sum of n products has an error of at most n 2⁻⁵³ times the sum of their sizes. A part is at most n
        switched gates away from a product with W.
        """
        sizes, errors = _loops().largest(gated.lines, gated.errors, gated.parents, gated.above, self.closed)
        share = UNIT * (4 + 2 * len(self.weight))
        weight = self._sizes
        return (share * (sizes @ weight + np.abs(self.constant)) + errors @ weight)[None]

    @cached_property
    def _sizes(self) -> NDArray[np.float64]:
        return np.abs(self.weight)


def step_to(replay: Replay, source: str, gate: str | None, inputs: tuple[int, ...]) -> Step | None:
    """Return the step from a layer of gates to a gate's q (None: the output), if there is no other way to it.

    Args:
        replay: the network.
        source: the layer.
        gate: the gate.
        inputs: the shape of one example.
    """
    plan = replay.plan
    node, states = plan.output if gate is None else plan.q(gate), replay.gate(source)
    target = None if gate is None else replay.gate(gate)
    if not isinstance(states, HalfSpaceStates) or not isinstance(target, HalfSpaceStates | None):
        return None
    sources = plan.sources(node)
    if set(sources) != {source} or not _is_only_way(replay, sources[source], node):
        return None
    shape = tuple(sources[source].meta["shape"][1:])
    if prod(shape) * prod(node.meta["shape"][1:]) > MOST_ENTRIES:
        return None
    constant, matrices = affine_map(plan.network, replay.model, node, {sources[source]: shape}, inputs)
    weight = np.ascontiguousarray(matrices[sources[source]].T.cpu().numpy())
    if np.count_nonzero(weight) < FEWEST_NONZEROS * weight.size:
        return None
    closed = states.factor(torch.zeros(1, *shape, dtype=torch.bool)).expand(1, *shape)
    return Step(weight, constant.double().cpu().numpy(), np.ascontiguousarray(closed.flatten().numpy()))


def _is_only_way(replay: Replay, origin: Node, node: Node) -> bool:
    """Whether a node reads nothing of the data but one gate, and through no other gate."""
    between = replay.plan.interpreter.nodes_between(node, {origin})
    has_units = len(node.meta.get("shape", ())) > 1  # a single number for each example has no axis for units
    return has_units and not any(own.op == "placeholder" or replay.plan.is_gate(own) for own in between)


def _loops() -> Any:
    return import_module("gatelab.regions.stepping")
