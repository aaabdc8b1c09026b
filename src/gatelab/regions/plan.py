"""The structure of a network of gates and affine maps: its graph, its gates, and what each gate depends on.

With its gates fixed such a network is affine, so its values on the corners of a simplex determine it everywhere. All
of ``regions`` rests on that. Nothing here knows about layers, only about operations that are gates or affine.
"""

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.fx import Node

from gatelab.errors import InputError, UnsupportedModelError
from gatelab.gates import GatePattern, HardGate, LeakyGate, SoftGate, StraightThroughGate
from gatelab.gates.bits import pack
from gatelab.gates.layer import GateKind, GateLayer, Slope
from gatelab.network.certificate import certify
from gatelab.network.evaluation import Interpreter
from gatelab.network.gating import Gating, is_piecewise_linear
from gatelab.network.network import Network, read
from gatelab.network.nodes import ancestors
from gatelab.observe import examples, observable
from gatelab.regions.states import GateStates, states_of

# Attributes of these types are settings. Tensors are weights; sub-modules are compared on their own.
_SETTINGS = (bool, int, float, str, type(None), HardGate, SoftGate, StraightThroughGate, LeakyGate)


class RegionPlan:
    """The structure of a model, read once, for looking at the model again and again while it trains.

    A plan serves every model of the same structure: the same modules with the same settings, whatever their weights. It
    saves reading, and the checks by which :func:`gatelab.capture_gates` proves what it has read.

    Attributes:
        network: the model as it was read.
        gates: names of the gates that the output depends on, in the order in which an example meets them. Gates that
            only decide other gates are included.
        path_gates: the gates that paths pass, as in a GatePattern.
        output: the node of the output.
        interpreter: runs the network.

    Example:
        >>> net = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))
        >>> plan = RegionPlan(net)
        >>> gates, output = plan.capture(net, torch.ones(5, 2))
        >>> gates.layers, tuple(output.shape)
        (('1',), (5, 1))
    """

    def __init__(self, model: nn.Module, x: Float[Tensor, "n ..."] | None = None):
        """Read the model, on examples x if given.

        Raises:
            UnsupportedModelError: the model has no fixed graph, several outputs, or smooth activations.
        """
        network = read(model, x)
        self.network: Network = network
        self.output: Node = network.answer
        self._structure = dict(_structure(network.model))
        self._gates = {name: node for node, name in network.gates.items()}
        for node in self._gates.values():
            self._refuse_smooth(node)
            self._refuse_crossed_bounds(node)
        certify(network)
        self.gates = tuple(self._gates)
        self.path_gates = tuple(network.path_gates.values())

    @property
    def interpreter(self) -> Interpreter:
        """What runs the network, with any model's weights and any gates."""
        return self.network.interpreter

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
            UnsupportedModelError: an operation is neither a gate nor affine, or examples depend on each other.
        """
        model = self.check(model)
        self.check_affine()
        x = examples(x, model)
        opened: dict[str, Tensor] = {}

        def record(name: str, q: Tensor) -> None:
            opened[name] = self.gating(name).opened(q)

        with torch.no_grad():
            (output,) = self.interpreter.run(model, [self.output], x, record)
        pattern = self.pattern({name: opened[name] for name in self.path_gates}, x.dtype, model)
        return pattern, output

    def pattern(
        self, opened: Mapping[str, Bool[Tensor, "n ..."]], dtype: torch.dtype, model: nn.Module | None = None
    ) -> GatePattern:
        """Return a pattern with these gates open, with the plan's kinds of gates and the slopes of ``model``."""
        layers = {
            name: GateLayer(self.kind(name), tuple(gates.shape[1:]), pack(gates.flatten(1)), self.slope(name, model))
            for name, gates in opened.items()
        }
        return GatePattern(layers, dtype, is_chain=self.network.is_chain)

    def where(self, name: str) -> str:
        """Return a gate's name and place in the source, for error messages."""
        return self.network.where(self._gates[name])

    def gating(self, name: str) -> Gating:
        """Return how a gate decides."""
        return self.network.gating(self._gates[name])

    def kind(self, name: str) -> GateKind:
        """Return the kind of a gate."""
        return self.gating(name).kind

    def states(self, name: str, model: nn.Module | None = None) -> GateStates:
        """Return what states a gate has, and what each does, in ``model`` if given."""
        shape, several = tuple(self.q(name).meta["shape"]), "shape" not in self._gates[name].meta
        return states_of(self.gating(name), self.slope(name, model), shape, with_indices=several)

    def slope(self, name: str, model: nn.Module | None = None) -> Slope:
        """Return what the gate multiplies by when it is closed, in ``model`` if given."""
        return self.network.slope(self._gates[name], model)

    def q(self, name: str) -> Node:
        """Return the node of a gate's pre-activation."""
        return self.gating(name).q

    def sources(self, target: Node) -> dict[str, Node]:
        """Return the gates that a node reads directly: with their values known, nothing before them need run.

        Only gates that pass their own pre-activation can be known from it; the others are looked through.
        """
        own = {node for node in self._gates.values() if node is not target and self._passes_itself(node)}
        seen = ancestors(target, sources=lambda node: () if node in own else node.all_input_nodes)
        return {name: node for name, node in self._gates.items() if node in own and node in seen}

    def _passes_itself(self, gate: Node) -> bool:
        gating = self.network.gating(gate)
        return gating.value is gating.q and "shape" in gate.meta  # without a shape it returns several tensors

    def is_gate(self, node: Node) -> bool:
        """Whether a node is one of the gates."""
        return node in self.network.gates

    def deciding_gates(self, name: str) -> list[str]:
        """Return the gates that the pre-activation of gate ``name`` depends on."""
        before = ancestors(self.q(name))
        return [other for other, node in self._gates.items() if node in before]

    @cached_property
    def is_continuous(self) -> bool:
        """Whether every pre-activation is continuous in x: the gates before each gate pass their own signal."""
        return all(self._is_coupled(other) for name in self.gates for other in self.deciding_gates(name))

    @cached_property
    def is_output_continuous(self) -> bool:
        """Whether the output is continuous in x: all gates pass their own signal."""
        return all(map(self._is_coupled, self.gates))

    def _is_coupled(self, name: str) -> bool:
        return self.gating(name).value is self.gating(name).q

    def affine_nodes(self, name: str) -> list[Node]:
        """Return the nodes that hold data between the input and a gate's pre-activation, both included, in order."""
        return [node for node in self.interpreter.nodes_before(self.q(name)) if node.meta.get("data")]

    def check_affine(self, gate: str | None = None) -> None:
        """Refuse operations before a gate (None: before the output) that are neither gates nor affine."""
        for node in self.interpreter.nodes_before(self.output if gate is None else self.q(gate)):
            if self.network.is_obstacle(node):
                raise UnsupportedModelError(
                    f"{self.network.where(node)} is neither a gate nor affine, so the network is not affine where its "
                    "gates are constant; return the tensor before it"
                )

    def _refuse_smooth(self, node: Node) -> None:
        if not is_piecewise_linear(self.network.gating(node)):
            raise UnsupportedModelError(
                f"{self.network.where(node)} is a gate with many values, so the network has no linear regions; use ReLU"
            )

    def _refuse_crossed_bounds(self, node: Node) -> None:
        bounds = self.network.gating(node).bounds
        if bounds is not None and bounds[0] > bounds[1]:
            raise UnsupportedModelError(
                f"{self.network.where(node)} has a lower bound {bounds[0]:g} above its upper bound {bounds[1]:g}, "
                "so that it is constant and no gate; swap the bounds"
            )


def _structure(model: nn.Module) -> Iterator[tuple[str, Any]]:
    """Yield the path of every module with its type, its settings, and the shapes of its own parameters."""
    for path, module in model.named_modules(remove_duplicate=False):
        settings = {name: value for name, value in vars(module).items() if _is_setting(value)}
        shapes = {name: None if own is None else own.shape for name, own in module._parameters.items()}
        yield path, (type(module), settings, shapes)


def _is_setting(value: object) -> bool:
    return all(map(_is_setting, value)) if isinstance(value, tuple) else isinstance(value, _SETTINGS)
