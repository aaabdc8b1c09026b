"""Random activations and poolings, in the styles in which people write them."""

from dataclasses import replace
from random import Random

import torch
import torch.nn.functional as F
from torch import Tensor

from tests.attacks.fuzz.programs import Gated, Selected


def _leaky(slope: float) -> Gated:
    return Gated(
        lambda q: torch.where(q > 0, q, slope * q),
        lambda q: torch.where(q > 0, 1.0, slope).to(q.dtype),
        lambda q: q > 0,
        "leaky_relu",
    )


def _bounded(low: float, high: float, name: str) -> Gated:
    def inside(q: Tensor) -> Tensor:
        return (q > low) & (q < high)

    return Gated(lambda q: q.clamp(low, high), lambda q: inside(q).to(q.dtype), inside, name)


def _soft(name: str) -> Gated:
    """A smooth activation; its factor is f(q)/q, which is what multiplies q, and f'(0) at 0."""
    function = getattr(F, name)
    zero = torch.zeros((), dtype=torch.float64, requires_grad=True)
    with torch.enable_grad():
        (slope,) = torch.autograd.grad(function(zero), zero)
    return Gated(function, lambda q: torch.where(q == 0, slope, function(q) / q), lambda q: q > 0, name)


SOFT = ("silu", "gelu", "mish", "hardswish", "elu", "selu")
MODULES = {"silu": "SiLU", "gelu": "GELU", "mish": "Mish", "hardswish": "Hardswish", "elu": "ELU", "selu": "SELU"}
RELU = Gated(lambda q: q * (q > 0), lambda q: (q > 0).to(q.dtype), lambda q: q > 0)


def activation(random: Random, channels: int, *, in_place: bool, soft: bool = False) -> tuple[str, str | None, Gated]:
    """Return a call with ``{v}`` for its argument, the module it needs (or None), and its meaning.

    With ``soft`` half of the activations are smooth ones.
    """
    if soft and random.random() < 0.5:
        kind = random.choice(SOFT)
        return f"F.{kind}({{v}})", f"nn.{MODULES[kind]}()" if random.random() < 0.5 else None, _soft(kind)
    kinds = ("relu",) * 20 + ("leaky_relu",) * 6 + ("clamp",) * 2 + ("relu6", "hardtanh", "threshold", "prelu")
    kind = random.choice(kinds)
    last = ", inplace=True" if in_place else ""
    slope = random.choice((0.01, 0.1, 0.5, 1.5) if in_place else (0.01, 0.1, 0.5, 1.5, -0.25))
    low, high = random.choice(((-0.5, 0.7), (0.0, 1.0), (-1.0, 1.0), (0.1, 0.9)))
    relus = ("F.relu_({v})", "{v}.relu_()", "torch.relu_({v})") if in_place else ("F.relu({v})", "torch.relu({v})")
    clamps = ("{v}.clamp(min=0)", "torch.clamp({v}, min=0.0)", "{v}.clamp_min(0)")
    call, module, meaning = {
        "relu": (random.choice(relus), f"nn.ReLU({in_place})", RELU),
        "leaky_relu": (f"F.leaky_relu({{v}}, {slope}{last})", f"nn.LeakyReLU({slope}{last})", _leaky(slope)),
        "clamp": (random.choice(clamps), None, RELU),
        "relu6": (f"F.relu6({{v}}{last})", f"nn.ReLU6({in_place})", _bounded(0.0, 6.0, kind)),
        "hardtanh": (f"F.hardtanh({{v}}, {low}, {high})", f"nn.Hardtanh({low}, {high})", _bounded(low, high, kind)),
        "threshold": ("F.threshold({v}, 0, 0)", "nn.Threshold(0, 0)", RELU),
        "prelu": ("", f"nn.PReLU({random.choice((1, channels))}, init=0.3)", replace(_leaky(0.3), name=kind)),
    }[kind]
    return call, module if kind == "prelu" or random.random() < 0.5 else None, meaning


def overwrites(line: str) -> bool:
    """Whether an activation, as written, overwrites its argument."""
    return any(mark in line for mark in ("inplace=True", "relu_(", "ReLU(True)", "ReLU6(True)"))


def max_pooling(random: Random, size: tuple[int, ...]) -> tuple[str, str, Selected]:
    """Return a call with ``{v}``, a module, and the meaning."""
    axes = len(size)
    window = random.choice([k for k in (1, 2, 3) if k <= min(size)])
    stride = random.choice((1, 2, window))
    padding = random.choice((0, window // 2))
    dilation = 2 if window == 2 and min(size) > 3 and random.random() < 0.2 else 1
    ceil = random.random() < 0.25
    arguments = f"{window}, {stride}, {padding}, dilation={dilation}, ceil_mode={ceil}"
    pool = (F.max_pool1d, F.max_pool2d)[axes - 1]
    meaning = Selected(lambda q: pool(q, window, stride, padding, dilation, ceil, return_indices=True))
    return f"F.max_pool{axes}d({{v}}, {arguments})", f"nn.MaxPool{axes}d({arguments})", meaning


def adaptive_max_pooling(random: Random, size: tuple[int, ...]) -> tuple[str, str, Selected]:
    """Return a call with ``{v}``, a module, and the meaning."""
    axes, goal = len(size), random.choice([k for k in (1, 2, 3) if k <= min(size)])
    pool = (F.adaptive_max_pool1d, F.adaptive_max_pool2d)[axes - 1]
    meaning = Selected(lambda q: pool(q, goal, return_indices=True), uneven=any(side % goal for side in size))
    return f"F.adaptive_max_pool{axes}d({{v}}, {goal})", f"nn.AdaptiveMaxPool{axes}d({goal})", meaning
