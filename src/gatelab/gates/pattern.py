"""GatePattern: which gates are open for which example."""

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from math import prod
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import overload

import torch
from jaxtyping import Bool, Float, Int64
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from gatelab.errors import InputError
from gatelab.gates.bits import pack, popcount, unpack

_FORMAT = "gatelab.gates/1"

Slope = float | tuple[float, ...]  # what closed gates pass: one number, or one for each channel (PReLU)


class GateKind(StrEnum):
    """The operation that opens and closes a gate."""

    RELU = "relu"
    LEAKY_RELU = "leaky_relu"
    MAX_POOL = "max_pool"
    GATED = "gated"
    BOUNDED = "bounded"  # open between two bounds, constant outside: ReLU6, Hardtanh, clamp(min, max)


@dataclass(frozen=True)
class GateLayer:
    """The gates of one operation for all examples.

    Attributes:
        kind: the kind of gate.
        shape: axes after the examples: (w,) for dense layers, (c, height, width) for convolutional ones,
            (c, *positions, taps) for max-pooling, where the winning tap of each window is open.
        words: the gates, packed row by row.
        slope: the share that a closed gate still passes (LeakyReLU), by channel for a PReLU; 0 otherwise.
    """

    kind: GateKind
    shape: tuple[int, ...]
    words: Int64[Tensor, "n words"]
    slope: Slope = 0.0

    @classmethod
    def of(cls, gates: Bool[Tensor, "n ..."], kind: GateKind = GateKind.RELU, slope: Slope = 0.0) -> "GateLayer":
        """Pack boolean gates."""
        return cls(kind, tuple(gates.shape[1:]), pack(gates.flatten(1)), slope)

    @property
    def units(self) -> int:
        """Number of gates for one example."""
        return prod(self.shape)

    def gates(self) -> Bool[Tensor, " n *shape"]:
        """Return the gates as booleans."""
        return unpack(self.words, self.units).view(-1, *self.shape)

    def factors(self, dtype: torch.dtype) -> Float[Tensor, " n *shape"]:
        """Return what each gate multiplies by: 1 where it is open, its slope elsewhere."""
        return factors_of(self.gates(), self.slope, dtype)


def factors_of(gates: Bool[Tensor, "n ..."], slope: Slope, dtype: torch.dtype) -> Float[Tensor, "n ..."]:
    """Return 1 for an open gate and the slope for a closed one; slopes of channels belong to the first axis of units.

    Example:
        >>> factors_of(torch.tensor([[True, False]]), 0.25, torch.float64).tolist()
        [[1.0, 0.25]]
    """
    numbers = gates.to(dtype)
    if not slope:
        return numbers
    closed = torch.tensor(slope, dtype=dtype, device=gates.device)
    return numbers + closed.view(-1, *[1] * (gates.ndim - 2)) * (1 - numbers)


class GatePattern:
    """The open gates of a network for n examples, layer by layer, one bit per gate.

    ``pattern[name]`` is the boolean tensor of a layer. ``pattern[10:20]``, or a list or tensor of indices, is the
    pattern of these examples. A pattern is immutable.

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
                the gates alone do not tell which paths are open.
        """
        self.is_chain = is_chain
        if not layers:
            raise InputError("a gate pattern needs at least one layer")
        self._layers = {name: _as_layer(name, layer) for name, layer in layers.items()}
        self._dtype = dtype or torch.get_default_dtype()
        counts = {name: layer.words.shape[0] for name, layer in self._layers.items()}
        if len(set(counts.values())) > 1:
            raise InputError(f"layers disagree on the number of examples: {counts}")

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

    @overload
    def __getitem__(self, key: str) -> Bool[Tensor, "n ..."]: ...
    @overload
    def __getitem__(self, key: slice | Sequence[int] | Tensor) -> "GatePattern": ...
    def __getitem__(self, key: str | slice | Sequence[int] | Tensor) -> "Tensor | GatePattern":
        """Return the gates of a layer, or the pattern of some examples."""
        if isinstance(key, str):
            return self.layer(key).gates()
        if isinstance(key, int) or (isinstance(key, Tensor) and key.ndim != 1):
            raise InputError(f"pattern[{key}] is ambiguous; use a slice, or a list of examples such as pattern[[0]]")
        rows = list(key) if isinstance(key, tuple) else key
        try:
            return self._with_words(lambda words: words[rows].contiguous())
        except (IndexError, TypeError) as error:
            raise InputError(f"the pattern has {self.n} examples, numbered from 0; {key} is not among them") from error

    def _with_words(self, change: Callable[[Tensor], Tensor]) -> "GatePattern":
        layers = {name: replace(layer, words=change(layer.words)) for name, layer in self._layers.items()}
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
            (a.kind, a.shape, a.slope) == (b.kind, b.shape, b.slope) and torch.equal(a.words, b.words)
            for a, b in zip(self._layers.values(), other._layers.values(), strict=True)
        )

    __hash__ = None  # pyright: ignore[reportAssignmentType]

    def select(self, names: Sequence[str]) -> "GatePattern":
        """Return the pattern of some layers, in the given order."""
        return GatePattern({name: self.layer(name) for name in names}, self._dtype, is_chain=self.is_chain)

    def to(self, device: torch.device | str) -> "GatePattern":
        """Return the pattern on another device."""
        try:
            return self._with_words(lambda words: words.to(device))
        except (RuntimeError, AssertionError) as error:
            raise InputError(f"the pattern cannot be moved to device {device}: {error}") from error

    def flips(self, other: "GatePattern") -> dict[str, int]:
        """Count the gates that differ, per layer, between two patterns of the same examples and network.

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
        """Write the pattern to a safetensors file; an existing file is replaced only by a complete one."""
        path = Path(path)
        layers = [
            {"name": name, "kind": layer.kind.value, "shape": layer.shape, "slope": layer.slope}
            for name, layer in self._layers.items()
        ]
        about = {"format": _FORMAT, "dtype": str(self._dtype).removeprefix("torch."), "layers": json.dumps(layers)}
        about["is_chain"] = json.dumps(self.is_chain)
        words = {str(i): layer.words.view(torch.uint64) for i, layer in enumerate(self._layers.values())}
        # In a private folder, nobody can put a link where the file will be written.
        with TemporaryDirectory(prefix=f"{path.name}.", dir=path.parent) as private:
            partial = Path(private) / path.name
            save_file(words, partial, metadata=about)
            with partial.open("r+b") as file:
                os.fsync(file.fileno())
            partial.replace(path)

    @classmethod
    def load(cls, path: str | Path, device: torch.device | str = "cpu") -> "GatePattern":
        """Read a pattern written by :meth:`save`."""
        try:
            with safe_open(path, framework="pt", device=str(device)) as file:
                about = file.metadata() or {}
                if about.get("format") != _FORMAT:
                    raise InputError(f"{path} is not a gate pattern ({_FORMAT}): its format is {about.get('format')}")
                layers = {
                    entry["name"]: GateLayer(
                        GateKind(entry["kind"]),
                        tuple(entry["shape"]),
                        file.get_tensor(str(i)).view(torch.int64),
                        tuple(entry["slope"]) if isinstance(entry["slope"], list) else entry["slope"],
                    )
                    for i, entry in enumerate(json.loads(about["layers"]))
                }
        except SafetensorError as error:
            raise InputError(f"{path} cannot be read as safetensors ({error}); save the pattern again") from error
        return cls(layers, getattr(torch, about["dtype"]), is_chain=json.loads(about.get("is_chain", "true")))

    def __repr__(self) -> str:
        units = sum(layer.units for layer in self._layers.values())
        lines = [f"GatePattern: {self.n} examples, {len(self)} layers, {units} gates each"]
        name_width = max(map(len, self._layers))
        fractions = self.active_fraction()
        for name, layer in self._layers.items():
            shape = "×".join(map(str, layer.shape))
            slope = f", slope {_written(layer.slope)}" if layer.slope else ""
            lines.append(
                f"  {name:<{name_width}}  {layer.kind.value:<10}  {shape:<12} {fractions[name]:6.1%} on{slope}"
            )
        return "\n".join(lines)


def _written(slope: Slope) -> str:
    return f"{min(slope):g} to {max(slope):g}" if isinstance(slope, tuple) else f"{slope:g}"


def _as_layer(name: str, layer: Tensor | GateLayer) -> GateLayer:
    if isinstance(layer, GateLayer):
        return layer
    if layer.dtype != torch.bool or layer.ndim < 2 or layer[:1].numel() == 0 < layer.shape[0]:
        raise InputError(f"layer '{name}': gates must be booleans (n, …), got {layer.dtype} {tuple(layer.shape)}")
    return GateLayer.of(layer)
