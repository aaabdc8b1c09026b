"""Everything between two layers of gates as one explicit matrix: convolutions, poolings and batch-norms unfolded."""

from collections.abc import Mapping
from math import prod

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.fx import Node

from gatelab.errors import TooManyPathsError, UnsupportedModelError
from gatelab.gates.pooling import AdaptiveMaxPool, MaxPool
from gatelab.network.chain import DenseChain, DenseLayer, value_chain
from gatelab.network.network import Network

MOST_ENTRIES = 2**26  # the largest number of entries of one matrix


@torch.inference_mode(False)  # derivatives are needed, whatever the caller's mode
def affine_map(
    network: Network, model: nn.Module, node: Node, sources: Mapping[Node, tuple[int, ...]], inputs: tuple[int, ...]
) -> tuple[Float[Tensor, " units"], dict[Node, Float[Tensor, "units d"]]]:
    """Return a node as an affine function of others: its constant, and a matrix for each source.

    A matrix entry is a derivative, so for a dense layer or a convolution it is the weight itself, without rounding.

    Args:
        network: the network that was read.
        model: provides the weights; the matrices have its dtype.
        node: the node; between it and its sources everything is affine.
        sources: the shape of each source, for one example: gates, or the input.
        inputs: the shape of one example.
    """
    like = next((p for p in model.parameters() if p.is_floating_point()), network.recording.examples)
    units = prod(node.meta["shape"][1:])
    leaves = {
        source: torch.zeros(units, *shape, dtype=like.dtype, device=like.device, requires_grad=True)
        for source, shape in sources.items()
    }
    x = torch.zeros(units, *inputs, dtype=like.dtype, device=like.device)
    x = next((leaf for source, leaf in leaves.items() if source.op == "placeholder"), x)
    given = {source: leaf for source, leaf in leaves.items() if source.op != "placeholder"}
    with torch.enable_grad():
        values = network.interpreter.run(model, [node], x, given=given)[0].flatten(1)
        slopes = [torch.zeros_like(leaf) for leaf in leaves.values()]
        if values.requires_grad:
            slopes = torch.autograd.grad(
                values.diagonal().sum(), list(leaves.values()), allow_unused=True, materialize_grads=True
            )
    constant = values[0].detach()
    return constant, {source: slope.flatten(1).detach() for source, slope in zip(leaves, slopes, strict=True)}


def unfolded_chain(network: Network) -> DenseChain:
    """Return a chain of gate layers with everything between them as dense layers of explicit matrices.

    The units of an image are numbered channel by channel, row by row. A max-pooling is a layer whose units are the taps
    of its windows, (channel, *window, tap), of which the winner's gate is open.

    Raises:
        UnsupportedModelError: signals meet on the way, or a gate adds constants.
        TooManyPathsError: a matrix is too large.
    """
    gates = network.path_gates
    value_chain(network)  # refuses sums of signals
    (x,) = (node for node in network.graph.nodes if node.op == "placeholder")
    inputs = tuple(network.recording.examples.shape[1:])
    before, layers = x, []
    for gate in [*gates, None]:
        if gate is not None and network.gating(gate).is_constant_somewhere:
            raise UnsupportedModelError(f"{network.where(gate)} adds a constant where it is closed; use ReLU")
        node = network.output if gate is None else network.gating(gate).value
        constant, weight = _between(network, node, before, inputs)
        if gate is not None and (pool := network.gating(gate).pool) is not None:
            numbers = _taps(pool, tuple(node.meta["shape"]))
            inside = (numbers >= 0).to(weight)
            constant, weight = constant[numbers] * inside, weight[numbers] * inside[:, None]
        name = None if gate is None else gates[gate]
        biased = bool(constant.any())
        layers.append(DenseLayer(weight, constant if biased else None, name, "", "" if biased else None))
        before = node if gate is None else gate
    return DenseChain(tuple(layers))


def _between(network: Network, node: Node, before: Node, inputs: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """The constant and the matrix from one gate, or the input, to a node; a max-pooling has one column for each tap."""
    shape = inputs if before.op == "placeholder" else tuple(before.meta["shape"][1:])
    if prod(shape) * prod(node.meta["shape"][1:]) > MOST_ENTRIES:
        raise TooManyPathsError(
            f"{network.where(node)}: {prod(node.meta['shape'][1:]):,} units that read {prod(shape):,} make too large a "
            "matrix; use gatelab.top_paths, which unfolds nothing"
        )
    constant, matrices = affine_map(network, network.model, node, {before: shape}, inputs)
    weight = matrices[before]
    gating = None if before.op == "placeholder" else network.gating(before)
    if gating is not None and gating.pool is not None:
        taps = _windows(gating.pool, tuple(gating.value.meta["shape"])).shape[-1]
        weight = weight.repeat_interleave(taps, 1)
    return constant, weight


def _windows(pool: MaxPool | AdaptiveMaxPool, shape: tuple[int, ...]) -> Tensor:
    fixed = pool.windows(torch.empty(shape, device="meta")) if isinstance(pool, AdaptiveMaxPool) else pool
    assert fixed is not None  # windows of different sizes are not gates
    return fixed.positions(tuple(shape[2:]))


def _taps(pool: MaxPool | AdaptiveMaxPool, shape: tuple[int, ...]) -> Tensor:
    """The number of the unit at each tap of each window of each channel; −1 in the padding."""
    positions, size = _windows(pool, shape), prod(shape[2:])
    channels = torch.arange(shape[1]).view(-1, *[1] * positions.ndim) * size
    return torch.where(positions >= 0, positions + channels, -1).flatten()
