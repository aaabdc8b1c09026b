"""The rules by which paths pass each kind of operation: a network as layers of connected units, for one example."""

from collections import Counter
from collections.abc import Callable
from math import inf, prod
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.fx import Node

from gatelab.errors import UnsupportedModelError
from gatelab.gates.choice import GateChoice
from gatelab.network.nodes import module_path
from gatelab.network.operations import DIFFERENCES, QUOTIENTS, Kind
from gatelab.paths.connections import LinkFilter, LinkTable, PathLayer, identity
from gatelab.paths.filters import filter_of
from gatelab.paths.reading import PathReading
from gatelab.paths.windows import linear_table, window_table


@torch.no_grad()
def layers_of(
    model: nn.Module, x: Float[Tensor, "1 ..."], gates: GateChoice = "network", *, all_open: bool = False
) -> list[PathLayer]:
    """Return the layers that paths pass, in order; the last one is the output.

    Args:
        model: any network that can be read.
        x: one example.
        gates: whether the gates are the network's own or hard.
        all_open: let every path pass: gates and constants that depend on the data are one, and a maximum reads its
            whole window.

    Raises:
        UnsupportedModelError: an operation before the output is neither linear nor a gate.
    """
    reading = PathReading(model, x, gates, all_open=all_open)
    network, layers, names = reading.network, list[PathLayer](), Counter[str]()
    for node in network.value_nodes:
        if "shape" not in node.meta:  # several tensors: the nodes that pick them are layers
            continue
        kind = Kind.START if node.op == "placeholder" else network.kind(node)
        kind = Kind.GATE if node in network.gates and kind is Kind.SCALE else kind  # a product of two signals
        connections, constant = RULES[kind](reading, node)
        rows, *shape = reading.shape(node)
        name = _name(reading, node)
        names[name] += 1
        reading.numbers[node] = len(layers)
        layers.append(
            PathLayer(
                name=name if names[name] == 1 else f"{name}#{names[name]}",
                shape=tuple(shape) if rows == 1 else (rows, *shape),
                connections=tuple(connections),
                constant=torch.zeros(reading.units(node)).double() if constant is None else constant.double().cpu(),
                starts=kind is Kind.START,
                landmark=kind in (Kind.START, Kind.WEIGHT, Kind.SPATIAL),
                gate=network.gates.get(node),
            )
        )
        if node is network.output:
            return layers
    raise UnsupportedModelError("the output does not depend on the input, so there are no paths; check forward")


def _name(reading: PathReading, node: Node) -> str:
    """The module of a node, and its operation if it is a function; a model that is one layer has no name."""
    if node.op in ("placeholder", "call_module"):
        return str(node.target) or reading.network.operation(node)
    return ".".join(filter(None, (module_path(node), reading.network.operation(node))))


Read = tuple[list[LinkTable | LinkFilter], Tensor | None]  # what a layer's units read, and their constants
Rule = Callable[[PathReading, Node], Read]


def _start(reading: PathReading, node: Node) -> Read:
    """The input itself, or ones in a network where the input acts through the gates alone."""
    return [], _ones(reading, node) if reading.all_open else reading.first(reading.values[node])


def _weight(reading: PathReading, node: Node) -> Read:
    source: Any = node.args[0]
    if not reading.is_data(source) or sum(map(reading.is_data, node.all_input_nodes)) > 1:
        raise reading.refuse(node, "its weight depends on the data, so its paths have no fixed values")
    filtered, bias = filter_of(reading, node, source)
    return [filtered], bias


def _gate(reading: PathReading, node: Node) -> Read:
    if node not in reading.network.gates or reading.pattern is None:
        raise reading.refuse(node, "it is not a gate: its pieces are not linear; use ReLU or LeakyReLU")
    source = reading.network.gating(node).value
    layer = reading.pattern.layer(reading.network.gates[node])
    factor = layer.factors(torch.float64)[0].flatten().cpu()
    if len(factor) != reading.units(node) or not reading.is_data(source):
        raise reading.refuse(node, "its gates and its signal have different shapes")
    gating, constant = reading.network.gating(node), None
    if gating.is_constant_somewhere:  # outside its bounds, or f(0) of a Softplus
        constant = gating.offset(reading.first(reading.values[gating.q]).double()).cpu()
    if reading.all_open:
        factor, constant = torch.ones_like(factor), None if constant is None else torch.ones_like(constant)
    return [LinkTable(reading.numbers[source], reading.broadcast(source, node), factor[:, None])], constant


def _selection(reading: PathReading, node: Node) -> Read:
    if node not in reading.network.gates:
        raise reading.refuse(node, "the windows of its maximum differ in size; use windows of one size")
    gating = reading.network.gating(node)
    source, pool = gating.value, gating.pool
    assert pool is not None
    if reading.all_open:
        return [window_table(reading, source, pool)], None
    winners = reading.first(pool.winners(reading.values[gating.q])).cpu()
    rows, channels, *size = reading.shape(source)
    index = winners.view(rows * channels, -1) + prod(size) * torch.arange(rows * channels)[:, None]
    return [LinkTable(reading.numbers[source], index.view(-1, 1), torch.ones(index.numel(), 1).double())], None


def _rearrangement(reading: PathReading, node: Node) -> Read:
    """Let each unit carry its number, so that the result shows where it went; 0 means no unit."""
    sources = _signals(reading, node)
    signals, before = {}, 0
    for source in sources:
        shape = source.meta["shape"]
        numbers = torch.arange(before + 1, before + prod(shape) + 1, dtype=torch.float64, device=reading.x.device)
        signals[source], before = numbers.view(shape), before + prod(shape)
    constant = reading.run(node, {source: torch.zeros_like(numbers) for source, numbers in signals.items()})
    never = constant == -inf  # a padding that wins no maximum
    constant = constant.masked_fill(never, 0)
    moved = reading.first((reading.run(node, signals) - constant).masked_fill(never, 0)).cpu()
    if not torch.equal(moved, moved.round()):
        raise reading.refuse(node, "it does not only move units")
    tables, before = list[LinkTable | LinkFilter](), 0
    for source in sources:
        inside = (moved > before) & (moved <= before + prod(source.meta["shape"]))
        index = torch.where(inside, moved.long() - before - 1, -1)[:, None]
        if bool((index >= reading.units(source)).any()):
            raise reading.refuse(node, "it moves signals from one example to another; keep examples on the first axis")
        tables.append(LinkTable(reading.numbers[source], index, (index >= 0).double()))
        before += prod(source.meta["shape"])
    return tables, reading.first(constant)


def _signals(reading: PathReading, node: Node) -> list[Node]:
    """The layers that a rearrangement reads, through nodes that return several tensors."""
    found: list[Node] = []
    for source in filter(reading.is_data, node.all_input_nodes):
        if "shape" in source.meta:
            found.append(source)
        elif reading.network.kind(source) is Kind.REARRANGEMENT:
            found += _signals(reading, source)
        else:
            raise reading.refuse(source, "it returns several tensors; make it return one")
    return found


def _spatial(reading: PathReading, node: Node) -> Read:
    source: Any = node.args[0]
    return [linear_table(reading, node, source)], None


def _sum(reading: PathReading, node: Node) -> Read:
    call = reading.network.call(node)
    factor = float(call["alpha"])
    signs = [1.0, -factor if call.operation in DIFFERENCES else factor]
    tables, constant = list[LinkTable | LinkFilter](), torch.zeros(reading.units(node)).double()
    for operand, sign in zip((call["input"], call["other"]), signs, strict=True):
        if reading.is_data(operand):
            index = reading.broadcast(operand, node)
            tables.append(LinkTable(reading.numbers[operand], index, torch.full_like(index, 1).double() * sign))
        else:
            constant = constant + sign * reading.spread(reading.value(operand), node)
    return tables, constant


def _scale(reading: PathReading, node: Node) -> Read:
    call = reading.network.call(node)
    operands = [call["input"], *([call["other"]] if "other" in call.arguments else [])]
    signals = [operand for operand in operands if reading.is_data(operand)]
    if len(operands) == 1:  # a negation
        factor: Any = -1.0
    else:
        inverse = call.operation in QUOTIENTS
        if len(signals) != 1 or (inverse and operands[0] is not signals[0]) or call["rounding_mode"]:
            raise reading.refuse(node, "it is not linear in the data: it may only multiply a signal by a constant")
        (other,) = (operand for operand in operands if operand is not signals[0])
        factor = torch.as_tensor(reading.value(other)).detach().double()
        factor = 1 / factor if inverse else factor
    index = reading.broadcast(signals[0], node)
    return [LinkTable(reading.numbers[signals[0]], index, reading.spread(factor, node)[:, None])], None


def _pass(reading: PathReading, node: Node) -> Read:
    source: Any = node.args[0]
    return [LinkTable(reading.numbers[source], identity(reading.units(node)), _ones(reading, node)[:, None])], None


def _ones(reading: PathReading, node: Node) -> Tensor:
    return torch.ones(reading.units(node)).double()


def _normalisation(reading: PathReading, node: Node) -> Read:
    """The scale and the shift of a batch-norm in evaluation mode, for each channel."""
    call = reading.network.call(node)
    mean, variance, weight, bias = (
        None if (value := reading.value(call[name])) is None else value.double()
        for name in ("running_mean", "running_var", "weight", "bias")
    )
    assert mean is not None
    assert variance is not None  # in evaluation mode
    scale = (variance + call["eps"]).rsqrt()
    scale = scale if weight is None else scale * weight
    shift = -mean * scale if bias is None else bias - mean * scale
    view = (-1, *[1] * (len(node.meta["shape"]) - 2))
    factor, constant = (reading.spread(part.view(view), node) for part in (scale, shift))
    source = call["input"]
    return [LinkTable(reading.numbers[source], identity(len(factor)), factor[:, None])], constant


RULES: dict[Kind, Rule] = {
    Kind.START: _start,
    Kind.WEIGHT: _weight,
    Kind.GATE: _gate,
    Kind.SELECTION: _selection,
    Kind.REARRANGEMENT: _rearrangement,
    Kind.CONCATENATION: _rearrangement,
    Kind.SPATIAL: _spatial,
    Kind.SUM: _sum,
    Kind.SCALE: _scale,
    Kind.NORMALISATION: _normalisation,
    Kind.DROPOUT: _pass,
    Kind.PASSING: _pass,
}
