"""How a model uses its parameters, and what each use contributes to the gradient of one example.

A weight used by ``F.linear`` or ``conv2d`` on an example has the gradient Σ_p δ(p) a(p)ᵀ: inputs a and back-propagated
signals δ, summed over the positions p at which the weight is applied (one for a dense layer, all pixels for a
convolution, all tokens for a dense layer on sequences, and once more for every reuse of the weight). The scale of a
batch norm is such a weight in every channel, applied to the normalised input.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor
from torch.overrides import TorchFunctionMode

from gatelab.errors import UnsupportedModelError
from gatelab.gates.pooling import per_axis
from gatelab.network.calls import bound
from gatelab.network.operations import operation_name, tensors_in

_STRUCTURED = frozenset({"linear", "conv2d", "batch_norm"})  # operations whose gradient has a known form


@dataclass(frozen=True)
class Convolution:
    """The geometry of a 2-D convolution."""

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int


@dataclass(frozen=True)
class Normalisation:
    """The statistics of a batch norm in evaluation mode."""

    mean: Tensor
    variance: Tensor
    eps: float

    def __call__(self, x: Float[Tensor, "n c ..."]) -> Float[Tensor, "n c ..."]:
        """Return x without the scale and the shift."""
        channels = (1, -1, *(1,) * (x.ndim - 2))
        return ((x - self.mean.view(channels)) * (self.variance + self.eps).rsqrt().view(channels)).to(x.dtype)


@dataclass
class LayerUse:
    """One call of a dense layer, a convolution or a batch norm.

    Attributes:
        weight: name of the weight, if its gradient is wanted.
        bias: name of the bias, if its gradient is wanted.
        layer_input: the input of the layer.
        probe: zeros that were added to the layer's output; the gradient that reaches them is the signal δ. (The output
            itself may be overwritten by an in-place ReLU.)
        geometry: the convolution or the batch norm; None for a dense layer.
        version: torch's version counter of the input, which shows whether it was overwritten later.
    """

    weight: str | None
    bias: str | None
    layer_input: Tensor
    probe: Tensor
    geometry: Convolution | Normalisation | None
    version: int

    @property
    def intact(self) -> bool:
        """Whether the layer's input is unchanged since the layer read it."""
        return self.layer_input._version == self.version

    @property
    def kind(self) -> object:
        """What two uses of one weight must have in common, so that their gradients have one form."""
        shape = self.geometry
        return (shape.kernel, shape.groups) if isinstance(shape, Convolution) else type(shape)

    def inputs(self) -> Float[Tensor, "n g p i"]:
        """Return the inputs of each position in each group."""
        x = self.layer_input
        if self.geometry is None:
            return x.reshape(x.shape[0], 1, -1, x.shape[-1])
        if isinstance(self.geometry, Normalisation):
            return self.geometry(x).reshape(*x.shape[:2], -1, 1)
        shape = self.geometry
        patches = F.unfold(x, shape.kernel, shape.dilation, shape.padding, shape.stride)
        return patches.unflatten(1, (shape.groups, -1)).transpose(2, 3)

    def signals(self, deltas: Float[Tensor, "n k ..."]) -> Float[Tensor, "n k g p o"]:
        """Return the signals of each output, arranged like :meth:`inputs`."""
        if self.geometry is None:
            return deltas.reshape(*deltas.shape[:2], 1, -1, deltas.shape[-1])
        if isinstance(self.geometry, Normalisation):
            return deltas.reshape(*deltas.shape[:3], -1, 1)
        return deltas.flatten(3).unflatten(2, (self.geometry.groups, -1)).transpose(3, 4)


class ParameterUses(TorchFunctionMode):
    """Watches one forward pass and sorts uses of parameters into layers and everything else.

    Attributes:
        uses: calls of dense layers, convolutions and batch norms.
        unstructured: names of parameters used in any other way.
    """

    def __init__(self, parameters: dict[str, Tensor], replaced: Mapping[str, Tensor]):
        """Watch these tensors, which the model must use itself, not copies of them.

        Args:
            parameters: what the model uses in place of its parameters.
            replaced: the parameters themselves; a model that still uses one bypasses its own attribute.
        """
        super().__init__()
        self._names = {id(tensor): name for name, tensor in parameters.items()}
        self._replaced = {id(tensor): name for name, tensor in replaced.items()}
        self.uses: list[LayerUse] = []
        self.unstructured: set[str] = set()

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run one operation and record the parameters in it."""
        del types
        kwargs = kwargs or {}
        given = list(tensors_in(args, kwargs))
        if past := [self._replaced[id(t)] for t in given if id(t) in self._replaced]:
            raise UnsupportedModelError(
                f"parameter '{past[0]}' is used outside its module (in a closure or a replaced forward), where no "
                "gradient reaches it; use it as an attribute of the module that owns it"
            )
        used = {self._names[id(t)] for t in given if id(t) in self._names}
        if not used:
            return func(*args, **kwargs)
        result = func(*args, **kwargs)
        if not any(t.requires_grad and id(t) not in self._names for t in tensors_in(result)):
            return result  # a shape, a detached copy: no gradient flows through it
        use = self._layer_use(func, args, kwargs, result)
        if use is None or used != {use.weight, use.bias} - {None}:
            self.unstructured |= used
            return result
        self.uses.append(use)
        return result.add_(use.probe)  # in place: nothing else holds the result yet

    def _layer_use(
        self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], out: Any
    ) -> LayerUse | None:
        operation = operation_name(func)
        if operation not in _STRUCTURED or any(isinstance(value, str) for value in kwargs.values()):
            return None
        call = bound(func, args, kwargs)
        x, weight, bias = call["input"], call["weight"], call["bias"]
        if not isinstance(x, Tensor) or x.ndim < 2 or id(x) in self._names:
            return None
        geometry = None
        if operation == "conv2d":
            if x.ndim != 4 or isinstance(call["padding"], str):
                return None
            pairs = {name: per_axis(call[name], 2) for name in ("stride", "padding", "dilation")}
            geometry = Convolution(tuple(call["weight"].shape[2:]), groups=int(call["groups"]), **pairs)
        elif operation == "batch_norm":
            if call.mixes_examples:
                return None
            geometry = Normalisation(call["running_mean"], call["running_var"], float(call["eps"]))
        one = torch.zeros((), dtype=out.dtype, device=out.device)
        probe = one.expand_as(out).requires_grad_()  # takes no memory
        weight_name, bias_name = self._names.get(id(weight)), self._names.get(id(bias))
        return LayerUse(weight_name, bias_name, x.detach(), probe, geometry, x._version)
