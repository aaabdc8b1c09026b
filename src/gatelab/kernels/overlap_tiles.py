"""Tiles of the overlap: counts of packed bits, and matrix products of soft gates."""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from gatelab.errors import PathCountOverflowError, UnsupportedModelError
from gatelab.gates import GatePattern
from gatelab.gates.bits import popcount
from gatelab.gates.layer import GateKind, GateLayer
from gatelab.kernels.compiled import compiled
from gatelab.kernels.overflow import is_finite
from gatelab.kernels.tiles import bytes_of, fill
from gatelab.network.capture import Capture

POPCOUNT = "gatelab.kernels.popcount"
# Examples per forward pass when gates are captured: the activations of a whole block of rows would take more memory
# than its gates.
CAPTURED_AT_A_TIME = 256


class OverlapTiles:
    """Tiles of the overlap, from the gates of a chain of layers."""

    def __init__(self, dtype: torch.dtype, normalise: bool, capture: Capture | None = None):
        """Compute entries in ``dtype``, or in float64 if they are counts; :meth:`rows` needs ``capture``."""
        self.dtype = dtype if normalise else torch.float64
        self.outputs = ()
        self._normalise, self._capture = normalise, capture

    def rows(self, x: Float[Tensor, "n ..."]) -> "GateRows":
        """Capture the gates of some examples."""
        assert self._capture is not None
        return self.of_gates(self._capture.gates(x))

    def of_gates(self, gates: GatePattern) -> "GateRows":
        """Return the rows of known gates."""
        refuse_positions(gates)
        return GateRows.of(gates, self._normalise, self._computed_in)

    def method(self, x: Float[Tensor, "n ..."]) -> list[str]:
        """Return how entries are computed."""
        rows = self.rows(x)
        return [
            f"{len(rows.layers)} layers of bits, {len(rows.numbers)} of numbers: the product of their Gram matrices"
        ]

    def bytes_kept(self, rows: "GateRows") -> int:
        """Return the memory of bits, numbers and offsets."""
        return bytes_of(rows.offset, *(layer.words for layer in rows.layers), *rows.numbers)

    def bytes_working(self, rows: "GateRows", size: int) -> int:
        """Return the working memory: bits of all layers, side by side and transposed; off the CPU, as numbers."""
        if _counts_bits(rows.offset.device):
            return 3 * size * self.bytes_kept(rows) // rows.n
        return 2 * size * sum(layer.units for layer in rows.layers) * self._computed_in.itemsize

    def block(self, left: "GateRows", right: "GateRows") -> Float[Tensor, "n m"]:
        """Return the overlap between two blocks."""
        kernel = torch.empty(left.n, right.n, dtype=self._computed_in, device=left.offset.device)
        with torch.autocast(kernel.device.type, enabled=False):
            if not left.layers:
                kernel.fill_(1)
            elif _counts_bits(kernel.device):
                _by_popcount(left, right, kernel)
            else:
                _by_matmul(left, right, kernel)
            if left.numbers:
                _times_numbers(left, right, kernel)
        if not self._normalise and not is_finite(kernel):
            raise PathCountOverflowError(
                f"the number of open paths through {len(left.layers)} layers is larger than float64 holds; use "
                "normalise=True"
            )
        return kernel.to(self.dtype)

    @property
    def _computed_in(self) -> torch.dtype:
        return torch.promote_types(self.dtype, torch.float32)  # half precision would lose counts


@dataclass(frozen=True)
class GateRows:
    """Gates of some examples, and how to weight their counts.

    The co-activation of a LeakyReLU layer with slope a is (1−a)² c + a(1−a)(r + r') + a² w, where c counts the units
    open for both inputs and r, r' those open for each: a scaled count plus a term per row and one per column.

    Attributes:
        layers: the layers whose gates are bits.
        scale: what their counts are multiplied by.
        offset: what is added for each example.
        numbers: the gates of the other layers, scaled so that their Gram matrices are co-activations.
    """

    layers: list[GateLayer]
    scale: Float[Tensor, " layers"]
    offset: Float[Tensor, "layers n"]
    numbers: tuple[Float[Tensor, "n _"], ...] = ()

    @classmethod
    def of(cls, pattern: GatePattern, normalise: bool, dtype: torch.dtype) -> "GateRows":
        """Make the rows of a pattern."""
        every = [pattern.layer(name) for name in pattern.layers]
        layers = [layer for layer in every if layer.numbers is None]
        scales, offsets = [], []
        for layer in layers:
            unit = 1 / layer.units if normalise else 1.0
            a = layer.slope
            assert not isinstance(a, tuple)  # refused before
            open_units = popcount(layer.words).sum(dim=1).to(dtype) if a else layer.words.new_zeros(1, dtype=dtype)
            scales.append((1 - a) ** 2 * unit)
            offsets.append((a * (1 - a) * open_units + a**2 * layer.units / 2).mul(unit).expand(pattern.n))
        numbers = tuple(
            layer.factors(dtype) * (layer.units**-0.5 if normalise else 1.0)
            for layer in every
            if layer.numbers is not None
        )
        scale = torch.tensor(scales, dtype=dtype, device=pattern.device)
        return cls(layers, scale, torch.stack(offsets) if offsets else scale.new_zeros(0, pattern.n), numbers)

    @property
    def n(self) -> int:
        """Number of examples."""
        return self.offset.shape[1]

    def words(self) -> np.ndarray:
        """Return the gates of all layers side by side, (n, words)."""
        return torch.cat([layer.words for layer in self.layers], dim=1).numpy().view(np.uint64)


def _counts_bits(device: torch.device) -> bool:
    return device.type == "cpu" and compiled(POPCOUNT) is not None


def _by_popcount(left: GateRows, right: GateRows, kernel: Float[Tensor, "n m"]) -> None:
    """Fill the kernel from packed bits, on a CPU with Numba."""
    rows = left.words()
    columns = (rows if right is left else right.words()).T
    starts = np.cumsum([0, *(layer.words.shape[1] for layer in left.layers)])
    plain = np.array([layer.slope == 0 for layer in left.layers])
    scale, row_offset, column_offset = left.scale.numpy(), left.offset.numpy(), right.offset.numpy()
    overlap_block = compiled(POPCOUNT).overlap_block

    def tile(i: slice, j: slice) -> None:
        parts = (np.ascontiguousarray(part) for part in (columns[:, j], row_offset[:, i], column_offset[:, j]))
        others, beside, above = parts
        kernel[i, j] = torch.from_numpy(overlap_block(rows[i], others, starts, scale, plain, beside, above))

    fill(kernel, tile, symmetric=right is left)


def _by_matmul(left: GateRows, right: GateRows, kernel: Float[Tensor, "n m"]) -> None:
    """Fill the kernel from real-valued gates, on any device."""
    dtype = kernel.dtype
    rows = [layer.gates().to(dtype) for layer in left.layers]
    columns = rows if right is left else [layer.gates().to(dtype) for layer in right.layers]

    def tile(i: slice, j: slice) -> None:
        block = kernel[i, j].fill_(1)
        for layer, (a, b) in enumerate(zip(rows, columns, strict=True)):
            offset = left.offset[layer, i, None] + right.offset[layer, j]
            block *= torch.addmm(offset, a[i], b[j].T, alpha=left.scale[layer].item())

    fill(kernel, tile, symmetric=right is left)


def _times_numbers(left: GateRows, right: GateRows, kernel: Float[Tensor, "n m"]) -> None:
    """Multiply the kernel by the co-activations of soft gates."""

    def tile(i: slice, j: slice) -> None:
        block = kernel[i, j]
        for a, b in zip(left.numbers, right.numbers, strict=True):
            block *= a[i] @ b[j].T

    fill(kernel, tile, symmetric=right is left)


def refuse_positions(gates: GatePattern) -> None:
    """Refuse gates that do not alone determine the open paths."""
    for name in gates.layers:
        layer = gates.layer(name)
        if len(layer.shape) != 1 or layer.kind is GateKind.MAX_POOL:
            raise UnsupportedModelError(
                f"layer '{name}' ({layer.kind.value}) has gates of shape {layer.shape}: with positions the number of "
                "common paths depends on the architecture, not on the gates alone; use neural_path_kernel(model, x)"
            )
        if isinstance(layer.slope, tuple) and layer.numbers is None:
            raise UnsupportedModelError(
                f"layer '{name}' has a slope for each channel (PReLU), which bits do not hold; use "
                "gatelab.kernels.OverlapKernel(model) or neural_path_kernel(model, x)"
            )
    if not gates.is_chain:
        raise UnsupportedModelError(
            "the layers do not form one chain: signals branch and meet again, or a unit has two gates. The gates alone "
            "then do not determine which paths are open; use gatelab.kernels.OverlapKernel(model) or "
            "neural_path_kernel(model, x)"
        )
