"""GatePattern: which gates are open for which example."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal, overload

import torch
from jaxtyping import Bool, Shaped
from safetensors.torch import save
from torch import Tensor

from gatelab.errors import InputError, RunError
from gatelab.gates.bits import popcount
from gatelab.gates.layer import GateKind, GateLayer, Slope
from gatelab.printing import html_table
from gatelab.work.tensors import read_tensors, write_tensors

_FORMAT = "gatelab.gates/1"


class GatePattern:
    """The gates of a network for n examples, layer by layer: one bit per gate, and a number where gates are soft.

    ``pattern[name]`` is the tensor of a layer: booleans, or numbers if its gates are soft. ``pattern[10:20]``, or a
    list or tensor of indices, is the pattern of these examples. A pattern is immutable.

    Example:
        >>> pattern = GatePattern({"relu": torch.tensor([[True, False], [True, True]])})
        >>> pattern["relu"].tolist()
        [[True, False], [True, True]]
        >>> pattern.active_fraction()
        {'relu': 0.75}
        >>> pattern[1:].n
        1
    """

    def __init__(
        self,
        layers: Mapping[str, Bool[Tensor, "n ..."] | GateLayer],
        dtype: torch.dtype | None = None,
        *,
        is_chain: bool = True,
    ):
        """Collect layers in the order in which the network runs them.

        Args:
            layers: name → boolean tensor (n, …) of ReLU gates, or a GateLayer.
            dtype: the network's dtype, in which kernels of the pattern are returned.
            is_chain: whether every path passes every layer, one after another. In a network with skips or branches
                the gates alone do not determine which paths are open.
        """
        self.is_chain = is_chain
        if not isinstance(layers, Mapping):
            raise InputError(f"layers is a {type(layers).__name__}; give a dictionary from names to boolean tensors")
        if not layers:
            raise InputError("layers is empty; a gate pattern needs at least one layer")
        self._layers = {name: _as_layer(name, layer) for name, layer in layers.items()}
        self._dtype = dtype or torch.get_default_dtype()
        counts = {name: layer.words.shape[0] for name, layer in self._layers.items()}
        if len(set(counts.values())) > 1:
            raise InputError(f"layers disagree on the number of examples: {counts}; capture all at the same inputs")

    @property
    def n(self) -> int:
        """Number of examples."""
        return next(iter(self._layers.values())).words.shape[0]

    @property
    def layers(self) -> tuple[str, ...]:
        """The layers' names, in order."""
        return tuple(self._layers)

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the network."""
        return self._dtype

    @property
    def device(self) -> torch.device:
        """The device that holds the bits."""
        return next(iter(self._layers.values())).words.device

    def layer(self, name: str) -> GateLayer:
        """Return one layer with its packed bits, kind and slope."""
        try:
            return self._layers[name]
        except KeyError:
            raise InputError(f"no layer '{name}' in this pattern; it has {', '.join(self._layers)}") from None

    @property
    def kind(self) -> Literal["bits", "numbers", "bits and numbers"]:
        """What the gates are: bits, or numbers (soft gates), or bits in some layers and numbers in others."""
        soft = [layer.numbers is not None for layer in self._layers.values()]
        return "numbers" if all(soft) else "bits and numbers" if any(soft) else "bits"

    def hard(self) -> "GatePattern":
        """Return the pattern with bits only: soft gates are open where their pre-activation is positive.

        Example:
            >>> layer = GateLayer.of(torch.tensor([[True, False]]), numbers=torch.tensor([[0.9, 0.2]]))
            >>> GatePattern({"gate": layer}).kind, GatePattern({"gate": layer}).hard().kind
            ('numbers', 'bits')
        """
        return self._with_layers(GateLayer.hard)

    @overload
    def __getitem__(self, key: str) -> Shaped[Tensor, "n ..."]: ...
    @overload
    def __getitem__(self, key: slice | Sequence[int] | Tensor) -> "GatePattern": ...
    def __getitem__(self, key: str | slice | Sequence[int] | Tensor) -> "Tensor | GatePattern":
        """Return the gates of a layer, or the pattern of some examples."""
        if isinstance(key, str):
            layer = self.layer(key)
            return layer.gates() if layer.numbers is None else layer.factors(layer.numbers.dtype)
        if isinstance(key, int) or (isinstance(key, Tensor) and key.ndim != 1):
            raise InputError(f"pattern[{key}] is ambiguous; use a slice, or a list of examples such as pattern[[0]]")
        rows = list(key) if isinstance(key, tuple) else key
        try:
            return self._with_layers(lambda layer: layer.changed(lambda part: part[rows].contiguous()))
        except (IndexError, TypeError) as error:
            raise InputError(f"the pattern has {self.n} examples, numbered from 0; {key} is not among them") from error

    def _with_layers(self, change: Callable[[GateLayer], GateLayer]) -> "GatePattern":
        layers = {name: change(layer) for name, layer in self._layers.items()}
        return GatePattern(layers, self._dtype, is_chain=self.is_chain)

    def __iter__(self) -> Iterator[str]:
        return iter(self._layers)

    def __len__(self) -> int:
        return len(self._layers)

    def __contains__(self, name: object) -> bool:
        return name in self._layers

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, GatePattern):
            return NotImplemented
        return self.layers == other.layers and all(
            (a.kind, a.shape, a.slope) == (b.kind, b.shape, b.slope)
            and torch.equal(a.words, b.words)
            and (a.numbers is None) == (b.numbers is None)
            and (a.numbers is None or b.numbers is None or torch.equal(a.numbers, b.numbers))
            for a, b in zip(self._layers.values(), other._layers.values(), strict=True)
        )

    __hash__ = None  # pyright: ignore[reportAssignmentType]

    def select(self, names: Sequence[str]) -> "GatePattern":
        """Return the pattern of some layers, in the given order."""
        return GatePattern({name: self.layer(name) for name in names}, self._dtype, is_chain=self.is_chain)

    def to(self, device: torch.device | str) -> "GatePattern":
        """Return the pattern on another device."""
        try:
            return self._with_layers(lambda layer: layer.changed(lambda part: part.to(device)))
        except (RuntimeError, AssertionError) as error:
            raise InputError(f"the pattern cannot be moved to device {device}: {error}") from error

    def flips(self, other: "GatePattern") -> dict[str, int]:
        """Count the gates that differ, per layer, between two patterns of the same examples and network.

        Soft gates count as bits: a gate flips when its pre-activation changes sign.

        Example:
            >>> before = GatePattern({"relu": torch.tensor([[True, False]])})
            >>> after = GatePattern({"relu": torch.tensor([[True, True]])})
            >>> before.flips(after)
            {'relu': 1}
        """
        self.check_comparable(other)
        if self.n != other.n:
            raise InputError(f"this pattern has n = {self.n}, the other n = {other.n}; capture at the same inputs")
        return {
            name: int(popcount(layer.words ^ other.layer(name).words).sum()) for name, layer in self._layers.items()
        }

    def active_fraction(self) -> dict[str, float]:
        """Return the share of open gates in each layer, over all examples."""
        return {
            name: int(popcount(layer.words).sum()) / max(1, self.n * layer.units)
            for name, layer in self._layers.items()
        }

    def check_comparable(self, other: "GatePattern") -> None:
        """Raise InputError unless ``other`` has the same layers of the same shape, on the same device."""
        if not isinstance(other, GatePattern):
            raise InputError(f"the other pattern is a {type(other).__name__}; give a GatePattern")
        if self.layers != other.layers:
            raise InputError(
                f"patterns of different networks: layers {list(self.layers)} here, {list(other.layers)} there"
            )
        for name, layer in self._layers.items():
            there = other.layer(name)
            if (layer.shape, layer.slope) != (there.shape, there.slope):
                raise InputError(
                    f"layer '{name}': shape {layer.shape}, slope {layer.slope} here, "
                    f"shape {there.shape}, slope {there.slope} there; capture from the same network"
                )
        if self.device != other.device:
            raise InputError(f"one pattern is on {self.device}, the other on {other.device}; use .to(device)")

    def save(self, path: str | Path) -> None:
        """Write the pattern to a safetensors file, with a checksum; an existing file is replaced in one step."""
        layers = [
            {"name": name, "kind": layer.kind.value, "shape": layer.shape, "slope": layer.slope}
            for name, layer in self._layers.items()
        ]
        about = {"format": _FORMAT, "dtype": str(self._dtype).removeprefix("torch."), "layers": json.dumps(layers)}
        about["is_chain"] = json.dumps(self.is_chain)
        tensors = {str(i): layer.words.view(torch.uint64) for i, layer in enumerate(self._layers.values())}
        tensors |= {
            f"{i} numbers": layer.numbers.contiguous()
            for i, layer in enumerate(self._layers.values())
            if layer.numbers is not None
        }
        write_tensors(Path(path), save(tensors, metadata=about))

    @classmethod
    def load(cls, path: str | Path, device: torch.device | str = "cpu") -> "GatePattern":
        """Read a pattern written by :meth:`save`.

        Raises:
            InputError: the file is missing or damaged, or holds something else.
        """
        try:
            tensors, about = read_tensors(Path(path), "save the pattern again")
        except RunError as error:
            raise InputError(str(error)) from error
        if about.get("format") != _FORMAT:
            raise InputError(f"{path} is not a gate pattern ({_FORMAT}): its format is {about.get('format')}")
        try:
            layers = {
                entry["name"]: GateLayer(
                    GateKind(entry["kind"]),
                    tuple(entry["shape"]),
                    tensors[str(i)].view(torch.int64),
                    tuple(entry["slope"]) if isinstance(entry["slope"], list) else entry["slope"],
                    tensors.get(f"{i} numbers"),
                )
                for i, entry in enumerate(json.loads(about["layers"]))
            }
            dtype, is_chain = getattr(torch, about["dtype"]), bool(json.loads(about.get("is_chain", "true")))
        except (KeyError, ValueError, TypeError, AttributeError, RuntimeError) as error:
            raise InputError(f"{path} holds no readable gate pattern ({error}); save the pattern again") from error
        return cls(layers, dtype, is_chain=is_chain).to(device)

    def __repr__(self) -> str:
        units = sum(layer.units for layer in self._layers.values())
        return f"GatePattern: {self.n} examples, {len(self)} layers, {units} gates each, {self.kind}"

    def _repr_html_(self) -> str:
        fractions = self.active_fraction()
        rows = (
            (name, layer.kind.value, "×".join(map(str, layer.shape)), f"{fractions[name]:.1%}")
            for name, layer in self._layers.items()
        )
        return html_table(repr(self), ("layer", "kind", "shape", "open"), rows)

    def __str__(self) -> str:
        lines = [repr(self)]
        name_width = max(map(len, self._layers))
        fractions = self.active_fraction()
        for name, layer in self._layers.items():
            shape = "×".join(map(str, layer.shape))
            slope = f", slope {_written(layer.slope)}" if layer.slope else ""
            slope += "" if layer.numbers is None or not layer.numbers.numel() else _range(layer.numbers)
            lines.append(
                f"  {name:<{name_width}}  {layer.kind.value:<10}  {shape:<12} {fractions[name]:6.1%} on{slope}"
            )
        return "\n".join(lines)


def _written(slope: Slope) -> str:
    return f"{min(slope):g} to {max(slope):g}" if isinstance(slope, tuple) else f"{slope:g}"


def _range(numbers: Tensor) -> str:
    return f", numbers from {float(numbers.min()):.3g} to {float(numbers.max()):.3g}"


def _as_layer(name: str, layer: Tensor | GateLayer) -> GateLayer:
    if isinstance(layer, GateLayer):
        return layer
    if layer.dtype != torch.bool or layer.ndim < 2 or layer[:1].numel() == 0 < layer.shape[0]:
        raise InputError(f"layer '{name}': gates must be booleans (n, …), got {layer.dtype} {tuple(layer.shape)}")
    return GateLayer.of(layer)
