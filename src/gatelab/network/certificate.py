"""The certificate of a record: rerun among other examples, it must give each example the model's own output."""

import copy
from typing import Any

import torch
from torch import Tensor, nn
from torch.fx import Node

from gatelab.errors import UnsupportedModelError
from gatelab.network.network import Network
from gatelab.network.operations import tensors_in
from gatelab.network.rows import EXAMPLES
from gatelab.observe import stand_in, undisturbed

# Rounding may differ between two examples and three; larger differences are checked again in float64.
_TOLERANCES = {torch.float64: 1e-9, torch.float32: 1e-6}
_HALF = 3e-2
_MIXED = [1, 0, 1]  # the two examples in another order, one of them twice
_BESIDE = len(_MIXED) + 3  # with one example of NaN before them and two after: different when reversed


@torch.no_grad()
def certify(network: Network) -> None:
    """Refuse a network whose record, run on the examples in another order, does not give the model's outputs.

    This detects three things: examples that depend on each other, randomness, and operations that escape the record
    (custom autograd functions, other libraries). Some of the other examples are NaN, which a reduction over the
    examples passes on to all of them, so even weak mixing is found.

    Raises:
        UnsupportedModelError: the outputs differ; the message names the first node that depends on other examples.
    """
    pair, answer = network.recording.examples, network.recording.answer
    _refuse_other_axes(network, answer)
    if _differs(network, network.model, pair, answer) or not _repeats(network.model, pair, answer):
        _look_again(network)


def _look_again(network: Network) -> None:
    """Compare a float64 copy, which rules out rounding and weights that changed in the meantime."""
    pair = network.recording.examples.double()
    try:
        model = copy.deepcopy(network.model).double()
        with undisturbed(model, pair) as run, torch.no_grad():
            answer = run(pair)
    except Exception:  # a model that cannot be copied, or that fixes its dtype
        model, pair, answer = network.model, network.recording.examples, network.recording.answer
    if _differs(network, model, pair, answer):
        raise UnsupportedModelError(_reason(network, model, pair))
    if not _repeats(model, pair, answer):
        raise UnsupportedModelError(
            f"{type(network.model).__name__} gives two examples other outputs beside a third one: its forward "
            "depends on chance or on the number of examples; make each output depend on its example alone"
        )


def _refuse_other_axes(network: Network, answer: Any) -> None:
    for tensor in _in_order(network, answer):
        if tensor.layout != torch.strided or tensor.is_complex():
            raise UnsupportedModelError(
                f"{type(network.model).__name__} returns a tensor of {tensor.dtype} and layout {tensor.layout}; return "
                "a dense one of real numbers"
            )
        if not tensor.ndim or len(tensor) != EXAMPLES:
            raise UnsupportedModelError(
                f"{type(network.model).__name__} returns shape {tuple(tensor.shape)} for {EXAMPLES} examples; return "
                "one output for each, with the examples on the first axis"
            )


def _repeats(model: nn.Module, pair: Tensor, answer: Any) -> bool:
    """Whether the model gives two examples the same outputs with and without a third; rounding may flip a gate."""
    with undisturbed(stand_in(model), pair) as run, torch.no_grad():
        again = run(torch.cat([pair, pair[:1]]))
    loose = 100 * _TOLERANCES.get(pair.dtype, _HALF)
    return all(
        one.shape[1:] == two.shape[1:] and len(two) > len(one) and _distance(one, two[: len(one)]) <= loose
        for one, two in zip(tensors_in(answer), tensors_in(again), strict=False)
        if one.ndim and one.shape[0] == EXAMPLES
    )


def _differs(network: Network, model: nn.Module, pair: Tensor, answer: Any) -> bool:
    """Whether the record, on examples in another order and number, gives other outputs than the model gave the pair."""
    nodes = [node for node in network.end.all_input_nodes if node.meta.get("data")]
    tolerance = _TOLERANCES.get(pair.dtype, _HALF)
    doubted: list[str] = []

    def look(name: str, q: Tensor) -> None:
        if not _in_place(q, tolerance):
            doubted.append(name)

    try:
        values = network.interpreter.run(model, nodes, _beside_others(pair), look)
    except (RuntimeError, IndexError, ValueError):  # the record contains a size fixed to two examples
        return True
    return any(
        not _as_alone(both, mixed, tolerance) for mixed, both in zip(values, _in_order(network, answer), strict=True)
    ) or (bool(doubted) and _gates_differ(network, model, pair, doubted))


def _in_place(q: Tensor, tolerance: float) -> bool:
    """Whether a gate has the examples where :func:`_beside_others` put them; rounding may cause a false no."""
    if not q.ndim or len(q) != _BESIDE:
        return True
    first, _, again = q[1 : 1 + len(_MIXED)]
    return not bool(q[1 : 1 + len(_MIXED)].isnan().any()) and _distance(first, again) <= tolerance


def _gates_differ(network: Network, model: nn.Module, pair: Tensor, names: list[str]) -> bool:
    """Whether the input of one of these gates has another value or position among other examples."""
    nodes = [network.gating(node).q for node, name in network.gates.items() if name in names]
    alone = network.interpreter.run(model, nodes, pair)
    beside = network.interpreter.run(model, nodes, _beside_others(pair))
    tolerance = _TOLERANCES.get(pair.dtype, _HALF)
    return any(not _as_alone(one, other, tolerance) for one, other in zip(alone, beside, strict=True))


def _beside_others(pair: Tensor) -> Tensor:
    """The examples in another order and number, among examples of NaN."""
    nan = torch.full_like(pair[:1], torch.nan)
    return torch.cat([nan, pair[_MIXED], nan, nan])


def _as_alone(alone: Tensor, beside: Tensor, tolerance: float) -> bool:
    """Whether a node gives the pair the same values ``alone`` as among :func:`_beside_others`."""
    if not alone.ndim or not len(alone) or len(alone) % EXAMPLES or beside.shape[0] * EXAMPLES != _BESIDE * len(alone):
        return beside.shape == alone.shape and _distance(beside, alone) <= tolerance
    expected = alone.unflatten(0, (EXAMPLES, -1))[_MIXED].flatten(0, 1)  # examples may have several rows each
    rows = len(alone) // EXAMPLES
    beside = beside[rows : rows + len(expected)]
    return beside.shape == expected.shape and _distance(beside, expected) <= tolerance


def _in_order(network: Network, answer: Any) -> list[Tensor]:
    """Return the tensors of an output in the order of the nodes that hold them, each once."""
    found: dict[Node, Tensor] = {}

    def walk(node: Any, value: Any) -> None:
        if isinstance(node, Node):
            if node.meta.get("data") and isinstance(value, Tensor):
                found[node] = value
        elif isinstance(node, dict):
            for key, part in node.items():
                walk(part, value[key])
        elif isinstance(node, list | tuple):
            for part, own in zip(node, value, strict=True):
                walk(part, own)

    walk(network.end.args[0], answer)
    return [found[node] for node in network.end.all_input_nodes if node in found]


def _distance(one: Tensor, other: Tensor) -> float:
    """The largest difference, relative to the largest number; infinite where only one of two numbers is finite."""
    if not other.numel():
        return 0.0
    one, other = one.double(), other.double()
    same = (one == other) | (one.isnan() & other.isnan())
    scale = other.abs().nan_to_num(0.0, 0.0, 0.0).max().clamp(min=torch.finfo(other.dtype).tiny)
    return float((torch.where(same, 0.0, one - other).abs().max() / scale).nan_to_num(torch.inf))


def _reason(network: Network, model: nn.Module, pair: Tensor) -> str:
    """Return the reason: the first node that gives an example another value among examples in another order."""
    nodes = [node for node in network.nodes if node.op != "output" and "shape" in node.meta]
    try:
        together = network.interpreter.run(model, nodes, pair)
        mixed = network.interpreter.run(model, nodes, _beside_others(pair))
    except (RuntimeError, IndexError, ValueError) as error:
        return (
            f"the recorded operations of {type(network.model).__name__} do not run on other examples ({error}): "
            "something in forward escapes the record (a custom autograd function, another library), or depends on the "
            "number of examples; use torch's operations"
        )
    tolerance = _TOLERANCES.get(pair.dtype, _HALF)
    for node, alone, beside in zip(nodes, together, mixed, strict=True):
        if not _as_alone(alone, beside, tolerance):
            return (
                f"examples depend on each other: {network.where(node)} gives an example another value beside other "
                "examples; compute each example by itself, with the examples on the first axis"
            )
    return (
        f"the recorded operations of {type(network.model).__name__}, run again, do not give the model's output: "
        "something in forward depends on chance or escapes the record (a custom autograd function, another library); "
        "use torch's operations"
    )
