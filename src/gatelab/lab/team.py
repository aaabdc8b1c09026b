"""Networks that train together: one on its own, or many of one shape as one batched computation."""

import copy
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn
from torch.fx import Node
from torch.overrides import TorchFunctionMode

from gatelab.data.user_data import Examples
from gatelab.errors import InputError, UnsupportedModelError
from gatelab.gates import SoftGate
from gatelab.lab.channels_last import GradientsToo, ImageLayout, channels_last, layout_for
from gatelab.lab.kept_gates import FixedGates, fixed_gates
from gatelab.models.states import load_state
from gatelab.network.network import Network, read
from gatelab.network.operations import Kind

StateDict = dict[str, Tensor]

# These act on each number separately, so a leading axis does not affect them.
_POINTWISE = frozenset({Kind.GATE, Kind.SUM, Kind.SCALE, Kind.START})
# Above this size, copying a stacked weight's gradient takes longer than an autograd function in Python.
_LARGE_WEIGHT = 2**15


class Team(ABC):
    """Networks of one architecture; every tensor has the members on its first axis."""

    def __init__(self, size: int, model: nn.Module, base: nn.Module):
        """``model`` computes all members at once; ``base`` is one member, from which others can be copied."""
        self.size, self._model, self._base = size, model, base

    @abstractmethod
    def forward(self, x: Float[Tensor, "e b ..."]) -> Float[Tensor, "e b k"]:
        """Each member's answers to its own batch."""

    def training_answers(self, data: Examples, rows: Int64[Tensor, "e b"]) -> Float[Tensor, "e b k"]:
        """Each member's answers to its own rows of the training examples."""
        return self.forward(data.inputs(data.train_x[rows]))

    def test_answers(self, data: Examples, rows: Int64[Tensor, " b"]) -> Float[Tensor, "e b k"]:
        """All members' answers to the same rows of the test examples."""
        x = data.inputs(data.test_x[rows])
        return self.forward(x.expand(self.size, *x.shape))

    @abstractmethod
    def tensors(self) -> StateDict:
        """All parameters and buffers, not copied."""

    @abstractmethod
    def load(self, state: Mapping[str, Tensor]) -> None:
        """Copy parameters and buffers from ``state``."""

    def parameters(self) -> list[Tensor]:
        """The tensors that an optimiser moves."""
        return [parameter for parameter in self._model.parameters() if parameter.requires_grad]

    def gate_parameters(self) -> list[Tensor]:
        """Return the parameters that only decide gates: the features of a deep gated network."""
        named = self._model.named_parameters()
        found: list[Tensor] = [p for name, p in named if "feature" in name.split(".") and p.requires_grad]
        if not found:
            raise InputError("no parameters decide only gates; slow_gates needs networks with a part named 'feature'")
        return found

    def train(self, mode: bool) -> None:
        """Set training or evaluation mode."""
        self._model.train(mode)
        self._base.train(mode)

    def soft_gates(self) -> "list[SteepGate]":
        """The soft gates σ(βq) of the model and of the one that members are copied from."""
        modules = [*self._model.modules(), *([] if self._base is self._model else self._base.modules())]
        return [
            SteepGate(module, name, gate)
            for module in modules
            for name, gate in vars(module).items()
            if isinstance(gate, SoftGate)
        ]

    def state(self) -> StateDict:
        """Copies of all parameters and buffers."""
        return {name: tensor.detach().clone() for name, tensor in self.tensors().items()}

    @torch.no_grad()
    def member(self, number: int) -> nn.Module:
        """A copy of one member, as a module of its own."""
        module = copy.deepcopy(self._base)
        own = module.state_dict()  # the module's own tensors, so copying into them changes the module
        for name, tensor in self.tensors().items():
            own[name].copy_(tensor[number])
        return module


@dataclass(frozen=True)
class SteepGate:
    """A soft gate whose steepness grows while its network trains.

    Attributes:
        module: the module that holds it.
        name: the attribute's name.
        start: the original gate.
    """

    module: nn.Module
    name: str
    start: SoftGate

    def steepen(self, final: float, share: float) -> None:
        """Set β between its start (share 0) and ``final`` (share 1), on a geometric scale."""
        beta = self.start.beta * (final / self.start.beta) ** share
        setattr(self.module, self.name, replace(self.start, beta=beta))


def teams(models: Sequence[nn.Module]) -> list[Team]:
    """Group models into teams: a single team if their architecture can be batched, otherwise one team for each.

    Example:
        >>> nets = [nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 2)) for _ in range(4)]
        >>> [team.size for team in teams(nets)]
        [4]
    """
    if len(models) > 1 and can_stack(models[0]):
        return [StackedTeam(models)]
    return [SingleTeam(model) for model in models]


class SingleTeam(Team):
    """A team of one model, which is trained in place.

    Images have the channels of a pixel adjacent in memory if the model then computes the same on a few examples. Fixed
    hard gates of a twin are computed once for all examples. Both change at most the order of sums.
    """

    def __init__(self, model: nn.Module):
        try:
            copy.deepcopy(model)
        except RuntimeError as error:  # torch refuses to copy a tensor that was computed
            raise UnsupportedModelError(
                f"{type(model).__name__} cannot be copied: {error}. A module holds a computed tensor, such as the "
                "weight of torch.nn.utils.weight_norm; use torch.nn.utils.parametrizations.weight_norm instead"
            ) from error
        super().__init__(1, model, model)
        self._prepared: tuple[Examples, FixedGates | None, ImageLayout] | None = None

    def forward(self, x: Float[Tensor, "1 b ..."]) -> Float[Tensor, "1 b k"]:
        """The model's answers."""
        return self._model(x[0]).unsqueeze(0)

    def training_answers(self, data: Examples, rows: Int64[Tensor, "1 b"]) -> Float[Tensor, "1 b k"]:
        """The model's answers to rows of the training examples."""
        return self._answers(data, rows[0], test=False)

    def test_answers(self, data: Examples, rows: Int64[Tensor, " b"]) -> Float[Tensor, "1 b k"]:
        """The model's answers to rows of the test examples."""
        return self._answers(data, rows, test=True)

    def _answers(self, data: Examples, rows: Int64[Tensor, " b"], *, test: bool) -> Float[Tensor, "1 b k"]:
        if self._prepared is None or self._prepared[0] is not data:
            layout = layout_for(self._model, data.inputs(data.train_x[:2]))
            fixed = None if layout is ImageLayout.GIVEN else fixed_gates(self._model, data)
            self._prepared = data, fixed, layout
        _, fixed, layout = self._prepared
        with GradientsToo() if layout is ImageLayout.GRADIENTS else nullcontext():
            if fixed is not None:
                return fixed.answers(data, rows, test=test).unsqueeze(0)
            x = data.inputs((data.test_x if test else data.train_x)[rows])
            return self.forward((x if layout is ImageLayout.GIVEN else channels_last(x)).unsqueeze(0))

    def tensors(self) -> StateDict:
        """The model's state dict with an axis in front."""
        return {name: tensor.unsqueeze(0) for name, tensor in self._model.state_dict().items()}

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Load a state dict with an axis in front."""
        load_state(self._model, {name: tensor[0] for name, tensor in state.items()})


class StackedTeam(Team):
    """Fully connected networks of one shape, their weights stacked: (members, out, in).

    Each member sees its own batch; every layer is one batched product, which keeps the cores busy even if each network
    is small. The results equal those of training each network alone, up to the order of sums inside a product.
    """

    def __init__(self, models: Sequence[nn.Module]):
        if not can_stack(models[0]):
            raise UnsupportedModelError(
                f"{type(models[0]).__name__} cannot be batched: only dense layers, pointwise gates, flatten, sums"
            )
        shapes = [{name: p.shape for name, p in model.named_parameters()} for model in models]
        if any(shape != shapes[0] for shape in shapes):
            raise InputError("the models differ in shape; give models of one architecture")
        own = [dict(model.named_parameters()) for model in models]
        stacks = {
            id(parameter): nn.Parameter(torch.stack([one[name].detach() for one in own]), parameter.requires_grad)
            for name, parameter in own[0].items()
        }
        # deepcopy replaces an object by its entry in the memo: here, parameters and layers by their stacks. Built once:
        # torch.func.functional_call would swap the stacked parameters in again for every batch.
        together = copy.deepcopy(models[0], stacks | _substitutes(models[0], stacks))
        super().__init__(len(models), together, copy.deepcopy(models[0]))
        self._mode = _FlattenMembers if _flattens(models[0]) else nullcontext

    def forward(self, x: Float[Tensor, "e b ..."]) -> Float[Tensor, "e b k"]:
        """All members' answers at once."""
        with self._mode():
            return self._model(x)

    def tensors(self) -> StateDict:
        """The stacked parameters; such a network has no buffers."""
        return dict(self._model.named_parameters())

    @torch.no_grad()
    def load(self, state: Mapping[str, Tensor]) -> None:
        """Copy stacked parameters from ``state``."""
        for name, tensor in self.tensors().items():
            tensor.copy_(state[name])


def can_stack(model: nn.Module) -> bool:
    """Whether the model only has dense layers, pointwise operations and flattening."""
    try:
        network = read(model)
    except (InputError, UnsupportedModelError):
        return False
    nodes = [node for node in network.nodes if node.op not in ("placeholder", "output")]
    return not list(model.buffers()) and all(_stacks(network, node) for node in nodes)


def _stacks(network: Network, node: Node) -> bool:
    """Whether a node is unaffected by an axis before the examples, or the team handles it."""
    if network.operation(node) == "linear":
        return node.op == "call_module"  # its replacement is a module
    if network.operation(node) == "flatten":
        call = network.call(node)
        return (call["start_dim"], call["end_dim"]) == (1, -1)
    if node.op == "call_module" and list(network.modules[str(node.target)].parameters()):
        return False  # a PReLU learns its slopes
    pointwise = network.kind(node) in _POINTWISE or network.operation(node) == "identity"
    return pointwise and all(source.op != "get_attr" for source in node.all_input_nodes)


def _flattens(model: nn.Module) -> bool:
    """Whether forward calls ``flatten`` as a function."""
    network = read(model)
    return any(network.operation(node) == "flatten" and node.op != "call_module" for node in network.nodes)


def _substitutes(model: nn.Module, stacks: Mapping[int, nn.Parameter]) -> dict[int, nn.Module]:
    """Return, by identity, the replacements for dense layers and flattening, which act after the axis of members."""
    found: dict[int, nn.Module] = {}
    for module in model.modules():
        if isinstance(module, nn.Linear):
            bias = None if module.bias is None else stacks[id(module.bias)]
            found[id(module)] = _StackedDense(stacks[id(module.weight)], bias)
        elif isinstance(module, nn.Flatten):
            found[id(module)] = nn.Flatten(2)
    return found


class _StackedDense(nn.Module):
    """A dense layer for each member."""

    def __init__(self, weight: nn.Parameter, bias: nn.Parameter | None):
        super().__init__()
        self.weight, self.bias = weight, bias

    def forward(self, x: Float[Tensor, "e b i"]) -> Float[Tensor, "e b o"]:
        if self.weight.numel() >= _LARGE_WEIGHT:
            return _StackedLinear.apply(x, self.weight, self.bias)
        return _stacked_linear(x, self.weight, self.bias)


class _FlattenMembers(TorchFunctionMode):
    """Makes ``flatten`` act after the axis of members."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in (torch.flatten, Tensor.flatten):
            return args[0].flatten(2)
        return func(*args, **(kwargs or {}))


def _stacked_linear(
    x: Float[Tensor, "e b i"], weight: Float[Tensor, "e o i"], bias: Float[Tensor, "e o"] | None
) -> Float[Tensor, "e b o"]:
    """A dense layer of each member."""
    return torch.bmm(x, weight.mT) if bias is None else torch.baddbmm(bias.unsqueeze(1), x, weight.mT)


class _StackedLinear(torch.autograd.Function):
    """The same; the weight's gradient is made in the weight's own layout, which saves a copy of it."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        ctx.save_for_backward(x, weight)
        return _stacked_linear(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        (gradient,) = gradients
        x, weight = ctx.saved_tensors
        needs_x, needs_weight, needs_bias = (*ctx.needs_input_grad, False)[:3]
        return (
            torch.bmm(gradient, weight) if needs_x else None,
            torch.bmm(gradient.mT, x) if needs_weight else None,
            gradient.sum(1) if needs_bias else None,
        )
