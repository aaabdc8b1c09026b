"""What a network of gates and affine maps is made of, found once: its graph, its gates, and how to run it.

With its gates given a network is affine, so that running it on the corners of a simplex tells it everywhere. All of
``regions`` rests on this: nothing here knows layers, only operations that are gates and operations that are affine.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.fx import Node, map_arg

from gatelab.errors import InputError, UnsupportedModelError
from gatelab.gates import GateKind, GatePattern, HardGate, LeakyGate, SoftGate, StraightThroughGate, capture_gates
from gatelab.gates.bits import pack
from gatelab.gates.events import POOLING_MODULES
from gatelab.gates.operations import DROPPING
from gatelab.gates.pattern import GateLayer
from gatelab.network import gate_names, trace
from gatelab.network.linear import data_nodes, is_linear_module, is_linear_operation
from gatelab.network.nodes import ancestors, describe, node_operation, weight_parameters
from gatelab.network.tracing import value_sources
from gatelab.observe import examples, observable, refuse_unless_finite

_KNOWN_GATES = (HardGate, SoftGate, StraightThroughGate, LeakyGate)
# Attributes that decide what a module does; tensors and sub-modules are weights, or modules of their own.
_PLAIN = (bool, int, float, str, type(None), *_KNOWN_GATES)


class Plan:
    """The structure of a model, traced once, to look at it again and again while its weights change.

    What holds for one model holds for all of the same make: the same modules with the same settings, whatever their
    weights. Looking through a plan saves the trace, and the bookkeeping by which :func:`gatelab.capture_gates` finds
    out about structure.

    Attributes:
        gates: the names of the gates that the output depends on, those that decide over other gates included, in the
            order in which an example meets them.
        path_gates: those of them that paths pass, as in a GatePattern; the others only decide over gates.

    Example:
        >>> net = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))
        >>> plan = Plan(net)
        >>> gates, output = plan.capture(net, torch.ones(5, 2))
        >>> gates.layers, tuple(output.shape)
        (('1',), (5, 1))
    """

    def __init__(self, model: nn.Module):
        """Trace the model.

        Raises:
            UnsupportedModelError: the model has no fixed graph, several inputs or outputs, or pools by maximum.
        """
        model = observable(model)
        self._graph, self._make = trace(model), dict(_make(model))
        self._modules = modules_of(model)
        (output,) = (node for node in self._graph.nodes if node.op == "output")
        if not isinstance(output.args[0], Node):
            raise UnsupportedModelError("the model must return one tensor, no tuple or dict")
        self.output: Node = output.args[0]
        needed = ancestors(self.output)
        if sum(node.op == "placeholder" for node in needed) != 1:
            raise UnsupportedModelError("the model's output must depend on one input, x")
        names = gate_names(self._graph, self._modules)
        self._gates = {name: node for node, name in names.items() if node in needed}
        self._names = {node: name for name, node in self._gates.items()}
        self._data = data_nodes(self._graph.nodes)
        self._orders: dict[tuple[Node, ...], _Order] = {}
        self._proven = False
        self.gates = tuple(self._gates)
        passed = ancestors(self.output, sources=value_sources)
        self.path_gates = tuple(name for name, node in self._gates.items() if node in passed)
        for node in self._gates.values():
            self._refuse_pooling(node)

    def check(self, model: nn.Module) -> nn.Module:
        """The plain module behind ``model``, or a refusal of one of another make."""
        model = observable(model)
        make = dict(_make(model))
        if make != self._make:
            other = next(path for path in [*make, *self._make] if make.get(path) != self._make.get(path))
            raise InputError(f"the plan was made for another model: module '{other}' differs; make a new Plan(model)")
        return model

    def capture(self, model: nn.Module, x: Float[Tensor, "n ..."]) -> tuple[GatePattern, Tensor]:
        """What ``capture_gates(model, x)`` and ``model(x)`` give, of a model of the same make, by one run of its graph.

        The first time it is compared with what capture finds, which knows more reasons to refuse a model.
        """
        model = self.check(model)
        x = examples(x, model)
        opened: dict[str, Tensor] = {}
        with torch.no_grad():
            (output,) = self.run(model, modules_of(model), [self.output], x, opened=opened)
        pattern = self.pattern({name: opened[name] for name in self.path_gates}, x.dtype)
        if not self._proven:
            self.check_affine()
            if capture_gates(model, x) != pattern:
                raise UnsupportedModelError(f"the graph of {type(model).__name__} does not tell its gates")
            self._proven = True
        return pattern, output

    def pattern(self, opened: Mapping[str, Bool[Tensor, "n ..."]], dtype: torch.dtype) -> GatePattern:
        """Gates that are open or closed as given, as a pattern with this model's kinds and slopes."""
        layers = {
            name: GateLayer(self.kind(name), tuple(gates.shape[1:]), pack(gates.flatten(1)), self.slope(name))
            for name, gates in opened.items()
        }
        return GatePattern(layers, dtype)

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
            return float(self._modules[str(node.target)].negative_slope)  # pyright: ignore
        slope: Any = node.args[1] if len(node.args) > 1 else node.kwargs.get("negative_slope", 0.01)
        return float(slope)

    def describe(self, node: Node) -> str:
        """What a node is and where it stands."""
        return describe(node, self._modules)

    def deciding_gates(self, name: str) -> list[str]:
        """The gates on which the pre-activation of gate ``name`` depends."""
        before = ancestors(self.q(name))
        return [other for other, node in self._gates.items() if node in before]

    def q(self, name: str) -> Node:
        """The node of a gate's pre-activation."""
        node = self._gates[name]
        q: Any = node.args[0]
        if self._operation(node) == "gated":
            q = node.args[1] if len(node.args) > 1 else node.kwargs["q"]
        return q

    def path_nodes(self) -> list[Node]:
        """The nodes through which paths lead from the input to the output, both included, in order."""
        passed, found = ancestors(self.output, sources=value_sources), set[Node]()
        for node in self._order([self.output]).nodes:
            if node.op == "placeholder" or (node in passed and any(source in found for source in value_sources(node))):
                found.add(node)
        return [node for node in self._order([self.output]).nodes if node in found]

    def is_gate(self, node: Node) -> bool:
        """Whether a node is one of the gates."""
        return node in self._names

    def affine_nodes(self, name: str) -> list[Node]:
        """The nodes that hold data on the way from the input to a gate's pre-activation, in order."""
        return [node for node in self._order([self.q(name)]).nodes if node in self._data]

    def input_shape(self, model: nn.Module, shape: tuple[int, ...] | None) -> tuple[int, ...]:
        """The shape of one example: as given, or that of a first dense layer."""
        if shape is not None:
            return tuple(shape)
        for node in self._graph.nodes:
            names = weight_parameters(node, self._modules) if node in self._data else None
            if names is not None:
                weight = model.get_parameter(names[0])
                if weight.ndim == 2:
                    return (weight.shape[1],)
                raise InputError(
                    f"{self.describe(node)} is a convolution, whose half-spaces depend on the image's size; give the "
                    "shape of one example, e.g. shape=(3, 32, 32)"
                )
        raise InputError("the model has no weight layer from which to tell the input's shape; give shape=")

    def check_affine(self, target: str | None = None) -> None:
        """Refuse operations that are neither gates nor affine on the way to a gate, or to the output if None."""
        end = self.output if target is None else self.q(target)
        gates = set(self._gates.values())
        for node in self._order([end]).nodes:
            if node not in self._data or node in gates or node.op == "placeholder":
                continue
            weighted = weight_parameters(node, self._modules) is not None
            dropping = node_operation(node) in DROPPING  # in evaluation mode, or trace would have refused it
            if weighted or dropping or is_linear_module(node, self._modules) or is_linear_operation(node, self._data):
                continue
            raise UnsupportedModelError(
                f"{self.describe(node)} is neither a gate nor affine, so that the network is not affine where its "
                "gates are constant; return what stands before it"
            )

    def check_finite(self, model: nn.Module, modules: Mapping[str, nn.Module]) -> None:
        """Refuse NaN and infinite values among the parameters and buffers that the output depends on."""
        for node in self._order([self.output]).nodes:
            path, held = str(node.target), list[tuple[str, Any]]()
            if node.op == "call_module":
                held = [*modules[path].named_parameters(path), *modules[path].named_buffers(path)]
            elif node.op == "get_attr":
                held = [(path, _held(node, model, torch.float64))]
            for name, value in held:
                if isinstance(value, Tensor):
                    refuse_unless_finite(name, value)

    def run(
        self,
        model: nn.Module,
        modules: Mapping[str, nn.Module],
        targets: Sequence[Node],
        x: Tensor,
        factors: Mapping[str, Tensor] | None = None,
        opened: dict[str, Tensor] | None = None,
        instead: Mapping[Node, Callable[..., Any]] | None = None,
    ) -> list[Tensor]:
        """The values of some nodes.

        Args:
            model: of the same make; whose weights to take.
            modules: the model's, by path.
            targets: the nodes.
            x: the input.
            factors: what each gate multiplies by; None lets the gates decide.
            opened: takes up which gates are open, if they decide.
            instead: what to do at some nodes with their arguments; no gates.
        """
        values: dict[Node, Any] = {}
        order = self._order(targets)
        for node, done in zip(order.nodes, order.done, strict=True):
            filled: Any = map_arg((node.args, node.kwargs), values.__getitem__)
            args, kwargs = filled
            name = self._names.get(node)
            if name is not None and opened is not None:
                opened[name] = values[self.q(name)] > 0  # before the gate may overwrite it
            if name is not None and factors is not None:
                values[node] = (args[0] if args else kwargs["value"]) * factors[name]
            elif node.op == "placeholder":
                values[node] = x.clone()  # the model may write into its input
            elif node.op == "get_attr":
                values[node] = _held(node, model, x.dtype)
            elif instead is not None and node in instead:
                values[node] = instead[node](*args, **kwargs)
            else:
                values[node] = call(node, modules, *args, **kwargs)
            for source in done:
                del values[source]
        return [values[target] for target in targets]

    def _order(self, targets: Sequence[Node]) -> "_Order":
        """The nodes that the targets depend on, and these, in order."""
        key = tuple(targets)
        if key not in self._orders:
            needed = ancestors(*targets)
            self._orders[key] = _Order([node for node in self._graph.nodes if node in needed], targets)
        return self._orders[key]

    def _operation(self, node: Node) -> str:
        if node.op != "call_module":
            return node_operation(node) or ""
        return "leaky_relu" if isinstance(self._modules[str(node.target)], nn.LeakyReLU) else "relu"

    def _refuse_pooling(self, node: Node) -> None:
        module = self._modules.get(str(node.target)) if node.op == "call_module" else None
        if isinstance(module, POOLING_MODULES) or "max_pool" in (node_operation(node) or ""):
            raise UnsupportedModelError(
                f"{self.describe(node)}: the winner of a max-pooling is decided by comparisons within a window, not by "
                "one half-space; use average pooling"
            )


class _Order:
    """Nodes to run one after another, and with each those whose values nobody needs any longer."""

    def __init__(self, nodes: list[Node], targets: Sequence[Node]):
        self.nodes = nodes
        last = {source: node for node in nodes for source in node.all_input_nodes}
        self.done = [[s for s in node.all_input_nodes if last[s] is node and s not in targets] for node in nodes]


def call(node: Node, modules: Mapping[str, nn.Module], *args: Any, **kwargs: Any) -> Any:
    """What a node does, with arguments in the place of nodes."""
    if node.op == "call_module":
        return modules[str(node.target)](*args, **kwargs)
    if node.op == "call_method":
        return getattr(args[0], str(node.target))(*args[1:], **kwargs)
    return node.target(*args, **kwargs)  # pyright: ignore


def modules_of(model: nn.Module) -> dict[str, nn.Module]:
    """Modules by path, shared ones by all of theirs."""
    return dict(model.named_modules(remove_duplicate=False))


def _make(model: nn.Module) -> Iterator[tuple[str, Any]]:
    """Of every module its path, type and settings, and the shapes of its own parameters."""
    for path, module in model.named_modules(remove_duplicate=False):
        settings = {name: value for name, value in vars(module).items() if _is_plain(value)}
        shapes = {name: None if own is None else own.shape for name, own in module._parameters.items()}
        yield path, (type(module), settings, shapes)


def _is_plain(value: object) -> bool:
    return all(map(_is_plain, value)) if isinstance(value, tuple) else isinstance(value, _PLAIN)


def _held(node: Node, model: nn.Module, dtype: torch.dtype) -> Any:
    constant = node.meta.get("constant")
    if constant is None:
        owner, _, name = str(node.target).rpartition(".")
        return getattr(model.get_submodule(owner), name)
    return constant.to(dtype) if constant.is_floating_point() else constant
