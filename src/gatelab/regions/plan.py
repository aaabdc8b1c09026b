"""The structure of a network of gates and affine maps: its graph, its gates, and what each gate depends on.

With its gates fixed such a network is affine, so its values on the corners of a simplex determine it everywhere. All
of ``regions`` rests on that. Nothing here knows about layers, only about operations that are gates or affine.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.fx import Graph, Node, map_arg

from gatelab.errors import InputError, UnsupportedModelError
from gatelab.gates import GatePattern, HardGate, LeakyGate, SoftGate, StraightThroughGate, capture_gates
from gatelab.gates.bits import pack
from gatelab.gates.events import POOLING_MODULES
from gatelab.gates.operations import DROPPING
from gatelab.gates.pattern import GateKind, GateLayer
from gatelab.network.linear import data_nodes, is_linear_module, is_linear_operation
from gatelab.network.nodes import ancestors, describe, is_bounded, node_operation, weight_parameters
from gatelab.network.tracing import gate_names, trace, value_chain, value_sources
from gatelab.observe import examples, observable
from gatelab.regions.interpreter import Interpreter, argument, modules_of

_KNOWN_GATES = (HardGate, SoftGate, StraightThroughGate, LeakyGate)
# Attributes of these types are settings. Tensors are weights; sub-modules are compared on their own.
_SETTINGS = (bool, int, float, str, type(None), *_KNOWN_GATES)


class RegionPlan:
    """The structure of a model, traced once, for looking at the model again and again while it trains.

    A plan serves every model of the same structure: the same modules with the same settings, whatever their weights. It
    saves the trace, and the bookkeeping by which :func:`gatelab.capture_gates` finds the structure.

    Attributes:
        gates: names of the gates that the output depends on, in the order in which an example meets them. Gates that
            only decide other gates are included.
        path_gates: the gates that paths pass, as in a GatePattern.
        output: the node of the output.
        modules: the traced model's modules by path.
        data: the nodes that hold data.
        interpreter: runs the graph.

    Example:
        >>> net = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))
        >>> plan = RegionPlan(net)
        >>> gates, output = plan.capture(net, torch.ones(5, 2))
        >>> gates.layers, tuple(output.shape)
        (('1',), (5, 1))
    """

    def __init__(self, model: nn.Module):
        """Trace the model.

        Raises:
            UnsupportedModelError: the model has no fixed graph, several inputs or outputs, or max-pooling.
        """
        model = observable(model)
        graph, self.modules, self._structure = trace(model), modules_of(model), dict(_structure(model))
        (end,) = (node for node in graph.nodes if node.op == "output")
        if not isinstance(end.args[0], Node):
            raise UnsupportedModelError("the model must return one tensor, not a tuple or dict")
        self.output: Node = end.args[0]
        needed = ancestors(self.output)
        if sum(node.op == "placeholder" for node in needed) != 1:
            raise UnsupportedModelError("the model's output must depend on exactly one input, x")
        names = gate_names(graph, self.modules)
        self._gates = {name: node for node, name in names.items() if node in needed}
        for node in self._gates.values():
            self._refuse_two_bounds_or_windows(node)
        self.interpreter = Interpreter(graph, {node: (name, self.q(name)) for name, node in self._gates.items()})
        self.data = data_nodes(graph.nodes)
        self._proven = False
        self._is_chain = _is_chain(graph, self.modules)
        self.gates = tuple(self._gates)
        passed = ancestors(self.output, sources=value_sources)
        self.path_gates = tuple(name for name, node in self._gates.items() if node in passed)

    def check(self, model: nn.Module) -> nn.Module:
        """Return the plain module behind ``model``; refuse a model of another structure."""
        model = observable(model)
        other = dict(_structure(model))
        if other != self._structure:
            paths = (path for path in [*other, *self._structure] if other.get(path) != self._structure.get(path))
            raise InputError(
                f"the plan was made for another model: module '{next(paths)}' differs; make a new RegionPlan(model)"
            )
        return model

    def capture(self, model: nn.Module, x: Float[Tensor, "n ..."]) -> tuple[GatePattern, Tensor]:
        """Return ``capture_gates(model, x)`` and ``model(x)`` for a model of the same structure, from one run.

        Args:
            model: the model; its structure must be that of the plan.
            x: the examples.

        Raises:
            InputError: the model has another structure, or x is not usable.
            UnsupportedModelError: at the first call only, the plan's gates are not those that ``capture_gates`` finds.
        """
        model = self.check(model)
        x = examples(x, model)
        opened: dict[str, Tensor] = {}

        def record(name: str, q: Tensor) -> None:
            opened[name] = q > 0

        with torch.no_grad():
            (output,) = self.interpreter.run(model, [self.output], x, record)
        pattern = self.pattern({name: opened[name] for name in self.path_gates}, x.dtype)
        if not self._proven:  # capture knows more reasons to refuse a model; all of them are in its structure
            self.check_affine()
            if capture_gates(model, x) != pattern:
                raise UnsupportedModelError(
                    f"the traced graph of {type(model).__name__} has other gates than the running model; "
                    "use capture_gates(model, x) without a plan"
                )
            self._proven = True
        return pattern, output

    def pattern(self, opened: Mapping[str, Bool[Tensor, "n ..."]], dtype: torch.dtype) -> GatePattern:
        """Return a pattern with these gates open, and with this model's kinds of gates and slopes."""
        layers = {
            name: GateLayer(self.kind(name), tuple(gates.shape[1:]), pack(gates.flatten(1)), self.slope(name))
            for name, gates in opened.items()
        }
        return GatePattern(layers, dtype, is_chain=self._is_chain)

    def kind(self, name: str) -> GateKind:
        """Return the kind of a gate."""
        if node_operation(self._gates[name]) == "gated":
            return GateKind.GATED
        return GateKind.LEAKY_RELU if self.slope(name) else GateKind.RELU

    def slope(self, name: str) -> float:
        """Return what the gate multiplies by when it is closed."""
        node = self._gates[name]
        if node.op == "call_module":
            slope: Any = getattr(self.modules[str(node.target)], "negative_slope", 0.0)
            return float(slope)
        if node_operation(node) == "leaky_relu":
            return float(argument(node, 1, "negative_slope", 0.01))
        if node_operation(node) != "gated":
            return 0.0
        gate = argument(node, 2, "gate")
        if not isinstance(gate, Node) or gate.target not in _KNOWN_GATES:
            raise UnsupportedModelError(
                f"{describe(node, self.modules)}: the gate function is unknown; use HardGate, SoftGate, "
                "StraightThroughGate or LeakyGate, which are open exactly where q > 0"
            )
        slope = gate.kwargs["slope"] if gate.target is LeakyGate else 0.0
        return float(slope)

    def q(self, name: str) -> Node:
        """Return the node of a gate's pre-activation."""
        node = self._gates[name]
        return argument(node, 1, "q") if node_operation(node) == "gated" else argument(node, 0, "input")

    def is_gate(self, node: Node) -> bool:
        """Whether a node is one of the gates."""
        return node in self.interpreter.gates

    def deciding_gates(self, name: str) -> list[str]:
        """Return the gates that the pre-activation of gate ``name`` depends on."""
        before = ancestors(self.q(name))
        return [other for other, node in self._gates.items() if node in before]

    def affine_nodes(self, name: str) -> list[Node]:
        """Return the nodes that hold data between the input and a gate's pre-activation, both included, in order."""
        return [node for node in self.interpreter.nodes_before(self.q(name)) if node in self.data]

    def check_affine(self, gate: str | None = None) -> None:
        """Refuse operations before a gate (None: before the output) that are neither gates nor affine."""
        for node in self.interpreter.nodes_before(self.output if gate is None else self.q(gate)):
            if node not in self.data or self.is_gate(node) or node.op == "placeholder":
                continue
            weighted = weight_parameters(node, self.modules) is not None
            dropping = node_operation(node) in DROPPING  # in evaluation mode, or trace would have refused it
            if weighted or dropping or is_linear_module(node, self.modules) or is_linear_operation(node, self.data):
                continue
            raise UnsupportedModelError(
                f"{describe(node, self.modules)} is neither a gate nor affine, so the network is not affine where its "
                "gates are constant; return the tensor before it"
            )

    def _refuse_two_bounds_or_windows(self, node: Node) -> None:
        module = self.modules.get(str(node.target)) if node.op == "call_module" else None
        if isinstance(module, POOLING_MODULES) or "max_pool" in (node_operation(node) or ""):
            raise UnsupportedModelError(
                f"{describe(node, self.modules)}: comparisons within a window decide the winner of a max-pooling, not "
                "one half-space; use average pooling"
            )
        if is_bounded(node, self.modules):
            raise UnsupportedModelError(
                f"{describe(node, self.modules)} has two bounds, which are two half-spaces for each unit; use ReLU"
            )


def _is_chain(graph: Graph, modules: Mapping[str, nn.Module]) -> bool:
    """Whether every path passes every layer, so that the gates alone tell which paths are open."""
    try:
        nodes = value_chain(graph, modules)
    except UnsupportedModelError:  # signals branch and meet again
        return False
    gates, just_gated = gate_names(graph, modules), False
    for node in nodes:
        met: list[Node] = []
        map_arg((node.args, node.kwargs), met.append)
        added_to_itself = any(met.count(source) > 1 for source in value_sources(node))
        if added_to_itself or (node in gates and just_gated):
            return False
        just_gated = (just_gated or node in gates) and weight_parameters(node, modules) is None
    return True


def _structure(model: nn.Module) -> Iterator[tuple[str, Any]]:
    """Yield the path of every module with its type, its settings, and the shapes of its own parameters."""
    for path, module in model.named_modules(remove_duplicate=False):
        settings = {name: value for name, value in vars(module).items() if _is_setting(value)}
        shapes = {name: None if own is None else own.shape for name, own in module._parameters.items()}
        yield path, (type(module), settings, shapes)


def _is_setting(value: object) -> bool:
    return all(map(_is_setting, value)) if isinstance(value, tuple) else isinstance(value, _SETTINGS)
