"""E_v[ŷ_v ŷ'_v] with the gates held fixed: the definition of the path kernel, by running the network itself.

Each gate operation of the forward pass is replaced by what the recorded gate does to its input; then the weights are
replaced by ±1 (times a scale), all sign patterns or many random ones.
"""

from itertools import product

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from gatelab.gates import GateKind, GatePattern, capture_gates
from gatelab.gates.operations import operation_name


class Replay(TorchFunctionMode):
    """Runs gate operations with recorded gates, in the order in which they were recorded."""

    def __init__(self, pattern: GatePattern):
        super().__init__()
        self._layers = [pattern.layer(name) for name in pattern.layers]
        self._next = 0

    def __torch_function__(self, func, types, args=(), kwargs=None):
        name = operation_name(func)
        if not (name in ("relu", "leaky_relu", "clamp", "gated") or "max_pool" in name):
            return func(*args, **(kwargs or {}))
        layer = self._layers[self._next]
        self._next += 1
        gates, q = layer.gates().to(args[0].dtype), args[0]
        if layer.kind is not GateKind.MAX_POOL:
            return q * (gates + layer.slope * (1 - gates))
        channels, high, wide = layer.shape[:3]
        window = (q.shape[2] // high, q.shape[3] // wide)
        taps = F.unfold(q, window, stride=window).view(q.shape[0], channels, -1, high, wide).permute(0, 1, 3, 4, 2)
        return (taps * gates).sum(dim=-1)


def _output(model: nn.Module, pattern: GatePattern, x: Tensor) -> Tensor:
    with Replay(pattern), torch.no_grad():
        return model(x)[:, 0]


def _weights(model: nn.Module, biases: bool) -> list[nn.Parameter]:
    layers = [m for m in model.modules() if isinstance(m, nn.Linear | nn.Conv2d)]
    for layer in layers:
        if layer.bias is not None and not biases:
            nn.init.zeros_(layer.bias)
    found = [layer.weight for layer in layers]
    return found + [layer.bias for layer in layers if biases and layer.bias is not None]


def exact_kernel(model: nn.Module, x: Tensor, *, biases: bool = False) -> Tensor:
    """The mean of ŷ ŷ' over all sign patterns of the weights; weights are left at ±1."""
    pattern = capture_gates(model, x)
    weights = _weights(model, biases)
    total, count = torch.zeros(len(x), len(x)), 0
    for signs in product((-1.0, 1.0), repeat=sum(w.numel() for w in weights)):
        _set(weights, torch.tensor(signs))
        y = _output(model, pattern, x)
        total, count = total + torch.outer(y, y), count + 1
    return total / count


def sampled_kernel(
    model: nn.Module, x: Tensor, draws: int, *, normalise: bool = False, first: tuple[str, ...] = ()
) -> tuple[Tensor, Tensor]:
    """Mean and standard error of ŷ ŷ' over random signs; scaled by 1/√fan_in but in the ``first`` layers."""
    pattern = capture_gates(model, x)
    weights = _weights(model, biases=False)
    names = {id(p): name for name, p in model.named_parameters()}
    scales = [
        w[0].numel() ** -0.5 if normalise and names[id(w)].removesuffix(".weight") not in first else 1.0
        for w in weights
    ]
    generator = torch.Generator().manual_seed(0)
    products = []
    for _ in range(draws):
        signs = torch.randint(2, (sum(w.numel() for w in weights),), generator=generator) * 2.0 - 1
        _set(weights, signs, scales)
        y = _output(model, pattern, x)
        products.append(torch.outer(y, y))
    stack = torch.stack(products)
    return stack.mean(dim=0), stack.std(dim=0) / draws**0.5


@torch.no_grad()
def _set(weights: list[nn.Parameter], values: Tensor, scales: list[float] | None = None) -> None:
    for position, (weight, part) in enumerate(zip(weights, values.split([w.numel() for w in weights]), strict=True)):
        weight.copy_(part.view_as(weight) * (scales[position] if scales else 1.0))
