"""A network of gates and affine maps, run in float64 under gates that the caller chooses."""

import copy
from collections.abc import Iterable, Mapping, Sequence

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.fx import Node

from gatelab.errors import UnsupportedModelError
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
            InputError: the plan is that of another model.
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

    def input_shape(self, shape: tuple[int, ...] | None) -> tuple[int, ...]:
        """The shape of one example: as given, or that of a first dense layer."""
        return self.plan.input_shape(self.model, shape)

    def pre_activation(self, name: str, x: Float[Tensor, "n ..."], factors: Mapping[str, Tensor]) -> Tensor:
        """The q of gate ``name`` for each row of x, earlier gates multiplying by ``factors`` (n, *shape)."""
        return self._run([self.plan.q(name)], x, factors)[0]

    def pre_activations(self, names: Iterable[str], x: Float[Tensor, "n ..."]) -> list[Tensor]:
        """The q of gates that depend on no other gate, in one run."""
        return self._run([self.plan.q(name) for name in names], x, {})

    def output(self, x: Float[Tensor, "n ..."], factors: Mapping[str, Tensor]) -> Float[Tensor, "n ..."]:
        """The output for each row of x under the given gates."""
        return self._run([self.plan.output], x, factors)[0]

    def everything(self, x: Float[Tensor, "n ..."], factors: Mapping[str, Tensor]) -> list[Tensor]:
        """Every gate's q in order, and the output, under the given gates."""
        return self._run([*map(self.plan.q, self.gates), self.plan.output], x, factors)

    def factor(self, name: str, opened: Tensor) -> Tensor:
        """What the gate multiplies by: 1 where it is open, its slope elsewhere."""
        slope, gates = self.plan.slope(name), opened.double()
        return gates + slope * (1 - gates) if slope else gates

    def pattern(self, opened: Mapping[str, Bool[Tensor, "n ..."]]) -> GatePattern:
        """Gates that are open or closed as given, as a pattern with this model's kinds and slopes."""
        return self.plan.pattern(opened, self.dtype)

    def _run(self, targets: Sequence[Node], x: Tensor, factors: Mapping[str, Tensor]) -> list[Tensor]:
        return self.plan.run(self.model, self.modules, targets, x, factors)
