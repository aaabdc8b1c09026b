"""halfspace, Figures 2–6, 9 and 10: feature learning on the circle; configuration, training, observations."""

from collections.abc import Mapping
from typing import Any

import torch
from jaxtyping import Bool, Float
from pydantic import Field
from torch import Tensor, nn

from gatelab import models
from gatelab.data import circle
from gatelab.data.circle_data import Regression
from gatelab.gates import GatePattern, HardGate, SoftGate
from gatelab.kernels import neural_tangent_kernel, overlap_kernel
from gatelab.kernels.spectra import trace_normalised
from gatelab.lab.experiment import SeededConfig
from gatelab.lab.findings import Findings
from gatelab.lab.looks import Look, short
from gatelab.lab.runs import Cell, Context, Result
from gatelab.lab.training import Loss
from gatelab.lab.training_cells import train_and_look
from gatelab.models.init import Start, initialise
from gatelab.papers.common import experiment, findings, training
from gatelab.papers.halfspace.circle_figures import animation, figures
from gatelab.papers.halfspace.circle_findings import KINDS, CircleRuns, answer, claims, tables
from gatelab.paths import hardening_gap
from gatelab.regions import RegionPlan, half_spaces
from gatelab.regions.census import active_path_counts


class CircleConfig(SeededConfig):
    """A ReLU network, a DLGN, and a DLGN with frozen gates learn a target on the circle."""

    runs: int = Field(default=8, ge=1)
    points: int = Field(default=200, ge=8)
    low: int = Field(default=1, ge=1)  # frequency on the upper half
    high: int = Field(default=8, ge=1)  # frequency on the lower half
    layers: int = Field(default=5, ge=1)
    width: int = Field(default=16, ge=1)
    beta: float = Field(default=10.0, gt=0)
    piecewise_constant: bool = True
    start: Start = Start.PYTORCH
    epochs: int = Field(default=400, ge=4)
    batch_size: int = Field(default=20, ge=1)
    learning_rate: float = Field(default=3e-3, gt=0)
    frames: int = Field(default=36, ge=2)  # of the animation
    kernel_points: int = Field(default=64, ge=4)

    def data(self) -> Regression:
        """The points on the circle and the target."""
        return circle(self.points, self.low, self.high)

    def shown(self) -> tuple[int, int, int]:
        """The epochs of the paper's figures: the start, epoch 3, the end."""
        return (0, 3, self.epochs)

    def moments(self) -> tuple[int, ...]:
        """The epochs of the animation: dense at first, then ever further apart."""
        factor = (self.epochs + 1) ** (1 / (self.frames - 1))
        return tuple(sorted({min(self.epochs, round(factor**k) - 1) for k in range(self.frames)} | {self.epochs}))

    def make(self, kind: str, seed: int) -> nn.Module:
        """Make a network of a kind."""
        widths, generator = [2, *[self.width] * self.layers, 1], torch.Generator().manual_seed(seed)
        if kind == "relu":
            return initialise(models.mlp(widths, bias=True), generator, self.start)
        gate = SoftGate(self.beta) if kind == "dlgn" else HardGate()
        net = models.DeepLinearlyGatedNetwork(widths, gate=gate, piecewise_constant=self.piecewise_constant)
        initialise(net, generator, self.start)
        for parameter in net.feature_parameters() if kind == "frozen" else ():
            parameter.requires_grad_(False)
        return net


def look(model: nn.Module, data: Regression, points: int, *, tangent: bool, plan: RegionPlan) -> Look:
    """Observe a network: errors and active paths on both halves, outputs, kernels on some points, half-spaces."""
    gates, answers = plan.capture(model, data.train_x)
    outputs = answers[:, 0]
    upper = data.train_x[:, 1] > 0
    paths = torch.tensor(active_path_counts(gates), dtype=torch.float64)
    some = torch.linspace(0, len(data.train_x) - 1, points).round().long()
    seen: Look = {
        "error": halves((outputs - data.train_y).square(), upper),
        "paths": halves(paths, upper),
        "tilt": tilt(gates, upper),
        "outputs": short(outputs),
        "overlap": short(trace_normalised(overlap_kernel(gates[some]))),
    }
    if tangent:
        seen["tangent"] = short(trace_normalised(neural_tangent_kernel(model, data.train_x[some])))
    if isinstance(model, models.DeepLinearlyGatedNetwork):
        if tangent:  # at the epochs of the tables
            gap = hardening_gap(model, data.train_x, data.train_y)
            seen["hardening"] = [gap.soft_loss, gap.hard_loss]
        layers = half_spaces(model, plan=plan).values()
        seen["half_spaces"] = [short(torch.cat([one.normals(), one.offsets.unsqueeze(1)], 1)) for one in layers]
    return seen


def halves(values: Float[Tensor, " n"], upper: Bool[Tensor, " n"]) -> tuple[float, float]:
    """Return the means over the upper and the lower half of the circle."""
    return float(values[upper].mean()), float(values[~upper].mean())


def tilt(gates: GatePattern, upper: Bool[Tensor, " n"]) -> list[float]:
    """Return each layer's share of open gates on the upper half minus that on the lower half: −1 to 1."""
    means = (halves(gates[name].double().mean(dim=1), upper) for name in gates)
    return [above - below for above, below in means]


def _work(config: CircleConfig, cell: Cell, context: Context) -> Result:
    data, seeds = config.data(), config.seeds()
    nets = [config.make(cell.name, seed) for seed in seeds]
    plan = RegionPlan(nets[0].eval())  # networks are observed in evaluation mode; training sets the mode it needs

    def see(model: nn.Module, epoch: int, place: int) -> Look:
        if place == 0 or epoch in config.shown():
            return look(model, data, config.kernel_points, tangent=epoch in config.shown(), plan=plan)
        return {}  # between the epochs of the figures, only the first run is observed

    epochs = (*config.moments(), *config.shown())
    return train_and_look(nets, seeds, data, training(config, loss=Loss.SQUARED), context, epochs, see)


def _findings(config: CircleConfig, results: Mapping[str, Result]) -> Findings:
    seen = CircleRuns(results, config.data(), config.shown())
    values = "constant values (DLGN-PWC)" if config.piecewise_constant else "values linear in x"
    notes = (
        f"The paper does not print its target: ours is sin(kθ), k = {config.low} above and {config.high} below.",
        f"{config.layers} hidden layers of {config.width}; the DLGN has gates with biases, soft with β = "
        f"{config.beta:g} while it learns, and {values}; frozen gates are hard.",
        f"Start: {_STARTS[config.start]}.",
        "Errors are mean squares, twice the training loss.",
        "Kernels, paths and half-spaces are those of hard gates, q > 0. Pictures show the first run.",
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


_STARTS = {
    Start.PYTORCH: "PyTorch's default (the paper does not say; its Figure 16(a) agrees with this one)",
    Start.GLOROT: "Glorot weights, zero biases",
    Start.KAIMING: "Kaiming weights, zero biases",
    Start.SIGNS: "weights ±√(2/fan in), zero biases",
}
_SMOKE: dict[str, Any] = {"runs": 2, "points": 20, "layers": 3, "width": 4, "epochs": 6, "batch_size": 10}
EXPERIMENTS = (
    experiment(
        "halfspace-circle",
        "Half-spaces, overlap kernels and outputs while networks learn a target on the circle",
        CircleConfig,
        lambda _config: [Cell(kind) for kind in KINDS],
        _work,
        _findings,
        smoke={**_SMOKE, "frames": 4, "kernel_points": 10},
        paper={"epochs": 8000, "frames": 60},
    ),
)
