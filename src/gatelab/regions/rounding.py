"""How far the pre-activations of a network can be from what exact arithmetic would give.

An affine map Wh + b, computed in float64 from an h with errors E, is wrong by at most γ (|W| (|h| + E/γ) + |b|), where
γ is the number of terms times 2⁻⁵³. So a network of absolute values, run beside the network itself, bounds the error of
every unit by the size of what that unit adds up, not by what other units of its layer do.
"""

import copy
from collections.abc import Mapping
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.fx import Node
from torch.utils._pytree import tree_map

from gatelab.network.evaluation import call
from gatelab.network.nodes import weight_parameters
from gatelab.network.operations import Kind
from gatelab.regions.replay import Replay
from gatelab.regions.states import BoundedStates, States

UNIT = 2.0**-53  # the relative error of one operation


class Magnitudes:
    """The network of absolute values that belongs to a replay.

    A *magnitude* m of a unit bounds the error of its q by γ m, with γ = ``share(name)``.
    """

    def __init__(self, replay: Replay):
        self._replay, self._plan = replay, replay.plan
        self._model = copy.deepcopy(replay.model)
        for parameter in self._model.parameters():
            parameter.abs_()
        nodes = [node for node in self._plan.network.nodes if node.meta.get("data") and node.op != "placeholder"]
        self._rules = {node: self._rule(node) for node in nodes if not self._plan.is_gate(node) and node.op != "output"}

    def share(self, name: str) -> float:
        """Return γ of a gate: its number of terms times the relative error of one operation."""
        target = self._plan.q(name)
        between = self._plan.interpreter.nodes_between(target, set(self._plan.sources(target).values()))
        return UNIT * (4 + sum(map(self._terms, between)))

    def of(
        self,
        name: str,
        x: Float[Tensor, "corners ..."],
        states: States,
        known: Mapping[str, tuple[Float[Tensor, "regions corners ..."], Float[Tensor, "regions ..."]]],
    ) -> Float[Tensor, "regions ..."]:
        """Return the magnitudes of a gate's q in each of some regions.

        Args:
            name: the gate.
            x: the inputs at the corners of a simplex.
            states: the gates of each region.
            known: the q and the magnitude of gates before it.
        """
        regions = next((len(state) for state in states.values()), 1)
        given = {
            node: self._passed(source, states[source], *known[source])
            for source, node in self._plan.sources(self._plan.q(name)).items()
            if source in known
        }

        def decide(gate: str, _q: Tensor) -> Any:
            return lambda value: tree_map(_abs, self._replay.gate(gate).action(states[gate])(value))

        largest = x.abs().amax(0).expand(regions, *x.shape[1:])
        return self._plan.interpreter.run(self._model, [self._plan.q(name)], largest, decide, self._rules, given)[0]

    def _passed(self, name: str, state: Tensor, q: Tensor, magnitude: Tensor) -> Tensor:
        """What a gate passes on: the size of its value, and its error."""
        gate = self._replay.gate(name)
        value = self._replay.passed(name, state, q).abs().amax(1)
        return value + gate.action(state, plain=isinstance(gate, BoundedStates))(magnitude).abs()

    def _terms(self, node: Node) -> float:
        """How many terms each result of a node adds up."""
        names = weight_parameters(node, self._plan.network.modules) if node.meta.get("data") else None
        if names is not None:
            weight = self._model.get_parameter(names[0])
            return weight.numel() / weight.shape[0]
        if node not in self._rules or self._plan.network.kind(node) is not Kind.PRODUCT:
            return 2.0
        return float(max(max(source.meta["shape"]) for source in node.all_input_nodes if source.meta.get("shape")))

    def _rule(self, node: Node) -> Any:
        """What a node does to sizes."""
        kind, real = self._plan.network.kind(node), self._replay.model
        if kind is Kind.SUM:
            alpha = max(1.0, abs(self._plan.network.call(node).arguments.get("alpha", 1)))
            return lambda *args, **kwargs: alpha * sum(abs(a) for a in (*args, *kwargs.values())[:2])
        if kind is Kind.NORMALISATION:

            def normalised(x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
                at_zero = call(node, real, torch.zeros_like(x), *args, **kwargs)
                return (call(node, real, x, *args, **kwargs) - at_zero).abs() + at_zero.abs()

            return normalised

        def absolute(*args: Any, **kwargs: Any) -> Any:
            args, kwargs = tree_map(_abs, (args, kwargs))
            return tree_map(_abs, call(node, self._model, *args, **kwargs))

        return absolute


def _abs(value: Any) -> Any:
    is_number = isinstance(value, float) or (isinstance(value, Tensor) and value.is_floating_point())
    return abs(value) if is_number else value
