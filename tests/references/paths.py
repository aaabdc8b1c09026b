"""All paths of a small network, one by one, from the Jacobian of every operation.

Independent of gatelab: torch.fx traces the model, autograd differentiates each operation at the values that it has for
one example, and a recursion multiplies entries of the Jacobians. Two units joined more than once by one operation count
as joined once, with the sum of the weights.
"""

import operator
from dataclasses import dataclass

import torch
from torch import Tensor, fx, nn
from torch.autograd.functional import jacobian


@dataclass(frozen=True)
class ListedPath:
    """The units passed, as (module or operation, number of the unit), from the start to the output."""

    contribution: float
    passed: tuple[tuple[str, int], ...]
    output: int
    from_input: bool


@dataclass
class _Operation:
    sources: dict[fx.Node, list[list[float]]]  # by source, the Jacobian: one row for each unit
    constant: list[float]


def listed_paths(model: nn.Module, x: Tensor) -> list[ListedPath]:
    """Return every path for the one example x, (1, …), whose contribution is not zero."""
    graph = fx.symbolic_trace(model)
    values, operations = {}, {}
    for node in graph.graph.nodes:
        if node.op == "output":
            return _walk(operations, node.args[0])
        if node.op == "placeholder":
            values[node] = x.detach()
            operations[node] = _Operation({}, x.flatten().tolist())
            continue
        values[node] = _call(graph, node, values)
        from_data = any(source in operations or _is_tuple(values.get(source)) for source in node.all_input_nodes)
        if from_data and isinstance(values[node], Tensor):
            operations[node] = _differentiate(graph, node, values, operations)
    raise AssertionError("no output")


def _is_tuple(value) -> bool:
    return isinstance(value, tuple | list) and not isinstance(value, torch.Size)


def _call(graph, node, values):
    """Run one node; in-place operations get copies."""

    def value(source):
        held = values[source]
        return held.clone() if isinstance(held, Tensor) else held

    args, kwargs = fx.map_arg((node.args, node.kwargs), value)
    if node.op == "call_module":
        return graph.get_submodule(node.target)(*args, **kwargs)
    if node.op == "call_method":
        return getattr(args[0], node.target)(*args[1:], **kwargs)
    if node.op == "get_attr":
        owner, _, name = node.target.rpartition(".")
        return getattr(graph.get_submodule(owner), name).detach()
    return node.target(*args, **kwargs)


def _differentiate(graph, node, values, operations) -> _Operation:
    """The Jacobian by each source, and the rest of the value; a tuple is differentiated with the node that picks."""
    picked = node.target is operator.getitem and _is_tuple(values[node.args[0]])
    inner = node.args[0] if picked else node
    sources = [source for source in inner.all_input_nodes if source in operations]

    def run(*signals):
        result = _call(graph, inner, values | dict(zip(sources, signals, strict=True)))
        return result[node.args[1]] if picked else result

    signals = tuple(values[source] for source in sources)
    rest = run(*signals).detach().flatten()
    found = {}
    for source, signal, block in zip(sources, signals, jacobian(run, signals), strict=True):
        matrix = block.reshape(len(rest), signal.numel())
        rest = rest - matrix @ signal.flatten()
        found[source] = matrix.tolist()
    # A constant is what a linear operation adds; smaller remainders are rounding.
    return _Operation(found, torch.where(rest.abs() > 1e-13, rest, 0.0).tolist())


def _walk(operations, output) -> list[ListedPath]:
    found = []

    def back(node, unit, product, behind, end):
        passed = ((_name(node), unit), *behind)
        operation = operations[node]
        if operation.constant[unit]:
            contribution = product * operation.constant[unit]
            found.append(ListedPath(contribution, passed, end, node.op == "placeholder"))
        for source, matrix in operation.sources.items():
            for number, weight in enumerate(matrix[unit]):
                if weight:
                    back(source, number, product * weight, passed, end)

    for unit in range(len(operations[output].constant)):
        back(output, unit, 1.0, (), unit)
    return found


def _name(node) -> str:
    return node.target if node.op in ("call_module", "placeholder") else node.name
