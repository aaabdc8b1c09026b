"""npk, Theorem 5.1 as a convergence plot: with fixed random gates the tangent kernel tends to the path kernel."""

from collections.abc import Mapping
from math import sqrt

import torch
from pydantic import Field

from gatelab.data import load
from gatelab.kernels import neural_path_kernel, neural_tangent_kernel
from gatelab.lab.experiment import Config
from gatelab.lab.findings import FigureFacts, Findings, Table
from gatelab.lab.runs import Cell, Context, Result
from gatelab.lab.verdicts import Claim, exponents, near
from gatelab.lab.verdicts.fits import fitted_power
from gatelab.models import DeepGatedNetwork
from gatelab.models.init import bernoulli_
from gatelab.papers.common import experiment, findings, numbers, power_law


class ConvergenceConfig(Config):
    """Tangent kernels of fixed random gates and ±σ values over widths."""

    data: str = "digits"
    examples: int = Field(default=50, ge=2)
    depth: int = Field(default=4, ge=2)
    widths: tuple[int, ...] = (16, 32, 64, 128, 256, 512)
    draws: int = Field(default=20, ge=2)
    seed: int = 0
    data_root: str | None = None


def _convergence_work(config: ConvergenceConfig, cell: Cell, context: Context) -> Result:
    data, width = load(config.data, config.data_root), cell.parameters["width"]
    x = data.inputs(data.train_x[: config.examples], torch.float64).flatten(1)
    generator, errors = torch.Generator().manual_seed(1000 * config.seed + width), []
    widths, sigma = [x.shape[1], *[width] * (config.depth - 1), 1], sqrt(2 / width)
    for draw in range(config.draws):
        model = DeepGatedNetwork(widths, dtype=torch.float64, generator=generator)
        for weight in model.value.parameters():
            bernoulli_(weight, sigma, generator)
        # d σ^{2(d−1)} H: the normalised H times the ratio of σ² = 2/w to 1/fan_in in the d − 1 layers after the first.
        factor = config.depth * sigma ** (2 * (config.depth - 1)) * width ** (config.depth - 1)
        limit = factor * neural_path_kernel(model, x)
        kernel = neural_tangent_kernel(model, x, wrt=model.value)
        errors.append(float((kernel - limit).norm() / limit.norm()))
        context.tell((draw + 1) / config.draws, f"draw {draw + 1} of {config.draws}")
    return {"errors": errors}


def _convergence_findings(config: ConvergenceConfig, results: Mapping[str, Result]) -> Findings:
    samples = {width: numbers(results[f"w = {width}"]["errors"]) for width in config.widths}
    means = [sample.mean for sample in samples.values()]
    order = fitted_power(list(samples), means)
    plot = power_law("width w", "relative distance", list(samples), means, -0.5, "w^(−1/2)")
    rows = tuple((str(w), f"{s.mean:.3g} ± {s.spread:.2g}") for w, s in samples.items())
    vanishes = "The distance vanishes with width as w^(−1/2)"
    return findings(
        "npk, Theorem 5.1: the tangent kernel tends to d σ^{2(d−1)} H",
        f"With fixed random gates and ±σ values the relative distance falls as w^{order:.2f}.",
        Table("‖K − d σ^{2(d−1)} H‖ / ‖d σ^{2(d−1)} H‖", ("width", "mean ± standard deviation"), rows),
        FigureFacts("Convergence with width", plot, ""),
        Claim(vanishes, near(exponents(list(samples), list(samples.values())), -0.5, 0.1)),
        "The theorem bounds the variance by O(1/w), which makes the distance O(w^(−1/2)).",
    )


CONVERGENCE = experiment(
    "npk-theorem51",
    "The tangent kernel tends to the path kernel with width",
    ConvergenceConfig,
    lambda config: [Cell(f"w = {width}", {"width": width}, weight=float(width)) for width in config.widths],
    _convergence_work,
    _convergence_findings,
    smoke={"widths": (16, 64), "draws": 4, "examples": 10},
    paper={"draws": 100},
)
EXPERIMENTS = (CONVERGENCE,)
