"""ReLU networks that differ from a linear flow only by their gates, trained on a fixed sample (gdln, Section 2)."""

import torch
from jaxtyping import Bool, Float
from pydantic import Field
from torch import Tensor

from gatelab.data import NLGP
from gatelab.dynamics.localisation import open_gates
from gatelab.lab.experiment import SeededConfig
from gatelab.lab.runs import Cell, Context
from gatelab.papers.gdln.fields import initial_weights, relu_descent

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
        # The mean over K units makes each unit K times as slow.
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
