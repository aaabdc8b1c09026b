"""Theorems 2 to 4: how far training on z departs from training on x, as z carries more information."""

from collections.abc import Mapping
from copy import deepcopy

import torch
from pydantic import Field
from torch.nn.utils import parameters_to_vector

from gatelab.hierarchy import (
    GradientTrainer,
    ReformulatedTrainer,
    conditions,
    exact_events,
    observe_student,
    refined,
    reformulate,
    student_for,
)
from gatelab.hierarchy.events import Events
from gatelab.lab.experiment import SeededConfig, cell_per_run
from gatelab.lab.findings import Findings, Table, mean_curve
from gatelab.lab.runs import Cell, Context, Result
from gatelab.lab.verdicts import Claim, greater, readable, undecided, within
from gatelab.papers.common import experiment, figure, findings, numbers, over
from gatelab.papers.hierarchy.worlds import random_teacher, windows

_GAPS = ("focus", "broadness", "decorrelation of activations", "decorrelation of gradients", "decorrelation of updates")


class ReformulationConfig(SeededConfig):
    """A random teacher on a string of bits, whose variables remember more and more of their regions."""

    depth: int = Field(default=1, ge=1)
    bits: int = Field(default=8, ge=4, multiple_of=2)
    values: int = Field(default=3, ge=2)
    nodes: int = Field(default=8, ge=1)
    keeps: tuple[int, ...] = (0, 1, 2, 3, 4, 6, 8)
    steps: int = Field(default=300, ge=1)
    learning_rate: float = Field(default=0.2, gt=0)


def _work(config: ReformulationConfig, cell: Cell, context: Context) -> Result:
    generator = torch.Generator().manual_seed(int(cell.parameters["seed"]))
    lossy = random_teacher(windows(config.bits, config.depth, (4, 2)), config.values, 2, generator)
    student = student_for(lossy, config.nodes, dtype=torch.float64, generator=generator)
    trained = deepcopy(student)
    on_inputs = GradientTrainer(trained, lossy, config.learning_rate)
    for _ in range(config.steps):
        on_inputs.step()
    start, target = (parameters_to_vector(net.parameters()).detach() for net in (student, trained))
    true_move = parameters_to_vector(GradientTrainer(student, lossy, config.learning_rate).update().values())
    records = []
    for number, keep in enumerate(config.keeps):
        teacher = refined(lossy, keep)
        events = exact_events(teacher)
        moves = {
            name: parameters_to_vector(reformulate(student, events, gates_from).weights.values())
            for name, gates_from in (("own", None), ("measured", teacher))
        }
        twin = deepcopy(student)
        on_z = ReformulatedTrainer(twin, events, config.learning_rate)
        for _ in range(config.steps):
            on_z.step()
        distance = (parameters_to_vector(twin.parameters()).detach() - target).norm()
        records.append(
            {
                "information": information(events, config.bits),
                "update": {name: float((move - true_move).norm() / true_move.norm()) for name, move in moves.items()},
                "apart": float(distance / (target - start).norm()),
                "loss": observe_student(twin, lossy).loss,
                "gaps": conditions(student, teacher).worst,
            }
        )
        context.tell((number + 1) / len(config.keeps), f"z with {keep} of {config.bits} positions")
    return {"records": records, "loss": observe_student(trained, lossy).loss}


def information(events: Events, bits: int) -> float:
    """Return the share of a region's entropy that z carries, averaged over the regions; for uniform bits."""
    shares = []
    for region in events.fields.inner:
        p = events.priors[region]
        entropy = -(p[p > 0] * p[p > 0].log2()).sum().item()
        shares.append(entropy / min(bits, len(events.fields.positions(region))))
    return sum(shares) / len(shares)


def _findings(config: ReformulationConfig, results: Mapping[str, Result]) -> Findings:
    runs, count = [result["records"] for result in results.values()], len(config.keeps)
    shares = tuple(sample.mean for sample in over(runs, count, lambda run, i: run[i]["information"]))
    own, measured = (over(runs, count, lambda run, i, n=name: run[i]["update"][n]) for name in ("own", "measured"))
    apart, loss = (over(runs, count, lambda run, i, w=what: run[i][w]) for what in ("apart", "loss"))
    gaps = {name: over(runs, count, lambda run, i, n=name: run[i]["gaps"][n]) for name in _GAPS}
    by_descent = numbers(result["loss"] for result in results.values())
    after = f"after {config.steps} steps"
    columns = ("positions kept", "information in z", "error of ΔW, own gates", "error of ΔW, measured gates")
    rows = tuple(
        (str(keep), f"{shares[i]:.2f}", own[i].text(), measured[i].text(), apart[i].text(), loss[i].text())
        for i, keep in enumerate(config.keeps)
    )
    training = Table(
        f"Training on z, {len(runs)} teachers",
        (*columns, f"distance {after}", "loss on inputs"),
        rows,
        f"Training on inputs ends at a loss of {by_descent.text()}. Errors are relative: of ΔW at the start to "
        "ΔW's norm, of the parameters to how far training on inputs moved them.",
    )
    conditions_hold = Table(
        "Theorem 2's conditions at the start: largest gap in the network",
        ("positions kept", *_GAPS),
        tuple((str(keep), *(gaps[name][i].text() for name in _GAPS)) for i, keep in enumerate(config.keeps)),
        "0 means that the condition holds.",
    )
    x_label = "share of the regions' information in z"
    departures = (
        mean_curve("ΔW at the start, own gates", shares, own),
        mean_curve("ΔW at the start, measured gates", shares, measured),
        mean_curve(f"parameters {after}", shares, apart),
    )
    reasons = [mean_curve(name, shares, gaps[name]) for name in _GAPS]
    over_teachers = "Mean and standard error over teachers."
    at_start = "Theorem 2's conditions, measured on the student at its start."
    exact, largest = "If z determines x, both trainings agree to 1e-10 (Thm. 3)", max(apart[-1].values)
    layers = f"{config.depth} hidden layer{'s' * (config.depth > 1)}"
    better = (
        f"Measured gating probabilities make the first update better than own ones ({layers}, {config.values} values)"
    )
    return findings(
        "hierarchy, Theorems 2–4: training on z beside training on x",
        f"As z carries from {shares[0]:.0%} to {shares[-1]:.0%} of the information, the distance between the two "
        f"students goes from {readable(apart[0].mean)} to {readable(apart[-1].mean)} of the distance that training "
        "covers.",
        training,
        conditions_hold,
        figure("Departure against information", x_label, "relative departure", departures, over_teachers),
        figure("Why it departs", x_label, "largest gap", reasons, at_start),
        Claim(
            exact,
            within(largest, 1e-10, f"largest distance {after}")
            if config.keeps[-1] >= config.bits
            else undecided("z never determines x here"),
        ),
        Claim("With more information in z the departure is smaller", greater(apart[0], apart[-2], paired=True)),
        Claim(better, greater(own[0], measured[0], paired=True)),
        "z keeps the teacher's variable and the first positions of its region; labels are the same throughout.",
    )


REFORMULATION = experiment(
    "hierarchy-reformulation",
    "Training on the teacher's variables against training on inputs",
    ReformulationConfig,
    cell_per_run,
    _work,
    _findings,
    smoke={"runs": 2, "bits": 4, "keeps": (0, 2, 4), "steps": 6, "nodes": 4},
    paper={"runs": 10, "bits": 12, "keeps": (0, 1, 2, 3, 4, 8, 12), "steps": 500},
)
EXPERIMENTS = (REFORMULATION,)
