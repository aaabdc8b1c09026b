"""Beyond Section 5.2: does plain SGD find the factors, with and without batch norm?"""

from collections.abc import Mapping

import torch
from pydantic import Field

from gatelab.figures import Plot
from gatelab.hierarchy import (
    GradientTrainer,
    NodeOptions,
    Norm,
    Teacher,
    disentanglement_score,
    observe_student,
    string_fields,
    student_for,
)
from gatelab.hierarchy.rules import per_factor
from gatelab.lab.experiment import Experiment, SeededConfig
from gatelab.lab.findings import FigureFacts, Findings, Table, mean_curve
from gatelab.lab.runs import Cell, Context, Result
from gatelab.lab.verdicts import greater_within_runs
from gatelab.papers.hierarchy.common import numbers, steps_with_looks


class DisentangleConfig(SeededConfig):
    """A teacher with several binary factors in every region: factor i is the AND of the children's factors i."""

    factors: int = Field(default=2, ge=1)
    leaves: int = Field(default=4, ge=4, multiple_of=2)
    nodes: int = Field(default=8, ge=1)
    steps: int = Field(default=3000, ge=1)
    looks: int = Field(default=15, ge=1)
    batch: int = Field(default=32, ge=2)
    learning_rate: float = Field(default=0.1, gt=0)
    eps: float = Field(default=1e-5, gt=0)


def _work(config: DisentangleConfig, cell: Cell, context: Context) -> Result:
    seed, norm = int(cell.parameters["seed"]), Norm(cell.parameters["norm"])
    generator = torch.Generator().manual_seed(seed)
    fields = string_fields(config.factors * config.leaves, [2], leaf=config.factors)
    teacher = Teacher(fields, per_factor(lambda bits: bits.min(dim=1).values))
    hidden = NodeOptions(norm=norm, eps=config.eps)
    student = student_for(teacher, config.nodes, hidden=hidden, dtype=torch.float64, generator=generator)
    trainer, total = GradientTrainer(student, teacher, config.learning_rate), teacher.inputs.support_size
    steps, scores, losses = [], [], []
    for step, look in steps_with_looks(config.steps, config.looks, context):
        if look:
            steps.append(step)
            scores.append(disentanglement_score(student, teacher).overall)
            losses.append(observe_student(student, teacher).loss)
        if step < config.steps:
            trainer.step(torch.randint(total, (config.batch,), generator=generator))
    return {"steps": steps, "scores": scores, "losses": losses}


def _cells(config: DisentangleConfig) -> list[Cell]:
    return [
        Cell(f"{norm.value}, run {run}", {"seed": seed, "norm": norm.value})
        for norm in Norm
        for run, seed in enumerate(config.seeds())
    ]


def _findings(config: DisentangleConfig, results: Mapping[str, Result]) -> Findings:
    by_norm = {norm: [results[f"{norm.value}, run {run}"] for run in range(config.runs)] for norm in Norm}
    first, last, losses = (
        {norm: numbers(r[what][place] for r in runs) for norm, runs in by_norm.items()}
        for what, place in (("scores", 0), ("scores", -1), ("losses", -1))
    )
    steps = tuple(map(float, by_norm[Norm.NONE][0]["steps"]))
    curves = [
        mean_curve(_label(norm), steps, [numbers(r["scores"][i] for r in runs) for i in range(len(steps))])
        for norm, runs in by_norm.items()
    ]
    rows = tuple((_label(norm), first[norm].text(), last[norm].text(), losses[norm].text()) for norm in Norm)
    return Findings(
        "hierarchy: does gradient descent find the factors?",
        "; ".join(f"{_label(norm)}: {first[norm].mean:.2f} → {last[norm].mean:.2f}" for norm in Norm)
        + ". A score of 1 would mean that every factor has a node that depends on this factor and on nothing else.",
        (
            Table(
                f"Disentanglement score, {config.nodes} nodes for {config.factors} factors in each region",
                ("student", "at the start", f"after {config.steps} steps of SGD", "loss"),
                rows,
                f"Mean ± standard deviation of {config.runs} runs; batches of {config.batch}.",
            ),
        ),
        (
            FigureFacts(
                "Score over training",
                Plot("step", "disentanglement score", tuple(curves)),
                "Mean and its standard error.",
            ),
        ),
        (
            *(greater_within_runs(f"SGD raises the score ({_label(norm)})", last[norm], first[norm]) for norm in Norm),
            *(
                greater_within_runs(f"Batch norm {norm.value} helps to find the factors", last[norm], last[Norm.NONE])
                for norm in (Norm.AFTER_LINEAR, Norm.AFTER_RELU)
            ),
        ),
        (
            "The paper shows that disentangled representations can be sustained. Whether training reaches them is our "
            "question, and these claims are ours.",
            "The factors are ANDs. A student whose top is linear in the regions' nodes could not compute XORs.",
        ),
    )


def _label(norm: Norm) -> str:
    return "no batch norm" if norm is Norm.NONE else f"batch norm {norm.value}"


DISENTANGLE = Experiment(
    "hierarchy-disentangle",
    "Does gradient descent find the factors?",
    DisentangleConfig,
    {
        "smoke": {"runs": 2, "steps": 6, "looks": 2, "nodes": 3},
        "quick": {"runs": 5},
        "paper": {"runs": 20, "factors": 3, "nodes": 16, "steps": 20000},
    },
    _cells,
    _work,
    _findings,
)
EXPERIMENTS = (DISENTANGLE,)
