"""halfspace, Figures 2–6, 9 and 10: feature learning on the circle; configuration, training, observations.

DLGN: deep linearly gated network.
"""

from collections.abc import Mapping
from typing import Any

import torch
from jaxtyping import Bool, Float
from pydantic import Field
from torch import Tensor, nn

from gatelab import models
from gatelab.data import circle
from gatelab.data.circle_data import Regression
from gatelab.gates import GatePattern
from gatelab.kernels import neural_tangent_kernel, overlap_kernel
from gatelab.kernels.spectra import trace_normalised
from gatelab.lab.experiment import SeededConfig
from gatelab.lab.findings import Findings
from gatelab.lab.looks import Look, short
from gatelab.lab.runs import Cell, Context, Result
from gatelab.lab.training import Loss
from gatelab.lab.training_cells import train_and_look
from gatelab.papers.common import experiment, findings, training
from gatelab.papers.halfspace.circle_claims import claims
from gatelab.papers.halfspace.circle_figures import animation, figures
from gatelab.papers.halfspace.circle_findings import answer, tables
from gatelab.papers.halfspace.circle_runs import FROZEN, KINDS, CircleRuns
from gatelab.papers.halfspace.options import DlgnOptions
from gatelab.papers.halfspace.spectrum import smooth_half_spectrum
from gatelab.paths import hardening_gap
from gatelab.regions import RegionPlan, half_spaces
from gatelab.regions.census import active_path_counts


class CircleConfig(DlgnOptions, SeededConfig):
    """A ReLU network, a DLGN, and DLGNs with frozen gates learn a target on the circle."""

    runs: int = Field(default=16, ge=1)
    points: int = Field(default=200, ge=8)
    low: int = Field(default=1, ge=1)  # frequency on the upper half
    high: int = Field(default=8, ge=1)  # frequency on the lower half
    layers: int = Field(default=5, ge=1)
    width: int = Field(default=16, ge=1)
    epochs: int = Field(default=400, ge=4)
    frozen_epochs: int = Field(default=4000, ge=4)  # ten times as many show whether frozen gates take ten times as long
    batch_size: int = Field(default=20, ge=1)
    learning_rate: float = Field(default=3e-3, gt=0)
    frames: int = Field(default=36, ge=2)  # of the animation
    kernel_points: int = Field(default=64, ge=4)

    def data(self) -> Regression:
        """The points on the circle and the target."""
        return circle(self.points, self.low, self.high)

    def widths(self) -> list[int]:
        """The widths of all networks."""
        return [2, *[self.width] * self.layers, 1]

    def shown(self, kind: str = "dlgn") -> tuple[int, ...]:
        """The epochs of the paper's figures: the start, epoch 3, the end, and the end of frozen gates."""
        return (0, 3, self.epochs, *([self.frozen_epochs] if kind in FROZEN else []))

    def moments(self) -> tuple[int, ...]:
        """The epochs of the animation: dense at first, then increasingly far apart."""
        factor = (self.epochs + 1) ** (1 / (self.frames - 1))
        return tuple(sorted({min(self.epochs, round(factor**k) - 1) for k in range(self.frames)} | {self.epochs}))

    def make(self, kind: str, seed: int) -> nn.Module:
        """Make a network of a kind; the DLGNs of a seed start with the same weights."""
        if kind == "relu":
            return self.relu_network(self.widths(), seed)
        if kind in FROZEN:
            return self.frozen(self.widths(), seed, hard=kind == "frozen")
        return self.dlgn(self.widths(), seed)

    def train(self, kind: str) -> Any:
        """Return how to train a kind of network."""
        epochs = max(self.epochs, self.frozen_epochs) if kind in FROZEN else self.epochs
        steep = self.final_beta if kind == "dlgn" else None
        return training(self, loss=Loss.SQUARED, epochs=epochs, final_beta=steep)


def look(model: nn.Module, data: Regression, plan: RegionPlan) -> Look:
    """Observe a network briefly: errors and active paths on both halves."""
    gates, answers = plan.capture(model, data.train_x)
    upper = data.train_x[:, 1] > 0
    paths = torch.tensor(active_path_counts(gates.hard()), dtype=torch.float64)
    return {
        "error": halves((answers[:, 0] - data.train_y).square(), upper),
        "paths": halves(paths, upper),
    }


def picture(model: nn.Module, data: Regression, points: int, plan: RegionPlan) -> Look:
    """Observe what a frame of the animation shows: outputs, the overlap kernel on some points, half-spaces."""
    gates, answers = plan.capture(model, data.train_x)
    seen: Look = {
        "tilt": tilt(gates.hard(), data.train_x[:, 1] > 0),
        "outputs": short(answers[:, 0]),
        "overlap": short(trace_normalised(overlap_kernel(gates[_some(data, points)].hard()))),
    }
    if isinstance(model, models.DeepLinearlyGatedNetwork):
        layers = half_spaces(model, plan=plan).values()
        seen["half_spaces"] = [short(torch.cat([one.normals(), one.offsets.unsqueeze(1)], 1)) for one in layers]
    return seen


def full_look(model: nn.Module, data: Regression, config: CircleConfig, plan: RegionPlan) -> Look:
    """Observe everything: also the tangent kernel, the spectrum of the error and the cost of hard gates."""
    fine = circle(4 * config.points, config.low, config.high)
    with torch.no_grad():
        error = model(fine.train_x)[:, 0] - fine.train_y
    tangent = neural_tangent_kernel(model, data.train_x[_some(data, config.kernel_points)])
    seen = {
        **look(model, data, plan),
        **picture(model, data, config.kernel_points, plan),
        "tangent": short(trace_normalised(tangent)),
        "spectrum": short(smooth_half_spectrum(error)),
    }
    if isinstance(model, models.DeepLinearlyGatedNetwork):
        gap = hardening_gap(model, data.train_x, data.train_y)
        seen["hardening"] = [gap.soft_loss, gap.hard_loss]
    return seen


def _some(data: Regression, points: int) -> Tensor:
    return torch.linspace(0, len(data.train_x) - 1, points).round().long()


def halves(values: Float[Tensor, " n"], upper: Bool[Tensor, " n"]) -> tuple[float, float]:
    """Return the means over the upper and the lower half of the circle."""
    return float(values[upper].mean()), float(values[~upper].mean())


def tilt(gates: GatePattern, upper: Bool[Tensor, " n"]) -> list[float]:
    """Return each layer's share of open gates on the upper half minus its share on the lower half: −1 to 1."""
    means = (halves(gates[name].double().mean(dim=1), upper) for name in gates)
    return [above - below for above, below in means]


def observe_kind(config: CircleConfig, kind: str, context: Context) -> Result:
    """Train all runs of a kind of network together and observe them."""
    data, seeds = config.data(), config.seeds()
    nets = [config.make(kind, seed) for seed in seeds]
    shared = RegionPlan(nets[0].eval())  # networks are observed in evaluation mode; training sets the mode it needs

    def see(model: nn.Module, epoch: int, place: int) -> Look:
        # The steepness of gates belongs to a plan: while it grows, each look needs a plan of its own.
        plan = shared if config.final_beta is None else RegionPlan(model)
        if epoch in config.shown(kind):
            return full_look(model, data, config, plan)
        brief = look(model, data, plan)
        # Between the epochs of the figures, only the first run is shown.
        return {**brief, **picture(model, data, config.kernel_points, plan)} if place == 0 else brief

    epochs = (*config.moments(), *config.shown(kind))
    return train_and_look(nets, seeds, data, config.train(kind), context, epochs, see)


def _work(config: CircleConfig, cell: Cell, context: Context) -> Result:
    return observe_kind(config, cell.name, context)


def _findings(config: CircleConfig, results: Mapping[str, Result]) -> Findings:
    seen = CircleRuns(results, config.data(), (0, 3, config.epochs), config.frozen_epochs, config.high)
    notes = (
        f"The paper does not print its target: ours is sin(kθ), k = {config.low} above and {config.high} below.",
        f"{config.layers} hidden layers of {config.width}, Adam {config.learning_rate:g}, batches of "
        f"{config.batch_size}; {config.epochs} epochs, {config.frozen_epochs} with frozen gates.",
        *config.told(),
        "Frozen gates are the DLGN's initial gates: made hard, or as soft as the gates that learn.",
        "Errors are mean squares, twice the training loss.",
        "The paper says that features are visible when the loss has fallen from 0.5 to 0.25, and inspects epoch 3 and, "
        "for artefacts, epoch 8,000; a mean square of 0.3 and the epochs of the other claims are ours.",
        "Kernels, paths and half-spaces use hard gates, q > 0.",
    )
    return findings(
        "halfspace, Figures 2–6, 9, 10: feature learning on the circle",
        answer(seen),
        *tables(seen),
        *figures(seen, config.moments()),
        *claims(seen),
        *notes,
        animation(seen, config.moments()),
    )


_SMOKE: dict[str, Any] = {"runs": 2, "points": 20, "layers": 3, "width": 4, "epochs": 6, "batch_size": 10}
EXPERIMENTS = (
    experiment(
        "halfspace-circle",
        "Half-spaces, overlap kernels and outputs while networks learn a target on the circle",
        CircleConfig,
        lambda config: [Cell(kind, weight=config.train(kind).epochs) for kind in KINDS],
        _work,
        _findings,
        smoke={**_SMOKE, "frozen_epochs": 8, "frames": 4, "kernel_points": 10},
        paper={"epochs": 800, "frozen_epochs": 8000, "frames": 60},
    ),
)
