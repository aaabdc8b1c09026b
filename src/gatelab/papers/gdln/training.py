"""ReLU networks of which only the gates stand between them and a linear flow (gdln, Section 2)."""

import torch
from jaxtyping import Bool, Float
from pydantic import Field
from torch import Tensor

from gatelab.data import NLGP
from gatelab.dynamics import open_gates
from gatelab.lab.experiment import SeededConfig
from gatelab.lab.runs import Cell, Context
from gatelab.papers.gdln.fields import relu_descent, starts


class GatesConfig(SeededConfig):
    """ReLU networks on a fixed sample of an NLGP, by descent on all of it."""

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
    """The gains as pieces that do not need each other."""
    return [Cell(f"gain {gain:g}", {"gain": gain}) for gain in config.gains]


class Training:
    """The examples, and what descent made of the networks."""

    def __init__(self, config: GatesConfig, cell: Cell, context: Context, share: float = 1.0):
        """Train; ``share`` of the cell's work is done then."""
        source = NLGP(config.lengths, float(cell.parameters["gain"]), (config.sites,))
        generator = torch.Generator().manual_seed(config.seed)
        self.x, self.y = source.sample(config.examples, generator=generator, dtype=torch.float64)
        # A mean over K units makes each K times as slow.
        self.horizon = config.horizon * config.units
        rate = config.rate * config.units
        steps = round(self.horizon / rate)
        self.fields = relu_descent(
            self.x,
            self.y,
            starts(config.seeds(), config.units, config.sites, config.scale),
            steps,
            rate,
            records=config.records,
            tell=lambda done, text: context.tell(share * done, text),
        )
        self.times = tuple(step * rate for step in self.fields.steps)

    @property
    def weights(self) -> Float[Tensor, "t r k d"]:
        """What was recorded."""
        return self.fields.weights

    def gates(self, run: int) -> Bool[Tensor, "t k n"]:
        """Of one network, at every record."""
        return open_gates(self.weights[:, run], self.x)

    def error(self, predicted: Float[Tensor, "k d"], run: int) -> float:
        """Distance of a prediction from the network's last weights, relative to them."""
        observed = self.weights[-1, run]
        return float((predicted - observed).norm() / observed.norm())

    def place(self, share: float) -> int:
        """The record nearest to a share of training."""
        return min(range(len(self.times)), key=lambda p: abs(self.times[p] - share * self.times[-1]))
