"""What paths add up to: without those through closed gates, or those from each input alone."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.fx import Node

from gatelab.gates.pooling import take
from gatelab.network import Network
from gatelab.network.operations import Kind

_COPIES = 2  # with one example, ``squeeze()`` would take the batch axis away
Closed = Sequence[tuple[str, tuple[int, ...]]]  # gates by name and index of the unit in what the gate returns


@torch.no_grad()
def outputs_without(
    network: Network, x: Float[Tensor, "1 ..."], closed: Sequence[Closed], *, reacting: bool
) -> Float[Tensor, "sets k"]:
    """Return the output, before a final softmax, for each set of gates that is closed: their units return 0.

    Args:
        network: the network, as it was read.
        x: one example.
        closed: the sets; an empty one closes nothing.
        reacting: whether the gates behind the closed ones decide anew; otherwise all gates but the closed ones stay
            as they are for x, so that the output changes by what the paths through the closed gates contribute.
    """
    nodes = {name: node for node, name in network.gates.items()}
    copies = torch.cat([x] * max(_COPIES, len(closed)))
    kept = {} if reacting else _deciding(network, x)
    masks = _masks(closed, nodes, copies)

    def decide(name: str, q: Tensor) -> Any:
        if reacting and name not in masks:
            return None
        node, deciding = nodes[name], q if reacting else kept[name].expand(len(q), *kept[name].shape[1:])
        return lambda value: passed(network, node, value, deciding) * masks.get(name, 1)

    return network.interpreter.run(network.model, [network.output], copies, decide)[0][: len(closed)]


def contributions_of_inputs(network: Network, x: Float[Tensor, "1 ..."], output: int) -> Float[Tensor, "..."]:
    """Return, for each entry of an example, what all paths that start there contribute to an output together.

    With the gates as they are for x the output is affine in the values that pass them, so that this is x(i) · ∂y/∂x(i)
    with fixed gates; the rest of the output comes from biases. In a network whose values start at ones instead of x
    (a piecewise constant DLGN), these ones are the entries.
    """
    nodes, kept = {name: node for node, name in network.gates.items()}, _deciding(network, x)
    start = next((node for node in network.value_nodes if network.kind(node) is Kind.START), None)
    with torch.enable_grad():
        values = torch.cat([x] * _COPIES).detach()
        values = (values if start is None else torch.ones_like(values)).requires_grad_()
        given = {} if start is None else {start: values}

        def decide(name: str, q: Tensor) -> Any:
            deciding = kept[name].expand(len(q), *kept[name].shape[1:])
            return lambda value: passed(network, nodes[name], value, deciding)

        answer = network.interpreter.run(network.model, [network.output], values, decide, given=given)[0][0, output]
        (slope,) = torch.autograd.grad(answer, values, allow_unused=True)
    return torch.zeros_like(x[0]) if slope is None else (slope * values)[0].detach()


@torch.no_grad()
def _deciding(network: Network, x: Float[Tensor, "1 ..."]) -> dict[str, Tensor]:
    """What decides over each gate for an example."""
    kept: dict[str, Tensor] = {}

    def note(name: str, q: Tensor) -> None:
        kept[name] = q[:1]

    network.interpreter.run(network.model, [network.output], torch.cat([x] * _COPIES), note)
    return kept


def passed(network: Network, node: Node, value: Tensor, q: Tensor) -> Tensor:
    """Return what a gate lets pass of a value if q decides."""
    gating = network.gating(node)
    if gating.pool is not None:
        return take(value, gating.pool.winners(q))
    layer = gating.layer(q, network.slope(node), tuple(node.meta["shape"][1:]))
    through = value * layer.factors(value.dtype)
    return through + gating.offset(q) if gating.is_constant_somewhere else through


def _masks(closed: Sequence[Closed], nodes: Mapping[str, Node], copies: Tensor) -> dict[str, Tensor]:
    masks: dict[str, Tensor] = {}
    for row, gates in enumerate(closed):
        for name, index in gates:
            if name not in masks:
                masks[name] = copies.new_ones(len(copies), *nodes[name].meta["shape"][1:])
            masks[name][(row, *index)] = 0
    return masks
