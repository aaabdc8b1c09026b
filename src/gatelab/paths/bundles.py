"""List the paths of any small network; paths that share their weights form one bundle."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from gatelab.errors import InputError, TooManyPathsError
from gatelab.gates.choice import GateChoice
from gatelab.observe import examples, observable
from gatelab.paths.connections import LinkFilter, PathLayer
from gatelab.paths.enumeration import DEFAULT_LIMIT
from gatelab.paths.rules import layers_of
from gatelab.paths.spreading import Keys, Partial, spread

_ABOUT = "use neural_path_kernel or top_paths, which enumerate none, or raise limit="


class PathBundles:
    r"""The bundles of a network: a bundle has all paths with the same weights.

    .. math:: \phi_x(b) = \sum_{p \in b} x(I_0(p)) \prod_l G_x(l, I_l(p)), \qquad v(b) = \prod_l \Theta(b, l)

    A convolution shifts paths that share their weights; in a fully connected network each path is a bundle. In both,
    ŷ = ⟨φ, v⟩. Everything except the weights and biases of dense and convolutional layers is part of φ: gates,
    averages, batch-norm in evaluation mode, constants.

    H = ⟨φ, φ'⟩, the path kernel, and K = φᵀ𝒱φ', the tangent kernel, hold for networks of dense and convolutional layers
    without biases whose gates are bits, with a dense last layer. Biases and other constants start bundles of their own,
    which H leaves out. Batch-norm and other scales belong to the values in H, and have gradients of their own in K.
    Without a dense last layer ⟨φ, φ'⟩ sums H over the outputs. Where a path passes one weight twice, H is an average
    over independent weights and ⟨φ, φ'⟩ is not. With soft gates φᵀ𝒱φ' is K^V, the values' part of K.

    Bundles are ordered by their weights: by layer as the network runs, then by position in the parameter. The weights
    of a dense last layer give each bundle a value for each output. Without such a layer a bundle ends at one output; at
    the others its value is zero.

    Attributes:
        parameters: the names of the parameters that paths pass, in the order of the layers.
        paths: how many paths each bundle has.

    Example:
        >>> pooled = nn.Sequential(
        ...     *(nn.Conv1d(1, 1, 2, bias=False), nn.ReLU(), nn.AdaptiveAvgPool1d(1), nn.Flatten()),
        ...     nn.Linear(1, 1, bias=False),
        ... )
        >>> bundles = PathBundles(pooled, torch.ones(1, 1, 3))
        >>> bundles.paths  # two taps of the convolution, each at two positions
        (2, 2)
        >>> bundles.weights(1)
        (('0.weight', (0, 0, 1)), ('4.weight', (0, 0)))
    """

    def __init__(self, model: nn.Module, x: Float[Tensor, "n ..."], *, limit: int = DEFAULT_LIMIT):
        """List the bundles.

        Args:
            model: a network that :func:`gatelab.top_paths` accepts; its weights are parameters.
            x: examples of the size for which to list bundles; their values do not matter.
            limit: the largest number of paths to list.

        Raises:
            TooManyPathsError: there are more than ``limit`` paths.
            UnsupportedModelError: an operation is neither linear nor a gate, or a weight is computed.
        """
        self._model = observable(model)
        x = examples(x, self._model)
        self._size = x.shape[1:]
        with torch.device("cpu"):
            self._layers = layers_of(self._model, x[:1], all_open=True)
        _guard(self._layers, self._head, limit)
        self.parameters = _parameters(self._layers)
        held, self._first, count = dict(self._model.named_parameters()), dict[str, int](), 0
        for name in self.parameters:
            self._first[name] = count
            count += held[name].numel()
        self._one, self._none = count, count + 1  # indices that stand for a weight of 1 and of 0
        self._list()

    def __len__(self) -> int:
        return len(self._index)

    def weights(self, bundle: int, output: int = 0) -> tuple[tuple[str, tuple[int, ...]], ...]:
        """Return the names of the parameters that a bundle passes on its way to an output, with the index in each."""
        if not (0 <= bundle < len(self) and 0 <= output < self._index.shape[1]):
            raise InputError(
                f"there is no bundle {bundle} for output {output}; bundles are numbered 0 to {len(self) - 1}, "
                f"outputs 0 to {self._index.shape[1] - 1}"
            )
        held, found = dict(self._model.named_parameters()), []
        for number in self._index[bundle, output].tolist():
            if number < self._one:
                name = [name for name in self.parameters if self._first[name] <= number][-1]
                place = np.unravel_index(number - self._first[name], held[name].shape)
                found.append((name, tuple(int(axis) for axis in place)))
        return tuple(found)

    def values(self) -> Float[Tensor, "bundles k"]:
        """Return the product of the weights of each bundle, one column per output."""
        with torch.no_grad():
            return self.values_of(dict(self._model.named_parameters()))

    def values_of(self, parameters: Mapping[str, Tensor]) -> Float[Tensor, "bundles k"]:
        """Return the same for other parameters in place of the model's own."""
        missing = [name for name in self.parameters if name not in parameters]
        if missing:
            raise InputError(f"no parameter '{missing[0]}' is given; the bundles pass {', '.join(self.parameters)}")
        ends = torch.tensor([1.0, 0.0])
        weights = [parameters[name].flatten() for name in self.parameters]
        flat = torch.cat([*weights, ends.to(weights[0]) if weights else ends])
        return flat[self._index.to(flat.device)].prod(dim=2)

    def features(self, x: Float[Tensor, "n ..."], *, gates: GateChoice = "network") -> Float[Tensor, "n bundles"]:
        """Return the feature of each bundle for each example; ``gates`` as in :func:`gatelab.neural_path_features`."""
        x = examples(x, self._model)
        if x.shape[1:] != self._size:
            raise InputError(
                f"an example has shape {tuple(x.shape[1:])}, the bundles were listed for {tuple(self._size)}; their "
                "number depends on the size, so list them for these examples"
            )
        with torch.device("cpu"):
            each = [layers_of(self._model, example[None], gates) for example in x.detach()]
        _, _, coefficient = self._ends(each)
        listed = np.zeros((len(self), len(x)))
        np.add.at(listed, self._bundle, coefficient)
        return torch.from_numpy(listed.T).to(x)

    def _ends(self, each: Sequence[Sequence[PathLayer]]) -> tuple[Keys, Partial | None, np.ndarray]:
        """The paths to the outputs, or to a dense last layer, whose bias is a separate path after all others."""
        keys = Keys()
        made = spread(self._layers[:-1] if self._head else self._layers, each, self._first, keys)
        ends = made[self._head.source] if self._head else made[-1]
        biased = bool(self._head and self._head.names[1])
        last = [np.ones((1, len(each)))] if biased else []
        return keys, ends, np.concatenate([ends.coefficient, *last])

    @property
    def _head(self) -> LinkFilter | None:
        """The last layer, if it is dense and reads all units of the layer before it."""
        (part, *others) = (*self._layers[-1].connections, None)
        plain = isinstance(part, LinkFilter) and others == [None] and not part.is_image and part.columns.shape == (1, 1)
        return part if plain and isinstance(part, LinkFilter) and part.names[0] is not None else None

    def _list(self) -> None:
        keys, ends, counts = self._ends([[_counted(layer) for layer in self._layers]])
        assert ends is not None
        passed = [(keys.weights(int(key)), int(unit)) for key, unit in zip(ends.key, ends.unit, strict=True)]
        outputs = range(len(self._layers[-1].constant))
        rows = {way: self._row(*way, outputs) for way in passed}
        if len(counts) > len(passed):
            assert self._head is not None
            bias = self._first[str(self._head.names[1])]
            passed.append(((self._none,), -1))  # after all weights
            rows[passed[-1]] = [[bias + output] for output in outputs]
        listed = sorted(rows)
        place = {way: number for number, way in enumerate(listed)}
        self._bundle = np.array([place[way] for way in passed])
        longest = max(len(row) for way in listed for row in rows[way])
        table = [[row + [self._one] * (longest - len(row)) for row in rows[way]] for way in listed]
        self._index = torch.tensor(table)
        total = np.zeros(len(listed))
        np.add.at(total, self._bundle, counts[:, 0])
        self.paths = tuple(int(count) for count in total)

    def _row(self, weights: tuple[int, ...], unit: int, outputs: range) -> list[list[int]]:
        """For each output, the weights of a bundle that passes a unit before a dense last layer, or ends at one."""
        if self._head is None:
            return [list(weights) if output == unit else [self._none] for output in outputs]
        first, rows = self._first[str(self._head.names[0])], []
        for output in outputs:
            units, entries = self._head.entries_of(output)
            (place,) = np.flatnonzero(units == unit)
            rows.append([*weights, first + int(entries[place])])
        return rows


def _counted(layer: PathLayer) -> PathLayer:
    """A layer that counts paths: all factors and constants are one."""
    parts = tuple(
        part if isinstance(part, LinkFilter) else replace(part, factor=torch.ones_like(part.factor))
        for part in layer.connections
    )
    return replace(layer, connections=parts, constant=torch.ones_like(layer.constant))


def _parameters(layers: Sequence[PathLayer]) -> tuple[str, ...]:
    """The names of the parameters on paths, in the order of the layers, weight before bias."""
    filters = [part for layer in layers for part in layer.connections if isinstance(part, LinkFilter)]
    return tuple(dict.fromkeys(name for part in filters for name in part.names if name is not None))


def _guard(layers: Sequence[PathLayer], head: LinkFilter | None, limit: int) -> None:
    """Refuse to list more than ``limit`` paths; paths that differ only in a dense last layer count once."""
    if not isinstance(limit, int):
        raise InputError(f"limit is {limit!r}; it must be a whole number of paths")
    counts: list[Tensor] = []
    for layer in layers:
        total = (layer.constant != 0).double()[None]
        for part in layer.connections:
            every = part
            if isinstance(part, LinkFilter):
                total = torch.ones_like(total) if part.names[1] else total
                every = replace(part, weight=torch.ones_like(part.weight))
            total = total + every.total(counts[part.source])
        counts.append(total)
    count = counts[-1].sum().item() if head is None else counts[head.source].sum().item() + (head.names[1] is not None)
    if count > limit:
        raise TooManyPathsError(f"the network has {count:,.0f} paths, more than the limit of {limit:,}; {_ABOUT}")
