"""npk, Figures 5 and 6: spectra and training of memorisation networks, over depth and width."""

from collections.abc import Mapping, Sequence
from math import inf
from statistics import mean, median

import torch
from pydantic import Field
from torch import Tensor, nn

from gatelab.kernels import cumulative_eigenvalues, neural_tangent_kernel, spectrum
from gatelab.lab.experiment import Config, SeededConfig
from gatelab.lab.findings import FigureFacts, Findings, Table
from gatelab.lab.runs import Cell, Context, Result
from gatelab.lab.verdicts import Claim, Verdict, all_of, any_of, later
from gatelab.models import MemorisationNetwork
from gatelab.papers.common import experiment, figure, findings, line
from gatelab.papers.npk.memorisation_law import predicted_steps


class SpectrumConfig(Config):
    """Sizes of the ideal spectrum."""

    n: int = Field(default=200, ge=2)
    mu: float = Field(default=0.5, gt=0, le=1)
    depths: tuple[int, ...] = (2, 4, 6, 8, 12, 16, 20)


def ideal_ecdf(n: int, mu: float, depth: int) -> list[float]:
    """Cumulative eigenvalues of E[K₀]/d: k (1 − μ^{d−1}) for k < n, and n for all (npk, Appendix E)."""
    return [k * (1 - mu ** (depth - 1)) for k in range(1, n)] + [float(n)]


def _spectrum_work(config: SpectrumConfig, cell: Cell, context: Context) -> Result:
    del cell, context
    return {str(depth): ideal_ecdf(config.n, config.mu, depth) for depth in config.depths}


def _spectrum_findings(config: SpectrumConfig, results: Mapping[str, Result]) -> Findings:
    index = range(1, config.n + 1)
    curves = [line(f"d = {depth}", index, results["ideal"][str(depth)]) for depth in config.depths]
    title, axes = "Cumulative eigenvalues of E[K₀]/d", ("index, smallest first", "sum of eigenvalues so far")
    caption = "A straight line to n is a kernel with all eigenvalues one."
    return findings(
        "npk, Figure 5: ideal spectrum of a memorisation network",
        "The deeper the network, the closer its expected kernel is to the identity.",
        figure(title, *axes, curves, caption),
    )


FIGURE5 = experiment(
    "npk-figure5",
    "Ideal spectrum of a memorisation network",
    SpectrumConfig,
    lambda _config: [Cell("ideal")],
    _spectrum_work,
    _spectrum_findings,
    smoke={"n": 20},
)


class MemorisationConfig(SeededConfig):
    """Training of memorisation networks by gradient descent on all values at once."""

    n: int = Field(default=200, ge=2)
    mu: float = Field(default=0.5, gt=0, le=1)
    widths: tuple[int, ...] = (25, 500)
    depths: tuple[int, ...] = (2, 4, 6, 8, 12, 16, 20)
    runs: int = Field(default=10, ge=1)
    steps: int = Field(default=1000, ge=1)


class _ByIndex(nn.Module):
    """The network applied to one-hot examples, which kernels accept, instead of indices."""

    def __init__(self, network: MemorisationNetwork):
        super().__init__()
        self.network = network

    def forward(self, x: Tensor) -> Tensor:
        return self.network(x.argmax(dim=1))


def _memorise(config: MemorisationConfig, width: int, depth: int, seed: int) -> tuple[list[float], list[float]]:
    """Cumulative eigenvalues of K₀/d, and the error ‖e_t‖²/‖e_0‖² over steps of size 0.1/ρ_max(K₀)."""
    generator = torch.Generator().manual_seed(seed)
    target = torch.rand(config.n, 1, generator=generator) * 2 - 1
    network = MemorisationNetwork(config.n, width, depth, config.mu, generator=generator)
    kernel = neural_tangent_kernel(_ByIndex(network), torch.eye(config.n))
    step = 0.1 / float(spectrum(kernel)[-1])
    index, errors = torch.arange(config.n), []
    for _ in range(config.steps):
        error = network(index) - target
        errors.append(float(error.detach().square().sum()))
        network.zero_grad()
        (0.5 * error.square().sum()).backward()
        with torch.no_grad():
            for weight in network.parameters():
                assert weight.grad is not None
                weight.sub_(step * weight.grad)
    return (cumulative_eigenvalues(kernel) / depth).tolist(), [squares / errors[0] for squares in errors]


def _memorisation_work(config: MemorisationConfig, cell: Cell, context: Context) -> Result:
    width, depth = cell.parameters["width"], cell.parameters["depth"]
    ecdfs, errors = [], []
    for run, seed in enumerate(config.seeds()):
        ecdf, error = _memorise(config, width, depth, seed)
        ecdfs.append(ecdf)
        errors.append(error)
        context.tell((run + 1) / config.runs, f"run {run + 1} of {config.runs}")
    every = max(1, config.steps // 200)
    return {
        "ecdf": [mean(values) for values in zip(*ecdfs, strict=True)],
        "error": [mean(values) for values in zip(*errors, strict=True)][::every],
        "last": [error[-1] for error in errors],
        "needed": [steps_needed(error) for error in errors],
        "every": every,
    }


def steps_needed(errors: list[float], share: float = 0.01) -> int | None:
    """Steps until the error falls to ``share`` of its start; None if it never does."""
    return next((step for step, error in enumerate(errors) if error <= share * errors[0]), None)


def _name(width: int, depth: int) -> str:
    return f"w = {width}, d = {depth}"


def _memorisation_findings(config: MemorisationConfig, results: Mapping[str, Result]) -> Findings:
    parts, rows, answers = [], [], []
    for width in config.widths:
        of_width = {depth: results[_name(width, depth)] for depth in config.depths}
        needed = {depth: r["needed"] for depth, r in of_width.items()}
        steps = {depth: _median(times) for depth, times in needed.items()}
        for depth, r in of_width.items():
            predicted = f"{predicted_steps(config.n, width, depth, config.mu):,.0f}"
            last = f"{mean(r['last']):.2g}"
            rows.append((str(width), str(depth), _steps(steps[depth], config.steps), predicted, last))
        best = min(steps, key=lambda depth: steps[depth])
        answers.append(
            f"w = {width}: fewest steps to 1 % of the error, {_steps(steps[best], config.steps)}, at d = {best}"
        )
        parts += _memorisation_figures(config, width, of_width)
        text = f"At width {width} depth helps up to a point, then hurts (some depth beats the least and the largest)"
        parts.append(Claim(text, _best_in_between(needed, config.steps)))
    table = Table(
        f"Training by steps of 0.1 / ρ_max(K₀), {config.runs} runs",
        (
            *("width", "depth", "steps to 1 % of the error, median", "predicted"),
            f"‖e_t‖² / ‖e_0‖² after {config.steps} steps, mean",
        ),
        tuple(rows),
        "Predicted: from the exact variance of K₀, as if K₀ did not change; compare the best depths.",
    )
    return findings(
        "npk, Figure 6: memorisation over depth and width",
        "; ".join(answers) + ".",
        table,
        *parts,
        "The paper sees the best depth near 8 at width 25 and near 12 at width 500; it prints no numbers.",
    )


def _median(times: Sequence[int | None]) -> float:
    """Return the median; infinite if it is not reached."""
    return median(inf if time is None else float(time) for time in times)


def _steps(value: float, most: int) -> str:
    return f"≥ {most}" if value == inf else f"{value:g}"


def _memorisation_figures(
    config: MemorisationConfig, width: int, of_width: Mapping[int, Result]
) -> tuple[FigureFacts, FigureFacts]:
    index, cumulative, step = range(1, config.n + 1), "cumulative eigenvalues of K₀/d", "Steps of 0.1 / ρ_max(K₀)."
    ecdfs = [line(f"d = {d}", index, r["ecdf"]) for d, r in of_width.items()]
    errors = [
        line(f"d = {d}", range(0, r["every"] * len(r["error"]), r["every"]), r["error"]) for d, r in of_width.items()
    ]
    return (
        figure(f"Spectrum, w = {width}", "index, smallest first", cumulative, ecdfs),
        figure(f"Training, w = {width}", "step", "‖e_t‖² / ‖e_0‖²", errors, step),
    )


def _best_in_between(needed: Mapping[int, Sequence[float | None]], horizon: float) -> Verdict:
    """Decide whether some depth in between needs fewer steps than the least and than the largest."""
    first, *between, last = needed.values()
    return any_of([all_of([later(end, times, horizon) for end in (first, last)]) for times in between])


FIGURE6 = experiment(
    "npk-figure6",
    "Memorisation networks: spectra and training over depth and width",
    MemorisationConfig,
    lambda config: [
        Cell(_name(w, d), {"width": w, "depth": d}, weight=float(d * w)) for w in config.widths for d in config.depths
    ],
    _memorisation_work,
    _memorisation_findings,
    smoke={"n": 20, "widths": (10,), "depths": (2, 4, 8), "runs": 2, "steps": 20},
    quick={"widths": (25, 500), "depths": (2, 4, 8, 12, 20), "runs": 3, "steps": 400},
)
EXPERIMENTS = (FIGURE5, FIGURE6)
