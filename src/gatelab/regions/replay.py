"""A network of gates and affine maps, run in float64 under gates that the caller chooses."""

import copy
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.fx import Node

from gatelab.errors import InputError, UnsupportedModelError
from gatelab.gates import GatePattern
from gatelab.observe import observable
from gatelab.regions.plan import Plan, modules_of


class Replay:
    """A snapshot of a model, in float64, whose gates are given from outside.

    Soft gates count as open or closed at q > 0, as everywhere where regions are concerned.

    Attributes:
        plan: the model's structure.
        gates: the names of its gates, see :class:`Plan`.
        device: the model's.
        dtype: the model's own, in which half-spaces are returned.
        modules: the snapshot's, by path.
    """

    def __init__(self, model: nn.Module, plan: Plan | None = None):
        """Take the snapshot; ``plan`` saves the trace.

        Raises:
            UnsupportedModelError: see :class:`Plan`; or the model cannot be copied.
            InputError: the plan is that of another model; or a weight is NaN or infinite.
        """
        model = observable(model) if plan is None else plan.check(model)
        self.plan = plan or Plan(model)
        self.gates = self.plan.gates
        parameter = next((p for p in model.parameters() if p.is_floating_point()), torch.zeros(()))
        self.device, self.dtype = parameter.device, parameter.dtype
        try:
            self.model = copy.deepcopy(model).double().requires_grad_(False)
        except Exception as error:  # a user's module may hold anything
            raise UnsupportedModelError(f"{type(model).__name__} cannot be copied: {error}") from error
        self.modules = modules_of(self.model)
        self.plan.check_finite(self.model, self.modules)

    def input_shape(self, shape: tuple[int, ...] | None) -> tuple[int, ...]:
        """The shape of one example: as given, or that of a first dense layer; a refusal of one that does not fit."""
        shape = self.plan.input_shape(self.model, shape)
        x = torch.zeros(1, *shape, dtype=torch.float64, device=self.device)
        try:
            self.plan.run(self.model, self.modules, [self.plan.output], x)
        except (RuntimeError, IndexError) as error:  # torch says which layer
            raise InputError(f"the network does not take examples of shape {shape}: {error}") from error
        return shape

    def constants(self, name: str, inputs: tuple[int, ...]) -> dict[Node, Any]:
        """What does not depend on the data and is met on the way to a gate's pre-activation."""
        nodes = self.plan.affine_nodes(name)
        found = list({source for node in nodes for source in node.all_input_nodes}.difference(nodes))
        x = torch.zeros(1, *inputs, dtype=torch.float64, device=self.device)
        return dict(zip(found, self._run(found, x, {}), strict=True))

    def opened(self, x: Float[Tensor, "n ..."]) -> dict[str, Bool[Tensor, "n ..."]]:
        """Which gates are open for each row of x."""
        opened: dict[str, Tensor] = {}
        factors: dict[str, Tensor] = {}
        for name in self.gates:
            opened[name] = self.pre_activation(name, x, factors) > 0
            factors[name] = self.factor(name, opened[name])
        return opened

    def pre_activation(self, name: str, x: Float[Tensor, "n ..."], factors: Mapping[str, Tensor]) -> Tensor:
        """The q of gate ``name`` for each row of x, earlier gates multiplying by ``factors`` (n, *shape)."""
        (q,) = self._run([self.plan.q(name)], x, factors)
        if q.ndim < 2 or len(q) != len(x):
            raise UnsupportedModelError(
                f"gate '{name}' has shape {tuple(q.shape)} for {len(x)} examples; gates must have the examples on the "
                "first axis, and the units on others"
            )
        return q

    def pre_activations(self, names: Iterable[str], x: Float[Tensor, "n ..."]) -> list[Tensor]:
        """The q of gates that depend on no other gate, in one run."""
        return self._run([self.plan.q(name) for name in names], x, {})

    def output(self, x: Float[Tensor, "n ..."], factors: Mapping[str, Tensor]) -> Float[Tensor, "n ..."]:
        """The output for each row of x under the given gates; a number for each row is one output."""
        return _with_outputs(self._run([self.plan.output], x, factors)[0], x)

    def everything(self, x: Float[Tensor, "n ..."], factors: Mapping[str, Tensor]) -> list[Tensor]:
        """Every gate's q in order, and the output, under the given gates."""
        *gates, output = self._run([*map(self.plan.q, self.gates), self.plan.output], x, factors)
        return [*gates, _with_outputs(output, x)]

    def factor(self, name: str, opened: Tensor) -> Tensor:
        """What the gate multiplies by: 1 where it is open, its slope elsewhere."""
        slope, gates = self.plan.slope(name), opened.double()
        return gates + slope * (1 - gates) if slope else gates

    def pattern(self, opened: Mapping[str, Bool[Tensor, "n ..."]]) -> GatePattern:
        """Gates that are open or closed as given, as a pattern with this model's kinds and slopes."""
        return self.plan.pattern(opened, self.dtype)

    def _run(self, targets: Sequence[Node], x: Tensor, factors: Mapping[str, Tensor]) -> list[Tensor]:
        return self.plan.run(self.model, self.modules, targets, x, factors)


def _with_outputs(values: Tensor, x: Float[Tensor, "n ..."]) -> Tensor:
    """Numbers, one for each row of x, on an axis of their own."""
    return values.reshape(len(x), 1) if values.ndim < 2 and values.numel() == len(x) else values
