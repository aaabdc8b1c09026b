"""Find the paths with the largest contributions for one input, without listing paths."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from gatelab.errors import InputError
from gatelab.gates import capture_gates
from gatelab.network.chain import DenseChain, dense_chain
from gatelab.observe import examples
from gatelab.paths.features import gate_factors


@dataclass(frozen=True)
class Path:
    """A path through a fully connected network and its contribution to an output.

    Attributes:
        units: the unit passed in each layer, input node first.
        contribution: x(i₀) · (gates) · (weights), signed.
        output: the output where the path ends.
        start: 0 if the path starts at an input node, l if it starts at the bias of weight layer l. In the second case
            ``units`` begins with the unit that this bias feeds; it is empty for a bias of the output.
    """

    units: tuple[int, ...]
    contribution: float
    output: int = 0
    start: int = 0


@dataclass(frozen=True)
class _Best:
    """The best partial paths that end at each unit of a layer, largest first.

    ``origin`` is the partial path that each one extends: unit · kept + rank in the layer before, or −1 for this layer's
    bias.
    """

    magnitude: Float[Tensor, "w kept"]
    origin: Int[Tensor, "w kept"]


def top_paths(model: nn.Module, x: Float[Tensor, "..."], k: int, output: int | None = None) -> list[Path]:
    r"""Find the k paths with the largest \|contribution\| for one input.

    The result is exact, by k-best dynamic programming: the best partial paths into a unit extend the best ones into the
    units before it. This takes O(k Σ w_l w_{l+1}) time and lists no paths. Contributions are computed in float64.

    Args:
        model: a fully connected network, with or without biases.
        x: one example, (d,) or (1, d).
        k: the number of paths.
        output: consider only paths to this output; None compares the paths to all outputs.

    Returns:
        The paths, largest first. Closed paths (contribution 0) are left out, so there may be fewer than k.

    Example:
        >>> net = nn.Sequential(nn.Linear(2, 2, bias=False), nn.ReLU(), nn.Linear(2, 1, bias=False))
        >>> _ = net[0].weight.data.copy_(torch.tensor([[1.0, 2.0], [1.0, -9.0]]))
        >>> _ = net[2].weight.data.copy_(torch.tensor([[-1.0, 1.0]]))
        >>> [(path.units, path.contribution) for path in top_paths(net, torch.tensor([1.0, 1.0]), k=2)]
        [((1, 0), -2.0), ((0, 0), -1.0)]
    """
    if k < 1:
        raise InputError(f"k is {k}; ask for at least one path")
    chain = dense_chain(model)
    x = examples(x.reshape(1, -1) if isinstance(x, Tensor) else x, model)
    if x.shape[1] != chain.widths[0]:
        raise InputError(f"x has {x.shape[1]} values, the first layer takes {chain.widths[0]}: give one example")
    outputs = chain.widths[-1]
    if output is not None and not 0 <= output < outputs:
        raise InputError(f"output {output} does not exist; the network has {outputs}")
    nodes = torch.ones_like(x[0]) if chain.constant_input else x[0]
    signals = [nodes.double(), *(g[0].double() for g in gate_factors(capture_gates(model, x), chain))]
    layers = _forward(chain, signals, k)
    last = layers[-1].magnitude if output is None else layers[-1].magnitude[output : output + 1]
    magnitude, flat = last.flatten().topk(min(k, last.numel()))
    kept = last.shape[1]
    ends = [divmod(position, kept) for position in flat[magnitude > 0].tolist()]
    return [_trace_back(chain, signals, layers, unit + (output or 0), rank) for unit, rank in ends]


def _forward(chain: DenseChain, signals: list[Tensor], k: int) -> list[_Best]:
    """Find the best partial paths into each layer; the gate of a unit is applied when a path leaves the unit."""
    layers: list[_Best] = []
    best = signals[0].abs().unsqueeze(1)  # one partial path into each input node
    for layer, signal in zip(chain.layers, [None, *signals[1:]], strict=True):
        leaving = best if signal is None else best * signal.abs().unsqueeze(1)
        candidates = (layer.weight.detach().double().abs().unsqueeze(2) * leaving).flatten(1)
        if layer.bias is not None:
            candidates = torch.cat([candidates, layer.bias.detach().double().abs().unsqueeze(1)], dim=1)
        best, origin = candidates.topk(min(k, candidates.shape[1]), dim=1)
        if layer.bias is not None:
            origin = origin.masked_fill(origin == candidates.shape[1] - 1, -1)
        layers.append(_Best(best, origin))
    return layers


def _trace_back(chain: DenseChain, signals: list[Tensor], layers: list[_Best], output: int, rank: int) -> Path:
    units: list[int] = []
    contribution = 1.0
    unit = output
    for depth in reversed(range(len(layers))):
        layer = chain.layers[depth]
        origin = int(layers[depth].origin[unit, rank])
        if layer.bias is not None and origin < 0:
            return Path(tuple(reversed(units)), contribution * layer.bias[unit].item(), output, depth + 1)
        kept = layers[depth - 1].origin.shape[1] if depth else 1
        before, rank = divmod(origin, kept)
        contribution *= layer.weight[unit, before].item() * signals[depth][before].item()
        units.append(before)
        unit = before
    return Path(tuple(reversed(units)), contribution, output)
