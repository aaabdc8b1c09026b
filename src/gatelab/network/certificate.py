"""The certificate of a record: run again, it gives the model's own answer, example by example."""

import copy
from typing import Any

import torch
from torch import Tensor
from torch.fx import Node

from gatelab.errors import UnsupportedModelError
from gatelab.network.network import Network
from gatelab.network.operations import tensors_in
from gatelab.network.recording import EXAMPLES
from gatelab.observe import stand_in, undisturbed

# Rounding may differ between one example and two; anything above this is looked at again in float64.
_TOLERANCES = {torch.float64: 1e-9, torch.float32: 1e-4}
_HALF = 3e-2


@torch.no_grad()
def certify(network: Network) -> None:
    """Refuse a network whose record, run on one example alone, does not give the answer that the model gave it.

    Three things are found in this way: examples that depend on each other, chance, and operations that escape the
    record (custom autograd functions, other libraries).

    Raises:
        UnsupportedModelError: the answers differ; the message names the first node that depends on other examples.
    """
    pair = network.recording.examples
    if _differs(network, network.model, pair, network.recording.answer) and _differs_in_double(network):
        raise UnsupportedModelError(_reason(network))
    with undisturbed(stand_in(network.model), pair) as run, torch.no_grad():
        again = run(torch.cat([pair, pair[:1]]))
    if not _repeats(network.recording.answer, again, pair.dtype):
        raise UnsupportedModelError(
            f"{type(network.model).__name__} answers two examples otherwise when there are three of them: its forward "
            "depends on chance or on the number of examples; make each answer depend on its example alone"
        )


def _repeats(answer: Any, again: Any, dtype: torch.dtype) -> bool:
    """Whether the first rows of a second answer are a first one; loosely, since rounding may flip a gate."""
    pairs = list(zip(tensors_in(answer), tensors_in(again), strict=False))
    loose = 100 * _TOLERANCES.get(dtype, _HALF)
    return all(
        one.ndim > 0 and one.shape[1:] == two.shape[1:] and _distance(one, two[: len(one)]) <= loose
        for one, two in pairs
        if one.ndim and one.shape[0] == EXAMPLES and one.is_floating_point()
    )


def _differs(network: Network, model: Any, pair: Tensor, answer: Any) -> bool:
    expected = [tensor for tensor in tensors_in(answer) if tensor.ndim and tensor.shape[0] == len(pair)]
    nodes = [node for node in network.end.all_input_nodes if node.meta.get("data")]
    try:
        values = network.interpreter.run(model, nodes, pair[:1])
    except (RuntimeError, IndexError, ValueError):  # the record holds something of the size of two examples
        return True
    alone = dict(zip(nodes, values, strict=True))
    got = [alone[node] for node in nodes if isinstance(alone[node], Tensor)]
    tolerance = _TOLERANCES.get(pair.dtype, _HALF)
    return bool(expected) and any(
        one.shape != both[:1].shape or _distance(one, both[:1]) > tolerance
        for one, both in zip(got, _in_order(network, answer), strict=True)
    )


def _in_order(network: Network, answer: Any) -> list[Tensor]:
    """The tensors of an answer in the order of the nodes that hold them, each once."""
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
    scale = other.abs().max().clamp(min=torch.finfo(other.dtype).tiny)
    return float(((one - other).abs().max() / scale).nan_to_num(torch.inf))


def _differs_in_double(network: Network) -> bool:
    """Whether the answers still differ without rounding; in doubt, they do."""
    if network.recording.examples.dtype == torch.float64:
        return True
    pair = network.recording.examples.double()
    try:
        model = copy.deepcopy(network.model).double()
        with undisturbed(model, pair) as run, torch.no_grad():
            return _differs(network, model, pair, run(pair))
    except Exception:  # a model that cannot be copied, or that fixes its dtype
        return True


def _reason(network: Network) -> str:
    """What is wrong: the first node that gives an example another value among others than alone."""
    pair = network.recording.examples
    nodes = [node for node in network.nodes if node.op != "output" and "shape" in node.meta]
    try:
        together = network.interpreter.run(network.model, nodes, pair)
        alone = network.interpreter.run(network.model, nodes, pair[:1])
    except (RuntimeError, IndexError, ValueError) as error:
        return (
            f"the recorded operations of {type(network.model).__name__} do not run on one example ({error}): something "
            "in forward escapes the record (a custom autograd function, another library); use torch's operations"
        )
    tolerance = _TOLERANCES.get(pair.dtype, _HALF)
    for node, both, one in zip(nodes, together, alone, strict=True):
        rows = both[: len(one)] if both.ndim and len(both) == 2 * len(one) else both
        if rows.shape != one.shape or _distance(one, rows) > tolerance:
            return (
                f"examples depend on each other: {network.where(node)} gives the first example another value alone "
                "than among others; compute each example by itself, with the examples on the first axis"
            )
    return (
        f"the recorded operations of {type(network.model).__name__}, run again, do not give the model's answer: "
        "something in forward depends on chance or escapes the record (a custom autograd function, another library); "
        "use torch's operations"
    )
