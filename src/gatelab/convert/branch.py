"""Copy a model into a new graph, node by node."""

import copy
from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.fx import Graph, Node
from torch.nn.modules.dropout import _DropoutNd

from gatelab.convert.match import Parts, Role
from gatelab.convert.twin import graft
from gatelab.errors import UnsupportedModelError
from gatelab.gates.pooling import AdaptiveMaxPool
from gatelab.network.evaluation import attribute
from gatelab.network.nodes import describe, max_pooling, module_path, node_operation

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
            parts: the model taken apart.
            source: the network whose parameters and buffers to copy: the model, or one of the same architecture.
            graph: the graph to write into.
            root: the module that will hold the copies of sub-modules.
            prefix: the name of the copy, or "".
        """
        self._parts, self._source, self._graph, self._root = parts, source, graph, root
        self._prefix = prefix
        self._memo: dict[int, Any] = {}  # of deepcopy: parts that the model shares stay shared in the copy
        self.made: dict[Node, Node] = {}

    def carry(self, node: Node) -> Node:
        """Write the node as in the model."""
        role = self._parts.roles[node]
        by_role = {Role.DROPOUT: self.dropout, Role.GATE: self.gate, Role.MAX_POOL: self.max_pool}
        other = self.normalise if node_operation(node) == "batch_norm" else self.copy
        return by_role.get(role, other)(node)

    def carry_linear(self, node: Node) -> Node:
        """Write the node as in a linear network: gates are open, and averages replace maxima."""
        role = self._parts.roles[node]
        by_role = {Role.DROPOUT: self.dropout, Role.GATE: self.follow, Role.MAX_POOL: self.average}
        other = self.normalise if node_operation(node) == "batch_norm" else self.copy
        return by_role.get(role, other)(node)

    def copy(self, node: Node) -> Node:
        """Write the same operation, out of place, on the parameters of this branch."""
        if node.op == "call_module":
            self._graft(str(node.target), self._module(str(node.target)))
            new = self._graph.call_module(self._path(str(node.target)), self._args(node), self._kwargs(node))
        elif node.op == "get_attr":
            constant = node.meta.get("constant")
            held = attribute(self._source, str(node.target)) if constant is None else constant
            self._graft(str(node.target), copy.deepcopy(held, self._memo))
            new = self._graph.get_attr(self._path(str(node.target)))
        elif node.op == "call_method":
            new = self._graph.call_method(_out_of_place(str(node.target)), self._args(node), self._kwargs(node))
        else:
            new = self._graph.call_function(self._function(node), self._args(node), self._kwargs(node))
        self.made[node] = new
        return new

    def gate(self, node: Node) -> Node:
        """Write a gate: a module as it is, a function out of place."""
        if node.op == "call_module":
            return self.copy(node)
        slope, source = self.slope(node), self.source(node)
        if slope:
            self.made[node] = self._graph.call_function(F.leaky_relu, (source, slope))
        else:
            self.made[node] = self._graph.call_function(torch.relu, (source,))
        return self.made[node]

    def dropout(self, node: Node) -> Node:
        """Write functional dropout as a module, which follows train() and eval(); a traced constant would not."""
        operation = node_operation(node) or "dropout"
        probability = node.args[1] if len(node.args) > 1 else node.kwargs.get("p", 0.5)
        training = node.args[2] if len(node.args) > 2 else node.kwargs.get("training", True)
        owner = self._parts.modules.get(module_path(node), self._parts.model)
        if training is False and owner.training:
            return self.follow(node)  # forward passes a literal False, not self.training
        if operation not in _DROPOUTS or training is not False or not isinstance(probability, float | int):
            raise UnsupportedModelError(
                f"{describe(node, self._parts.modules)} drops units in every mode, or has no module form; use "
                "nn.Dropout, or training=self.training"
            )
        return self._new_module(node, _DROPOUTS[operation](float(probability)))

    def normalise(self, node: Node) -> Node:
        """Write functional batch-norm as a module of the same state, which follows train() and eval()."""
        names = ("running_mean", "running_var", "weight", "bias")
        given: dict[str, Any] = dict(zip(names, node.args[1:], strict=False)) | dict(node.kwargs)
        paths = [str(given[name].target) for name in names if isinstance(given.get(name), Node)]
        owner = paths[0].rpartition(".")[0] if paths else ""
        if not owner or paths != [f"{owner}.{name}" for name in names]:
            return self.copy(node)  # its statistics are not a module's own
        options: dict[str, Any] = dict(zip(("training", "momentum", "eps"), node.args[5:], strict=False)) | given
        mean = attribute(self._source, paths[0])
        axes = {2: 1, 3: 1, 4: 2, 5: 3}[len(node.meta["shape"])]
        module = getattr(nn, f"BatchNorm{axes}d")(len(mean), options.get("eps", 1e-5), options.get("momentum", 0.1))
        for name, path in zip(names, paths, strict=True):
            getattr(module, name).data.copy_(attribute(self._source, path))
        self._graft(owner, module.to(mean).eval())
        self.made[node] = self._graph.call_module(self._path(owner), (self.source(node),))
        return self.made[node]

    def max_pool(self, node: Node) -> Node:
        """Write a max-pooling; a function becomes a module, because F.max_pool2d cannot be pickled."""
        if node.op == "call_module":
            return self.copy(node)
        pool = max_pooling(node, self._parts.modules)
        if isinstance(pool, AdaptiveMaxPool):
            return self._new_module(node, getattr(nn, f"AdaptiveMaxPool{pool.axes}d")(pool.output))
        sizes = (pool.kernel, pool.stride, pool.padding, pool.dilation)
        return self._new_module(node, getattr(nn, f"MaxPool{pool.axes}d")(*sizes, ceil_mode=pool.ceil_mode))

    def average(self, node: Node) -> Node:
        """Write an average over the windows of a max-pooling: the linear map that replaces it."""
        pool = max_pooling(node, self._parts.modules)
        q = self.source(node)
        if isinstance(pool, AdaptiveMaxPool):
            new = self._graph.call_function(getattr(F, f"adaptive_avg_pool{pool.axes}d"), (q, pool.output))
        elif set(pool.dilation) != {1}:
            raise UnsupportedModelError(
                f"{describe(node, self._parts.modules)}: dilated max-pooling has no linear counterpart; use dilation 1"
            )
        else:
            options = (pool.kernel, pool.stride, pool.padding, pool.ceil_mode, False)
            new = self._graph.call_function(getattr(F, f"avg_pool{pool.axes}d"), (q, *options))
        self.made[node] = new
        return new

    def follow(self, node: Node) -> Node:
        """Leave the node out: its readers read its input."""
        self.made[node] = self.source(node)
        return self.made[node]

    def source(self, node: Node) -> Node:
        """Return this branch's copy of the node's first input."""
        return self.made[node.all_input_nodes[0]]

    def slope(self, node: Node) -> float:
        """Return the share that a closed gate passes."""
        if node.op == "call_module":
            return float(getattr(self._parts.modules[str(node.target)], "negative_slope", 0.0))
        if node_operation(node) != "leaky_relu":
            return 0.0
        slope: Any = node.args[1] if len(node.args) > 1 else node.kwargs.get("negative_slope", 0.01)
        return float(slope)

    def _new_module(self, node: Node, module: nn.Module) -> Node:
        """Write a module in place of a function call, under an unused path."""
        path = ".".join(filter(None, (module_path(node), node.name)))
        while path in self._parts.modules or _has(self._parts.model, path):
            path += "_"
        self._graft(path, module)
        self.made[node] = self._graph.call_module(self._path(path), (self.source(node),))
        return self.made[node]

    def _args(self, node: Node) -> tuple[Any, ...]:
        return torch.fx.map_arg(node.args, self.made.__getitem__)

    def _kwargs(self, node: Node) -> dict[str, Any]:
        kwargs: Any = torch.fx.map_arg(node.kwargs, self.made.__getitem__)
        return {name: value for name, value in kwargs.items() if name != "inplace"}

    def _path(self, path: str) -> str:
        return f"{self._prefix}.{path}" if self._prefix else path

    def _graft(self, path: str, part: Any) -> None:
        graft(self._root, self._path(path), part)

    def _module(self, path: str) -> nn.Module:
        module: Any = copy.deepcopy(self._source.get_submodule(path), self._memo)
        if getattr(module, "inplace", False):
            module.inplace = False
        return module

    @staticmethod
    def _function(node: Node) -> Any:
        name = getattr(node.target, "__name__", "")
        if not name.endswith("_") or name.endswith("__") or getattr(node.target, "__module__", "") == "_operator":
            return node.target
        return getattr(torch, name[:-1], None) or getattr(F, name[:-1])


def _has(model: nn.Module, path: str) -> bool:
    owner, _, name = path.rpartition(".")
    try:
        return hasattr(model.get_submodule(owner), name)
    except AttributeError:
        return False


def _out_of_place(method: str) -> str:
    return method[:-1] if method.endswith("_") and not method.endswith("__") else method
