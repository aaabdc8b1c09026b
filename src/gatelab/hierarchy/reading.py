"""A user's network as a hierarchy of regions: each layer's gates by position, and the regions that each one reads."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import product
from math import inf, prod
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.fx import Node

from gatelab.errors import UnsupportedModelError
from gatelab.gates.pooling import AdaptiveMaxPool, MaxPool, take
from gatelab.hierarchy.fields import ReceptiveFields
from gatelab.network import Network, read
from gatelab.network.evaluation import call
from gatelab.network.operations import Kind

_IMPULSES = 128  # positions that are tried at once
_LOUD = 1000.0  # size of an impulse: large enough to win in max-pooling windows


@dataclass(frozen=True, eq=False)
class RegionLayer:
    """The gates of one layer. Channels at one position are the nodes of one region; a dense layer is one region.

    Attributes:
        name: the gate's name, as in a GatePattern.
        node, before: the gate's output f and its input f^raw, as nodes of the network's graph.
        channels: nodes in each region.
        grid: positions along each axis; () for a dense layer.
        regions: their names, row by row.
    """

    name: str
    node: Node
    before: Node
    channels: int
    grid: tuple[int, ...]
    regions: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class RegionNetwork:
    """A network whose gates form layers of regions.

    Attributes:
        network: the network, as it was read.
        layers: its layers of gates, from the input up.
        channels, grid: of the input; () for a vector, whose entries are then positions.
        fields: the regions. Leaves are the input's positions, "x0", "x1", …; layer l has "hl_0", "hl_1", …; "top" is
            what the network returns. Children are the regions that a region reads without a gate in between.
        edges: (lower, upper) → which positions of the upper layer read which of the lower one; layers are numbered
            from 1, 0 is the input, and the last is the output.
    """

    network: Network
    layers: tuple[RegionLayer, ...]
    channels: int
    grid: tuple[int, ...]
    fields: ReceptiveFields
    edges: dict[tuple[int, int], Bool[Tensor, "_ _"]]

    @property
    def n_outputs(self) -> int:
        """How many numbers the network returns."""
        return prod(int(size) for size in self.network.output.meta["shape"][1:])

    @cached_property
    def names(self) -> tuple[tuple[str, ...], ...]:
        """The regions of each layer: input, gates, output."""
        leaves = tuple(f"x{index}" for index in range(prod(self.grid)))
        return (leaves, *(layer.regions for layer in self.layers), (self.fields.top,))

    def pixels(self, x: Float[Tensor, " n *shape"]) -> Float[Tensor, "n p c"]:
        """Return the input by position."""
        return x.reshape(len(x), self.channels, -1).transpose(1, 2)

    def run(
        self,
        x: Float[Tensor, " n *shape"],
        replace: Callable[[int, Tensor], Tensor] | None = None,
        winners: "Winners | None" = None,
    ) -> tuple[list[Tensor], list[Tensor], Tensor]:
        """Run the network.

        Args:
            x: inputs.
            replace: called with the number of a layer (from 0) and its f; returns what the layers above get instead.
            winners: winners of the max-pooling, chosen in the first run and reused in later ones.

        Returns:
            f^raw and f (or what replaces it) of every layer, and the output before a softmax or sigmoid.
        """
        model, instead = self.network.model, {}
        for index, layer in enumerate(self.layers if replace is not None else ()):
            assert replace is not None
            instead[layer.node] = partial(_replaced, layer.node, model, partial(replace, index))
        if winners is not None:
            pools = {node: self.network.gating(node).pool for node in self.network.path_gates}
            instead |= {node: partial(winners.pooled, node, pool) for node, pool in pools.items() if pool is not None}
        targets = [node for layer in self.layers for node in (layer.before, layer.node)]
        *found, output = self.network.interpreter.run(model, [*targets, self.network.output], x, None, instead)
        return found[::2], found[1::2], output

    def gate(self, index: int, raw: Float[Tensor, " n *shape"]) -> Float[Tensor, " n *shape"]:
        """Return f' of a layer: 1 where its gates are open, otherwise the slope of closed gates (0 for a ReLU)."""
        slope = torch.as_tensor(self.network.slope(self.layers[index].node)).to(raw)  # a PReLU has one per channel
        closed = slope.view(1, -1, *(1,) * (raw.ndim - 2)) if slope.numel() > 1 else slope
        return torch.where(raw > 0, torch.ones_like(raw), closed.expand_as(raw))


class Winners:
    """The winners of every max-pooling, kept from one run of a network for the next."""

    def __init__(self) -> None:
        self._kept: dict[Node, Tensor] = {}

    def pooled(self, node: Node, pool: MaxPool | AdaptiveMaxPool, values: Tensor, *_: Any, **__: Any) -> Any:
        """Return the values at the winners, which the first call chooses."""
        if node not in self._kept:
            self._kept[node] = pool.winners(values.detach())
        taken = take(values, self._kept[node])
        return taken if "shape" in node.meta else (taken, self._kept[node])


def by_position(values: Float[Tensor, "n c *grid"]) -> Float[Tensor, "n p c"]:
    """Return a layer's values with positions on the second axis; a dense layer has one."""
    return values.flatten(2).transpose(1, 2) if values.ndim > 2 else values.unsqueeze(1)


def as_layer(values: Float[Tensor, "n p c"], like: Float[Tensor, "n c *grid"]) -> Float[Tensor, "n c *grid"]:
    """Return values by position in the layout of a layer: the inverse of :func:`by_position`."""
    return values.transpose(1, 2).reshape(like.shape)


def regions_of(model: nn.Module, x: Float[Tensor, " n *shape"]) -> RegionNetwork:
    """Read a network as a hierarchy: which input positions, and which regions below, every gate sees.

    Works for every network that gatelab reads, with any padding, stride, pooling and skips: an impulse at one position
    of a layer is followed to the layers above through a copy of the network with positive weights and open gates.

    Args:
        model: a network in evaluation mode.
        x: examples, (n, channels, …) or (n, features).

    Returns:
        The layers and the regions.

    Raises:
        UnsupportedModelError: no gate lies on the way to the output, or one is not the gate of a ReLU or LeakyReLU.

    Example:
        >>> net = nn.Sequential(nn.Conv1d(1, 4, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(20, 3))
        >>> regions_of(net, torch.zeros(2, 1, 5)).fields
        ReceptiveFields(11 regions, 5 leaves, depth 2, 5 positions)
    """
    network = read(model, x)
    gates = [node for node in network.path_gates if network.kind(node) is not Kind.SELECTION]
    if not gates:
        raise UnsupportedModelError(f"{type(model).__name__} has no gate on the way to its output, and so no regions")
    layers = []
    for number, node in enumerate(gates, start=1):
        gating, shape = network.gating(node), tuple(node.meta["shape"])
        if gating.value is not gating.q or gating.gate is not None or gating.bounds not in (None, (0.0, inf)):
            raise UnsupportedModelError(
                f"{network.where(node)}: its gate is a number, or another signal decides it, or it bounds its values "
                "from above, so f is not f' times f^raw with f' = 0 or 1; use ReLU or LeakyReLU gates"
            )
        grid = tuple(int(size) for size in shape[2:])
        names = tuple(f"h{number}_{index}" for index in range(prod(grid)))
        layers.append(RegionLayer(network.gates[node], node, gating.q, int(shape[1]), grid, names))
    channels, grid = (int(x.shape[1]), tuple(x.shape[2:])) if x.ndim > 2 else (1, tuple(x.shape[1:]))
    edges = dict(_edges(network, layers, x[:1], grid))
    leaves = tuple(f"x{index}" for index in range(prod(grid)))
    names = (leaves, *(layer.regions for layer in layers), ("top",))
    return RegionNetwork(network, tuple(layers), channels, grid, _fields(names, edges), edges)


def _fields(names: Sequence[tuple[str, ...]], edges: Mapping[tuple[int, int], Tensor]) -> ReceptiveFields:
    """Join the regions: a region covers what its children cover, and the top covers everything."""
    children: dict[str, tuple[str, ...]] = {}
    regions = {leaf: frozenset([index]) for index, leaf in enumerate(names[0])}
    for upper in range(1, len(names)):
        below = [(lower, edges[lower, upper]) for lower in range(upper) if (lower, upper) in edges]
        for place, name in enumerate(names[upper]):
            found = [names[lower][index] for lower, seen in below for index in seen[:, place].nonzero()[:, 0].tolist()]
            children[name] = tuple(found)
            regions[name] = frozenset().union(*(regions[child] for child in found))
    regions[names[-1][0]] = frozenset(range(len(names[0])))  # including pixels that strides skip
    return ReceptiveFields(regions, children)


def _edges(
    network: Network, layers: Sequence[RegionLayer], x: Tensor, grid: tuple[int, ...]
) -> Iterator[tuple[tuple[int, int], Tensor]]:
    """Yield (lower, upper) → which positions of the upper layer an impulse at each of the lower one reaches."""
    model = _positive(network.model)
    # Any positive input will do; its entries are all different, so that no difference vanishes.
    start = torch.linspace(1, 2, x.numel(), dtype=torch.float64, device=x.device).view(x.shape)
    targets = [*(layer.before for layer in layers), network.output]
    numbers = {layer.name: number for number, layer in enumerate(layers, start=1)}

    def run(inputs: Tensor, lower: int, factor: Tensor | None) -> list[Tensor]:
        def decide(name: str, q: Tensor) -> Tensor | None:
            number = numbers.get(name)
            if number is None:  # max-pooling chooses as usual, and other gates stay open
                return None if network.kind(by_name[name]) is Kind.SELECTION else torch.ones_like(q)
            if number == lower and factor is not None:
                return factor
            # Layers above the impulse are shut, so it reaches only layers without another gate in between.
            return torch.zeros_like(q) if number > lower else torch.ones_like(q)

        with torch.no_grad():
            return network.interpreter.run(model, targets, inputs, decide)

    by_name = {name: node for node, name in network.gates.items()}
    for lower in range(len(layers) + 1):
        shape = grid if lower == 0 else layers[lower - 1].grid
        quiet = run(start, lower, None)
        reached: list[list[Tensor]] = [[] for _ in targets]
        for factor in _impulses(shape, x.device):
            many = start.expand(len(factor), *start.shape[1:])
            if lower == 0:
                loud = run(many * factor.view(len(factor), *(() if x.ndim == 2 else (1,)), *grid), 0, None)
            else:
                spread = factor.view(len(factor), 1, *shape) if shape else factor.view(-1, 1)
                loud = run(many, lower, spread)
            for place, (changed, before) in enumerate(zip(loud, quiet, strict=True)):
                apart = (changed - before).abs() > 1e-9 * before.abs().max().clamp(min=1e-30)
                last = place == len(targets) - 1
                reached[place].append(apart.flatten(1).any(1, True) if last else _any_channel(apart))
        for place, found in enumerate(reached):
            if place + 1 > lower and bool((seen := torch.cat(found)).any()):
                yield (lower, place + 1), seen.cpu()


def _impulses(shape: tuple[int, ...], device: torch.device) -> Iterator[Tensor]:
    """Yield factors of 1, loud at one position each, in batches; a dense layer has one position."""
    places = list(product(*map(range, shape)))
    for first in range(0, len(places), _IMPULSES):
        chosen = places[first : first + _IMPULSES]
        factor = torch.ones(len(chosen), *shape, dtype=torch.float64, device=device)
        for row, place in enumerate(chosen):
            factor[(row, *place)] = _LOUD
        yield factor


def _any_channel(values: Tensor) -> Tensor:
    """Return which positions are on in any channel, one row per example; a dense layer is one position."""
    return values.flatten(2).any(dim=1) if values.ndim > 2 else values.any(dim=1, keepdim=True)


def _positive(model: nn.Module) -> nn.Module:
    """Return a copy in float64 whose weight layers average, and whose normalisations do nothing."""
    copied = deepcopy(model).double()
    with torch.no_grad():
        for name, parameter in copied.named_parameters():
            if parameter.ndim > 1:
                parameter.fill_(1 / max(1, parameter[0].numel()))
            else:
                parameter.fill_(0.0 if name.split(".")[-1] == "bias" else 1.0)
        for name, buffer in copied.named_buffers():
            if name.endswith(("running_mean", "running_var")):
                buffer.fill_(float(name.endswith("var")))
    return copied


def _replaced(node: Node, model: nn.Module, replace: Callable[[Tensor], Tensor], *args: Any, **kwargs: Any) -> Tensor:
    return replace(call(node, model, *args, **kwargs))
