"""Find the nodes of a graph that are affine in the data."""

from collections.abc import Iterable, Mapping

import torch
from torch import nn
from torch.fx import Node

from gatelab.gates.operations import BILINEAR, LINEAR, NORMALISING, QUOTIENTS, SHAPE_ONLY, is_training
from gatelab.network.kinds import Kind, kind_of
from gatelab.network.nodes import is_shape, node_operation

# What modules do that are linear in the data in every mode, without a weight matrix; they may stand between gates and
# weight layers.
_LINEAR_KINDS = frozenset({Kind.SPATIAL, Kind.REARRANGEMENT, Kind.PASSING})
# Replace the values of a tensor, whatever they were.
OVERWRITING = frozenset("fill zero copy requires_grad normal uniform random exponential bernoulli setitem".split())


def data_nodes(nodes: Iterable[Node]) -> set[Node]:
    """Return the nodes that depend on the input by more than its shape."""
    data: set[Node] = set()
    for node in nodes:
        has_values = node_operation(node) not in SHAPE_ONLY and not is_shape(node)
        if node.op == "placeholder" or (has_values and any(source in data for source in node.all_input_nodes)):
            data.add(node)
    return data


def is_linear_module(node: Node, modules: Mapping[str, nn.Module]) -> bool:
    """Whether the node calls a linear module of torch that has no weight matrix."""
    return node.op == "call_module" and kind_of(node, modules) in _LINEAR_KINDS


def is_linear_operation(node: Node, data: set[Node]) -> bool:
    """Whether a function or method node is affine in the data nodes."""
    operation = node_operation(node) or ""
    sources = [source for source in node.all_input_nodes if source in data]
    to_integers = any(
        isinstance(arg, torch.dtype) and not arg.is_floating_point for arg in (*node.args, *node.kwargs.values())
    )
    if to_integers or operation in OVERWRITING or node.kwargs.get("rounding_mode"):
        return False
    if operation in NORMALISING:
        return not is_training(operation, node.args, dict(node.kwargs)) and len(sources) == 1
    if operation in QUOTIENTS:
        return bool(node.args) and sources == [node.args[0]]
    if operation in BILINEAR:
        return sum(arg in data for arg in (*node.args, *node.kwargs.values()) if isinstance(arg, Node)) == 1
    return operation in LINEAR
