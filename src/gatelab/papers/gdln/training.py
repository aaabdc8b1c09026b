"""The networks that gdln's experiments train, all runs at once, and the records of their weights.

Section 1 needs fresh batches and any activation (:func:`train_fields`), Section 2 ReLU networks on a fixed sample,
which differ from a linear flow only by their gates (:class:`Training`).
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import log10
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from pydantic import Field
from torch import Tensor, nn

from gatelab.data import NLGP
from gatelab.data.ring import TwoClasses
from gatelab.dynamics.localisation import open_gates
from gatelab.lab.experiment import SeededConfig
from gatelab.lab.runs import Cell, Context
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
        rate: learning rate of the hidden layer. The readout's bias has at most 0.5, since its curvature is 1.
        batch: examples per step.
        scale: scale of the initial weights.
        bias: initial value of the biases; None for no biases.
        second: whether the second layer, which starts as the mean, is trained as well.
    """

    steps: int
    rate: float
    batch: int
    scale: float = 0.1
    bias: float | None = None
    second: bool = False


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
    """Train one network per seed on the same batches, so that they differ only by their initial weights.

    The mean over K units divides each gradient by K; a rate K times as large makes up for it.
    """
    biased = descent.bias is not None
    weights = initial_weights(seeds, units, source.dim, descent.scale, dtype).requires_grad_()
    bias = torch.full((len(seeds), units), descent.bias or 0.0, dtype=dtype, requires_grad=biased)
    readout = torch.zeros(len(seeds), dtype=dtype, requires_grad=biased)
    second = torch.ones(len(seeds), units, dtype=dtype, requires_grad=descent.second)
    rates = [(weights, descent.rate)]
    if descent.second:
        rates.append((second, descent.rate))
    if biased:
        rates += [(bias, descent.rate), (readout, min(descent.rate, 0.5))]
    sigma = activation.module()
    stream = source.stream(descent.batch, generator=torch.Generator().manual_seed(seeds[0] + 10_000), dtype=dtype)

    def states() -> Iterator[tuple[Tensor, Tensor]]:
        for x, y in stream:
            hidden = torch.einsum("nd,rkd->rnk", x, weights) + bias[:, None, :]
            losses = ((sigma(hidden) * second[:, None, :]).mean(dim=2) + readout[:, None] - y).square().mean(dim=1) / 2
            yield weights, losses
            # No loss depends on another network's parameters, so the sum of losses gives each network its own gradient.
            gradients = torch.autograd.grad(losses.sum(), [parameter for parameter, _ in rates])
            with torch.no_grad():
                for (parameter, rate), gradient in zip(rates, gradients, strict=True):
                    parameter.sub_(rate * gradient)

    return _recorded(states(), descent.steps, records, tell)


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
    """Train bias-free ReLU networks by full-batch descent on a fixed data set; only their gates are nonlinear.

    One step with rate η advances the flow with τ = 1 by time η.
    """

    def states() -> Iterator[tuple[Tensor, Tensor]]:
        w, K = initial, initial.shape[1]
        while True:
            hidden = torch.einsum("nd,rkd->rnk", x, w)
            error = y - hidden.clamp(min=0).mean(dim=2)
            yield w, error.square().mean(dim=1) / 2
            w = w + torch.einsum("rnk,nd->rkd", (hidden > 0) * error[:, :, None], x) * (rate / (K * len(x)))

    return _recorded(states(), steps, records, tell)


def _recorded(states: Iterator[tuple[Tensor, Tensor]], steps: int, records: int, tell: Tell | None) -> Fields:
    """Run a training loop that yields weights and losses before every step, and record some of them."""
    wanted = recorded_steps(steps, records)
    kept = []
    for step, (weights, losses) in zip(range(steps + 1), states, strict=False):
        if step in wanted:
            kept.append((weights.detach().clone(), losses.detach()))
        if tell is not None and step % 100 == 0:
            tell(step / steps, f"step {step} of {steps}")
    all_weights, all_losses = (torch.stack(part) for part in zip(*kept, strict=True))
    return Fields(tuple(sorted(wanted)), all_weights, all_losses)


def initial_weights(
    seeds: Sequence[int], units: int, dim: int, scale: float, dtype: torch.dtype = torch.float64
) -> Float[Tensor, "r k d"]:
    """Return the initial weights of one network per seed: Gaussian with variance scale²/d."""
    generators = [torch.Generator().manual_seed(seed) for seed in seeds]
    networks = [MeanReadoutNetwork(dim, units, scale=scale, dtype=dtype, generator=g) for g in generators]
    return torch.stack([network.weights.detach() for network in networks])


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


SMOKE = {"runs": 2, "examples": 100, "horizon": 5.0, "records": 10, "sites": 20, "lengths": (2.0, 0.1)}


class GatesConfig(SeededConfig):
    """ReLU networks on a fixed sample of an NLGP, trained by descent on all of it."""

    runs: int = Field(default=32, ge=1)
    sites: int = Field(default=40, ge=20)
    lengths: tuple[float, float] = (3.0, 0.1)
    gains: tuple[float, ...] = (0.01, 3.0, 100.0)
    units: int = Field(default=1, ge=1)
    examples: int = Field(default=4000, ge=2, multiple_of=2)
    horizon: float = Field(default=300.0, gt=0)  # in units of τ, for one unit; K units take K times as long
    rate: float = Field(default=0.1, gt=0)
    records: int = Field(default=120, ge=4)
    scale: float = 0.1


def cell_per_gain(config: GatesConfig) -> list[Cell]:
    """Return one independent cell per gain."""
    return [Cell(f"gain {gain:g}", {"gain": gain}) for gain in config.gains]


class Training:
    """The examples, and the recorded weights of the networks."""

    def __init__(self, config: GatesConfig, cell: Cell, context: Context, share: float = 1.0):
        """Train; training counts as ``share`` of the cell's progress."""
        source = NLGP(config.lengths, float(cell.parameters["gain"]), (config.sites,))
        generator = torch.Generator().manual_seed(config.seed)
        self.x, self.y = source.sample(config.examples, generator=generator, dtype=torch.float64)
        # The mean over K units makes each unit K times slower.
        self.horizon, rate = config.horizon * config.units, config.rate * config.units
        steps, self.weights, _ = relu_descent(
            self.x,
            self.y,
            initial_weights(config.seeds(), config.units, config.sites, config.scale),
            round(self.horizon / rate),
            rate,
            records=config.records,
            tell=lambda done, text: context.tell(share * done, text),
        )
        self.times = tuple(step * rate for step in steps)

    def gates(self, run: int) -> Bool[Tensor, "t k n"]:
        """Return the gates of one network at every record."""
        return open_gates(self.weights[:, run], self.x)

    def error(self, predicted: Float[Tensor, "k d"], run: int) -> float:
        """Return the distance of a prediction from the network's last weights, relative to their norm."""
        observed = self.weights[-1, run]
        return float((predicted - observed).norm() / observed.norm())

    def nearest_record(self, share: float) -> int:
        """Return the index of the record nearest to a share of training."""
        return min(range(len(self.times)), key=lambda p: abs(self.times[p] - share * self.times[-1]))
