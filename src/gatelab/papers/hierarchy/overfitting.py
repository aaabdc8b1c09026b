"""Section 6: a subtle true cause beside an obvious spurious one, and the noise of SGD as a noisy P."""

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy

import torch
from pydantic import Field, model_validator
from torch import Tensor
from torch.nn.utils import parameters_to_vector

from gatelab.hierarchy import (
    GradientTrainer,
    LocalNetwork,
    Teacher,
    counted_events,
    full_information,
    observe_student,
    reformulate,
    student_for,
)
from gatelab.lab.experiment import SeededConfig
from gatelab.lab.findings import FigureFacts, Findings, Table, mean_curve
from gatelab.lab.runs import Cell, Context, Result
from gatelab.lab.verdicts import Claim, Sample, all_of, exponents_of_means, greater, near
from gatelab.lab.verdicts.fits import fitted_power
from gatelab.papers.common import cells_per_kind, dots, experiment, figure, findings, numbers, runs_of
from gatelab.papers.hierarchy.worlds import world


class OverfittingConfig(SeededConfig):
    """The label is the parity of the bits in α, a subtle cause; a random coin in γ is easy to read but irrelevant."""

    depth: int = Field(default=1, ge=1)
    runs: int = Field(default=10, ge=1)
    bits: int = Field(default=5, ge=2)
    nodes: int = Field(default=16, ge=1)
    samples: tuple[int, ...] = (8, 32, 128, 512)
    steps: int = Field(default=3000, ge=1)
    batch: int = Field(default=8, ge=1)
    learning_rate: float = Field(default=0.1, gt=0)
    draws: int = Field(default=300, ge=10)

    @model_validator(mode="after")
    def _deep_enough(self) -> "OverfittingConfig":
        if self.depth >= self.bits:
            raise ValueError(f"depth is {self.depth}; {self.bits} bits can be added in at most {self.bits - 1} layers")
        return self


def signals(student: LocalNetwork, teacher: Teacher, x: Tensor) -> dict[str, dict[str, float]]:
    """Return, for α and γ, the quantities of Eqs 14 and 15: how distinct f_j(z) is, g_0(z), and Δw = E[f_j(z) g_0(z)].

    g_0 is the gradient at the output for label 1 minus that for label 0; E[f_j g_0] is taken without the means, which
    do not depend on z. All quantities are RMS over nodes and z.
    """
    seen = observe_student(student, teacher, x)
    top, found = seen.gradients["top"], {}
    for region in ("alpha", "gamma"):
        prior = torch.bincount(seen.z[region], seen.probability, minlength=2)
        f = seen.given_z(seen.states[region].output, region)
        g = seen.given_z(top[:, 1:] - top[:, :1], region)
        f, g = f - prior @ f, g - prior @ g
        found[region] = {
            "distinct": (prior @ f.square()).mean().sqrt().item(),
            "signal": (prior @ g.square()).mean().sqrt().item(),
            "update": (prior @ (f * g)).square().mean().sqrt().item(),
        }
    return found


def reliance(student: LocalNetwork, teacher: Teacher, region: str) -> float:
    """Return how much the output depends on z of a region: the standard deviation of E[f_ω | z] over all inputs."""
    seen = observe_student(student, teacher)
    given = seen.given_z(seen.states["top"].output, region)[seen.z[region]]
    centred = given - seen.probability @ given
    return (seen.probability @ centred.square()).sum().sqrt().item()


def _train(config: OverfittingConfig, seed: int, count: int) -> Result:
    """Train by full-batch descent and by SGD on the same samples, from the same start."""
    teacher, generator = world(config.bits, config.depth), torch.Generator().manual_seed(1000 * seed + count)
    x = teacher.inputs.sample(count, generator)
    z = teacher(x)
    on = z["gamma"] == 1
    chance = z["top"][on].double().mean().item() if bool(on.any()) else 0.5
    start = student_for(teacher, config.nodes, dtype=torch.float64, generator=generator)
    found: Result = {"epsilon": abs(chance - 0.5), "signals": signals(start, teacher, x)}
    for name, batch in (("GD", None), ("SGD", config.batch)):
        student = deepcopy(start)
        trainer = GradientTrainer(student, teacher, config.learning_rate, x)
        early = 0.0
        for step in range(config.steps):
            if step == config.steps // 10:
                early = observe_student(student, teacher).loss
            trainer.step(None if batch is None else torch.randint(count, (batch,), generator=generator))
        seen = observe_student(student, teacher)
        right = (seen.states["top"].output.argmax(dim=1) == seen.z["top"]).double()
        found[name] = {
            "alpha": reliance(student, teacher, "alpha"),
            "gamma": reliance(student, teacher, "gamma"),
            "train": observe_student(student, teacher, x).loss,
            "test": seen.loss,
            "early": early,
            "accuracy": float(seen.probability @ right),
        }
    return found


def _noise(config: OverfittingConfig, seed: int) -> Result:
    """Return the spread of ΔW over batches: observed on the student, and predicted from P̃ counted in other batches."""
    generator = torch.Generator().manual_seed(seed)
    lossy = world(config.bits, config.depth)
    student = student_for(lossy, config.nodes, dtype=torch.float64, generator=generator)

    def spread(teacher: Teacher, update: Callable[[Tensor], Mapping[str, Tensor]]) -> Tensor:
        batches = [teacher.inputs.sample(config.batch, generator) for _ in range(config.draws)]
        moves = torch.stack([parameters_to_vector(update(batch).values()) for batch in batches])
        return moves.var(dim=0)

    observed = spread(lossy, lambda batch: GradientTrainer(student, lossy, 1.0, batch).update())
    found: Result = {}
    for name, teacher in (("full", full_information(lossy)), ("lossy", lossy)):
        predicted = spread(teacher, lambda x, t=teacher: reformulate(student, counted_events(t, x)).weights)
        moving = observed > 1e-6 * observed.max()
        single = (predicted[moving] / observed[moving]).sqrt()
        low, high = (single.quantile(q).item() for q in (0.05, 0.95))
        found[name] = {"all": (predicted.sum() / observed.sum()).sqrt().item(), "low": low, "high": high}
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
        for what in ("alpha", "gamma", "early", "test")
    }
    samples = [numbers(run["epsilon"] for run in runs) for runs in by_size]
    epsilons = [sample.mean for sample in samples]
    noise = runs_of("noise", results)
    ratios = {
        (name, what): numbers(r[name][what] for r in noise)
        for name in ("full", "lossy")
        for what in ("all", "low", "high")
    }
    parts = {
        (region, what): [numbers(run["signals"][region][what] for run in runs) for runs in by_size]
        for region in ("alpha", "gamma")
        for what in ("distinct", "signal", "update")
    }
    few, many = config.samples[0], config.samples[-1]
    true, spurious = found["GD", "alpha"], found["GD", "gamma"]
    noises = Table(
        f"Noise of ΔW over batches of {config.batch}, predicted from resampled P̃ over observed",
        ("z", "ratio of standard deviations", "weight by weight: 5 %", "95 %"),
        tuple(
            (label, *(ratios[name, what].text() for what in ("all", "low", "high")))
            for name, label in (("full", "determines x"), ("lossy", "lossy"))
        ),
        f"If z determines x, both are the same numbers (Theorem 3), and what is left is the noise of {config.draws} "
        "draws.",
    )
    return findings(
        "hierarchy, Section 6: overfitting to an obvious spurious cause",
        f"With {few} samples the output depends on the spurious cause by {spurious[0].mean:.2f} and on the true one by "
        f"{true[0].mean:.2f}; with {many} by {spurious[-1].mean:.2f} and {true[-1].mean:.2f}.",
        _dependence(config, epsilons, found),
        _signals(config, parts),
        noises,
        _figure(config, epsilons, found),
        *_claims(config, samples, found, ratios, parts),
        "In the paper a random start cannot see the subtle cause at all. Parity is nearly so: no single bit "
        "carries information about it.",
    )


def _signals(config: OverfittingConfig, parts: Found) -> Table:
    rows = tuple(
        (str(count), *(samples[i].text() for samples in parts.values())) for i, count in enumerate(config.samples)
    )
    names = {"distinct": "spread of f_j(z)", "signal": "g₀(z)", "update": "E[f_j g₀]"}
    return Table(
        "Eqs 14 and 15 at the start: what descent would do first",
        ("samples", *(f"{'α' if region == 'alpha' else 'γ'}: {names[what]}" for region, what in parts)),
        rows,
        "RMS over nodes and over z. The paper: g₀ is ±1 on the true cause α and ±2ε on γ, but f_j is nearly constant "
        "on α.",
    )


def _dependence(config: OverfittingConfig, epsilons: list[float], found: Found) -> Table:
    early = f"test loss after {config.steps // 10}"
    labels = {"alpha": "on α (true)", "gamma": "on γ (spurious)", "early": early, "test": "test loss"}
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
    config: OverfittingConfig,
    epsilons: Sequence[Sample],
    found: Found,
    ratios: Mapping[tuple[str, str], Sample],
    parts: Found,
) -> tuple[Claim, ...]:
    few, many, middle = config.samples[0], config.samples[-1], len(config.samples) // 2
    true, spurious = found["GD", "alpha"], found["GD", "gamma"]
    falls = "The spurious correlation ε falls as n^(−1/2)"
    noise = "SGD's noise is that of a resampled P̃ with the teacher's own, lossy z (ratio 1 ± 0.1)"
    single = "Weight by weight it is not: ratios spread more with the lossy z than sampling explains"
    spreads = [
        numbers(b - a for a, b in zip(ratios[name, "low"].values, ratios[name, "high"].values, strict=True))
        for name in ("lossy", "full")
    ]
    first = (
        f"With {few} samples descent first moves the spurious cause more: E[f g₀] on γ exceeds that on α (Eqs 14, 15)"
    )
    better = f"SGD generalises better than GD after {config.steps} steps ({config.samples[middle]} samples, test loss)"
    tests = [found[name, "test"][middle] for name in ("GD", "SGD")]
    return (
        Claim(falls, near(exponents_of_means(config.samples, epsilons), -0.5, 0.15)),
        Claim(
            f"With {few} samples the spurious cause outweighs the true one", greater(spurious[0], true[0], paired=True)
        ),
        Claim(f"With {many} samples the true cause outweighs it", greater(true[-1], spurious[-1], paired=True)),
        Claim("More data mean less weight on the spurious cause", greater(spurious[0], spurious[-1])),
        Claim(better, greater(*tests, paired=True)),
        Claim(noise, near(ratios["lossy", "all"], 1.0, 0.1)),
        Claim(single, greater(*spreads, paired=True)),
        Claim(first, greater(parts["gamma", "update"][0], parts["alpha", "update"][0], paired=True)),
        Claim(
            "The signal g₀ on the true cause is the stronger one, at any number of samples",
            all_of(
                [
                    greater(a, b, paired=True)
                    for a, b in zip(parts["alpha", "signal"], parts["gamma", "signal"], strict=True)
                ]
            ),
        ),
    )


OVERFITTING = experiment(
    "hierarchy-overfitting",
    "A subtle true cause beside an obvious spurious one; SGD as a noisy P",
    OverfittingConfig,
    _cells,
    _work,
    _findings,
    smoke={"runs": 2, "bits": 2, "samples": (8, 32), "steps": 5, "draws": 10},
    paper={"runs": 30, "samples": (8, 16, 32, 64, 128, 256, 512), "steps": 10_000, "draws": 1000},
)
EXPERIMENTS = (OVERFITTING,)
