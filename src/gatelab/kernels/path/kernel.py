"""The neural path kernel H: inner products of path features, without listing paths."""

from dataclasses import dataclass
from math import isqrt
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from gatelab.convert.values import halves
from gatelab.errors import InputError, PathCountOverflowError, UnsupportedModelError
from gatelab.gates import GatePattern
from gatelab.gates.choice import GateChoice, is_hard
from gatelab.kernels.disk.digest import model_digest
from gatelab.kernels.disk.memory import free_bytes, in_words
from gatelab.kernels.overflow import is_finite, refuse_overflow
from gatelab.kernels.overlap_tiles import CAPTURED_AT_A_TIME, GateRows, OverlapTiles
from gatelab.kernels.path.covariances import Covariances
from gatelab.kernels.path.first_fields import entries_at_once
from gatelab.kernels.path.offset_program import pooled_kernel
from gatelab.kernels.path.pairs import AllPairs, OffsetPairs
from gatelab.kernels.path.planning import WeightLayer, largest_covariance, last_reads, plan
from gatelab.kernels.path.reading import Reading
from gatelab.kernels.path.rules import output_signal, refuse_what_has_no_rule
from gatelab.kernels.path.signals import Signal
from gatelab.kernels.tiles import bytes_of, evaluate, fill, tile_size
from gatelab.network.capture import Capture
from gatelab.network.certificate import certify
from gatelab.network.chain import DenseChain, chain_of
from gatelab.network.network import Network, read
from gatelab.observe import examples_for, observable
from gatelab.printing import Brief

# Entries of a covariance between two blocks of examples; a few such arrays exist at a time.
BLOCK_ENTRIES = 2**24


def neural_path_kernel(
    model: nn.Module,
    x: Float[Tensor, "n ..."],
    y: Float[Tensor, "m ..."] | None = None,
    *,
    normalise: bool = True,
    biases: bool = False,
    gates: GateChoice = "network",
    batch_size: int | None = None,
    output: int | str | None = None,
) -> Float[Tensor, "n m"]:
    r"""Compute the neural path kernel of a gated network, such as any ReLU network (npk, Lemma 2.1).

    .. math:: H(s, s') = \langle \phi_s, \phi_{s'} \rangle = E_v[\hat y_v(s)\, \hat y_v(s')]

    The expectation is for one output, over independent value weights v of mean zero, with the gates fixed; where
    outputs differ (after a final gate, or in an image) it is the mean over outputs. It also defines the kernel where
    weights are shared: paths through the same weights form a bundle, whose feature is the sum of the paths' features.
    For purely dense networks it is Σ ⊙ Λ, input Gram matrix times overlap.

    Biases shape the gates; paths that start at them count with ``biases=True``. Paths end before a final softmax,
    log-softmax or sigmoid. They pass batch-norm and dropout in evaluation mode; the scale of a batch-norm, and other
    parameters that only scale a signal, are values and count as 1. Constant factors count as they are.

    Weight layers are Linear and plain, grouped, depthwise and transposed convolutions over one to three axes, with any
    stride, dilation and padding. Between them there may be any gates that :func:`gatelab.capture_gates` knows, hard or
    soft, pooling by maximum or average with any window, padding, upsampling, views, slices, shuffles, sums,
    concatenations and constant factors; :func:`gatelab.read` shows what a network is made of. For p positions and c
    channels the cost is O(n² p c) where images are flattened, because only equal positions are compared, and
    O(n² p² c) before a global pooling.

    Args:
        model: a network, written in any style.
        x: examples.
        y: other examples, for a rectangular kernel; None means x.
        normalise: value weights have variance 1 / fan in after the first layer; otherwise 1, which gives raw path
            counts, in float64.
        biases: paths may also start at the biases, whose variance is 1.
        gates: "network" takes what the network computes, numbers where its gates are soft; "hard" takes bits.
        batch_size: examples per forward pass when the gates are captured.
        output: the part of the model's output to use, if it returns a tuple or a dict.

    Returns:
        H, one row for each example of x and one column for each of y.

    Raises:
        UnsupportedModelError: the model holds an operation without a rule; the message names it and its line.
            :func:`gatelab.path_features` estimates the kernel of any architecture that converts.
        InputError: the images are so large that the covariances of a single pair of examples take gigabytes.
        PathCountOverflowError: a raw count is larger than float64 holds.

    Example:
        >>> net = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))
        >>> _ = nn.init.ones_(net[0].weight), nn.init.zeros_(net[0].bias)  # all gates open for positive inputs
        >>> neural_path_kernel(net, torch.tensor([[1.0, 0.0], [1.0, 2.0]])).tolist()
        [[1.0, 1.0], [1.0, 5.0]]
    """
    kernel = PathKernel(observable(model, output), normalise, biases, batch_size, gates=gates)
    return evaluate(kernel.on(x, y), x, y)


@dataclass(frozen=True, repr=False)
class PathKernel(Brief):
    """The neural path kernel of a model, for any number of examples; see :func:`neural_path_kernel`.

    Attributes:
        model: a network with one output tensor.
        normalise: value weights have variance 1 / fan in after the first layer.
        biases: paths may also start at the biases.
        batch_size: examples per forward pass when the gates are captured.
        dtype: dtype of the entries; None means the examples' dtype, or float64 without ``normalise``.
        gates: "network" or "hard".

    Example:
        >>> net = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))
        >>> PathKernel(net).about()["kind"]  # compute(PathKernel(net), x, store="K.zarr") writes it to disk
        'npk'
    """

    model: nn.Module
    normalise: bool = True
    biases: bool = False
    batch_size: int | None = CAPTURED_AT_A_TIME
    dtype: torch.dtype | None = None
    gates: GateChoice = "network"

    def about(self) -> dict[str, Any]:
        """Return what distinguishes this kernel from others, as plain data."""
        options: dict[str, Any] = {"normalise": self.normalise, "biases": self.biases}
        options |= {"gates": "hard"} if is_hard(self.gates) else {}
        return {"kind": "npk", **options, "model": model_digest(self.model)}

    def on(self, x: Float[Tensor, "n ..."], y: Float[Tensor, "m ..."] | None = None) -> "ChainTiles | GraphTiles":
        """Return the kernel on examples of x against y, to be evaluated block by block."""
        model = observable(self.model)
        x, _ = examples_for(model, x, y)
        network = read(model, x)
        certify(network)
        chain = None if self.biases else _chain_of_own_weights(network, x)
        dtype = self.dtype or (x.dtype if self.normalise else torch.float64)
        capture = Capture(model, self.batch_size, network, self.gates)
        if chain is not None:
            return ChainTiles(capture, chain, self.normalise, dtype)
        refuse_early(network)
        return GraphTiles(capture, self.normalise, self.biases, dtype)


def _pointer(network: Network) -> str:
    """The remedy for a model without exact rules, as the end of an error message."""
    try:
        halves(network.model, network.recording.examples)
    except (InputError, UnsupportedModelError):
        return ""
    return "; gatelab.path_features(model, x, dim) estimates this model's path kernel"


def _chain_of_own_weights(network: Network, x: Tensor) -> DenseChain | None:
    """Return the model as a fully connected chain whose layers share no weights; None if it is not one."""
    try:
        chain = chain_of(network)
    except UnsupportedModelError:
        return None
    distinct = len({layer.weight_name for layer in chain.layers}) == len(chain.layers)
    distinct &= not has_slopes_by_channel(network)
    return chain if distinct and chain.gates and chain.widths[0] == x[0].numel() else None


def has_slopes_by_channel(network: Network) -> bool:
    """Whether a PReLU has a slope for each channel, which packed bits do not hold."""
    return any(isinstance(network.slope(gate), tuple) for gate in network.path_gates)


@dataclass(frozen=True)
class ChainRows:
    """Gates of some examples and, unless paths start at ones, their inputs."""

    gates: GateRows
    inputs: Float[Tensor, "n d"] | None


@dataclass(frozen=True)
class ChainTiles:
    """The path kernel of a dense chain, Σ ⊙ Λ, with the overlap from packed bits."""

    capture: Capture
    chain: DenseChain
    normalise: bool
    dtype: torch.dtype
    outputs: tuple[int, ...] = ()

    def rows(self, x: Float[Tensor, "n ..."]) -> ChainRows:
        """Return the gates and inputs of some examples."""
        gates = self.capture.gates(x).select(self.chain.gates)
        inputs = None if self.chain.constant_input else x.detach().flatten(1).to(self.dtype)
        return ChainRows(self._overlap.of_gates(gates), inputs)

    def method(self, x: Float[Tensor, "n ..."]) -> list[str]:
        """Return how entries are computed."""
        del x
        return [
            f"a chain of {len(self.chain.layers)} dense layers: Gram matrices of the gates (of packed bits, or of "
            "numbers), times the inputs' Gram matrix"
        ]

    def bytes_kept(self, rows: ChainRows) -> int:
        """Return the memory of bits and inputs."""
        return self._overlap.bytes_kept(rows.gates) + bytes_of(rows.inputs)

    def bytes_working(self, rows: ChainRows, size: int) -> int:
        """Return the working memory: the overlap's, and a tile of the input Gram matrix."""
        return self._overlap.bytes_working(rows.gates, size) + 2 * tile_size(size) ** 2 * self.dtype.itemsize

    def block(self, left: ChainRows, right: ChainRows) -> Float[Tensor, "n m"]:
        """Return the path kernel between two blocks."""
        with torch.autocast(left.gates.offset.device.type, enabled=False):
            return self._block(left, right)

    def _block(self, left: ChainRows, right: ChainRows) -> Float[Tensor, "n m"]:
        kernel = self._overlap.block(left.gates, right.gates)
        rows, columns = left.inputs, right.inputs
        if rows is None or columns is None:
            return _finite(kernel.mul_(self.chain.widths[0]), self.normalise)

        def tile(i: slice, j: slice) -> None:
            kernel[i, j] *= rows[i] @ columns[j].T

        fill(kernel, tile, symmetric=left is right)
        return _finite(kernel, self.normalise)

    @property
    def _overlap(self) -> OverlapTiles:
        return OverlapTiles(self.dtype, self.normalise)


@dataclass(frozen=True)
class GraphRows:
    """Some examples, their packed gates, and the network, since a block must not read the model.

    Signals are rebuilt from them for each block, because they take far more memory than bits.
    """

    x: Float[Tensor, "n ..."]
    gates: GatePattern
    network: Network


@dataclass
class GraphTiles:
    """The path kernel of any other model, by rules along its graph."""

    capture: Capture
    normalise: bool
    biases: bool
    dtype: torch.dtype
    per_node: bool = False  # count paths per starting node: an input of ones, divided by the number of inputs
    outputs: tuple[int, ...] = ()
    _of_a_pair: int | None = None  # entries of the covariances of two examples, once they were counted

    def rows(self, x: Float[Tensor, "n ..."]) -> GraphRows:
        """Return the gates of some examples."""
        return GraphRows(x.detach(), self.capture.gates(x), self.capture.network(x))

    def method(self, x: Float[Tensor, "n ..."]) -> list[str]:
        """Return how entries are computed: at which pairs of positions the covariance of each layer is needed."""
        rows = self.rows(x)
        layers, output = self._read(rows)
        forms = plan(layers, output, {})
        pooled = sum(
            layer.geometry is None
            and pooled_kernel(layers, layers, layer.inputs, layer.inputs, symmetric=True) is not None
            for layer in layers
        )
        if pooled:
            return [f"{len(layers)} weight layers, offset by offset, up to a pooling over the whole image"]
        every = sum(isinstance(form, AllPairs) for form in forms.values())
        equal = sum(isinstance(form, OffsetPairs) and len(form.offsets) == 1 for form in forms.values())
        return [
            f"{len(layers)} weight layers: {equal} at equal positions, {len(forms) - every - equal} at some offsets, "
            f"{every} at all pairs of positions",
            f"the largest covariance of two examples has {largest_covariance(layers, forms):,} entries",
        ]

    def bytes_kept(self, rows: GraphRows) -> int:
        """Return the memory of examples and bits."""
        layers = [rows.gates.layer(name) for name in rows.gates]
        return bytes_of(rows.x, *(layer.words for layer in layers), *(layer.numbers for layer in layers))

    def bytes_working(self, rows: GraphRows, size: int) -> int:
        """Return the working memory: gates as numbers, twice on each side, and a few arrays of covariances."""
        units = rows.x[0].numel() + sum(rows.gates.layer(name).units for name in rows.gates)
        if self._of_a_pair is None:
            layers, output = self._read(rows)
            self._of_a_pair = entries_at_once(layers, plan(layers, output, {}))
        return (4 * size * units + max(4 * BLOCK_ENTRIES, self._of_a_pair)) * self.dtype.itemsize

    def block(self, left: GraphRows, right: GraphRows) -> Float[Tensor, "n m"]:
        """Return the path kernel between two blocks."""
        try:
            with torch.autocast(left.x.device.type, enabled=False):
                return _finite(self._block(left, right), self.normalise)
        except UnsupportedModelError as error:
            raise UnsupportedModelError(f"{error}{_pointer(left.network)}") from error

    def _block(self, left: GraphRows, right: GraphRows) -> Float[Tensor, "n m"]:
        symmetric = left is right
        rows, output = self._read(left)
        columns, other_output = (rows, output) if symmetric else self._read(right)
        known = {
            number: pooled
            for number, (a, b) in enumerate(zip(rows, columns, strict=True))
            if a.geometry is None
            and (pooled := pooled_kernel(rows, columns, a.inputs, b.inputs, symmetric=symmetric)) is not None
        }
        forms = plan(rows, output, known)
        met: dict[tuple[int, int, int, int], Any] = {}
        last = last_reads(rows, output, forms)
        equal = OffsetPairs(output.size, ((0,) * len(output.size),))
        kernel = torch.empty(left.x.shape[0], right.x.shape[0], dtype=self.dtype, device=left.x.device)

        def tile(i: slice, j: slice) -> None:
            covariances = Covariances(rows, columns, forms, known, met, last, i, j)
            covariances.run()
            entries = covariances.of_signals(output, other_output, equal, 1)
            kernel[i, j] = entries.sum(dim=(2, 3, 4)) / (output.channels * output.positions)

        largest = largest_covariance(rows, forms)
        needed, free = entries_at_once(rows, forms) * self.dtype.itemsize, free_bytes()
        if needed > free:
            raise InputError(
                f"examples of shape {tuple(left.x.shape[1:])} need covariances of {largest:,} pairs of positions, "
                f"about {in_words(needed)}, but only {in_words(free)} are free; use smaller images, or estimate the "
                "kernel by gatelab.path_features"
            )
        size = tile_size(isqrt(BLOCK_ENTRIES // largest))
        fill(kernel, tile, symmetric=symmetric, size=size)
        return kernel

    def _read(self, rows: GraphRows) -> tuple[list[WeightLayer], Signal]:
        x = rows.x.to(self.dtype)
        if self.per_node:
            x = torch.full_like(x, x.shape[1] ** -0.5)
        reading = Reading(rows.network, x, rows.gates, self.normalise, self.biases)
        output = output_signal(reading)
        return reading.layers, output


def refuse_early(network: Network) -> None:
    """Refuse a network that has no path kernel, before anything is computed."""
    try:
        refuse_what_has_no_rule(network)
    except UnsupportedModelError as error:
        raise UnsupportedModelError(f"{error}{_pointer(network)}") from error


def _finite(kernel: Float[Tensor, "n m"], normalise: bool) -> Float[Tensor, "n m"]:
    if not normalise and not is_finite(kernel):
        raise PathCountOverflowError("the raw path kernel is larger than float64 holds; use normalise=True")
    refuse_overflow(kernel, "the path kernel")
    return kernel
