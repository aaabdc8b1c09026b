"""The paper's ultimate goal (Sections 1 and 3): after training, is each node selective to one event z_α = a?"""

from collections.abc import Mapping

import torch
from pydantic import Field
from torch import Tensor

from gatelab.figures import Heatmap, Panels
from gatelab.hierarchy import (
    GradientTrainer,
    LocalNetwork,
    Teacher,
    full_information,
    observe_student,
    selectivity,
    string_fields,
    student_for,
)
from gatelab.hierarchy.rules import random_table
from gatelab.hierarchy.scores import gradient_selectivity
from gatelab.lab.experiment import Experiment, SeededConfig
from gatelab.lab.findings import FigureFacts, Findings, Table, mean_curve
from gatelab.lab.runs import Cell, Context, Result
from gatelab.lab.verdicts import greater_within_runs
from gatelab.papers.common import cells_per_kind, figure, numbers, over, runs_of
from gatelab.papers.hierarchy.common import train_and_score

_KINDS = ("the teacher's labels", "random labels")


class SelectivityConfig(SeededConfig):
    """A random teacher with a few events in each region; a control learns labels that no variable explains."""

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
    fields = string_fields(config.bits, [config.bits // 2])
    teacher = Teacher(fields, random_table(config.values, generator), top=random_table(config.classes, generator))
    everything = full_information(teacher)
    labels = torch.randint(config.classes, (everything.sizes[fields.top],), generator=generator)
    labels[: config.classes] = torch.arange(config.classes)  # so that every class occurs
    return generator, teacher, Teacher(fields, everything.rules, teacher.inputs, labels=labels)


def _work(config: SelectivityConfig, cell: Cell, context: Context) -> Result:
    generator, teacher, control = _teachers(config, int(cell.parameters["seed"]))
    taught = teacher if cell.parameters["kind"] == _KINDS[0] else control
    student = student_for(taught, config.nodes, dtype=torch.float64, generator=generator)
    trainer = GradientTrainer(student, taught, config.learning_rate)
    initial = _sorted(student, teacher)

    def score() -> dict[str, float]:
        return {"scores": selectivity(student, teacher).overall, "pushes": _pushed(student, teacher)}

    return {
        **train_and_score(config.steps, config.looks, context, trainer.step, score),
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


def _findings(config: SelectivityConfig, results: Mapping[str, Result]) -> Findings:
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
        Heatmap(title, tuple(zip(*runs[taught][0][key], strict=True)), 0.0, 1.0, "node", "event z_α = a")
        for title, key in (("at the start", "before"), (f"after {config.steps} steps", "after"))
    )
    text = "Correlation of each node with each event in the first region of run 0; matched nodes first."
    selective = "Training makes nodes selective to the teacher's events"
    return Findings(
        "hierarchy: do nodes become selective to the teacher's events?",
        f"Matched selectivity goes from {before[taught].mean:.2f} to {after[taught].mean:.2f}; with labels that no "
        f"variable explains, to {after[control].mean:.2f}. 1 would mean a node for every event.",
        (table,),
        (
            figure("Selectivity over training", "step", "matched selectivity", curves, "Mean ± its error."),
            FigureFacts("Nodes and events", Panels(maps, 2), text),
        ),
        (
            greater_within_runs(selective, after[taught], before[taught]),
            greater_within_runs("More than training on random labels does", after[taught], after[control]),
        ),
        ("The student never sees the variables; it learns the labels by full-batch gradient descent.",),
    )


SELECTIVITY = Experiment(
    "hierarchy-selectivity",
    "Are nodes selective to single events after training?",
    SelectivityConfig,
    {
        "smoke": {"runs": 2, "bits": 4, "values": 2, "classes": 2, "nodes": 3, "steps": 6, "looks": 2},
        "quick": {},
        "paper": {"runs": 30, "bits": 12, "nodes": 32, "steps": 20000},
    },
    lambda config: cells_per_kind(config, *_KINDS),
    _work,
    _findings,
)
EXPERIMENTS = (SELECTIVITY,)
