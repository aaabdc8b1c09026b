"""A network of gates and affine maps, run in float64 under gates that the caller chooses.

With its gates given a network is affine, so that running it on the corners of a simplex tells it everywhere. All of
``regions`` rests on this: nothing here knows layers, only operations that are gates and operations that are affine.
"""

import copy
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.fx import Node, map_arg

from gatelab.errors import InputError, UnsupportedModelError
from gatelab.gates import GateKind, GateLayer, GatePattern, HardGate, LeakyGate, SoftGate, StraightThroughGate
from gatelab.gates.bits import pack
from gatelab.gates.events import POOLING_MODULES
from gatelab.gates.operations import DROPPING
from gatelab.graph import (
    ancestors,
    data_nodes,
    describe,
    gate_names,
    is_linear_module,
    is_linear_operation,
    node_operation,
    trace,
    value_sources,
    weight_parameters,
)
from gatelab.observe import observable

_KNOWN_GATES = (HardGate, SoftGate, StraightThroughGate, LeakyGate)


class Replay:
    """A snapshot of a model, in float64, whose gates are given from outside.

    Soft gates count as open or closed at q > 0, as everywhere where regions are concerned.

    Attributes:
        gates: the names of the gates that the output depends on, those that decide over other gates included, in the
            order in which an example meets them.
        path_gates: those of them that paths pass, as in a GatePattern; the others only decide over gates.
        device: the model's.
        dtype: the model's own, in which half-spaces are returned.
        modules: the snapshot's, by path.
    """

    def __init__(self, model: nn.Module):
        """Take the snapshot.

        Raises:
            UnsupportedModelError: the model has no fixed graph, several inputs or outputs, or pools by maximum.
        """
        model = observable(model)
        self._graph = trace(model)
        parameter = next((p for p in model.parameters() if p.is_floating_point()), torch.zeros(()))
        self.device, self.dtype = parameter.device, parameter.dtype
        try:
            self.model = copy.deepcopy(model).double().requires_grad_(False)
        except Exception as error:  # a user's module may hold anything
            raise UnsupportedModelError(f"{type(model).__name__} cannot be copied: {error}") from error
        self.modules = dict(self.model.named_modules(remove_duplicate=False))
        (output,) = (node for node in self._graph.nodes if node.op == "output")
        if not isinstance(output.args[0], Node):
            raise UnsupportedModelError("the model must return one tensor, no tuple or dict")
        self._output: Node = output.args[0]
        needed = ancestors(self._output)
        if sum(node.op == "placeholder" for node in needed) != 1:
            raise UnsupportedModelError("the model's output must depend on one input, x")
        names = gate_names(self._graph, self.modules)
        self._gates = {name: node for node, name in names.items() if node in needed}
        self._data = data_nodes(self._graph.nodes)
        self.gates = tuple(self._gates)
        passed = ancestors(self._output, sources=value_sources)
        self.path_gates = tuple(name for name, node in self._gates.items() if node in passed)
        for node in self._gates.values():
            self._refuse_pooling(node)

    def gate_node(self, name: str) -> Node:
        """The gate in the graph."""
        return self._gates[name]

    def kind(self, name: str) -> GateKind:
        """What the gate is."""
        operation = self._operation(self._gates[name])
        if operation == "gated":
            return GateKind.GATED
        return GateKind.LEAKY_RELU if self.slope(name) else GateKind.RELU

    def slope(self, name: str) -> float:
        """What the gate lets through when it is closed."""
        node = self._gates[name]
        operation = self._operation(node)
        if operation == "gated":
            gate: Any = node.args[2] if len(node.args) > 2 else node.kwargs["gate"]
            if not isinstance(gate, Node) or gate.target not in _KNOWN_GATES:
                raise UnsupportedModelError(
                    f"{self.describe(node)}: only HardGate, SoftGate, StraightThroughGate and LeakyGate are known to "
                    "be open exactly when q > 0"
                )
            return float(gate.kwargs["slope"]) if gate.target is LeakyGate else 0.0  # pyright: ignore
        if operation != "leaky_relu":
            return 0.0
        if node.op == "call_module":
            return float(self.modules[str(node.target)].negative_slope)  # pyright: ignore
        slope: Any = node.args[1] if len(node.args) > 1 else node.kwargs.get("negative_slope", 0.01)
        return float(slope)

    def describe(self, node: Node) -> str:
        """What a node is and where it stands."""
        return describe(node, self.modules)

    def deciding_gates(self, name: str) -> list[str]:
        """The gates on which the pre-activation of gate ``name`` depends."""
        before = ancestors(self._q(name))
        return [other for other, node in self._gates.items() if node in before]

    def affine_nodes(self, name: str) -> list[Node]:
        """The nodes that hold data on the way from the input to a gate's pre-activation, in order."""
        return [node for node in self._before(self._q(name)) if node in self._data]

    def input_shape(self, shape: tuple[int, ...] | None) -> tuple[int, ...]:
        """The shape of one example: as given, or that of a first dense layer."""
        if shape is not None:
            return tuple(shape)
        for node in self._graph.nodes:
            names = weight_parameters(node, self.modules) if node in self._data else None
            if names is not None:
                weight = self.model.get_parameter(names[0])
                if weight.ndim == 2:
                    return (weight.shape[1],)
                raise InputError(
                    f"{self.describe(node)} is a convolution, whose half-spaces depend on the image's size; give the "
                    "shape of one example, e.g. shape=(3, 32, 32)"
                )
        raise InputError("the model has no weight layer from which to tell the input's shape; give shape=")

    def check_affine(self, target: str | None = None) -> None:
        """Refuse operations that are neither gates nor affine on the way to a gate, or to the output if None."""
        end = self._output if target is None else self._q(target)
        gates = set(self._gates.values())
        for node in self._before(end):
            if node not in self._data or node in gates or node.op == "placeholder":
                continue
            weighted = weight_parameters(node, self.modules) is not None
            dropping = node_operation(node) in DROPPING  # in evaluation mode, or trace would have refused it
            if weighted or dropping or is_linear_module(node, self.modules) or is_linear_operation(node, self._data):
                continue
            raise UnsupportedModelError(
                f"{self.describe(node)} is neither a gate nor affine, so that the network is not affine where its "
                "gates are constant; return what stands before it"
            )

    def pre_activation(self, name: str, x: Float[Tensor, "n ..."], factors: Mapping[str, Tensor]) -> Tensor:
        """The q of gate ``name`` for each row of x, earlier gates multiplying by ``factors`` (n, *shape)."""
        return self._run([self._q(name)], x, factors)[0]

    def pre_activations(self, names: Iterable[str], x: Float[Tensor, "n ..."]) -> list[Tensor]:
        """The q of gates that depend on no other gate, in one run."""
        return self._run([self._q(name) for name in names], x, {})

    def output(self, x: Float[Tensor, "n ..."], factors: Mapping[str, Tensor]) -> Float[Tensor, "n ..."]:
        """The output for each row of x under the given gates."""
        return self._run([self._output], x, factors)[0]

    def everything(self, x: Float[Tensor, "n ..."], factors: Mapping[str, Tensor]) -> list[Tensor]:
        """Every gate's q in order, and the output, under the given gates."""
        return self._run([*map(self._q, self.gates), self._output], x, factors)

    def factor(self, name: str, opened: Tensor) -> Tensor:
        """What the gate multiplies by: 1 where it is open, its slope elsewhere."""
        slope, gates = self.slope(name), opened.double()
        return gates + slope * (1 - gates) if slope else gates

    def pattern(self, opened: Mapping[str, Bool[Tensor, "n ..."]]) -> GatePattern:
        """Gates that are open or closed as given, as a pattern with this model's kinds and slopes."""
        layers = {
            name: GateLayer(self.kind(name), tuple(gates.shape[1:]), pack(gates.flatten(1)), self.slope(name))
            for name, gates in opened.items()
        }
        return GatePattern(layers, self.dtype)

    def _run(self, targets: list[Node], x: Tensor, factors: Mapping[str, Tensor]) -> list[Tensor]:
        names = {node: name for name, node in self._gates.items()}
        values: dict[Node, Any] = {}
        order = self._before(*targets)
        last_reader = {source: node for node in order for source in node.all_input_nodes}
        for node in order:
            filled: Any = map_arg((node.args, node.kwargs), lambda source: values[source])
            args, kwargs = filled
            if node in names:
                values[node] = (args[0] if args else kwargs["value"]) * factors[names[node]]
            elif node.op == "placeholder":
                values[node] = x.clone()  # the model may write into its input
            elif node.op == "get_attr":
                values[node] = self._held(node)
            elif node.op == "call_module":
                values[node] = self.modules[str(node.target)](*args, **kwargs)
            elif node.op == "call_method":
                values[node] = getattr(args[0], str(node.target))(*args[1:], **kwargs)
            else:
                values[node] = node.target(*args, **kwargs)  # pyright: ignore
            for source in node.all_input_nodes:
                if last_reader[source] is node and source not in targets:
                    del values[source]
        return [values[target] for target in targets]

    def _held(self, node: Node) -> Any:
        constant = node.meta.get("constant")
        if constant is None:
            owner, _, name = str(node.target).rpartition(".")
            return getattr(self.model.get_submodule(owner), name)
        return constant.double() if constant.is_floating_point() else constant

    def _before(self, *targets: Node) -> list[Node]:
        """The nodes that the targets depend on, and these, in order."""
        needed = ancestors(*targets)
        return [node for node in self._graph.nodes if node in needed]

    def _q(self, name: str) -> Node:
        node = self._gates[name]
        q: Any = node.args[0]
        if self._operation(node) == "gated":
            q = node.args[1] if len(node.args) > 1 else node.kwargs["q"]
        return q

    def _operation(self, node: Node) -> str:
        if node.op != "call_module":
            return node_operation(node) or ""
        return "leaky_relu" if isinstance(self.modules[str(node.target)], nn.LeakyReLU) else "relu"

    def _refuse_pooling(self, node: Node) -> None:
        module = self.modules.get(str(node.target)) if node.op == "call_module" else None
        if isinstance(module, POOLING_MODULES) or "max_pool" in (node_operation(node) or ""):
            raise UnsupportedModelError(
                f"{self.describe(node)}: the winner of a max-pooling is decided by comparisons within a window, not by "
                "one half-space; use average pooling"
            )
