"""E_v[ŷ_v ŷ'_v] with the gates held fixed: the definition of the path kernel, by running the network itself.

Each gate operation of the forward pass is replaced by what the recorded gate does to its input; then the weights are
replaced by ±1 (times a scale), all sign patterns or many random ones, side by side.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.overrides import TorchFunctionMode

from gatelab.gates import GatePattern, capture_gates
from gatelab.gates.operations import operation_name
from gatelab.gates.pattern import GateKind


class Replay(TorchFunctionMode):
    """Run gate operations with recorded gates, in the order of recording."""

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


def exact_kernel(model: nn.Module, x: Tensor, *, biases: bool = False) -> Tensor:
    """The mean of ŷ ŷ' over all sign patterns of the weights."""
    weights = _weights(model, biases)
    count = sum(weight.numel() for weight in weights.values())
    signs = (torch.arange(2**count)[:, None] >> torch.arange(count) & 1) * 2.0 - 1
    y = _outputs(model, x, weights, signs)
    return y.T @ y / len(y)


def sampled_kernel(
    model: nn.Module, x: Tensor, draws: int, *, normalise: bool = False, first: tuple[str, ...] = ()
) -> tuple[Tensor, Tensor]:
    """Return mean and standard error of ŷ ŷ' over random signs, scaled by 1/√fan_in except in the ``first`` layers."""
    weights = _weights(model, biases=False)
    scales = [
        torch.full((weight.numel(),), weight[0].numel() ** -0.5)
        if normalise and name.removesuffix(".weight") not in first
        else torch.ones(weight.numel())
        for name, weight in weights.items()
    ]
    generator = torch.Generator().manual_seed(0)
    signs = torch.randint(2, (draws, sum(map(len, scales))), generator=generator) * 2.0 - 1
    y = _outputs(model, x, weights, signs * torch.cat(scales))
    products = y[:, :, None] * y[:, None, :]
    return products.mean(dim=0), products.std(dim=0) / draws**0.5


def _weights(model: nn.Module, biases: bool) -> dict[str, Tensor]:
    """The parameters that become signs: weights and, on request, biases of dense and convolutional layers."""
    kinds = {name for name, m in model.named_modules() if isinstance(m, nn.Linear | nn.Conv2d)}
    ends = ("weight", "bias") if biases else ("weight",)
    named = model.named_parameters()
    return {name: p.detach() for name, p in named if name.rpartition(".")[0] in kinds and name.endswith(ends)}


@torch.no_grad()
def _outputs(model: nn.Module, x: Tensor, weights: dict[str, Tensor], values: Tensor) -> Tensor:
    """The first output under recorded gates, one row for each row of values; parameters that are no weights are zero.

    A batch-norm's own scale stays: the test networks have one that does nothing.
    """
    pattern = capture_gates(model, x)
    fixed = {name: torch.zeros_like(p) for name, p in model.named_parameters() if name.endswith("bias")}
    sizes = [weight.numel() for weight in weights.values()]

    def output(row: Tensor) -> Tensor:
        parts = zip(weights.items(), row.split(sizes), strict=True)
        with Replay(pattern):
            return functional_call(model, fixed | {name: part.view_as(w) for (name, w), part in parts}, (x,))[:, 0]

    return vmap(output, chunk_size=1024)(values)
