"""Receptive fields while they form: networks with a fixed mean readout, trained on fresh batches (gdln, Section 1)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

import torch
from jaxtyping import Float
from torch import Tensor, nn

from gatelab.data import TwoClasses
from gatelab.models import MeanReadoutNetwork
from gatelab.models.gdln import Erf


class Activation(StrEnum):
    """The notes' three activations."""

    RELU = "ReLU"
    ERF = "erf"
    SIGMOID = "sigmoid"

    def module(self) -> nn.Module:
        """As a module."""
        return {Activation.RELU: nn.ReLU, Activation.ERF: Erf, Activation.SIGMOID: nn.Sigmoid}[self]()


@dataclass(frozen=True)
class Descent:
    """How networks are trained: descent on ½(y − ŷ)² over fresh balanced batches.

    Attributes:
        steps: how many.
        rate: of the hidden layer; the readout's bias moves at no more than 0.5, where its own curvature of 1 allows it.
        batch: examples in a step.
        scale: of the first weights.
        bias: where biases start; None leaves them out.
    """

    steps: int
    rate: float
    batch: int
    scale: float = 0.1
    bias: float | None = None


@dataclass(frozen=True)
class Fields:
    """What was recorded of all runs.

    Attributes:
        steps: when, 0 first.
        weights: (times, runs, units, sites).
        bias: of the hidden units; zeros if there are none.
        loss: ½⟨(y − ŷ)²⟩ on the batch of the moment.
    """

    steps: tuple[int, ...]
    weights: Float[Tensor, "t r k d"]
    bias: Float[Tensor, "t r k"]
    loss: Float[Tensor, "t r"]


def train_fields(
    source: TwoClasses,
    activation: Activation,
    units: int,
    seeds: Sequence[int],
    descent: Descent,
    *,
    records: int = 40,
    tell: Callable[[float, str], None] | None = None,
    dtype: torch.dtype = torch.float32,
) -> Fields:
    """Train one network from each seed; all see the same batches, so that they differ by their start alone."""
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
    moving = [
        (p, rate)
        for p, rate in ((weights, descent.rate), (bias, descent.rate), (readout, min(descent.rate, 0.5)))
        if p.requires_grad
    ]
    sigma = activation.module()
    wanted = recorded_steps(descent.steps, records)
    kept: list[tuple[Tensor, Tensor, Tensor]] = []
    stream = source.stream(descent.batch, generator=torch.Generator().manual_seed(seeds[0] + 10_000), dtype=dtype)
    for step, (x, y) in zip(range(descent.steps + 1), stream, strict=False):
        hidden = torch.einsum("nd,rkd->rnk", x, weights) + bias[:, None, :]
        losses = (sigma(hidden).mean(dim=2) + readout[:, None] - y).square().mean(dim=1) / 2
        if step in wanted:
            kept.append((weights.detach().clone(), bias.detach().clone(), losses.detach()))
        gradients = torch.autograd.grad(losses.sum(), [p for p, _ in moving])
        with torch.no_grad():
            for (parameter, rate), gradient in zip(moving, gradients, strict=True):
                parameter.sub_(rate * gradient)
        if tell is not None and step % 100 == 0:
            tell(step / descent.steps, f"step {step} of {descent.steps}")
    recorded = [torch.stack(part) for part in zip(*kept, strict=True)]
    return Fields(tuple(sorted(wanted)), recorded[0], recorded[1], recorded[2])


def relu_descent(
    x: Float[Tensor, "n d"],
    y: Float[Tensor, " n"],
    initial: Float[Tensor, "r k d"],
    steps: int,
    rate: float,
    *,
    records: int,
    tell: Callable[[float, str], None] | None = None,
) -> Fields:
    """Descent of bias-free ReLU networks on all of a fixed data set, where only gates stand between it and linearity.

    One step of rate η is time η of the flow with τ = 1.
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
        if tell is not None and step % 100 == 0:
            tell(step / steps, f"step {step} of {steps}")
    weights, losses = (torch.stack(part) for part in zip(*kept, strict=True))
    return Fields(tuple(sorted(wanted)), weights, weights.new_zeros(weights.shape[:3]), losses)


def starts(seeds: Sequence[int], units: int, dim: int, scale: float) -> Float[Tensor, "r k d"]:
    """First weights, one network for each seed, in float64: Gaussian with variance scale²/d."""
    drawn = [
        torch.randn(units, dim, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) for seed in seeds
    ]
    return torch.stack(drawn) * (scale / dim**0.5)


def recorded_steps(steps: int, records: int) -> set[int]:
    """0, the last, and steps between that grow with time: early training changes most."""
    grown = torch.logspace(0, torch.log10(torch.tensor(float(max(steps, 1)))).item(), max(records - 1, 1))
    return {0, steps, *(min(steps, round(step)) for step in grown.tolist())}


def pulse_widths(sites: int) -> tuple[tuple[int, int], tuple[int, int]]:
    """Wide pulses, 20 to 25 % of the sites, and narrow ones, 5 to 10 %."""
    return (sites // 5, sites // 4), (max(1, sites // 20), max(1, sites // 10))


def neighbour_correlation(weights: Float[Tensor, "*shape d"]) -> Float[Tensor, "*shape"]:
    """Σ w_i w_{i+1} / Σ w_i² on a ring: near 1 for smooth fields, negative for short-range oscillations."""
    return (weights * weights.roll(1, -1)).sum(dim=-1) / weights.square().sum(dim=-1)
