"""Copy a model into a new graph, node by node."""

import copy
from collections.abc import Callable, Mapping
from math import inf
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.fx import Graph, Node
from torch.nn.modules.dropout import _DropoutNd

from gatelab.convert.match import Parts, Role
from gatelab.convert.twin import graft
from gatelab.errors import UnsupportedModelError
from gatelab.gates.pooling import AdaptiveMaxPool, MaxPool
from gatelab.network.evaluation import attribute
from gatelab.network.nodes import module_path
from gatelab.network.operations import Kind
from gatelab.network.padding import written

_DROPOUTS: Mapping[str, type[_DropoutNd]] = {
    "dropout": nn.Dropout,
    "dropout1d": nn.Dropout1d,
    "dropout2d": nn.Dropout2d,
    "dropout3d": nn.Dropout3d,
}


class Branch:
    """A copy of a model's nodes, written one by one into a new graph under the names ``prefix.…``."""

    def __init__(self, parts: Parts, source: nn.Module, graph: Graph, root: nn.Module, prefix: str):
        """Start a copy.

        Args:
            parts: the model with its roles.
            source: the network whose parameters and buffers to copy: the model, or one of the same architecture.
            graph: the graph to write into.
            root: the module that will hold the copies of sub-modules.
            prefix: the name of the copy, or "".
        """
        self._parts, self._network, self._source, self._graph, self._root = parts, parts.network, source, graph, root
        self._prefix = prefix
        self._memo: dict[int, Any] = {}  # deepcopy's memo: shared parts of the model stay shared in the copy
        self._never: dict[Node, Node] = {}  # copies of paddings that write -inf, and what each is a copy of
        self.made: dict[Node, Node] = {}

    def carry(self, node: Node) -> Node:
        """Write the node as in the model."""
        by_role = {Role.DROPOUT: self.dropout, Role.GATE: self.gate, Role.MAX_POOL: self.max_pool}
        return by_role.get(self._role(node), self._other(node))(node)

    def carry_linear(self, node: Node) -> Node:
        """Write the node as in a linear network: gates are open, and averages replace maxima."""
        by_role = {Role.DROPOUT: self.dropout, Role.GATE: self.follow, Role.MAX_POOL: self.average}
        new = by_role.get(self._role(node), self._other(node))(node)
        if self.writes(node) == -inf:
            self._never[new] = node
        return new

    def _role(self, node: Node) -> Role:
        """Return the role of a node; for one that only decides, the role that it would have on a path."""
        if node in self._network.gates and "shape" in node.meta:
            return Role.GATE if self._network.gating(node).pool is None else Role.MAX_POOL
        functional = node.op in ("call_function", "call_method") and bool(node.meta.get("data"))
        if functional and self._network.kind(node) is Kind.DROPOUT:
            return Role.DROPOUT
        return self._parts.roles[node]

    def _other(self, node: Node) -> Callable[[Node], Node]:
        functional = node.op == "call_function" and self._network.kind(node) is Kind.NORMALISATION
        return self.normalise if functional else self.copy

    def copy(self, node: Node) -> Node:
        """Write the same operation on the parameters of this branch."""
        if node.op == "call_module":
            self._graft(str(node.target), self._module(str(node.target)))
            new = self._graph.call_module(self._path(str(node.target)), self._args(node), self._kwargs(node))
        elif node.op == "get_attr":
            constant = node.meta.get("constant")
            held = attribute(self._source, str(node.target)) if constant is None else constant
            self._graft(str(node.target), copy.deepcopy(held, self._memo))
            new = self._graph.get_attr(self._path(str(node.target)))
        elif node.op == "call_method":
            new = self._graph.call_method(str(node.target), self._args(node), self._kwargs(node))
        else:
            assert callable(node.target)
            new = self._graph.call_function(node.target, self._args(node), self._kwargs(node))
        self.made[node] = new
        return new

    def gate(self, node: Node) -> Node:
        """Write a gate: ReLU and LeakyReLU as functions, any other unchanged."""
        gating = self._network.gating(node)
        slope = gating.slope
        if node.op == "call_module" or isinstance(slope, Node) or not gating.kind.is_relu:
            return self.copy(node)
        source = self.source(node)
        if slope:
            self.made[node] = self._graph.call_function(F.leaky_relu, (source, slope))
        else:
            self.made[node] = self._graph.call_function(torch.relu, (source,))
        return self.made[node]

    def dropout(self, node: Node) -> Node:
        """Write functional dropout as a module, which follows train() and eval(); a recorded constant would not."""
        call = self._network.call(node)
        operation, probability, training = call.operation, call["p"], call["training"]
        owner = self._network.modules.get(module_path(node), self._network.model)
        if training is False and owner.training:
            return self.follow(node)  # forward passes a literal False, not self.training
        if operation not in _DROPOUTS or training is not False or not isinstance(probability, float | int):
            raise UnsupportedModelError(
                f"{self._network.where(node)} drops units in every mode, or has no module form; use "
                "nn.Dropout, or training=self.training"
            )
        return self._new_module(node, _DROPOUTS[operation](float(probability)))

    def normalise(self, node: Node) -> Node:
        """Write functional batch-norm as a module with the same state, which follows train() and eval()."""
        names = ("running_mean", "running_var", "weight", "bias")
        call = self._network.call(node)
        paths = [str(call[name].target) for name in names if isinstance(call[name], Node)]
        owner = paths[0].rpartition(".")[0] if paths else ""
        if not owner or paths != [f"{owner}.{name}" for name in names]:
            return self.copy(node)  # its statistics belong to no module
        mean = attribute(self._source, paths[0])
        axes = {2: 1, 3: 1, 4: 2, 5: 3}[len(node.meta["shape"])]
        module = getattr(nn, f"BatchNorm{axes}d")(len(mean), call["eps"], call["momentum"])
        for name, path in zip(names, paths, strict=True):
            getattr(module, name).data.copy_(attribute(self._source, path))
        self._graft(owner, module.to(mean).eval())
        self.made[node] = self._graph.call_module(self._path(owner), (self.source(node),))
        return self.made[node]

    def max_pool(self, node: Node) -> Node:
        """Write a max-pooling; a function becomes a module, because F.max_pool2d cannot be pickled."""
        if node.op == "call_module" or self._network.gating(node).decoupled:
            return self.copy(node)
        pool = self._pool(node)
        if isinstance(pool, AdaptiveMaxPool):
            return self._new_module(node, getattr(nn, f"AdaptiveMaxPool{pool.axes}d")(pool.output))
        sizes = (pool.kernel, pool.stride, pool.padding, pool.dilation)
        return self._new_module(node, getattr(nn, f"MaxPool{pool.axes}d")(*sizes, ceil_mode=pool.ceil_mode))

    def average(self, node: Node) -> Node:
        """Write an average over the windows of a max-pooling: the linear map that replaces it.

        Where a padding writes -inf, so that it wins no maximum, the average counts zeros.
        """
        pool = self._pool(node)
        q = self.source(node)
        q = self.zero_padded(self._never[q]) if q in self._never else q
        if isinstance(pool, AdaptiveMaxPool):
            new = self._graph.call_function(getattr(F, f"adaptive_avg_pool{pool.axes}d"), (q, pool.output))
        elif set(pool.dilation) != {1}:
            raise UnsupportedModelError(
                f"{self._network.where(node)}: dilated max-pooling has no linear counterpart; use dilation 1"
            )
        else:
            options = (pool.kernel, pool.stride, pool.padding, pool.ceil_mode, False)
            new = self._graph.call_function(getattr(F, f"avg_pool{pool.axes}d"), (q, *options))
        self.made[node] = new
        return new

    def writes(self, node: Node) -> float:
        """Return the number that a constant padding writes; 0 for all other nodes."""
        return written(self._network.call(node))

    def zero_padded(self, node: Node) -> Node:
        """Return a new node that pads with zeros where this one pads with a constant."""
        width: Any = self._network.modules[str(node.target)].padding if node.op == "call_module" else None
        pads = torch.fx.map_arg(self._network.call(node)["pad"], self.made.__getitem__) if width is None else width
        return self._graph.call_function(F.pad, (self.source(node), pads))

    def _pool(self, node: Node) -> MaxPool | AdaptiveMaxPool:
        pool = self._network.gating(node).pool
        assert pool is not None
        return pool

    def follow(self, node: Node) -> Node:
        """Leave the node out: its readers get its input."""
        self.made[node] = self.source(node)
        return self.made[node]

    def source(self, node: Node) -> Node:
        """Return this branch's copy of what passes through the node: its first input, or a gate's value."""
        gating = node.meta.get("gating")
        return self.made[node.all_input_nodes[0] if gating is None else gating.value]

    def decides(self, node: Node) -> Node:
        """Return this branch's copy of what decides a gate."""
        return self.made[self._network.gating(node).q]

    def _new_module(self, node: Node, module: nn.Module) -> Node:
        """Write a module in place of a function call, under an unused path."""
        path = ".".join(filter(None, (module_path(node), node.name)))
        while path in self._network.modules or _has(self._network.model, path):
            path += "_"
        self._graft(path, module)
        self.made[node] = self._graph.call_module(self._path(path), (self.source(node),))
        return self.made[node]

    def _args(self, node: Node) -> tuple[Any, ...]:
        return torch.fx.map_arg(node.args, self.made.__getitem__)

    def _kwargs(self, node: Node) -> dict[str, Any]:
        return torch.fx.map_arg(node.kwargs, self.made.__getitem__)

    def _path(self, path: str) -> str:
        return f"{self._prefix}.{path}" if self._prefix else path

    def _graft(self, path: str, part: Any) -> None:
        graft(self._root, self._path(path), part)

    def _module(self, path: str) -> nn.Module:
        module: Any = copy.deepcopy(self._source.get_submodule(path), self._memo)
        if getattr(module, "inplace", False):
            module.inplace = False
        return module


def _has(model: nn.Module, path: str) -> bool:
    owner, _, name = path.rpartition(".")
    try:
        return hasattr(model.get_submodule(owner), name)
    except AttributeError:
        return False
