"""A network of gates and affine maps, run in float64 under gates that the caller chooses."""

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.fx import Node

from gatelab.errors import InputError, UnsupportedModelError
from gatelab.gates import GatePattern
from gatelab.network.network import refuse_weights_unless_finite
from gatelab.network.nodes import weight_parameters
from gatelab.observe import observable
from gatelab.regions.plan import RegionPlan
from gatelab.regions.states import GateStates, HalfSpaceStates, States


class Replay:
    """A float64 snapshot of a model whose gates come from outside: see :mod:`gatelab.regions.states`.

    A soft gate counts as open where q > 0 and closed elsewhere, as everywhere in ``regions``.

    Attributes:
        plan: the model's structure.
        gates: names of its gates, see :class:`RegionPlan`.
        model: the snapshot.
        device: the model's device.
        dtype: the model's own dtype, in which half-spaces are returned.
    """

    def __init__(self, model: nn.Module, plan: RegionPlan | None = None, shape: Sequence[int] | None = None):
        """Take the snapshot; ``plan`` saves reading the model, ``shape`` tells the shape of one example.

        Raises:
            UnsupportedModelError: see :class:`RegionPlan`; or the model cannot be copied.
            InputError: the plan belongs to another model, or a weight is NaN or infinite.
        """
        model = observable(model) if plan is None else plan.check(model)
        parameter = next((p for p in model.parameters() if p.is_floating_point()), torch.zeros(()))
        self.device, self.dtype = parameter.device, parameter.dtype
        self.plan = plan or RegionPlan(model, None if shape is None else self._example(shape))
        self.gates = self.plan.gates
        try:
            self.model = copy.deepcopy(model).double().requires_grad_(False)
        except Exception as error:  # a user's module may hold anything
            raise UnsupportedModelError(f"{type(model).__name__} cannot be copied: {error}") from error
        refuse_weights_unless_finite(self.plan.network.graph, self.model)
        self._gates: dict[str, GateStates] = {}

    def _example(self, shape: Sequence[int]) -> Float[Tensor, "1 ..."]:
        """An example to read the model on."""
        drawn = torch.randn(1, *shape, generator=torch.Generator().manual_seed(0), device="cpu")
        return drawn.to(self.device, self.dtype)

    def input_shape(self, shape: Sequence[int] | None) -> tuple[int, ...]:
        """Return the shape of one example: as given, or that of a first dense layer. Refuse a shape that fails."""
        found = self._first_layer() if shape is None else tuple(shape)
        try:
            self.plan.interpreter.run(self.model, [self.plan.output], self.zeros(1, *found))
        except (RuntimeError, IndexError) as error:  # torch says which layer
            raise InputError(f"the network does not take examples of shape {found}: {error}") from error
        return found

    def zeros(self, *shape: int) -> Float[Tensor, "..."]:
        """Return zeros in the snapshot's dtype and on its device."""
        return torch.zeros(shape, dtype=torch.float64, device=self.device)

    def constants(self, name: str, inputs: tuple[int, ...]) -> dict[Node, Any]:
        """Return the values that a gate's pre-activation uses and that do not depend on the data."""
        nodes = self.plan.affine_nodes(name)
        found = list({source for node in nodes for source in node.all_input_nodes}.difference(nodes))
        return dict(zip(found, self._run(found, self.zeros(1, *inputs), {}), strict=True))

    def states(self, x: Float[Tensor, "n ..."]) -> dict[str, Tensor]:
        """Return the state of each gate for each row of x."""
        found: dict[str, Tensor] = {}

        def decide(name: str, q: Tensor) -> Callable[[Tensor], Any]:
            gate = self.gate(name)
            found[name] = gate.of(_with_units(name, q, x))
            return gate.action(found[name])

        self.plan.interpreter.run(self.model, [self.plan.output], x, decide)
        return {name: found[name] for name in self.gates}

    def gate(self, name: str) -> GateStates:
        """Return what states a gate has, and what each does."""
        if name not in self._gates:
            self._gates[name] = self.plan.states(name, self.model)
        return self._gates[name]

    def pre_activation(self, name: str, x: Float[Tensor, "n ..."], states: States) -> Float[Tensor, "n ..."]:
        """Return the q of gate ``name`` for each row of x when the gates before it are in these states."""
        return _with_units(name, self._run([self.plan.q(name)], x, states)[0], x)

    def pre_activations(self, names: Iterable[str], x: Float[Tensor, "n ..."]) -> list[Tensor]:
        """Return the q of gates that depend on no other gate, from one run."""
        return self._run([self.plan.q(name) for name in names], x, {})

    def everything(self, x: Float[Tensor, "n ..."], states: States) -> list[Tensor]:
        """Return the q of every gate, in order, and the output."""
        *gates, output = self._run([*map(self.plan.q, self.gates), self.plan.output], x, states)
        return [*gates, _with_outputs(output, x)]

    def on_simplex(
        self,
        corners: Float[Tensor, "corners ..."],
        states: States,
        gate: str | None = None,
        known: Mapping[str, Float[Tensor, "regions corners ..."]] | None = None,
    ) -> Float[Tensor, "regions corners ..."]:
        """Return a gate's q (None: the output) at the corners of a simplex, under the gates of each of some regions.

        With its gates fixed the function is affine, so these values determine it.

        Args:
            corners: the inputs at the simplex's corners.
            states: the gates of each region that the function depends on.
            gate: the gate.
            known: what this function returned for some of the gates before; their sources do not run again.

        Returns:
            The values. If no gates are given, the function is the same in all regions, and there is one row.
        """
        regions = next((len(state) for state in states.values()), 1)
        x = corners.expand(regions, *corners.shape).flatten(0, 1)
        target = self.plan.output if gate is None else self.plan.q(gate)
        given = {
            node: self.passed(name, states[name], known[name]).flatten(0, 1)
            for name, node in self.plan.sources(target).items()
            if known and name in known
        }

        def decide(name: str, _q: Tensor) -> Callable[[Tensor], Any]:
            return self.gate(name).action(states[name].repeat_interleave(len(corners), 0))

        (values,) = self.plan.interpreter.run(self.model, [target], x, decide, given=given)
        values = _with_outputs(values, x) if gate is None else _with_units(gate, values, x)
        if values.ndim < 2 or len(values) != len(x):
            raise UnsupportedModelError("the model must keep the examples on the first axis")
        return values.unflatten(0, (regions, len(corners)))

    def passed(
        self, name: str, state: Tensor, q: Float[Tensor, "regions corners ..."]
    ) -> Float[Tensor, "regions corners ..."]:
        """Return what a gate that gates its own q passes on, for some regions and several inputs in each."""
        gate = self.gate(name)
        if isinstance(gate, HalfSpaceStates):  # the same for all inputs of a region
            return q * gate.factor(state).unsqueeze(1)
        repeated = state.repeat_interleave(q.shape[1], 0)
        return gate.action(repeated)(q.flatten(0, 1)).unflatten(0, q.shape[:2])

    def pattern(self, states: States) -> GatePattern:
        """Return the pattern of gates in these states, with this model's kinds of gates and slopes."""
        opened = {name: self.gate(name).opened(state) for name, state in states.items()}
        return self.plan.pattern(opened, self.dtype, self.model)

    def _run(self, targets: Sequence[Node], x: Tensor, states: States) -> list[Tensor]:
        actions = {name: self.gate(name).action(state) for name, state in states.items()}
        return self.plan.interpreter.run(self.model, targets, x, lambda name, _q: actions[name])

    def _first_layer(self) -> tuple[int, ...]:
        """The shape of the examples that the first weight layer takes."""
        for node in self.plan.interpreter.nodes_before(self.plan.output):
            names = weight_parameters(node, self.plan.network.modules) if node.meta.get("data") else None
            if names is None:
                continue
            weight = self.model.get_parameter(names[0])
            if weight.ndim == 2:
                return (weight.shape[1],)
            raise InputError(
                f"{self.plan.network.where(node)} is a convolution, so the half-spaces depend on the image's size; "
                "give the shape of one example, e.g. shape=(3, 32, 32)"
            )
        raise InputError("the model has no weight layer that would tell the shape of its input; give shape=")


def _with_units(name: str, q: Tensor, x: Float[Tensor, "n ..."]) -> Tensor:
    """The pre-activation of a gate, if it has an axis for the examples and one for the units."""
    if q.ndim < 2 or len(q) != len(x):
        raise UnsupportedModelError(
            f"gate '{name}' has shape {tuple(q.shape)} for {len(x)} examples; give gates the examples on the first "
            "axis and the units on the others"
        )
    return q


def _with_outputs(values: Tensor, x: Float[Tensor, "n ..."]) -> Tensor:
    """The outputs; if the model returns one number for each row of x, with an axis of length 1 for it."""
    return values.reshape(len(x), 1) if values.ndim < 2 and values.numel() == len(x) else values


def affine(values: Float[Tensor, "regions corners ..."]) -> Float[Tensor, "regions corners units"]:
    """Return functions on a simplex, given by their values at its corners, as a constant and differences from there."""
    flat = values.flatten(2)
    return torch.cat([flat[:, :1], flat[:, 1:] - flat[:, :1]], 1)
