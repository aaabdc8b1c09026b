"""Find the paths with the largest contributions for one input, without listing paths."""

from dataclasses import dataclass, field
from itertools import accumulate, pairwise

import torch
from jaxtyping import Float
from torch import Tensor, nn

from gatelab.errors import InputError
from gatelab.gates.choice import GateChoice
from gatelab.paths.connections import LinkFilter, PathLayer
from gatelab.paths.example import one_example
from gatelab.paths.rules import layers_of
from gatelab.paths.search import Passed, PathSearch


@dataclass(frozen=True)
class Place:
    """A unit that a path passes.

    Attributes:
        layer: the name of the layer.
        index: the unit's index in what the layer returns for one example.
        is_image: whether the first index is a channel and the others a position.
    """

    layer: str
    index: tuple[int, ...]
    is_image: bool = False

    def __str__(self) -> str:
        position = ",".join(map(str, self.index[1:] if self.is_image else self.index))
        return f"{self.layer}[c={self.index[0]}, {position}]" if self.is_image else f"{self.layer}[{position}]"


@dataclass(frozen=True)
class Path:
    """A path through a network and its contribution to an output.

    ``print(path)`` shows the layers, channels and positions that it passes. A path passes one unit in each weight layer
    and in each average on its way. Where a unit feeds several others that are not in such a layer, as at a skip
    connection, the next unit is listed too, to distinguish the paths. Each connection makes a separate path, so two
    paths may pass the same units if two weights join the same two units (padding that repeats units, h + h).

    Attributes:
        units: the unit passed in each layer, input node first; units of an image are numbered in the order channel,
            row, column.
        contribution: x(i₀) · (gates) · (weights), signed.
        output: the output where the path ends.
        start: 0 if the path starts at an input node, l if it starts at the bias of weight layer l, or at another
            constant between this layer and the next (the shift of a batch-norm). In the second case ``units`` begins
            with the unit that this bias feeds; it is empty for a bias of the output.
        places: the layers passed and the index of the unit in each of them, from the start to the output.
        gates: the gates passed, named as in a GatePattern, and the index of the unit in what each gate returns.
    """

    units: tuple[int, ...]
    contribution: float
    output: int = 0
    start: int = 0
    places: tuple[Place, ...] = field(default=(), repr=False)
    gates: tuple[Place, ...] = field(default=(), repr=False)

    def __str__(self) -> str:
        names = ["bias"] * (self.start > 0) + [str(place) for place in self.places]
        return f"{' → '.join(names)}: {self.contribution:+.4g}"


def top_paths(
    model: nn.Module, x: Float[Tensor, "..."], k: int, output: int | None = None, *, gates: GateChoice = "network"
) -> list[Path]:
    r"""Find the k paths with the largest \|contribution\| for one input.

    The result is exact, and no other paths are listed: one run through the network finds the largest contribution into
    each unit, and :class:`~gatelab.paths.search.PathSearch` follows the paths from the output in order. Contributions
    are computed in float64. All contributions together, including those of biases, add up to the output.

    Args:
        model: a network of dense and convolutional layers, gates, batch-norm in evaluation mode, poolings, sums,
            concatenations, rearrangements and constant factors. Paths end before a final softmax or sigmoid.
        x: one example, with or without a batch axis of length one.
        k: the number of paths.
        output: consider only paths to this output; None compares the paths to all outputs.
        gates: "network" takes what the network computes, numbers where its gates are soft; "hard" takes bits.

    Returns:
        The paths, largest first. Closed paths (contribution 0) are left out, so there may be fewer than k.

    Raises:
        UnsupportedModelError: an operation before the output is neither linear nor a gate.

    Example:
        >>> net = nn.Sequential(nn.Linear(2, 2, bias=False), nn.ReLU(), nn.Linear(2, 1, bias=False))
        >>> _ = net[0].weight.data.copy_(torch.tensor([[1.0, 2.0], [1.0, -9.0]]))
        >>> _ = net[2].weight.data.copy_(torch.tensor([[-1.0, 1.0]]))
        >>> for path in top_paths(net, torch.tensor([1.0, 1.0]), k=2):
        ...     print(path.units, path)
        (1, 0) x[1] → 0[0] → 2[0]: -2
        (0, 0) x[0] → 0[0] → 2[0]: -1
    """
    if not isinstance(k, int) or k < 1:
        raise InputError(f"k is {k!r}; give a whole number, at least 1")
    with torch.device("cpu"):  # the search runs there, whatever the caller's default device
        layers = layers_of(model, one_example(model, x), gates)
        found = PathSearch(layers, k).paths(ends(layers[-1], output))
        told = _Landmarks(layers)
        paths = [told.path(passed, contribution) for contribution, passed in found]
    return sorted(paths, key=lambda path: -abs(path.contribution))


def ends(last: PathLayer, output: int | None) -> list[int]:
    """Return the outputs at which paths may end: the given one, or all."""
    outputs = len(last.constant)
    if output is not None and not (isinstance(output, int) and 0 <= output < outputs):
        raise InputError(f"output {output!r} does not exist; the network has {outputs}, numbered from 0")
    return list(range(outputs)) if output is None else [output]


class _Landmarks:
    """Describes paths by the units that distinguish them."""

    def __init__(self, layers: list[PathLayer]):
        self._layers = layers
        self._images = any(layer.is_image for layer in layers)
        weighs = [any(isinstance(part, LinkFilter) for part in layer.connections) for layer in layers]
        self._weight_layers = list(accumulate(weighs))
        self._readers = [torch.zeros(len(layer.constant), dtype=torch.int64) for layer in layers]
        for layer in layers:
            for part in layer.connections:
                readers = self._readers[part.source]
                readers += 1 if layer.landmark else part.readers(len(readers))

    def path(self, passed: Passed, contribution: float) -> Path:
        """Return the path through these units."""
        (first, _), (_, output) = passed[0], passed[-1]
        kept = passed[:1]
        for (before, origin), (layer, unit) in pairwise(passed):
            # A unit with one reader leads to one unit only.
            if self._layers[layer].landmark or self._readers[before][origin] > 1:
                kept.append((layer, unit))
        places = tuple(self._place(layer, unit, self._layers[layer].name) for layer, unit in kept)
        gates = tuple(
            self._place(layer, unit, name) for layer, unit in passed if (name := self._layers[layer].gate) is not None
        )
        units = tuple(unit for _, unit in kept[:-1])
        start = 0 if self._layers[first].starts else max(1, self._weight_layers[first])
        return Path(units, contribution, output, start, places, gates)

    def _place(self, number: int, unit: int, name: str) -> Place:
        layer = self._layers[number]
        return Place(name, _index(layer.shape, unit), self._images and len(layer.shape) > 1)


def _index(shape: tuple[int, ...], unit: int) -> tuple[int, ...]:
    """The index of a unit in a tensor of this shape."""
    index: list[int] = []
    for size in reversed(shape):
        unit, place = divmod(unit, size)
        index.append(place)
    return tuple(reversed(index))
