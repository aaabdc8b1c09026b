"""Scores of students while they train: are nodes selective to the teacher's events, and do they find its factors?

Selectivity is the paper's ultimate goal (Sections 1 and 3). Beyond Section 5.2: does plain SGD find the factors?
"""

from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any

import torch
from pydantic import Field
from torch import Tensor

from gatelab.figures import Heatmap, Panels
from gatelab.hierarchy import (
    GradientTrainer,
    LocalNetwork,
    NodeOptions,
    Norm,
    Teacher,
    disentanglement_score,
    full_information,
    observe_student,
    selectivity,
    student_for,
)
from gatelab.hierarchy.rules import per_factor, random_table
from gatelab.hierarchy.scores import gradient_selectivity
from gatelab.lab.experiment import SeededConfig
from gatelab.lab.findings import FigureFacts, Findings, Table, mean_curve
from gatelab.lab.runs import Cell, Context, Result
from gatelab.lab.verdicts import Claim, greater
from gatelab.papers.common import cells_per_kind, experiment, figure, findings, numbers, over, runs_of
from gatelab.papers.hierarchy.worlds import windows


def _train_and_score(
    steps: int, looks: int, context: Context, train: Callable[[], object], score: Callable[[], dict[str, float]]
) -> dict[str, list[Any]]:
    """Train for some steps; score the student ``looks`` times, including the start and the end."""
    every = max(1, steps // looks)
    seen: defaultdict[str, list[Any]] = defaultdict(list)
    for step in range(steps + 1):
        if step % every == 0 or step == steps:
            context.tell(step / steps, f"step {step}")
            for name, value in {"steps": step, **score()}.items():
                seen[name].append(value)
        if step < steps:
            train()
    return dict(seen)


class DisentangleConfig(SeededConfig):
    """A teacher with several binary factors in every region: factor i is the AND of the children's factors i."""

    depth: int = Field(default=1, ge=1)
    factors: int = Field(default=2, ge=1)
    leaves: int = Field(default=4, ge=4, multiple_of=2)
    nodes: int = Field(default=8, ge=1)
    steps: int = Field(default=3000, ge=1)
    looks: int = Field(default=15, ge=1)
    batch: int = Field(default=32, ge=2)
    learning_rate: float = Field(default=0.1, gt=0)
    eps: float = Field(default=1e-5, gt=0)


def _disentangle_work(config: DisentangleConfig, cell: Cell, context: Context) -> Result:
    seed, norm = int(cell.parameters["seed"]), Norm(cell.parameters["kind"])
    generator = torch.Generator().manual_seed(seed)
    fields = windows(config.leaves, config.depth, (2, 2), leaf=config.factors)
    teacher = Teacher(fields, per_factor(lambda bits: bits.min(dim=1).values))
    hidden = NodeOptions(norm=norm, eps=config.eps)
    student = student_for(teacher, config.nodes, hidden=hidden, dtype=torch.float64, generator=generator)
    trainer, total = GradientTrainer(student, teacher, config.learning_rate), teacher.inputs.support_size

    def score() -> dict[str, float]:
        by_definition, of_variance = (
            disentanglement_score(student, teacher, over_inputs=whole).overall for whole in (False, True)
        )
        return {"scores": by_definition, "shares": of_variance, "losses": observe_student(student, teacher).loss}

    def train() -> None:
        trainer.step(torch.randint(total, (config.batch,), generator=generator))

    return _train_and_score(config.steps, config.looks, context, train, score)


def _disentangle_findings(config: DisentangleConfig, results: Mapping[str, Result]) -> Findings:
    by_norm = {norm: runs_of(norm.value, results) for norm in Norm}
    steps = by_norm[Norm.NONE][0]["steps"]
    scores = {norm: over(runs, len(steps), lambda run, i: run["scores"][i]) for norm, runs in by_norm.items()}
    first, last = ({norm: samples[place] for norm, samples in scores.items()} for place in (0, -1))
    losses = {norm: numbers(run["losses"][-1] for run in runs) for norm, runs in by_norm.items()}
    shares = {norm: over(runs, len(steps), lambda run, i: run["shares"][i]) for norm, runs in by_norm.items()}
    table = Table(
        f"Disentanglement, {config.nodes} nodes for {config.factors} factors in each region",
        ("student", "at the start", f"after {config.steps} steps of SGD", "share of Var f, start", "end", "loss"),
        tuple(
            (
                *(_label(norm), first[norm].text(), last[norm].text()),
                *(shares[norm][place].text() for place in (0, -1)),
                losses[norm].text(),
            )
            for norm in Norm
        ),
        f"Definition 3's score: the share of Var E[f | z] that a node's factor explains. As a share of Var f it also "
        f"rises when nodes merely come to depend on z. ± over {config.runs} runs; batches of {config.batch}.",
    )
    curves = [mean_curve(_label(norm), tuple(map(float, steps)), samples) for norm, samples in scores.items()]
    variances = [mean_curve(_label(norm), tuple(map(float, steps)), samples) for norm, samples in shares.items()]
    raised = [
        Claim(f"SGD raises Definition 3's score ({_label(norm)})", greater(last[norm], first[norm], paired=True))
        for norm in Norm
    ]
    helped = [
        Claim(f"Batch norm {norm.value} helps to find the factors", greater(last[norm], last[Norm.NONE], paired=True))
        for norm in (Norm.AFTER_LINEAR, Norm.AFTER_RELU)
    ]
    return findings(
        "hierarchy: does gradient descent find the factors?",
        "; ".join(f"{_label(norm)}: {first[norm].mean:.2f} → {last[norm].mean:.2f}" for norm in Norm)
        + ". A score of 1 would mean that every factor has a node whose mean given z depends on this factor alone.",
        table,
        figure("Score over training", "step", "Definition 3's score", curves, "Mean and its standard error."),
        figure(
            "As a share of the nodes' variance",
            "step",
            "share of Var f",
            variances,
            "The share that z explains also rises.",
        ),
        *raised,
        *helped,
        "The paper shows that disentangled representations can be sustained. Whether training reaches them is our "
        "question, and these claims are ours.",
        "The factors are ANDs. A student whose top is linear in the regions' nodes could not compute XORs.",
    )


def _label(norm: Norm) -> str:
    return "no batch norm" if norm is Norm.NONE else f"batch norm {norm.value}"


DISENTANGLE = experiment(
    "hierarchy-disentangle",
    "Does gradient descent find the factors?",
    DisentangleConfig,
    lambda config: cells_per_kind(config, *(norm.value for norm in Norm)),
    _disentangle_work,
    _disentangle_findings,
    smoke={"runs": 2, "steps": 6, "looks": 2, "nodes": 3},
    quick={"runs": 5},
    paper={"runs": 20, "factors": 3, "nodes": 16, "steps": 20000},
)


_KINDS = ("the teacher's labels", "random labels")


class SelectivityConfig(SeededConfig):
    """A random teacher with a few events in each region; a control student learns labels that no variable explains."""

    depth: int = Field(default=1, ge=1)
    runs: int = Field(default=8, ge=1)
    bits: int = Field(default=8, ge=4, multiple_of=2)
    values: int = Field(default=4, ge=2)
    classes: int = Field(default=4, ge=2)
    nodes: int = Field(default=12, ge=1)
    steps: int = Field(default=2000, ge=1)
    looks: int = Field(default=10, ge=1)
    learning_rate: float = Field(default=0.2, gt=0)


def _teachers(config: SelectivityConfig, seed: int) -> tuple[torch.Generator, Teacher, Teacher]:
    """Return the teacher and the control: the same regions, a label drawn for each input."""
    generator = torch.Generator().manual_seed(seed)
    fields = windows(config.bits, config.depth, (config.bits // 2, config.bits // 2))
    teacher = Teacher(fields, random_table(config.values, generator), top=random_table(config.classes, generator))
    everything = full_information(teacher)
    labels = torch.randint(config.classes, (everything.sizes[fields.top],), generator=generator)
    labels[: config.classes] = torch.arange(config.classes)  # so that every class occurs
    return generator, teacher, Teacher(fields, everything.rules, teacher.inputs, labels=labels)


def _selectivity_work(config: SelectivityConfig, cell: Cell, context: Context) -> Result:
    generator, teacher, control = _teachers(config, int(cell.parameters["seed"]))
    taught = teacher if cell.parameters["kind"] == _KINDS[0] else control
    student = student_for(taught, config.nodes, dtype=torch.float64, generator=generator)
    trainer = GradientTrainer(student, taught, config.learning_rate)
    initial = _sorted(student, teacher)

    def score() -> dict[str, float]:
        return {"scores": selectivity(student, teacher).overall, "pushes": _pushed(student, teacher)}

    return {
        **_train_and_score(config.steps, config.looks, context, trainer.step, score),
        "loss": observe_student(student, taught).loss,
        "before": initial.tolist(),
        "after": _sorted(student, teacher).tolist(),
    }


def _sorted(student: LocalNetwork, teacher: Teacher) -> Tensor:
    """Return the selectivity matrix of the first hidden region: matched nodes first, in the order of the events."""
    matching = next(iter(selectivity(student, teacher).regions.values()))
    assigned = [node for node in matching.nodes.tolist() if node >= 0]
    rest = [node for node in range(len(matching.matrix)) if node not in assigned]
    return matching.matrix[assigned + rest]


def _pushed(student: LocalNetwork, teacher: Teacher) -> float:
    """Return the share of hidden nodes whose gradient is above average for exactly one event: the paper's question."""
    seen = observe_student(student, teacher)
    positive = [(gradient_selectivity(seen, region) > 0).sum(dim=1) for region in student.fields.hidden]
    return torch.stack([(counts == 1).double().mean() for counts in positive]).mean().item()


def _selectivity_findings(config: SelectivityConfig, results: Mapping[str, Result]) -> Findings:
    taught, control = _KINDS
    runs = {kind: runs_of(kind, results) for kind in _KINDS}
    steps = runs[taught][0]["steps"]
    scores = {kind: over(runs[kind], len(steps), lambda run, i: run["scores"][i]) for kind in _KINDS}
    before, after = ({kind: samples[place] for kind, samples in scores.items()} for place in (0, -1))
    losses = {kind: numbers(run["loss"] for run in runs[kind]) for kind in _KINDS}
    first, last = (numbers(run["pushes"][place] for run in runs[taught]).text() for place in (0, -1))
    table = Table(
        f"Selectivity, {config.nodes} nodes for {config.values} events in each region",
        ("trained on", "at the start", f"after {config.steps} steps", "loss"),
        tuple((kind, before[kind].text(), after[kind].text(), losses[kind].text()) for kind in _KINDS),
        f"Mean correlation of nodes with the events they are matched to; ± over {config.runs} runs. The gradient "
        f"singles out one event for {first} of the nodes at the start, {last} at the end.",
    )
    curves = [mean_curve(kind, tuple(map(float, steps)), samples) for kind, samples in scores.items()]
    maps = tuple(
        Heatmap(
            title,
            tuple(zip(*runs[taught][0][key], strict=True)),
            0.0,
            1.0,
            "node",
            "event z_α = a",
            scale="correlation",
        )
        for title, key in (("at the start", "before"), (f"after {config.steps} steps", "after"))
    )
    text = "Correlation of each node with each event in the first region of run 0; matched nodes first."
    selective = "Training makes nodes selective to the teacher's events"
    return findings(
        "hierarchy: do nodes become selective to the teacher's events?",
        f"Matched selectivity goes from {before[taught].mean:.2f} to {after[taught].mean:.2f}; with labels that no "
        f"variable explains, to {after[control].mean:.2f}. 1 would mean a node for every event.",
        table,
        figure("Selectivity over training", "step", "matched selectivity", curves, "Mean ± its error."),
        FigureFacts("Nodes and events", Panels(maps, 2), text),
        Claim(selective, greater(after[taught], before[taught], paired=True)),
        Claim("More than training on random labels does", greater(after[taught], after[control], paired=True)),
        "The student never sees the variables; it learns the labels by full-batch gradient descent.",
    )


SELECTIVITY = experiment(
    "hierarchy-selectivity",
    "Are nodes selective to single events after training?",
    SelectivityConfig,
    lambda config: cells_per_kind(config, *_KINDS),
    _selectivity_work,
    _selectivity_findings,
    smoke={"runs": 2, "bits": 4, "values": 2, "classes": 2, "nodes": 3, "steps": 6, "looks": 2},
    paper={"runs": 30, "bits": 12, "nodes": 32, "steps": 20000},
)
EXPERIMENTS = (DISENTANGLE, SELECTIVITY)
