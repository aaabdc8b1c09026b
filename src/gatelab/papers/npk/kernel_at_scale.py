"""Ridge regression with a trained network's path kernel over all its training examples: as good as the network?"""

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import log
from typing import Any

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from gatelab import models
from gatelab.data import Dataset, load
from gatelab.kernels import OverlapKernel, PathKernel, compute, kernel_ridge, kernel_ridges, top_eigenpairs
from gatelab.kernels.solve.blocks import BlockedKernel, kernel_part
from gatelab.kernels.solve.products import kernel_times
from gatelab.kernels.solve.ridge import PassObserver
from gatelab.lab.experiment import DataConfig, cell_per_run
from gatelab.lab.findings import FigureFacts, Findings, Table, percent_curve
from gatelab.lab.runs import Cell, Context, Result
from gatelab.lab.training import TrainConfig
from gatelab.lab.training_cells import train_cell
from gatelab.lab.twins import network
from gatelab.lab.verdicts import Claim, Sample, not_below, readable
from gatelab.papers.common import experiment, figure, findings, line
from gatelab.work.files import read_json, write_json
from gatelab.work.progress import Silent
from gatelab.work.tensors import REMEDY

NETWORK, PATH, OVERLAP = "the network itself", "path kernel H", "overlap Λ"
KERNELS = {PATH: PathKernel, OVERLAP: OverlapKernel}
MEMORY = "3GB"  # while a kernel is computed; solvers add the preconditioner's rows


class AtScaleConfig(DataConfig):
    """Ridge regression with the path kernel of a trained network, over the examples it was trained on."""

    data: str = "mnist"
    train_size: int | None = Field(default=10_000, ge=20)  # None: all
    test_size: int | None = Field(default=5_000, ge=10)
    epochs: int = Field(default=20, ge=1)
    width: int = Field(default=128, ge=1)
    depth: int = Field(default=5, ge=2)  # weight layers
    ridges: tuple[float, ...] = (1e-3, 1e-2, 1e-1, 1.0)  # relative to the mean diagonal; chosen on a held-out fifth
    rank: int | None = Field(default=None, ge=0)  # rows of the preconditioner; None: a tenth of all rows, at most 1000
    tolerance: float = Field(default=1e-4, gt=0, lt=1)  # for residuals of the regression and of eigenvectors
    eigenvalues: int = Field(default=50, ge=1)
    runs: int = Field(default=3, ge=1)


def _examples(config: AtScaleConfig, seed: int) -> Dataset:
    """Return the data in random order, so that the held-out last fifth is representative."""
    data = load(config.data, config.data_root).subset(config.train_size, config.test_size, seed=seed)
    order = torch.randperm(len(data.train_x), generator=torch.Generator().manual_seed(seed + 1))
    return replace(data, train_x=data.train_x[order], train_y=data.train_y[order])


def _solver(config: AtScaleConfig, seed: int) -> dict[str, Any]:
    """The options of all regressions; every solver draws from a generator of its own."""
    generator = torch.Generator().manual_seed(seed)
    return {"preconditioner_rank": config.rank, "tolerance": config.tolerance, "generator": generator}


def held_out_accuracies(
    kernel: BlockedKernel,
    labels: Tensor,
    targets: Tensor,
    config: AtScaleConfig,
    seed: int,
    watch: PassObserver | None = None,
) -> list[float]:
    """Return, for each ridge, the accuracy on the last fifth of the examples after a regression on the others."""
    n = len(labels)
    cut = n * 4 // 5
    part = kernel_part(kernel, slice(0, cut), slice(0, cut))
    fits = kernel_ridges(part, targets[:cut], config.ridges, watch=watch, **_solver(config, seed))
    others = kernel_part(kernel, slice(cut, n), slice(0, cut))
    answers = kernel_times(others, torch.cat([fit.dual for fit in fits], dim=1)).unflatten(1, (len(fits), -1))
    right = answers.argmax(dim=2) == labels[cut:, None]
    return right.double().mean(dim=0).tolist()


def best_ridge(ridges: Sequence[float], accuracies: Sequence[float]) -> float:
    """Return the ridge with the highest accuracy; of equals the largest, which needs the fewest passes."""
    return max(zip(accuracies, ridges, strict=True))[1]


def _watch(context: Context, name: str, tolerance: float) -> PassObserver:
    """Report the progress of a solver by the digits of its residual."""

    def watch(step: int, residual: float) -> None:
        done = log(min(1.0, max(residual, tolerance))) / log(tolerance)
        context.tell(done, f"{name}: step {step}, residual {residual:.1e}")

    return watch


@dataclass(frozen=True)
class _KernelProgress(Silent):
    """Passes a kernel's progress on to the cell."""

    context: Context
    name: str

    def update(self, part: str, fraction: float, text: str) -> None:
        """Report how many tiles are finished."""
        self.context.tell(fraction, f"{self.name}: {text} {part}")

    def note(self, text: str) -> None:
        """Report what happens before the first tile."""
        self.context.tell(0.0, f"{self.name}: {text}")


def _share(context: Context, low: float, high: float) -> Context:
    """The context of a part of the work that takes the cell's progress from ``low`` to ``high``."""
    return replace(context, tell=lambda done, text: context.tell(low + (high - low) * done, text))


def _machine(kind: str, model: nn.Module, data: Dataset, config: AtScaleConfig, seed: int, context: Context) -> Result:
    """Ridge regression with one kernel of the network: accuracy, solver, spectrum."""
    x, others = data.inputs(data.train_x), data.inputs(data.test_x)
    classes = len(data.classes)
    targets = F.one_hot(data.train_y, classes).double() - 1 / classes
    asked, folder = KERNELS[kind](model), context.folder / KERNELS[kind].__name__
    # Shares of the time with many examples; most of it goes into the kernel.
    steps = pairwise((0.0, 0.5, 0.7, 0.9, 1.0))
    tiles, ridges, solving, testing = (_share(context, low, high) for low, high in steps)
    kernel = compute(asked, x, store=folder / "train.zarr", memory=MEMORY, progress=_KernelProgress(tiles, kind))
    choosing = _watch(ridges, f"{kind}, ridges", config.tolerance)
    held_out = held_out_accuracies(kernel, data.train_y, targets, config, seed, choosing)
    ridge, watch = best_ridge(config.ridges, held_out), _watch(solving, kind, config.tolerance)
    fit = kernel_ridge(kernel, targets, ridge, watch=watch, **_solver(config, seed))
    count, generator = min(config.eigenvalues, len(x)), torch.Generator().manual_seed(seed)
    pairs = top_eigenpairs(kernel, count, tolerance=config.tolerance, generator=generator)
    trace = kernel.diagonal().double().sum()
    progress = _KernelProgress(testing, f"{kind}, test examples")
    cross = compute(asked, others, x, store=folder / "test.zarr", memory=MEMORY, progress=progress)
    right = fit.classes(cross) == data.test_y
    shutil.rmtree(folder)  # gigabytes that are not read again
    return {
        "accuracy": float(right.double().mean()),
        "held_out": held_out,
        "ridge": fit.ridge,
        "iterations": fit.iterations,
        "residual": float(fit.residuals.max()),
        "converged": fit.converged and pairs.converged,
        "eigenvalues": (pairs.values / trace).tolist(),
        "passes": pairs.iterations,
    }


def _work(config: AtScaleConfig, cell: Cell, context: Context) -> Result:
    seed = int(cell.parameters["seed"])
    data = _examples(config, seed)
    widths = [data.train_x[0].numel(), *[config.width] * (config.depth - 1), len(data.classes)]
    model = network(lambda g: nn.Sequential(nn.Flatten(), *models.mlp(widths, bias=True, generator=g)), seed)
    training = TrainConfig(epochs=config.epochs)
    trained = train_cell([model], [seed], data, training, _share(context, 0.0, 0.4))  # one model, in place
    shares = {PATH: _share(context, 0.4, 0.7), OVERLAP: _share(context, 0.7, 1.0)}
    return {
        "data": data.title,
        "n": len(data.train_x),
        NETWORK: trained["test_accuracy"][0][-1],
        **{kind: _once(kind, model, data, config, seed, shares[kind]) for kind in KERNELS},
    }


def _once(kind: str, model: nn.Module, data: Dataset, config: AtScaleConfig, seed: int, context: Context) -> Result:
    """Compute the result of one kernel and keep it in a file, so that a stopped cell need not repeat it."""
    file = context.folder / f"{KERNELS[kind].__name__}.json"
    if not file.exists():
        write_json(file, _machine(kind, model, data, config, seed, context))
    return read_json(file, REMEDY)


def _findings(config: AtScaleConfig, results: Mapping[str, Result]) -> Findings:
    runs = list(results.values())
    own = Sample(tuple(run[NETWORK] for run in runs))
    kernels = {kind: Sample(tuple(run[kind]["accuracy"] for run in runs)) for kind in KERNELS}
    n = runs[0]["n"]
    as_well = "The path kernel classifies as well as the network, within a point"
    return findings(
        f"Ridge regression with the path kernel of a trained network, {n:,} examples of {runs[0]['data']}",
        f"With the path kernel of its {n:,} training examples {kernels[PATH].text()} % of the test examples are "
        f"classified correctly, with the overlap alone {kernels[OVERLAP].text()} %; the network has {own.text()} %.",
        _accuracy_table(config, own, kernels),
        _solver_table(config, runs),
        *_figures(config, runs),
        Claim(as_well, not_below(kernels[PATH], own, 0.01, paired=True)),
        Claim("So does the overlap of its gates alone", not_below(kernels[OVERLAP], own, 0.01, paired=True)),
        "Network and kernels learn from the same examples; the network is taken after its last epoch.",
        "The regression has not seen the held-out fifth that chooses the ridge, but the gates have.",
        *_unconverged(runs),
    )


def _accuracy_table(config: AtScaleConfig, own: Sample, kernels: Mapping[str, Sample]) -> Table:
    gaps = {kind: f"{100 * (sample.mean - own.mean):+.2f}" for kind, sample in kernels.items()}
    return Table(
        "Test accuracy in percent, mean ± standard deviation over runs",
        ("", "test accuracy", "against the network"),
        ((NETWORK, own.text(), ""), *((kind, sample.text(), gaps[kind]) for kind, sample in kernels.items())),
        f"A network of {config.depth} layers, {config.width} wide, after {config.epochs} epochs.",
    )


def _solver_table(config: AtScaleConfig, runs: Sequence[Result]) -> Table:
    rows = []
    for kind in KERNELS:
        for number, run in enumerate(runs):
            r, shares = run[kind], [100 * value for value in run[kind]["eigenvalues"]]
            solver = (f"{r['ridge']:g}", str(r["iterations"]), f"{r['residual']:.1e}", str(r["passes"]))
            rows.append((kind, str(number), *solver, readable(shares[0]), readable(sum(shares))))
    columns = ("kernel", "run", "ridge", "steps", "residual", "passes for eigenvalues", "largest, %")
    return Table(
        "What the solvers did",
        (*columns, f"{len(runs[0][PATH]['eigenvalues'])} largest, %"),
        tuple(rows),
        f"The ridge is relative to the mean diagonal, eigenvalues are in percent of the trace. The residual is the "
        f"largest; the tolerance is {config.tolerance:g}.",
    )


def _figures(config: AtScaleConfig, runs: Sequence[Result]) -> tuple[FigureFacts, ...]:
    values = {kind: runs[0][kind]["eigenvalues"] for kind in KERNELS}
    spectra = [line(kind, range(1, len(own) + 1), own) for kind, own in values.items()]
    lost = "The first run. A low-rank approximation of the kernel loses the eigenvalues far to the right."
    places = tuple(map(float, range(len(config.ridges))))
    held_out = []
    for kind in KERNELS:
        by_ridge = zip(*(run[kind]["held_out"] for run in runs), strict=True)
        held_out.append(percent_curve(kind, places, [Sample(accuracies) for accuracies in by_ridge]))
    chosen = "Accuracy on the last fifth of the training examples, from a regression on the others."
    axes = ("ridge, relative to the mean diagonal", "held-out accuracy in percent")
    ticks = tuple(f"{ridge:g}" for ridge in config.ridges)
    return (
        figure("The largest eigenvalues", "rank", "eigenvalue / trace", spectra, lost, log=True),
        figure("How the ridge is chosen", *axes, held_out, chosen, ticks=ticks),
    )


def _unconverged(runs: Sequence[Result]) -> list[str]:
    return [
        f"Run {number}, {kind}: a solver stopped above its tolerance; its numbers differ from the exact solution."
        for number, run in enumerate(runs)
        for kind in KERNELS
        if not run[kind]["converged"]
    ]


EXPERIMENTS = (
    experiment(
        "npk-kernel-at-scale",
        "Ridge regression with the path kernel of a trained network, over all its training examples",
        AtScaleConfig,
        cell_per_run,
        _work,
        _findings,
        smoke={"data": "digits", "train_size": 1000, "test_size": None, "eigenvalues": 20, "runs": 2}
        | {"epochs": 30, "width": 64},
        paper={"train_size": None, "test_size": None},
    ),
)
