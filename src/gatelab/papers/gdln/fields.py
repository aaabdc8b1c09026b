"""Receptive fields while they form: networks with a fixed mean readout, trained on fresh batches (gdln, Section 1)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import log10
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from gatelab.data import TwoClasses
from gatelab.models import MeanReadoutNetwork
from gatelab.models.gdln import Erf

Tell = Callable[[float, str], None]


class Activation(StrEnum):
    """The three activations of the notes."""

    RELU = "ReLU"
    ERF = "erf"
    SIGMOID = "sigmoid"

    def module(self) -> nn.Module:
        """Return the activation as a module."""
        return {Activation.RELU: nn.ReLU, Activation.ERF: Erf, Activation.SIGMOID: nn.Sigmoid}[self]()


@dataclass(frozen=True)
class Descent:
    """Gradient descent on ½(y − ŷ)² over fresh balanced batches.

    Attributes:
        steps: number of steps.
        rate: learning rate of the hidden layer. That of the readout's bias is capped at 0.5, since its curvature is 1.
        batch: examples per step.
        scale: scale of the initial weights.
        bias: initial value of the biases; None for no biases.
    """

    steps: int
    rate: float
    batch: int
    scale: float = 0.1
    bias: float | None = None


class Fields(NamedTuple):
    """The records of all runs.

    Attributes:
        steps: recorded steps, 0 first.
        weights: receptive fields (times, runs, units, sites).
        loss: ½⟨(y − ŷ)²⟩ on the current batch.
    """

    steps: tuple[int, ...]
    weights: Float[Tensor, "t r k d"]
    loss: Float[Tensor, "t r"]


def train_fields(
    source: TwoClasses,
    activation: Activation,
    units: int,
    seeds: Sequence[int],
    descent: Descent,
    *,
    records: int = 40,
    tell: Tell | None = None,
    dtype: torch.dtype = torch.float32,
) -> Fields:
    """Train one network per seed; all see the same batches, so they differ only by their initial weights."""
    networks = [
        MeanReadoutNetwork(
            source.dim,
            units,
            activation.module(),
            bias=descent.bias,
            scale=descent.scale,
            dtype=dtype,
            generator=torch.Generator().manual_seed(seed),
        )
        for seed in seeds
    ]
    weights = torch.stack([network.weights.detach() for network in networks]).requires_grad_()
    bias = torch.full((len(seeds), units), descent.bias or 0.0, dtype=dtype, requires_grad=descent.bias is not None)
    readout = torch.zeros(len(seeds), dtype=dtype, requires_grad=descent.bias is not None)
    moving = [(weights, descent.rate)]
    if descent.bias is not None:
        moving += [(bias, descent.rate), (readout, min(descent.rate, 0.5))]
    sigma = activation.module()
    wanted = recorded_steps(descent.steps, records)
    kept = []
    stream = source.stream(descent.batch, generator=torch.Generator().manual_seed(seeds[0] + 10_000), dtype=dtype)
    for step, (x, y) in zip(range(descent.steps + 1), stream, strict=False):
        hidden = torch.einsum("nd,rkd->rnk", x, weights) + bias[:, None, :]
        losses = (sigma(hidden).mean(dim=2) + readout[:, None] - y).square().mean(dim=1) / 2
        if step in wanted:
            kept.append((weights.detach().clone(), losses.detach()))
        gradients = torch.autograd.grad(losses.sum(), [p for p, _ in moving])
        with torch.no_grad():
            for (parameter, rate), gradient in zip(moving, gradients, strict=True):
                parameter.sub_(rate * gradient)
        _report(tell, step, descent.steps)
    return _fields(wanted, kept)


def relu_descent(
    x: Float[Tensor, "n d"],
    y: Float[Tensor, " n"],
    initial: Float[Tensor, "r k d"],
    steps: int,
    rate: float,
    *,
    records: int,
    tell: Tell | None = None,
) -> Fields:
    """Train bias-free ReLU networks by descent on all of a fixed data set; only their gates make them nonlinear.

    One step with rate η advances the flow with τ = 1 by time η.
    """
    w, K = initial.clone(), initial.shape[1]
    wanted = recorded_steps(steps, records)
    kept = []
    for step in range(steps + 1):
        hidden = torch.einsum("nd,rkd->rnk", x, w)
        error = y - hidden.clamp(min=0).mean(dim=2)
        if step in wanted:
            kept.append((w, error.square().mean(dim=1) / 2))
        w = w + torch.einsum("rnk,nd->rkd", (hidden > 0) * error[:, :, None], x) * (rate / (K * len(x)))
        _report(tell, step, steps)
    return _fields(wanted, kept)


def _report(tell: Tell | None, step: int, steps: int) -> None:
    if tell is not None and step % 100 == 0:
        tell(step / steps, f"step {step} of {steps}")


def _fields(steps: set[int], kept: list[tuple[Tensor, Tensor]]) -> Fields:
    weights, losses = (torch.stack(part) for part in zip(*kept, strict=True))
    return Fields(tuple(sorted(steps)), weights, losses)


def starts(seeds: Sequence[int], units: int, dim: int, scale: float) -> Float[Tensor, "r k d"]:
    """Return initial weights for one network per seed, in float64: Gaussian with variance scale²/d."""
    generators = [torch.Generator().manual_seed(seed) for seed in seeds]
    drawn = [torch.randn(units, dim, generator=generator, dtype=torch.float64) for generator in generators]
    return torch.stack(drawn) * (scale / dim**0.5)


def recorded_steps(steps: int, records: int) -> set[int]:
    """Return 0, the last step, and steps between them in geometric progression: early training changes most."""
    between = torch.logspace(0, log10(max(steps, 1)), max(records - 1, 1))
    return {0, steps, *(min(steps, round(step)) for step in between.tolist())}


def pulse_widths(sites: int) -> tuple[tuple[int, int], tuple[int, int]]:
    """Return the ranges of wide pulses, 20 to 25 % of the sites, and narrow ones, 5 to 10 %."""
    return (sites // 5, sites // 4), (max(1, sites // 20), max(1, sites // 10))


def neighbour_correlation(weights: Float[Tensor, "*shape d"]) -> Float[Tensor, "*shape"]:
    """Return Σ w_i w_{i+1} / Σ w_i² on a ring: near 1 for smooth fields, negative for short-range oscillations."""
    return (weights * weights.roll(1, -1)).sum(dim=-1) / weights.square().sum(dim=-1)
