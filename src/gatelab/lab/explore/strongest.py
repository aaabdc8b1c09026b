"""The strongest paths of examples, each with what the output is when its gates are closed."""

from collections.abc import Mapping, Sequence
from math import prod

from jaxtyping import Float
from torch import Tensor

from gatelab.lab.explore.boxes import NOTHING, seen_boxes
from gatelab.lab.explore.closing import contributions_of_inputs, outputs_without
from gatelab.lab.explore.facts import ShownGates, ShownPath, ShownPaths, ShownPlace
from gatelab.lab.explore.gallery import decisions_of
from gatelab.network import Network
from gatelab.paths import Path, count_paths, top_paths
from gatelab.paths.connections import PathLayer
from gatelab.paths.rules import layers_of
from gatelab.paths.top import Place


class StrongestPaths:
    """Finds and checks the strongest paths of one example after another."""

    def __init__(
        self, network: Network, x: Float[Tensor, "n ..."], gates: Sequence[ShownGates], k: int, *, images: bool
    ):
        """Read where each unit looks.

        Args:
            network: the network, as it was read.
            x: the examples.
            gates: the layers that the page shows.
            k: how many paths to find.
            images: whether the page shows examples as images, on which units see boxes.
        """
        self._network, self._x, self._k, self._images = network, x, k, images
        self._numbers = {layer.name: number for number, layer in enumerate(gates)}
        layers = layers_of(network.model, x[:1], all_open=True)
        self._layers: Mapping[str, PathLayer] = {layer.name: layer for layer in layers}
        boxes = seen_boxes(layers) if images else None
        self._boxes: Mapping[str, Tensor] = {} if boxes is None else dict(zip(self._layers, boxes, strict=True))

    def of(self, example: int, output: int, *, classes: bool) -> ShownPaths:
        """Return the strongest paths of an example to an output."""
        x = self._x[example : example + 1]
        paths = top_paths(self._network.model, x, self._k, output)
        closed = [[], *([(gate.layer, gate.index) for gate in path.gates] for path in paths)]
        kept, reacting = (outputs_without(self._network, x, closed, reacting=anew) for anew in (False, True))
        deciding = decisions_of(reacting).tolist() if classes else [None] * len(closed)
        shown = tuple(
            self._shown(path, float(kept[row, output]), float(reacting[row, output]), deciding[row])
            for row, path in enumerate(paths, start=1)
        )
        count = count_paths(self._network.model, x, output)
        by_input, value = contributions_of_inputs(self._network, x, output), float(kept[0, output])
        biases = value - float(by_input.sum())
        summed = by_input if not self._images else by_input.sum(0) if by_input.ndim == 3 else by_input
        return ShownPaths(example, output, value, f"{count:,}", shown, summed.float().numpy(), biases)

    def _shown(self, path: Path, kept: float, reacting: float, decision: int | None) -> ShownPath:
        places = tuple(ShownPlace(p.layer, p.index, self._layers[p.layer].shape, self._box(p)) for p in path.places)
        gates = tuple((self._numbers[gate.layer], self._unit(gate)) for gate in path.gates)
        return ShownPath(path.contribution, path.start > 0, places, gates, kept, reacting, decision)

    def _unit(self, gate: Place) -> int:
        shape = next(node.meta["shape"][1:] for node, name in self._network.gates.items() if name == gate.layer)
        return flat(gate.index, tuple(shape))

    def _box(self, place: Place) -> tuple[int, int, int, int] | None:
        if place.layer not in self._boxes:
            return None
        box = self._boxes[place.layer][flat(place.index, self._layers[place.layer].shape)]
        first_row, first_column, last_row, last_column = box.tolist()
        return None if first_row == NOTHING else (first_row, first_column, last_row, last_column)


def flat(index: tuple[int, ...], shape: tuple[int, ...]) -> int:
    """Return the flat number of a unit.

    Example:
        >>> flat((1, 0, 2), (2, 3, 4))
        14
    """
    return sum(place * prod(shape[axis + 1 :]) for axis, place in enumerate(index))
