"""The neural path kernel H: the inner product of path features, without features."""

from dataclasses import replace
from math import isqrt

import torch
from jaxtyping import Float
from torch import Tensor, nn

from gatelab.convert import halves
from gatelab.errors import InputError, PathCountOverflowError, UnsupportedModelError
from gatelab.gates import capture_gates
from gatelab.graph import DenseChain, dense_chain, gate_names, trace
from gatelab.kernels.offset_program import pooled_kernel
from gatelab.kernels.overlap import overlap_kernel
from gatelab.kernels.path_engine import Covariances, plan, size_of_pairs
from gatelab.kernels.path_rules import Architecture, Reading
from gatelab.kernels.path_terms import Signal
from gatelab.kernels.tiles import TILE, fill
from gatelab.observe import examples, observable

# Entries of a covariance between two blocks of examples; a few such arrays are alive at a time.
BLOCK_ENTRIES = 2**24


def neural_path_kernel(
    model: nn.Module,
    x: Float[Tensor, "n ..."],
    y: Float[Tensor, "m ..."] | None = None,
    *,
    normalise: bool = True,
    biases: bool = False,
    batch_size: int | None = None,
) -> Float[Tensor, "n m"]:
    r"""The neural path kernel of a network of dense and convolutional layers (npk, Lemma 2.1).

    .. math:: H(s, s') = \langle \phi_s, \phi_{s'} \rangle = E_v[\hat y_v(s)\, \hat y_v(s')]

    The expectation is over independent value weights v of mean zero, the gates held fixed; for one output. It
    defines the kernel also where weights are shared: paths through the same weights form a bundle, whose feature is
    their sum. For dense layers alone it is Σ ⊙ Λ, input Gram matrix times overlap. The weights' variance is 1 / fan
    in behind the first layer with ``normalise``, 1 without (raw path counts, in float64). Biases shape the gates;
    paths that start at them count on request. A final softmax, log-softmax or sigmoid is left out: paths end at
    what it is given. Batch-norm and dropout in evaluation mode belong to the values: paths pass them, and their own
    scales count as one.

    Rules exist for Linear, Conv2d (stride, zero or circular padding, dilation, groups), ReLU, LeakyReLU and decoupled
    gates, pooling by average or maximum over windows that tile the image, global pooling, flattening, sums and
    concatenation of channels. Where images are flattened only equal positions are compared, O(n² p c) for p positions
    and c channels; where they are pooled all pairs, O(n² p² c).

    Args:
        model: a network, written in any style, with one output tensor.
        x: examples.
        y: other examples, for a rectangular kernel; None means x.
        normalise: see above.
        biases: paths may also start at the biases, whose variance is 1.
        batch_size: examples per forward pass when the gates are captured.

    Raises:
        UnsupportedModelError: the model holds something for which there is no rule, named with its place;
            :func:`gatelab.path_features` estimates the kernel of any architecture that converts.
        PathCountOverflowError: a raw count is larger than float64 holds.
    """
    model = observable(model)
    x = examples(x, model)
    other = None if y is None else examples(y, model, name="y")
    if other is not None and other.shape[1:] != x.shape[1:]:
        raise InputError(f"x has examples of shape {tuple(x.shape[1:])}, y of shape {tuple(other.shape[1:])}")
    chain = None if biases else _chain_of_own_weights(model, x)
    if chain is not None:
        kernel = _of_chain(model, chain, x, other, normalise, batch_size)
    else:
        try:
            kernel = _of_graph(model, x, other, normalise, biases, batch_size)
        except UnsupportedModelError as error:
            raise UnsupportedModelError(f"{error}{_pointer(model)}") from error
    if not normalise and not bool(torch.isfinite(kernel).all()):
        raise PathCountOverflowError("the raw path kernel is larger than float64 holds; use normalise=True")
    return kernel


def _pointer(model: nn.Module) -> str:
    """The way on for a model without exact rules."""
    try:
        halves(model)
    except UnsupportedModelError:
        return ""
    return "; gatelab.path_features(model, x, dim) estimates this model's path kernel"


def _chain_of_own_weights(model: nn.Module, x: Tensor) -> DenseChain | None:
    """The model as a fully connected chain with a weight for each layer, if that is what it is."""
    try:
        chain = dense_chain(model)
    except UnsupportedModelError:
        return None
    distinct = len({layer.weight_name for layer in chain.layers}) == len(chain.layers)
    return chain if distinct and chain.gates and chain.widths[0] == x[0].numel() else None


def _of_chain(
    model: nn.Module, chain: DenseChain, x: Tensor, y: Tensor | None, normalise: bool, batch_size: int | None
) -> Float[Tensor, "n m"]:
    """Σ ⊙ Λ, the overlap from packed bits."""
    gates = [None if side is None else capture_gates(model, side, batch_size).select(chain.gates) for side in (x, y)]
    assert gates[0] is not None
    kernel = overlap_kernel(gates[0], gates[1], normalise=normalise)
    if chain.constant_input:
        return kernel.mul_(chain.widths[0])
    rows = x.flatten(1).to(kernel.dtype)
    columns = rows if y is None else y.flatten(1).to(kernel.dtype)

    def tile(i: slice, j: slice) -> None:
        kernel[i, j] *= rows[i] @ columns[j].T

    fill(kernel, tile, symmetric=y is None)
    return kernel


def _of_graph(
    model: nn.Module, x: Tensor, y: Tensor | None, normalise: bool, biases: bool, batch_size: int | None
) -> Float[Tensor, "n m"]:
    """By the rules, along the model's graph."""
    graph, modules = trace(model), dict(model.named_modules())
    architecture = Architecture(model, graph, modules, gate_names(graph, modules))
    architecture.refuse_what_has_no_rule()
    dtype = x.dtype if normalise else torch.float64

    def read(side: Tensor) -> tuple[Reading, Signal]:
        reading = Reading(architecture, side.to(dtype), capture_gates(model, side, batch_size), normalise, biases)
        return reading, _one_output(reading.run())

    left, output = read(x)
    right, other_output = (left, output) if y is None else read(y)
    known = {
        number: pooled
        for number, (a, b) in enumerate(zip(left.layers, right.layers, strict=True))
        if a.dense
        and (pooled := pooled_kernel(left.layers, right.layers, a.inputs, b.inputs, symmetric=y is None)) is not None
    }
    needed = plan(left.layers, output, known)
    kernel = torch.empty(x.shape[0], (x if y is None else y).shape[0], dtype=dtype, device=x.device)

    def tile(i: slice, j: slice) -> None:
        covariances = Covariances(left.layers, right.layers, needed, known, i, j)
        covariances.run()
        kernel[i, j] = covariances.of_signals(output, other_output, all_pairs=False)[:, :, 0, 0]

    block = max(1, min(TILE, isqrt(BLOCK_ENTRIES // size_of_pairs(left.layers, needed))))
    fill(kernel, tile, symmetric=y is None, size=block)
    return kernel


def _one_output(signal: Signal) -> Signal:
    """The signal of one output; all outputs have the same kernel, unless gates or concatenation tell them apart."""
    alike = all(term.multiplier.shape[0] == 1 and term.channel == 0 for term in signal.terms)
    if not alike or signal.size != (1, 1) or any(t.multiplier.shape[1] != signal.channels for t in signal.terms):
        raise UnsupportedModelError(
            "the model's outputs have different path kernels (it ends with a gate, a concatenation, or an image); end "
            "with a weight layer, an nn.Linear say"
        )
    return replace(signal, channels=1, terms=tuple(replace(t, multiplier=t.multiplier[:, :1]) for t in signal.terms))
