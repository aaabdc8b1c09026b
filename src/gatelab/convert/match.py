"""Assign a role to each node of a model, or list the reasons why it cannot be split into gates and values."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cached_property

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.fx import Graph, Node

from gatelab.errors import UnsupportedModelError
from gatelab.gates.events import POOLING_MODULES, is_gate_module
from gatelab.gates.operations import BILINEAR, DROPPING
from gatelab.network.evaluation import attribute
from gatelab.network.linear import OVERWRITING, data_nodes, is_linear_module, is_linear_operation
from gatelab.network.network import read
from gatelab.network.nodes import (
    WEIGHING,
    ancestors,
    describe,
    holds_node,
    is_bounded,
    node_operation,
    parameter,
    weight_parameters,
)
from gatelab.network.writes import writes_in_place


class Role(Enum):
    """The role of a node for paths."""

    INPUT = "input"
    OUTPUT = "output"
    FIXED = "fixed"  # parameters, buffers, and values computed from them and from shapes alone
    GATE = "gate"
    MAX_POOL = "max-pool"
    WEIGHT = "weight layer"
    LINEAR = "linear"
    DROPOUT = "functional dropout"
    HEAD = "head"  # any operation after the last gate


@dataclass(frozen=True)
class Parts:
    """A model with a role for each node.

    Attributes:
        model: the model.
        modules: its modules by path.
        roles: the roles of the nodes that the output depends on, in order.
        gates: the names of the gates, as in a GatePattern.
        deciding: the nodes that some gate depends on.
        weights: for each weight layer the paths of its weight and bias (or None).
    """

    model: nn.Module
    modules: Mapping[str, nn.Module]
    roles: Mapping[Node, Role]
    gates: Mapping[Node, str]
    deciding: frozenset[Node]
    weights: Mapping[Node, tuple[str, str | None]]

    @cached_property
    def gate_paths(self) -> Mapping[Node, str]:
        """The paths of the gate modules in a twin: flat, unique names."""
        paths: dict[Node, str] = {}
        for node, name in self.gates.items():
            path = f"gate.{name.replace('.', '_').replace('#', '_call')}"
            while path in paths.values():
                path += "_"
            paths[node] = path
        return paths

    def refuse_curved_heads(self, what: str) -> None:
        """Refuse operations that are not linear between the last gate and a weight layer."""
        before: set[Node] = set()
        for node in reversed(list(self.roles)):
            if any(user in before or user in self.weights for user in node.users):
                before.add(node)
        curved = [
            describe(node, self.modules) for node, role in self.roles.items() if role is Role.HEAD and node in before
        ]
        if curved:
            raise UnsupportedModelError(
                f"{what}: not linear, and before a weight layer: {'; '.join(curved)}; move them behind the last weight "
                "layer"
            )

    def loose_parameters(self) -> list[str]:
        """Return the names of parameters that are used outside Linear, Conv and batch-norm layers."""
        own = {name for names in self.weights.values() for name in names if name is not None}
        own_ids = {id(tensor) for name, tensor in self.model.named_parameters() if name in own}
        return [
            str(node.target)
            for node, role in self.roles.items()
            if role is Role.FIXED and node.op == "get_attr" and "constant" not in node.meta
            if isinstance(tensor := attribute(self.model, str(node.target)), nn.Parameter) and id(tensor) not in own_ids
        ]

    def makes_weights(self, name: str) -> bool:
        """Whether a parameter is used only to compute weights of layers: sliced, masked, scaled."""
        waiting = [node for node in self.roles if node.op == "get_attr" and node.target == name]
        while waiting:
            node = waiting.pop()
            for user in node.users:
                if self.roles.get(user) is Role.FIXED:
                    waiting.append(user)
                elif user in self.roles and (node_operation(user) not in WEIGHING or node is user.args[0]):
                    return False
        return True


def match(model: nn.Module, x: Tensor | None = None) -> Parts:
    """Read a model as gates, weight layers and linear operations between them.

    Args:
        model: the model.
        x: examples, needed if something in its forward depends on shapes.

    Raises:
        UnsupportedModelError: some operations fit no role; the message lists all of them with their places.
    """
    network = read(model, x)
    model, graph, modules, gates = network.model, network.graph, network.modules, network.gates
    needed = _needed(graph)
    nodes = [node for node in graph.nodes if node in needed]
    from_input = data_nodes(nodes)
    deciding = _deciding(nodes, gates)
    roles, refused = {}, []
    for node in nodes:
        role = _role(node, modules, gates, from_input)
        if role is None and node not in deciding and node not in gates and not _cannot_be_copied(node, modules):
            role = Role.HEAD
        if role is None:
            refused.append(f"{describe(node, modules)}{_why(node, from_input)}")
        else:
            roles[node] = role
    weights = {node: names for node in nodes if (names := weight_parameters(node, modules)) is not None}
    refused += _unusable_weights(model, weights, nodes, modules)
    if not any(role in (Role.GATE, Role.MAX_POOL) for role in roles.values()) and not refused:
        head = [describe(node, modules) for node, role in roles.items() if role is Role.HEAD]
        instead = f"; there is {', '.join(head[:5])}" if head else ""
        refused.append(f"no gate: there is no ReLU, LeakyReLU or max-pooling on the way to the output{instead}")
    if refused:
        raise UnsupportedModelError(
            f"{type(model).__name__} cannot be taken apart into gates and values:\n  - "
            + "\n  - ".join(refused)
            + "\nBefore the last gate, use only ReLU, LeakyReLU, max-pooling, Linear and Conv layers with weights of "
            "their own, and operations that are linear in the data. Nothing was converted"
        )
    return Parts(model, modules, roles, gates, frozenset(deciding), weights)


def _needed(graph: Graph) -> set[Node]:
    """Return the nodes that the output depends on."""
    (output,) = (node for node in graph.nodes if node.op == "output")
    if not isinstance(output.args[0], Node):
        raise UnsupportedModelError("the model must return one tensor, not a tuple or dict")
    needed = ancestors(output)
    inputs = [node for node in graph.nodes if node.op == "placeholder" and node in needed]
    if len(inputs) != 1:
        raise UnsupportedModelError(f"the model uses {len(inputs)} inputs; it must have one, x")
    return needed


def _deciding(nodes: list[Node], gates: Mapping[Node, str]) -> set[Node]:
    known, deciding = set(nodes), set[Node]()
    for node in reversed(nodes):
        if any(user in known and (user in deciding or user in gates) for user in node.users):
            deciding.add(node)
    return deciding


def _role(
    node: Node, modules: Mapping[str, nn.Module], gates: Mapping[Node, str], from_input: set[Node]
) -> Role | None:
    if node.op in ("placeholder", "output"):
        return Role.INPUT if node.op == "placeholder" else Role.OUTPUT
    if node not in from_input:
        return Role.FIXED
    if node in gates:
        return _gate_role(node, modules)
    if weight_parameters(node, modules) is not None:
        return Role.WEIGHT
    if node_operation(node) in DROPPING:
        return Role.DROPOUT
    linear = is_linear_module(node, modules) if node.op == "call_module" else is_linear_operation(node, from_input)
    return Role.LINEAR if linear else None


def _gate_role(node: Node, modules: Mapping[str, nn.Module]) -> Role | None:
    operation = node_operation(node) or ""
    if operation.startswith("gated") or "with_indices" in operation or node.kwargs.get("return_indices"):
        return None
    if holds_node((node.args[1:], node.kwargs)) or is_bounded(node, modules):
        return None  # the window depends on the shape, or the gate is constant outside its bounds
    if node.op != "call_module":
        return Role.MAX_POOL if "max_pool" in operation else Role.GATE
    module = modules[str(node.target)]
    if not is_gate_module(module) or getattr(module, "return_indices", False):
        return None
    if isinstance(module, nn.Threshold) and (module.threshold, module.value) != (0, 0):
        return None
    return Role.MAX_POOL if isinstance(module, POOLING_MODULES) else Role.GATE


def _cannot_be_copied(node: Node, modules: Mapping[str, nn.Module]) -> bool:
    """Whether the node is an in-place write without an out-of-place form, such as ``fill_`` or ``copy_``."""
    if node.op == "call_module" or not writes_in_place(node, modules):
        return False
    plain = node_operation(node) or ""
    return plain in OVERWRITING or not (hasattr(Tensor, plain) or hasattr(torch, plain) or hasattr(F, plain))


def _why(node: Node, from_input: set[Node]) -> str:
    operation = node_operation(node) or ""
    if operation.startswith("gated"):
        return ": the gates of the model are decoupled already"
    if operation in BILINEAR and sum(source in from_input for source in node.all_input_nodes) > 1:
        return ": it multiplies data by data"
    return ""


def _unusable_weights(
    model: nn.Module,
    weights: Mapping[Node, tuple[str, str | None]],
    nodes: list[Node],
    modules: Mapping[str, nn.Module],
) -> list[str]:
    """Describe weights that are computed, or used in two places."""
    met: dict[int, Node] = {}
    refused = []
    for node, (name, _) in weights.items():
        try:
            first = met.setdefault(id(parameter(model, name, describe(node, modules))), node)
        except UnsupportedModelError as error:
            refused.append(str(error))
            continue
        if first is not node:
            refused.append(_tied(node, first, modules))
    for node in nodes:
        if node.op == "get_attr" and "constant" not in node.meta:
            first = met.get(id(attribute(model, str(node.target))))
            others = [user for user in node.users if first is not None and user is not first]
            refused += [_tied(user, first, modules) for user in others[:1] if first is not None]
    return refused


def _tied(node: Node, first: Node, modules: Mapping[str, nn.Module]) -> str:
    return (
        f"{describe(node, modules)} has the same weight as {describe(first, modules)}: a path would pass it twice, and "
        "the value of the path would not be a product of different weights"
    )
