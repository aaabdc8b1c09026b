"""Section 4 and 8.6.2: batch norm as a projection in a network that trains, and the energy that it conserves."""

from collections.abc import Mapping
from statistics import mean

import torch
from pydantic import Field
from torch import nn

from gatelab.data import load
from gatelab.hierarchy import (
    GradientTrainer,
    NodeOptions,
    Norm,
    Teacher,
    batchnorm_projection_report,
    string_fields,
    student_for,
)
from gatelab.hierarchy.batchnorm import row_energy
from gatelab.hierarchy.projection_tracker import projection_plot
from gatelab.hierarchy.rules import random_table
from gatelab.lab.experiment import DataConfig
from gatelab.lab.findings import FigureFacts, Findings, Table, mean_curve
from gatelab.lab.looks import Look
from gatelab.lab.runs import Cell, Context, Result
from gatelab.lab.training import Optimiser
from gatelab.lab.training_cells import train_and_look
from gatelab.lab.verdicts import Claim, Sample, above, exponents, near, within
from gatelab.lab.verdicts.fits import fitted_power
from gatelab.models.init import initialise
from gatelab.papers.common import cells_per_kind, experiment, figure, findings, line, over, runs_of, training

_PLACES = ("before the ReLU", "after the ReLU")


class BatchNormConfig(DataConfig):
    """A dense network with batch norm, watched while it trains; students of a random teacher for the energy."""

    depth: int = Field(default=2, ge=1)
    runs: int = Field(default=3, ge=1)
    data: str = "digits"
    width: int = Field(default=32, ge=2)
    epochs: int = Field(default=20, ge=1)
    batch: int = Field(default=64, ge=4)
    learning_rate: float = Field(default=0.05, gt=0)
    horizon: float = Field(default=2.0, gt=0)  # how long the energy is followed: steps × step size
    step_sizes: tuple[float, ...] = (0.04, 0.02, 0.01, 0.005)


def _network(inputs: int, widths: list[int], classes: int, place: str, generator: torch.Generator) -> nn.Sequential:
    layers: list[nn.Module] = [nn.Flatten()]
    width = widths[-1]
    for fan_in in (inputs, *widths[:-1]):
        pair = [nn.BatchNorm1d(width), nn.ReLU()]
        layers += [nn.Linear(fan_in, width), *(pair if place == _PLACES[0] else reversed(pair))]
    net = nn.Sequential(*layers, nn.Linear(width, classes))
    initialise(net, generator)
    return net


def _projection(config: BatchNormConfig, seed: int, place: str, context: Context) -> Result:
    """Train on the data; before each epoch and at the end, measure what batch norm removes on one batch."""
    data = load(config.data, config.data_root)
    examples = len(data.train_x)
    widths, generator = [config.width] * config.depth, torch.Generator().manual_seed(seed)
    net = _network(data.train_x[0].numel(), widths, len(data.classes), place, generator)

    def see(model: nn.Module, epoch: int, _place: int) -> Look:
        generator = torch.Generator().manual_seed(seed * 1_000_003 + epoch)
        probe = torch.randperm(examples, generator=generator)[: config.batch]
        x, y = data.inputs(data.train_x[probe], torch.float64), data.train_y[probe]
        report = batchnorm_projection_report(model.double(), x, lambda out: nn.functional.cross_entropy(out, y))
        return {
            "removed": mean(layer.share for layer in report),
            "shares": [layer.share for layer in report],
            "mean": mean(layer.mean_share.mean().item() for layer in report),
            "residual": max(layer.residual for layer in report),
            "leak": max(layer.leak.max().item() for layer in report),
        }

    whole_batches = examples // config.batch * config.batch  # a last batch of one example would have no variance
    how = training(config, batch_size=config.batch, optimiser=Optimiser.SGD, epoch_examples=whole_batches)
    result = train_and_look([net], [seed], data, how, context, range(config.epochs + 1), see)
    return {"records": [seen["members"][0] for seen in result["seen"]]}


def _drift(norm: Norm, step: float, steps: int, seed: int) -> float:
    """Return the mean change of ½‖w_j‖² of hidden nodes, relative to their mean, after some steps."""
    generator = torch.Generator().manual_seed(seed)
    teacher = Teacher(string_fields(6, [3]), random_table(4, generator), top=random_table(2, generator))
    hidden = NodeOptions(norm=norm, bias=False, eps=1e-12)
    student = student_for(teacher, 6, hidden=hidden, dtype=torch.float64, generator=generator)
    weights = [student.weights[region] for region in student.fields.hidden]
    with torch.no_grad():
        for weight in weights:
            weight.uniform_(0.1, 1.0, generator=generator)  # positive, so that no node starts closed for all inputs
    before = torch.cat([row_energy(weight.detach()) for weight in weights])
    trainer = GradientTrainer(student, teacher, step)
    for _ in range(steps):
        trainer.step()
    after = torch.cat([row_energy(weight.detach()) for weight in weights])
    return ((after - before).abs().mean() / before.mean()).item()


def _work(config: BatchNormConfig, cell: Cell, context: Context) -> Result:
    seed, kind = int(cell.parameters["seed"]), cell.parameters["kind"]
    if kind != "energy":
        return _projection(config, seed, kind, context)
    drifts: dict[str, list[float]] = {}
    for norm in Norm:
        drifts[norm.value] = [_drift(norm, step, round(config.horizon / step), seed) for step in config.step_sizes]
        context.tell(1.0, norm.value)
    return {"drifts": drifts}


def _findings(config: BatchNormConfig, results: Mapping[str, Result]) -> Findings:
    runs = {place: [result["records"] for result in runs_of(place, results)] for place in _PLACES}
    flat = [record for own in runs.values() for records in own for record in records]
    removed, along_one = (
        {place: [Sample(tuple(r[what] for r in epoch)) for epoch in zip(*runs[place], strict=True)] for place in runs}
        for what in ("removed", "mean")
    )
    energies, sizes = [result["drifts"] for result in runs_of("energy", results)], config.step_sizes
    drifts = {norm: over(energies, len(sizes), lambda own, i, n=norm.value: own[n][i]) for norm in Norm}
    orders = {norm: fitted_power(sizes, [sample.mean for sample in drifts[norm]]) for norm in Norm}
    depths = {
        epoch: over(runs[_PLACES[0]], config.depth, lambda own, i, e=epoch: own[e]["shares"][i])
        for epoch in range(config.epochs + 1)
    }
    chance = 2 / config.batch  # what the projection removes of a random gradient, on average
    first = {place: samples[0].text() for place, samples in removed.items()}
    shares = Table(
        "Share of ‖gradient‖² that batch norm removes, %",
        ("batch norm", "at the start", f"after {config.epochs} epochs", "of that along 1"),
        tuple((p, first[p], removed[p][-1].text(), along_one[p][-1].text()) for p in _PLACES),
        f"{config.data}, batches of {config.batch}, mean over layers and channels; ± over {config.runs} runs.",
    )
    changes = Table(
        f"Mean relative change of ½‖w_j‖² within η · steps = {config.horizon:g}",
        ("batch norm", *(f"η = {step:g}" for step in sizes), "exponent"),
        tuple((norm.value, *(s.text() for s in drifts[norm]), f"{orders[norm]:.2f}") for norm in Norm),
    )
    return findings(
        "hierarchy, Section 4: batch norm as a projection",
        f"At the start batch norm removes {first[_PLACES[0]]} % of the gradient's energy (before the ReLU) and "
        f"{first[_PLACES[1]]} % (after); two random directions of {config.batch} are {100 * chance:.1f} %. "
        f"Energies ½‖w_j‖² drift as η^{orders[Norm.AFTER_RELU]:.2f} with batch norm after the ReLU, as "
        f"η^{orders[Norm.NONE]:.2f} without.",
        shares,
        changes,
        *_figures(config, removed, drifts, chance, depths),
        *_claims(config, max(record["residual"] for record in flat), removed, drifts),
        f"ε = 1e-5 lets up to {max(record['leak'] for record in flat):.1e} of the component along f through (1 for a "
        "node that does not vary over the batch).",
        "The paper claims the energy for batch norm after the ReLU; after the linear map the argument is the same.",
    )


def _figures(
    config: BatchNormConfig,
    removed: Mapping[str, list[Sample]],
    drifts: Mapping[Norm, list[Sample]],
    chance: float,
    depths: Mapping[int, list[Sample]],
) -> tuple[FigureFacts, ...]:
    epochs = tuple(map(float, range(config.epochs + 1)))
    shares = [mean_curve(f"batch norm {place}", epochs, samples) for place, samples in removed.items()]
    shares.append(line("two random directions", epochs, [chance] * len(epochs)))
    energies = [mean_curve(f"batch norm: {norm.value}", config.step_sizes, drifts[norm]) for norm in Norm]
    seen = "Mean over layers and channels on one batch before each epoch, and its standard error over runs."
    limit = "Gradient flow (η → 0) conserves the energy of nodes followed by batch norm."
    change = "mean relative change of ½‖w_j‖²"
    by_layer = FigureFacts(
        "What batch norm removes, layer by layer",
        projection_plot({epoch: [s.mean for s in layers] for epoch, layers in depths.items()}, "epoch"),
        f"Batch norm {_PLACES[0]}, mean over runs and channels.",
    )
    return (
        by_layer,
        figure("What batch norm removes", "epoch", "share of the gradient's energy", shares, seen),
        figure("Energy against step size", "step η", change, energies, limit, log=True),
    )


def _claims(
    config: BatchNormConfig, residual: float, removed: Mapping[str, list[Sample]], drifts: Mapping[Norm, list[Sample]]
) -> tuple[Claim, ...]:
    more, chance = "removes more than two random directions would", 2 / config.batch
    kept, free = (exponents(config.step_sizes, drifts[norm]) for norm in (Norm.AFTER_RELU, Norm.NONE))
    vanishes = "With batch norm after the ReLU the energy's drift vanishes with the step (8.6.2: exponent 1 ± 0.25)"
    return (
        Claim(
            "What comes back is (c₁/σ) P^⊥ g (Thm. 5, with ε in the formula)",
            within(residual, 1e-8, "autograd against the formula, relative:"),
        ),
        *(
            Claim(f"Batch norm {place} {more}, {when}", above(samples[at], chance))
            for place, samples in removed.items()
            for when, at in (("at the start", 0), ("after training", -1))
        ),
        Claim(vanishes, near(kept, 1.0, 0.25)),
        Claim("Without batch norm it does not (exponent 0 ± 0.25)", near(free, 0.0, 0.25)),
    )


BATCHNORM = experiment(
    "hierarchy-batchnorm",
    "Batch norm as a projection, and the energy it conserves",
    BatchNormConfig,
    lambda config: [*cells_per_kind(config, *_PLACES, weight=2.0), *cells_per_kind(config, "energy")],
    _work,
    _findings,
    smoke={"runs": 1, "width": 8, "epochs": 2, "horizon": 0.12, "step_sizes": (0.04, 0.02)},
    paper={"runs": 10, "width": 128, "epochs": 100, "step_sizes": (0.04, 0.02, 0.01, 0.005, 0.0025)},
)
EXPERIMENTS = (BATCHNORM,)
