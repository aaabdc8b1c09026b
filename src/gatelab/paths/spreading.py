"""Spread partial paths through the layers of a network; paths with the same weights and the same end are merged."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gatelab.errors import UnsupportedModelError
from gatelab.paths.connections import LinkFilter, LinkTable, PathLayer

ROOT = 0  # the key of a partial path without weights


@dataclass(frozen=True, eq=False)
class Partial:
    """Partial paths into the units of a layer, sorted by unit; those with the same key and unit share a row.

    Attributes:
        unit: where they end.
        key: which weights they have passed; see :class:`Keys`.
        coefficient: the sum of their products of starts and gates, one column per example.
    """

    unit: np.ndarray
    key: np.ndarray
    coefficient: np.ndarray

    @classmethod
    def of(cls, parts: Sequence[tuple[np.ndarray, np.ndarray, np.ndarray]]) -> "Partial":
        """Join parts; rows with the same unit and key are added."""
        unit, key, coefficient = (np.concatenate(columns) for columns in zip(*parts, strict=True))
        ends, place = np.unique(np.stack([unit, key]), axis=1, return_inverse=True)
        total = np.zeros((ends.shape[1], coefficient.shape[1]))
        np.add.at(total, place, coefficient)
        return cls(ends[0], ends[1], total)

    def at(self, units: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return all rows that end at one of some units: indices into ``units``, and the rows."""
        first, last = (np.searchsorted(self.unit, units, side) for side in ("left", "right"))
        lengths = last - first
        place = np.repeat(np.arange(len(units)), lengths)
        row = np.arange(len(place)) - np.repeat(np.cumsum(lengths) - lengths - first, lengths)
        return place, row


class Keys:
    """Numbers the sequences of weights that partial paths pass. A weight is its index among all weights."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[int, int], int] = {}
        self._links: list[tuple[int, int]] = [(-1, -1)]  # by key: the key that it extends, and by which weight

    def extended(self, keys: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """Return the keys with one more weight each."""
        pairs, place = np.unique(np.stack([keys, weights]), axis=1, return_inverse=True)
        return np.array([self._child(int(key), int(weight)) for key, weight in pairs.T], dtype=np.int64)[place]

    def weights(self, key: int) -> tuple[int, ...]:
        """Return the weights of a key, in the order of their numbers."""
        found = []
        while key != ROOT:
            key, weight = self._links[key]
            found.append(weight)
        return tuple(sorted(found))

    def _child(self, key: int, weight: int) -> int:
        number = self._numbers.setdefault((key, weight), len(self._links))
        if number == len(self._links):
            self._links.append((key, weight))
        return number


def spread(
    structure: Sequence[PathLayer], each: Sequence[Sequence[PathLayer]], first: dict[str, int], keys: Keys
) -> list[Partial]:
    """Return the partial paths into each layer.

    Args:
        structure: the layers with all gates open: which connections there are.
        each: the layers for each example: the factors of the connections.
        first: name of a parameter → the index of its first weight.
        keys: numbers the sequences of weights; the same structure gives the same numbers in the same order.
    """
    made: list[Partial] = []
    for number, layer in enumerate(structure):
        own = [layers[number] for layers in each]
        parts = [_starts(layer, own, first, keys)]
        for place, connection in enumerate(layer.connections):
            before = made[connection.source]
            if isinstance(connection, LinkFilter):
                unit, source, weight = _filtered(connection, len(layer.constant), first, layer.name)
                chosen, row = before.at(source)
                key = keys.extended(before.key[row], weight[chosen])
                parts.append((unit[chosen], key, before.coefficient[row]))
            else:
                tables = [part for layers in own if isinstance(part := layers.connections[place], LinkTable)]
                unit, source, factor = _tabled(connection, tables)
                chosen, row = before.at(source)
                parts.append((unit[chosen], before.key[row], before.coefficient[row] * factor[chosen]))
        made.append(Partial.of(parts))
    return made


def _starts(
    layer: PathLayer, own: Sequence[PathLayer], first: dict[str, int], keys: Keys
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The partial paths that start in a layer: at inputs, biases or other constants."""
    (biased, *_), n = (*(part for part in layer.connections if isinstance(part, LinkFilter)), None), len(own)
    if biased is not None and biased.names[1] is not None:
        units = np.arange(len(layer.constant))
        weights = np.array([first[biased.names[1]] + biased.channel_of(unit) for unit in range(len(units))])
        return units, keys.extended(np.full(len(units), ROOT), weights), np.ones((len(units), n))
    units = np.flatnonzero(layer.constant.numpy())
    constants = np.stack([layers.constant.numpy()[units] for layers in own], axis=1)
    return units, np.full(len(units), ROOT), constants


def _filtered(
    part: LinkFilter, units: int, first: dict[str, int], name: str
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The connections of a weight layer: unit, the unit that it reads, and the weight."""
    if part.names[0] is None:
        raise UnsupportedModelError(
            f"'{name}': its weight is not a parameter, so its paths have no value; make it one, e.g. by "
            "torch.nn.utils.parametrize.remove_parametrizations"
        )
    reads = [part.entries_of(unit) for unit in range(units)]
    unit = np.repeat(np.arange(units), [len(source) for source, _ in reads])
    source, weight = (np.concatenate(columns) for columns in zip(*reads, strict=True))
    return unit, source, weight + first[part.names[0]]


def _tabled(structure: LinkTable, own: Sequence[LinkTable]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The connections of a table: unit, the unit that it reads, and the factor for each example."""
    index = structure.index.numpy()
    unit, tap = np.nonzero(index >= 0)
    source, factors = index[unit, tap], []
    for table in own:
        there, factor = table.index.numpy(), table.factor.numpy()
        if np.array_equal(there, index):
            factors.append(factor[unit, tap])
        else:  # a maximum: one unit of the window wins
            factors.append(((there[unit] == source[:, None]) * factor[unit]).sum(1))
    return unit, source, np.stack(factors, axis=1)
