"""Any piecewise linear model by its derivatives: gates held fixed, every sign pattern of the weights.

One run records the derivative of each activation and the winners of each maximum; then the weights are replaced and
the record is replayed. Nothing of gatelab is used.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call
from torch.overrides import TorchFunctionMode

from tests.references.replay import fan_in

_ACTIVATIONS = frozenset("relu leaky_relu prelu relu6 hardtanh clamp clip clamp_min clamp_max threshold abs".split())
_LAYERS = (nn.Linear, nn.modules.conv._ConvNd)


def _name(func: Callable) -> str:
    return getattr(func, "__name__", "").strip("_")


def _derivative(func: Callable, args: tuple, kwargs: dict) -> Tensor:
    with torch.enable_grad():
        q = args[0].detach().clone().requires_grad_(True)
        value = func(q.clone(), *args[1:], **kwargs)
        (slope,) = torch.autograd.grad(value.sum(), q)
    return slope


class Record(TorchFunctionMode):
    """Note the derivative of every activation, and the winners of every max-pooling, in order."""

    def __init__(self):
        super().__init__()
        self.events: list[Tensor] = []
        self.activations: list[Tensor] = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        name, kwargs = _name(func), kwargs or {}
        if name in _ACTIVATIONS:
            self.events.append(_derivative(func, args, kwargs))
            self.activations.append(self.events[-1])
        elif "max_pool" in name:
            pool = getattr(F, f"{name.removesuffix('_with_indices')}_with_indices")
            kwargs_of_pool = {key: value for key, value in kwargs.items() if key != "return_indices"}
            self.events.append(pool(*args, **kwargs_of_pool)[1])
        return func(*args, **kwargs)


class Replay(TorchFunctionMode):
    """Run activations and maxima as they were recorded."""

    def __init__(self, events: list[Tensor]):
        super().__init__()
        self._events = iter(events)

    def __torch_function__(self, func, types, args=(), kwargs=None):
        name, kwargs = _name(func), kwargs or {}
        if name in _ACTIVATIONS:
            result = args[0] * next(self._events)
            return args[0].copy_(result) if func.__name__.endswith("_") or kwargs.get("inplace") else result
        if name == "batch_norm":
            return args[0]  # a value, which counts as one
        if "max_pool" in name:
            winners = next(self._events)
            picked = args[0].flatten(2).gather(2, winners.flatten(2)).unflatten(2, winners.shape[2:])
            return (picked, winners) if kwargs.get("return_indices") or name.endswith("indices") else picked
        return func(*args, **kwargs)


@torch.no_grad()
def path_kernel(model: nn.Module, x: Tensor, *, normalise: bool, extra: tuple[str, ...] = ()) -> Tensor:
    """The mean of ŷŷ' over all sign patterns of the weights and over the outputs, with constants left out.

    Biases and everything else that is added count for nothing: what a network adds to zero input is subtracted.
    """
    with Record() as record:
        model(x.clone())
    weights = _weights(model, extra)
    scales = _scales(model, weights, x, normalise=normalise)
    count = sum(weight.numel() for weight in weights.values())
    if count > 14:
        raise AssertionError(f"{count} weights are too many to try all signs")
    signs = (torch.arange(2**count)[:, None] >> torch.arange(count) & 1) * 2.0 - 1
    sizes = [weight.numel() for weight in weights.values()]
    neutral = {name: torch.zeros_like(p) for name, p in model.named_parameters() if name.endswith("bias")}

    def output(row: Tensor) -> Tensor:
        parts = zip(weights.items(), row.split(sizes), scales, strict=True)
        values = neutral | {name: part.view_as(weight) * scale for (name, weight), part, scale in parts}
        y = _replayed(model, values, x, record.events)
        return (y - _replayed(model, values, torch.zeros_like(x), record.events)).flatten(1)

    y = torch.func.vmap(output, chunk_size=1024)(signs)
    return torch.einsum("snk,smk->nm", y, y) / (y.shape[0] * y.shape[2])


def _replayed(model: nn.Module, values: dict[str, Tensor], x: Tensor, events: list[Tensor]) -> Tensor:
    with Replay(events):
        return functional_call(model, values, (x.clone(),))


def _weights(model: nn.Module, extra: tuple[str, ...]) -> dict[str, Tensor]:
    layers = {name for name, module in model.named_modules() if isinstance(module, _LAYERS)}
    named = {name: p.detach() for name, p in model.named_parameters()}
    return {n: p for n, p in named.items() if n in extra or (n.endswith("weight") and n.rpartition(".")[0] in layers)}


def _scales(model: nn.Module, weights: dict[str, Tensor], x: Tensor, *, normalise: bool) -> list[float]:
    """1/√fan_in behind the first layer; a layer is first if no other weight moves what it reads."""
    if not normalise:
        return [1.0] * len(weights)
    reads = _first_layers(model, weights, x)
    return [1.0 if name in reads else _fan_in(model, name) ** -0.5 for name in weights]


def _fan_in(model: nn.Module, name: str) -> int:
    owner = model.get_submodule(name.rpartition(".")[0])
    return fan_in(owner) if isinstance(owner, _LAYERS) else model.get_parameter(name)[0].numel()


def _first_layers(model: nn.Module, weights: dict[str, Tensor], x: Tensor) -> set[str]:
    """The weights whose layer still reads the same when all other weights are doubled."""
    first = set()
    for name in weights:
        others = {other: 2 * weight for other, weight in weights.items() if other != name}
        if torch.equal(_inputs_of(model, name, {}, x), _inputs_of(model, name, others, x)):
            first.add(name)
    return first


def _inputs_of(model: nn.Module, name: str, values: dict[str, Tensor], x: Tensor) -> Tensor:
    """What meets a weight in its operation."""
    seen: list[Tensor] = []

    class Watch(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            if len(args) > 1 and _same_memory(args[1], target) and isinstance(args[0], Tensor):
                seen.append(args[0].detach().clone())
            return func(*args, **(kwargs or {}))

    target = model.get_parameter(name).detach().clone()
    with Watch():
        functional_call(model, {**values, name: target}, (x.clone(),))
    return torch.cat([part.flatten() for part in seen]) if seen else torch.zeros(0)


def _same_memory(one: object, other: Tensor) -> bool:
    return isinstance(one, Tensor) and one.untyped_storage().data_ptr() == other.untyped_storage().data_ptr()


def open_gates(model: nn.Module, x: Tensor) -> list[Tensor]:
    """Where each activation has the slope one, in order of execution."""
    with Record() as record, torch.no_grad():
        model(x.clone())
    return [slope == 1.0 for slope in record.activations]
