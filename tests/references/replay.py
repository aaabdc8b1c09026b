"""E_v[ŷ_v ŷ'_v] with the gates held fixed: the definition of the path kernel, by running the network itself.

One run of the network records what each gate operation does to its input, independently of gatelab's own capture.
Then the weights are replaced by ±1 (times a scale), all sign patterns or many random ones, and the record is replayed.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.nn.modules.conv import _ConvNd, _ConvTransposeNd
from torch.overrides import TorchFunctionMode

_GATES = ("relu", "leaky_relu", "clamp", "gated", "hardtanh", "relu6")


def _name(func) -> str:
    return getattr(func, "__name__", "").strip("_")


class Record(TorchFunctionMode):
    """Note the factor of every gate, and the winners of every max-pooling, in order."""

    def __init__(self):
        super().__init__()
        self.events = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        name, kwargs = _name(func), kwargs or {}
        if name in _GATES:
            self.events.append(_factor(name, args, kwargs))
        elif "max_pool" in name and name != "gated_max_pool":
            self.events.append(getattr(F, f"{name.removesuffix('_with_indices')}_with_indices")(*args, **kwargs)[1])
        return func(*args, **kwargs)


def _factor(name: str, args, kwargs) -> Tensor:
    q = args[1] if name == "gated" else args[0]
    if name == "gated":
        return args[2](q)
    if name == "leaky_relu":
        slope = args[1] if len(args) > 1 else kwargs.get("negative_slope", 0.01)
        return torch.where(q > 0, 1.0, slope)
    if name in ("hardtanh", "relu6"):
        low, high = (0.0, 6.0) if name == "relu6" else (*args[1:3], kwargs.get("min_val"), kwargs.get("max_val"))[:2]
        return ((q > low) & (q < high)).to(q.dtype)
    return (q > 0).to(q.dtype)


class Replay(TorchFunctionMode):
    """Run gate operations as they were recorded."""

    def __init__(self, events):
        super().__init__()
        self._events = iter(events)

    def __torch_function__(self, func, types, args=(), kwargs=None):
        name = _name(func)
        if name in _GATES:
            return args[0] * next(self._events)
        if "max_pool" in name and name != "gated_max_pool":
            winners = next(self._events)
            value = args[0].flatten(2).gather(2, winners.flatten(2).expand(args[0].shape[0], -1, -1))
            return value.view(args[0].shape[0], *winners.shape[1:])
        return func(*args, **(kwargs or {}))


def exact_kernel(model: nn.Module, x: Tensor, *, biases: bool = False) -> Tensor:
    """The mean of ŷ ŷ' over all sign patterns of the weights, and over the outputs."""
    weights = _weights(model, biases)
    count = sum(weight.numel() for weight in weights.values())
    signs = (torch.arange(2**count)[:, None] >> torch.arange(count) & 1) * 2.0 - 1
    y = _outputs(model, x, weights, signs)
    return torch.einsum("dnk,dmk->nm", y, y) / (y.shape[0] * y.shape[2])


def sampled_kernel(
    model: nn.Module, x: Tensor, draws: int, *, normalise: bool = False, first: tuple[str, ...] = ()
) -> tuple[Tensor, Tensor]:
    """Return mean and standard error of ŷ ŷ' over random signs, scaled by 1/√fan_in except in the ``first`` layers."""
    weights = _weights(model, biases=False)
    scales = []
    for name, weight in weights.items():
        owner = name.removesuffix(".weight")
        scaled = normalise and owner not in first
        scales.append(torch.full((weight.numel(),), fan_in(model.get_submodule(owner)) ** -0.5 if scaled else 1.0))
    generator = torch.Generator().manual_seed(0)
    signs = torch.randint(2, (draws, sum(map(len, scales))), generator=generator) * 2.0 - 1
    y = _outputs(model, x, weights, signs * torch.cat(scales))
    products = torch.einsum("dnk,dmk->dnm", y, y) / y.shape[2]
    return products.mean(dim=0), products.std(dim=0) / draws**0.5


def fan_in(layer: nn.Module) -> int:
    """How many weights each output sums."""
    if isinstance(layer, _ConvTransposeNd):
        return layer.weight[:, 0].numel() // layer.groups
    return layer.weight[0].numel()


def _weights(model: nn.Module, biases: bool) -> dict[str, Tensor]:
    """The parameters that become signs: weights and, on request, biases of dense and convolutional layers."""
    kinds = {name for name, m in model.named_modules() if isinstance(m, nn.Linear | _ConvNd)}
    ends = ("weight", "bias") if biases else ("weight",)
    named = model.named_parameters()
    return {name: p.detach() for name, p in named if name.rpartition(".")[0] in kinds and name.endswith(ends)}


@torch.no_grad()
def _outputs(model: nn.Module, x: Tensor, weights: dict[str, Tensor], values: Tensor) -> Tensor:
    """All outputs under recorded gates, one row for each row of values; parameters that are no weights are zero.

    A batch-norm's own scale stays: the test networks have one that does nothing.
    """
    with Record() as record:
        model(x)
    fixed = {name: torch.zeros_like(p) for name, p in model.named_parameters() if name.endswith("bias")}
    sizes = [weight.numel() for weight in weights.values()]

    def output(row: Tensor) -> Tensor:
        parts = zip(weights.items(), row.split(sizes), strict=True)
        with Replay(record.events):
            y = functional_call(model, fixed | {name: part.view_as(w) for (name, w), part in parts}, (x,))
        return y.flatten(1)

    return vmap(output, chunk_size=1024)(values)
