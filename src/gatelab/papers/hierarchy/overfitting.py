"""Section 6: a subtle true cause beside an obvious spurious one, and the noise of SGD as a noisy P."""

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy

import torch
from pydantic import Field
from torch import Tensor
from torch.nn.utils import parameters_to_vector

from gatelab.hierarchy import (
    GradientTrainer,
    LocalNetwork,
    ReceptiveFields,
    Teacher,
    counted_events,
    full_information,
    observe_student,
    reformulate,
    student_for,
)
from gatelab.hierarchy.rules import from_function, parity
from gatelab.lab.experiment import SeededConfig
from gatelab.lab.findings import FigureFacts, Findings, Table, mean_curve
from gatelab.lab.runs import Cell, Context, Result
from gatelab.lab.verdicts import Claim, Sample, exponents, greater, near
from gatelab.lab.verdicts.fits import fitted_power
from gatelab.papers.common import cells_per_kind, dots, experiment, figure, findings, numbers, runs_of


class OverfittingConfig(SeededConfig):
    """The label is the parity of the bits in α, a subtle cause; a coin in γ is easy to read and means nothing."""

    runs: int = Field(default=10, ge=1)
    bits: int = Field(default=5, ge=2)
    nodes: int = Field(default=16, ge=1)
    samples: tuple[int, ...] = (8, 16, 32, 64, 128, 256, 512)
    steps: int = Field(default=300, ge=1)
    batch: int = Field(default=8, ge=1)
    learning_rate: float = Field(default=0.1, gt=0)
    draws: int = Field(default=300, ge=10)


def world(bits: int) -> Teacher:
    """Return a teacher whose label is the parity of α, the first positions; γ, the last two, shows its first bit."""
    singles = {f"x{position}": [position] for position in range(bits + 2)}
    regions = {**singles, "alpha": range(bits), "gamma": [bits, bits + 1], "top": range(bits + 2)}
    first = from_function(lambda z: z[:, 0], 2)
    return Teacher(ReceptiveFields(regions), {"alpha": parity, "gamma": first, "top": first})


def reliance(student: LocalNetwork, teacher: Teacher, region: str) -> float:
    """Return how much the output depends on z of a region: the standard deviation of E[f_ω | z] over all inputs."""
    seen = observe_student(student, teacher)
    given = seen.given_z(seen.states["top"].output, region)[seen.z[region]]
    centred = given - seen.probability @ given
    return (seen.probability @ centred.square()).sum().sqrt().item()


def _train(config: OverfittingConfig, seed: int, count: int) -> Result:
    """Train by full-batch descent and by SGD on the same samples, from the same start."""
    teacher, generator = world(config.bits), torch.Generator().manual_seed(1000 * seed + count)
    x = teacher.inputs.sample(count, generator)
    z = teacher(x)
    on = z["gamma"] == 1
    chance = z["top"][on].double().mean().item() if bool(on.any()) else 0.5
    start = student_for(teacher, config.nodes, dtype=torch.float64, generator=generator)
    found: Result = {"epsilon": abs(chance - 0.5)}
    for name, batch in (("GD", None), ("SGD", config.batch)):
        student = deepcopy(start)
        trainer = GradientTrainer(student, teacher, config.learning_rate, x)
        for _ in range(config.steps):
            trainer.step(None if batch is None else torch.randint(count, (batch,), generator=generator))
        seen = observe_student(student, teacher)
        right = (seen.states["top"].output.argmax(dim=1) == seen.z["top"]).double()
        found[name] = {
            "alpha": reliance(student, teacher, "alpha"),
            "gamma": reliance(student, teacher, "gamma"),
            "train": observe_student(student, teacher, x).loss,
            "test": seen.loss,
            "accuracy": float(seen.probability @ right),
        }
    return found


def _noise(config: OverfittingConfig, seed: int) -> Result:
    """Return the spread of ΔW over batches: observed on the student, and predicted from P̃ counted in other batches."""
    generator = torch.Generator().manual_seed(seed)
    lossy = world(config.bits)
    student = student_for(lossy, config.nodes, dtype=torch.float64, generator=generator)

    def spread(teacher: Teacher, update: Callable[[Tensor], Mapping[str, Tensor]]) -> float:
        batches = [teacher.inputs.sample(config.batch, generator) for _ in range(config.draws)]
        moves = torch.stack([parameters_to_vector(update(batch).values()) for batch in batches])
        return moves.var(dim=0).sum().sqrt().item()

    found = {"observed": spread(lossy, lambda batch: GradientTrainer(student, lossy, 1.0, batch).update())}
    for name, teacher in (("full", full_information(lossy)), ("lossy", lossy)):
        found[name] = spread(teacher, lambda x, t=teacher: reformulate(student, counted_events(t, x)).weights)
    return found


def _work(config: OverfittingConfig, cell: Cell, context: Context) -> Result:
    del context
    seed, kind = int(cell.parameters["seed"]), cell.parameters["kind"]
    return _noise(config, seed) if kind == "noise" else _train(config, seed, int(kind.removesuffix(" samples")))


def _cells(config: OverfittingConfig) -> list[Cell]:
    sizes = [f"{count} samples" for count in config.samples]
    return [*cells_per_kind(config, *sizes), *cells_per_kind(config, "noise", weight=2.0)]


Found = Mapping[tuple[str, str], list[Sample]]  # (trainer, quantity) → a sample for each number of examples


def _findings(config: OverfittingConfig, results: Mapping[str, Result]) -> Findings:
    by_size = [runs_of(f"{count} samples", results) for count in config.samples]
    found = {
        (name, what): [numbers(run[name][what] for run in runs) for runs in by_size]
        for name in ("GD", "SGD")
        for what in ("alpha", "gamma", "test")
    }
    samples = [numbers(run["epsilon"] for run in runs) for runs in by_size]
    epsilons = [sample.mean for sample in samples]
    noise = runs_of("noise", results)
    ratios = {name: numbers(r[name] / r["observed"] for r in noise) for name in ("full", "lossy")}
    few, many = config.samples[0], config.samples[-1]
    true, spurious = found["GD", "alpha"], found["GD", "gamma"]
    noises = Table(
        f"Noise of ΔW over batches of {config.batch}, predicted from resampled P̃ over observed",
        ("z", "ratio of standard deviations"),
        (("determines x", ratios["full"].text()), ("lossy", ratios["lossy"].text())),
    )
    return findings(
        "hierarchy, Section 6: overfitting to an obvious spurious cause",
        f"With {few} samples the output depends on the spurious cause by {spurious[0].mean:.2f} and on the true one by "
        f"{true[0].mean:.2f}; with {many} by {spurious[-1].mean:.2f} and {true[-1].mean:.2f}.",
        _dependence(config, epsilons, found),
        noises,
        _figure(config, epsilons, found),
        *_claims(config, samples, found, ratios),
        "In the paper a random start cannot see the subtle cause at all. Parity is nearly so: no single bit "
        "carries information about it.",
    )


def _dependence(config: OverfittingConfig, epsilons: list[float], found: Found) -> Table:
    labels = {"alpha": "on α (true)", "gamma": "on γ (spurious)", "test": "test loss"}
    names = {"GD": "GD", "SGD": f"SGD({config.batch})"}
    rows = tuple(
        (str(count), f"{epsilons[i]:.3f}", *(samples[i].text() for samples in found.values()))
        for i, count in enumerate(config.samples)
    )
    return Table(
        f"After {config.steps} steps of size {config.learning_rate:g}",
        ("samples", "ε", *(f"{names[name]}: {labels[what]}" for name, what in found)),
        rows,
        "Dependence is the standard deviation of E[f_ω | z] over all inputs; a perfect student has 0.707 on α and 0 on "
        f"γ. ± over {config.runs} runs.",
    )


def _figure(config: OverfittingConfig, epsilons: list[float], found: Found) -> FigureFacts:
    sizes, causes = tuple(map(float, config.samples)), {"alpha": "true cause α", "gamma": "spurious cause γ"}
    curves = [
        mean_curve(f"{causes[what]}, {name}", sizes, samples)
        for (name, what), samples in found.items()
        if what in causes
    ]
    curves.append(dots(f"ε, exponent {fitted_power(sizes, epsilons):.2f}", sizes, epsilons))
    axes = ("samples", "standard deviation of E[f_ω | z]")
    return figure("What the output depends on", *axes, curves, "Mean and standard error.", log=True)


def _claims(
    config: OverfittingConfig, epsilons: Sequence[Sample], found: Found, ratios: Mapping[str, Sample]
) -> tuple[Claim, ...]:
    few, many, middle = config.samples[0], config.samples[-1], len(config.samples) // 2
    true, spurious = found["GD", "alpha"], found["GD", "gamma"]
    falls, noise = (
        "The spurious correlation ε falls as n^(−1/2)",
        "SGD's noise is that of a resampled P̃ (ratio 1 ± 0.1)",
    )
    better = f"SGD generalises better than GD after as many steps ({config.samples[middle]} samples, test loss)"
    tests = [found[name, "test"][middle] for name in ("GD", "SGD")]
    return (
        Claim(falls, near(exponents(config.samples, epsilons), -0.5, 0.15)),
        Claim(
            f"With {few} samples the spurious cause outweighs the true one", greater(spurious[0], true[0], paired=True)
        ),
        Claim(f"With {many} samples the true cause outweighs it", greater(true[-1], spurious[-1], paired=True)),
        Claim("More data mean less weight on the spurious cause", greater(spurious[0], spurious[-1])),
        Claim(better, greater(*tests, paired=True)),
        Claim(noise, near(ratios["full"], 1.0, 0.1)),
    )


OVERFITTING = experiment(
    "hierarchy-overfitting",
    "A subtle true cause beside an obvious spurious one; SGD as a noisy P",
    OverfittingConfig,
    _cells,
    _work,
    _findings,
    smoke={"runs": 2, "bits": 2, "samples": (8, 32), "steps": 5, "draws": 10},
    paper={"runs": 30, "steps": 1000, "draws": 1000},
)
EXPERIMENTS = (OVERFITTING,)
