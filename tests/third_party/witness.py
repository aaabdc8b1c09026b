"""An account of a network's ReLU calls that owes nothing to gatelab's own capture."""

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from gatelab.gates import GatePattern
from gatelab.gates.layer import GateKind

_OPEN = {  # what a call lets through, by its plain name
    "relu": lambda q: q > 0,
    "leaky_relu": lambda q: q > 0,
    "prelu": lambda q: q > 0,
    "relu6": lambda q: (q > 0) & (q < 6),
}


class Witness(TorchFunctionMode):
    """Note which units every ReLU-like call opens, in order, before the call overwrites its input."""

    def __init__(self):
        super().__init__()
        self.calls: list[Tensor] = []
        self.outputs: list[Tensor] = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        name = getattr(func, "__name__", "").strip("_")
        if name == "hardtanh":  # nn.ReLU6 calls it
            bounds = (*args[1:3], *((kwargs or {}).get(bound) for bound in ("min_val", "max_val")))[:2]
            assert bounds == (0.0, 6.0), "a Hardtanh that is not ReLU6"
            name = "relu6"
        if name not in _OPEN:
            return func(*args, **(kwargs or {}))
        self.calls.append(_OPEN[name](args[0].detach()))
        result = func(*args, **(kwargs or {}))
        self.outputs.append(result)
        return result


def relu_calls(net: nn.Module, x: Tensor) -> list[Tensor]:
    """Return the open units of every ReLU call whose result reaches the output, in order of execution."""
    x = x.clone().requires_grad_()
    with Witness() as witness:
        y = net(x)
    try:
        reached = torch.autograd.grad(y.sum(), witness.outputs, allow_unused=True)
    except RuntimeError:  # revnet38 cannot be differentiated; all its calls reach the output
        return witness.calls
    return [call for call, gradient in zip(witness.calls, reached, strict=True) if gradient is not None]


def relu_gates(pattern: GatePattern) -> list[Tensor]:
    """Return the captured gates of the same calls: all but those of max-pooling."""
    return [pattern[name] for name in pattern.layers if pattern.layer(name).kind is not GateKind.MAX_POOL]


def agree(pattern: GatePattern, calls: list[Tensor]) -> bool:
    """Whether captured gates are those of the calls: in the same order, bit for bit.

    They are as many, unless the network has soft gates: then some calls only decide, as in squeeze-and-excitation.
    """
    captured = [gates for gates in relu_gates(pattern) if gates.dtype == torch.bool]
    if pattern.kind == "bits" and len(captured) != len(calls):
        return False
    waiting = iter(calls)
    return all(any(torch.equal(gates, call) for call in waiting) for gates in captured)
