"""The largest products along paths of a layered graph, found best first."""

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from gatelab.paths.connections import PathLayer

START = -1  # the source of a connection to a constant

Passed = list[tuple[int, int]]  # layer and unit, from the start to the output


@dataclass(frozen=True, eq=False)
class _Ways:
    r"""The ways from a unit back towards the input, best first.

    Attributes:
        shares: the largest \|contribution\| by each way, relative to the best way.
        weights: the weight of each connection, or the constant itself.
        sources: the layers they lead to; START for a constant.
        units: the units they lead to.
    """

    shares: list[float]
    weights: list[float]
    sources: list[int]
    units: list[int]


@dataclass(frozen=True, eq=False)
class _Branch:
    r"""All paths with the same end.

    Attributes:
        largest: the \|contribution\| of the largest of them.
        product: the product of the weights that they share.
        passed: the layer and the unit where the end begins; the ways lead on from there.
        end: the branch that this one extends; None at the output.
        ways: how paths go on.
    """

    largest: float
    product: float
    passed: tuple[int, int] | None
    end: "_Branch | None"
    ways: _Ways

    def path(self) -> Passed:
        """Return the layers and units of the end."""
        found: Passed = []
        branch: _Branch | None = self
        while branch is not None and branch.passed is not None:
            found.append(branch.passed)
            branch = branch.end
        return found


class PathSearch:
    r"""Finds paths in order of \|contribution\|.

    The first pass, from input to output, finds the largest \|contribution\| of a partial path into each unit. It is
    exact, because the largest product is a weight times the largest product before it. The second pass, from output to
    input, follows a path along the best ways, and puts every other way off it on a heap, with the size of the best
    path that takes it. The largest entry of the heap is therefore the next path, and each entry taken is a path found:
    after the first pass, which costs as much as one run of the network, k paths take O(k · depth) steps.

    Args:
        layers: the layers in order; the last is the output.
        k: the largest number of paths that will be asked for.
    """

    def __init__(self, layers: Sequence[PathLayer], k: int):
        self._layers, self._k = layers, k
        self._reach = [reach.numpy() for reach in reaches(layers)]
        self._ways: dict[tuple[int, int], _Ways] = {}

    def paths(self, outputs: Sequence[int]) -> list[tuple[float, Passed]]:
        """Return the contributions of the k best paths to some outputs, and the units that they pass."""
        found: list[tuple[float, Passed]] = []
        units = np.asarray(outputs)
        sizes = self._reach[-1][units]
        last = np.full(len(units), len(self._layers) - 1)
        ways = self._sorted(sizes, np.ones(len(units)), last, units)
        order = count()  # of two equal entries, take the older one
        heap: list[tuple[float, int, _Branch, int]] = []

        def wait(branch: _Branch, rank: int) -> None:
            if rank < len(branch.ways.shares):
                heappush(heap, (-branch.largest * branch.ways.shares[rank], next(order), branch, rank))

        wait(_Branch(float(sizes.max()), 1.0, None, None, ways), 0)
        while heap and len(found) < self._k:
            _, _, branch, rank = heappop(heap)
            while True:
                wait(branch, rank + 1)
                ways = branch.ways
                product, source = branch.product * ways.weights[rank], ways.sources[rank]
                if source == START:
                    found.append((product, branch.path()))
                    break
                largest, unit = branch.largest * ways.shares[rank], ways.units[rank]
                branch = _Branch(largest, product, (source, unit), branch, self._from(source, unit))
                rank = 0
        return found

    def _from(self, layer: int, unit: int) -> _Ways:
        """The ways on from a unit, kept for the next path that passes it."""
        ways = self._ways.get((layer, unit))
        if ways is None:
            constant = self._layers[layer].constant[unit : unit + 1].numpy()
            parts = [(np.abs(constant), constant, np.array([START]), np.array([0]))]
            for connection in self._layers[layer].connections:
                units, weights = connection.of(unit)
                sizes = np.abs(weights) * self._reach[connection.source][units]
                parts.append((sizes, weights, np.full(len(units), connection.source), units))
            ways = self._ways[layer, unit] = self._sorted(*map(np.concatenate, zip(*parts, strict=True)))
        return ways

    def _sorted(self, sizes: np.ndarray, weights: np.ndarray, sources: np.ndarray, units: np.ndarray) -> _Ways:
        """Return the k best ways that contribute; no more can be needed."""
        best = np.argsort(-sizes, kind="stable")[: self._k]
        best = best[sizes[best] > 0]
        shares = sizes[best] / sizes[best[0]] if len(best) else sizes[best]
        return _Ways(shares.tolist(), weights[best].tolist(), sources[best].tolist(), units[best].tolist())


def reaches(layers: Sequence[PathLayer]) -> list[Float[Tensor, " units"]]:
    r"""Return the largest \|contribution\| of a partial path into each unit of each layer."""
    reach: list[Tensor] = []
    for layer in layers:
        sizes = layer.constant.abs()
        for connection in layer.connections:
            sizes = torch.maximum(sizes, connection.largest(reach[connection.source]))
        reach.append(sizes)
    return reach
