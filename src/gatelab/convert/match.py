"""Assign a role to each node of a model, or list the reasons why it cannot be split into gates and values."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cached_property

from torch import Tensor, nn
from torch.fx import Node

from gatelab.errors import UnsupportedModelError
from gatelab.network.certificate import certify
from gatelab.network.evaluation import attribute
from gatelab.network.network import Network, read
from gatelab.network.nodes import ancestors, is_affine, parameter, used_twice, weight_parameters
from gatelab.network.operations import MULTILINEAR, Kind


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
    DECIDING = "deciding"  # leads to a gate, but lies on no path: the branch of a squeeze-and-excitation block
    HEAD = "head"  # any operation after the last gate


@dataclass(frozen=True)
class Parts:
    """A model with a role for each node.

    Attributes:
        network: the model as it was read.
        roles: the roles of the nodes that the output depends on, in order.
        deciding: the nodes that some gate's decision depends on.
        weights: for each weight layer the paths of its weight and bias (or None).
    """

    network: Network
    roles: Mapping[Node, Role]
    deciding: frozenset[Node]
    weights: Mapping[Node, tuple[str, str | None]]

    @property
    def model(self) -> nn.Module:
        """The model."""
        return self.network.model

    @cached_property
    def gate_paths(self) -> Mapping[Node, str]:
        """The paths of the gate modules in a twin: flat, unique names."""
        paths: dict[Node, str] = {}
        for node, name in self.network.gates.items():
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
        curved = [self.network.where(node) for node, role in self.roles.items() if role is Role.HEAD and node in before]
        if curved:
            raise UnsupportedModelError(
                f"{what}: not linear, and before a weight layer: {'; '.join(curved)}; move them after the last weight "
                "layer"
            )

    def loose_parameters(self, *, deciding: bool = True) -> list[str]:
        """Return the names of parameters that are used outside Linear, Conv and batch-norm layers and as slopes.

        Args:
            deciding: whether to include parameters that only decide, which lie on no path.
        """
        roles = (Role.FIXED, Role.DECIDING) if deciding else (Role.FIXED,)
        own = {name for names in self.weights.values() for name in names if name is not None}
        own_ids = {id(tensor) for name, tensor in self.model.named_parameters() if name in own}
        return [
            str(node.target)
            for node, role in self.roles.items()
            if role in roles and node.op == "get_attr" and "constant" not in node.meta
            if isinstance(tensor := attribute(self.model, str(node.target)), nn.Parameter) and id(tensor) not in own_ids
            if not all(self._is_slope(user, node) or self._normalises(user) for user in node.users)
        ]

    def _is_slope(self, user: Node, node: Node) -> bool:
        return user in self.network.gates and self.network.gating(user).slope is node

    def _normalises(self, user: Node) -> bool:
        return bool(user.meta.get("data")) and self.network.kind(user) is Kind.NORMALISATION

    def normalisation_state(self) -> dict[str, float]:
        """Return the parameters and buffers of batch-norm functions, with the number at which each does nothing."""
        neutral = {"running_mean": 0.0, "running_var": 1.0, "weight": 1.0, "bias": 0.0}
        calls = [self.network.call(node) for node in self.roles if node.op != "call_module" and self._normalises(node)]
        state = ((call.arguments.get(argument), start) for call in calls for argument, start in neutral.items())
        return {
            str(held.target): start
            for held, start in state
            if isinstance(held, Node) and held.op == "get_attr" and "constant" not in held.meta
        }

    def neutral(self, name: str) -> float | None:
        """Return 1 for a parameter that only scales signals and 0 for one that only shifts them, else None."""
        found: set[float | None] = set()
        waiting = [node for node in self.roles if node.op == "get_attr" and node.target == name]
        while waiting:
            for user in waiting.pop().users:
                kind = self.network.kind(user)
                if user not in self.roles:
                    continue
                if not user.meta.get("data") and kind in (Kind.REARRANGEMENT, Kind.PASSING):
                    waiting.append(user)
                else:
                    affine = self.roles[user] in (Role.LINEAR, Role.DECIDING) and is_affine(user, self.network.modules)
                    found.add({Kind.SCALE: 1.0, Kind.SUM: 0.0}.get(kind) if affine else None)
        return found.pop() if len(found) == 1 else None

    def makes_weights(self, name: str) -> bool:
        """Whether a parameter is used only to compute weights of layers: sliced, masked, scaled."""
        waiting = [node for node in self.roles if node.op == "get_attr" and node.target == name]
        while waiting:
            node = waiting.pop()
            for user in node.users:
                fixed = user in self.roles and not user.meta.get("data")
                if fixed and user.op != "output":
                    waiting.append(user)
                elif user in self.roles and (self.network.kind(user) is not Kind.WEIGHT or node is user.args[0]):
                    return False
        return True


def match(
    model: nn.Module, x: Tensor | None = None, output: int | str | None = None, *, decoupled: bool = False
) -> Parts:
    """Read a model as gates, weight layers and linear operations between them.

    Args:
        model: the model.
        x: examples, needed if something in its forward depends on shapes.
        output: the part of its output to follow, if it returns several tensors.
        decoupled: whether to accept deep gated networks, whose gates are already decoupled from their values.

    Raises:
        UnsupportedModelError: some operations fit no role; the message lists them all with their lines.
    """
    network = read(model, x, output=output)
    needed = ancestors(network.answer, network.end)
    nodes = [node for node in network.graph.nodes if node in needed]
    gates = [node for node in network.gates if node in needed]
    deciding = ancestors(*(network.gating(gate).q for gate in gates)) if gates else set[Node]()
    before_gates = ancestors(*gates) - set(gates) if gates else set[Node]()
    on_paths = ancestors(network.answer, network.end, sources=_carried)
    roles, refused = {}, []
    for node in nodes:
        role = _role(network, node, decoupled)
        if node not in on_paths:
            role = Role.DECIDING
        if role is None and node not in before_gates and node not in network.gates:
            role = Role.HEAD
        if role is None:
            refused.append(f"{network.where(node)}{_why(network, node)}")
        else:
            roles[node] = role
    weights = {
        node: names
        for node in nodes
        if (names := _own_parameters(network, node)) is not None and (node in on_paths or node in deciding)
    }
    values = [node for node in nodes if node in on_paths]
    refused += _unusable_weights(network, {node: weights[node] for node in values if node in weights}, values)
    if not any(role in (Role.GATE, Role.MAX_POOL) for role in roles.values()) and not refused:
        head = [network.where(node) for node, role in roles.items() if role is Role.HEAD]
        instead = f"; there is {', '.join(head[:5])}" if head else ""
        refused.append(
            f"no gate: no ReLU, SiLU or similar gate and no max-pooling lies on the way to the output{instead}"
        )
    if refused:
        raise UnsupportedModelError(
            f"{type(network.model).__name__} cannot be taken apart into gates and values:\n  - "
            + "\n  - ".join(refused)
            + "\nOn the way to the last gate, use only gates (ReLU, SiLU and their kin, max-pooling, products with a "
            "sigmoid), Linear and Conv layers with weights of their own, and operations that are linear in the data. "
            "Nothing was converted"
        )
    certify(network)
    return Parts(network, roles, frozenset(deciding), weights)


def _carried(node: Node) -> list[Node]:
    """Return what a node of the value network reads: all of its inputs, including sizes; for a gate only the value."""
    gating = node.meta.get("gating")
    return node.all_input_nodes if gating is None else [gating.value]


def _role(network: Network, node: Node, decoupled: bool) -> Role | None:
    if node.op in ("placeholder", "output"):
        return Role.INPUT if node.op == "placeholder" else Role.OUTPUT
    if not node.meta.get("data"):
        return Role.FIXED
    if node in network.gates:
        return _gate_role(network, node, decoupled)
    if _own_parameters(network, node) is not None:
        return Role.WEIGHT
    if network.kind(node) is Kind.DROPOUT and node.op != "call_module":
        return Role.DROPOUT
    return Role.LINEAR if is_affine(node, network.modules) else None


def _own_parameters(network: Network, node: Node) -> tuple[str, str | None] | None:
    """Return the paths of weight and bias of a weight layer; None for a fixed filter, such as a blur from a buffer."""
    names = weight_parameters(node, network.modules)
    if names is None or names[1] is not None:
        return names
    weight, (owner, _, name) = network.call(node)["weight"], names[0].rpartition(".")
    if isinstance(weight, Node) and "constant" in weight.meta:
        return None
    return None if name in dict(network.model.get_submodule(owner).named_buffers(recurse=False)) else names


def _gate_role(network: Network, node: Node, decoupled: bool) -> Role | None:
    gating = network.gating(node)
    if gating.decoupled and not decoupled:
        return None
    if gating.pool is None:
        return Role.GATE
    return Role.MAX_POOL if "shape" in node.meta else None  # a pooling that also returns indices has no twin


def _why(network: Network, node: Node) -> str:
    if node in network.gates and network.gating(node).decoupled:
        return ": the gates of the model are decoupled already"
    several = used_twice(node) or sum(bool(source.meta.get("data")) for source in node.all_input_nodes) > 1
    return ": it multiplies data by data" if network.kind(node) in MULTILINEAR and several else ""


def _unusable_weights(network: Network, weights: Mapping[Node, tuple[str, str | None]], nodes: list[Node]) -> list[str]:
    """Describe weights that are computed, or used in two places."""
    met: dict[int, Node] = {}
    refused = []
    for node, (name, _) in weights.items():
        try:
            first = met.setdefault(id(parameter(network.model, name, network.where(node))), node)
        except UnsupportedModelError as error:
            refused.append(str(error))
            continue
        if first is not node:
            refused.append(_tied(network, node, first))
    for node in nodes:
        if node.op == "get_attr" and "constant" not in node.meta:
            first = met.get(id(attribute(network.model, str(node.target))))
            others = [user for user in node.users if first is not None and user is not first]
            refused += [_tied(network, user, first) for user in others[:1] if first is not None]
    return refused


def _tied(network: Network, node: Node, first: Node) -> str:
    return (
        f"{network.where(node)} has the same weight as {network.where(first)}: a path would pass it twice, and the "
        "value of the path would not be a product of different weights"
    )
