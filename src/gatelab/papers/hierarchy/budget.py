"""Theorem 2's assumptions as an error budget: which of them causes the error of ΔW, and how it grows."""

from collections.abc import Mapping, Sequence

import torch
from pydantic import Field

from gatelab.hierarchy import GradientTrainer, exact_events, refined, student_for
from gatelab.hierarchy.budget import CAUSES, error_budget
from gatelab.lab.experiment import SeededConfig, cell_per_run
from gatelab.lab.findings import FigureFacts, Findings, Table, mean_curve
from gatelab.lab.runs import Cell, Context, Result
from gatelab.lab.verdicts import Claim, Sample, greater, larger_ratio, readable
from gatelab.papers.common import experiment, figure, findings, over
from gatelab.papers.hierarchy.reformulation import information
from gatelab.papers.hierarchy.worlds import random_teacher, windows

_ROUNDING = 1e-12  # errors are relative, and computed in float64


class BudgetConfig(SeededConfig):
    """Random teachers on a string of bits; one of depth, width and information varies, the others are fixed."""

    runs: int = Field(default=8, ge=1)
    bits: int = Field(default=8, ge=4)
    values: int = Field(default=3, ge=2)
    depth: int = Field(default=2, ge=1)
    nodes: int = Field(default=8, ge=1)
    depths: tuple[int, ...] = (1, 2, 3, 4, 5)
    widths: tuple[int, ...] = (2, 4, 8, 16, 32)
    keeps: tuple[int, ...] = (0, 1, 2, 3, 4, 6, 8)
    steps: int = Field(default=300, ge=1)
    learning_rate: float = Field(default=0.2, gt=0)


def _budget(config: BudgetConfig, seed: int, depth: int, nodes: int, keep: int, steps: int) -> Result:
    """Return the budget of one student: at its start, or after some steps."""
    generator = torch.Generator().manual_seed(seed)
    lossy = random_teacher(windows(config.bits, depth), config.values, 2, generator)
    teacher = refined(lossy, keep)
    student = student_for(lossy, nodes, dtype=torch.float64, generator=generator)
    trainer = GradientTrainer(student, lossy, config.learning_rate)
    for _ in range(steps):
        trainer.step()
    found = error_budget(student, teacher)
    return {"total": found.total, "parts": found.parts, "information": information(exact_events(teacher), config.bits)}


def _work(config: BudgetConfig, cell: Cell, context: Context) -> Result:
    seed = int(cell.parameters["seed"])
    result: Result = {}
    for kind, values in (("depth", config.depths), ("width", config.widths), ("kept", config.keeps)):
        result[kind] = []
        for value in values:
            depth = value if kind == "depth" else config.depth
            nodes = value if kind == "width" else config.nodes
            keep = value if kind == "kept" else 0
            result[kind].append(_budget(config, seed, depth, nodes, keep, 0))
        context.tell(0.5, kind)
    result["trained"] = [_budget(config, seed, depth, config.nodes, 0, config.steps) for depth in config.depths]
    return result


def _findings(config: BudgetConfig, results: Mapping[str, Result]) -> Findings:
    runs = list(results.values())
    totals, parts = {}, {}
    sizes = {"depth": config.depths, "width": config.widths, "kept": config.keeps, "trained": config.depths}
    for kind, values in sizes.items():
        totals[kind] = over(runs, len(values), lambda run, i, k=kind: run[k][i]["total"])
        parts[kind] = {c: over(runs, len(values), lambda run, i, k=kind, c=c: run[k][i]["parts"][c]) for c in CAUSES}
    shares = [sample.mean for sample in over(runs, len(config.keeps), lambda run, i: run["kept"][i]["information"])]
    largest = max(CAUSES, key=lambda cause: parts["depth"][cause][-1].mean)
    names = {
        "depth": "hidden layers",
        "trained": f"hidden layers, after {config.steps} steps",
        "width": f"nodes, {config.depth} hidden layers",
        "kept": f"positions kept in z, {config.depth} hidden layers",
    }
    tables = [_table(names[kind], sizes[kind], totals[kind], parts[kind], len(runs)) for kind in names]
    return findings(
        "hierarchy, Theorem 2: which assumption causes the error of ΔW?",
        f"From {config.depths[0]} to {config.depths[-1]} hidden layers the relative error of ΔW goes from "
        f"{readable(totals['depth'][0].mean)} to {readable(totals['depth'][-1].mean)}; the largest part at the end is "
        f"{largest} ({readable(parts['depth'][largest][-1].mean)}).",
        *tables,
        _figure("The budget against depth", "hidden layers", config.depths, totals["depth"], parts["depth"]),
        _figure(f"After {config.steps} steps", "hidden layers", config.depths, totals["trained"], parts["trained"]),
        _figure("Against width", "nodes in each region", config.widths, totals["width"], parts["width"]),
        _figure("Against information", "share of the information in z", shares, totals["kept"], parts["kept"]),
        *_claims(config, totals, parts),
        "Parts are Shapley values: how much correcting an assumption lowers the error, averaged over all orders. A "
        "negative part cancels some of another.",
        "Gates are measured, the paper's D = E[f' | z]. All claims are ours.",
        "After training ΔW itself is small, and the error relative to it large: near a minimum of the loss on x the "
        "reformulation still has a gradient.",
    )


def _table(
    name: str, sizes: Sequence[int], totals: Sequence[Sample], parts: Mapping[str, Sequence[Sample]], runs: int
) -> Table:
    rows = tuple(
        (str(size), *(_text(sample) for sample in (totals[i], *(parts[cause][i] for cause in CAUSES))))
        for i, size in enumerate(sizes)
    )
    title = f"Relative error of ΔW against {name}"
    return Table(title, (name.split(",", maxsplit=1)[0], "error", *CAUSES), rows, f"± over {runs} teachers.")


def _text(errors: Sample) -> str:
    return "0 (rounding)" if max(map(abs, errors.values)) < _ROUNDING else errors.text()


def _figure(
    title: str, label: str, x: Sequence[float], totals: Sequence[Sample], parts: Mapping[str, Sequence[Sample]]
) -> FigureFacts:
    whole = all(isinstance(size, int) for size in x)  # sizes are evenly spaced, shares are placed to scale
    places = tuple(map(float, range(len(x)) if whole else x))
    curves = [mean_curve("whole error", places, totals)]
    curves += [mean_curve(cause, places, samples) for cause, samples in parts.items()]
    ticks = tuple(map(str, x)) if whole else None
    return figure(title, label, "relative error of ΔW", curves, "Mean and standard error over teachers.", ticks=ticks)


def _claims(
    config: BudgetConfig, totals: Mapping[str, list[Sample]], parts: Mapping[str, Mapping[str, list[Sample]]]
) -> list[Claim]:
    deep, wide, kept = totals["depth"], totals["width"], totals["kept"]
    fullest = next((i for i, keep in enumerate(config.keeps) if keep >= config.bits), len(config.keeps))
    claims = [
        Claim("The error grows with depth", greater(deep[-1], deep[0], paired=True)),
        # A ratio, because one student near a minimum can have hundreds of times the others' error.
        Claim("Training raises the error (deepest student, ratio)", larger_ratio(totals["trained"][-1], deep[-1])),
        Claim("The error shrinks with width", greater(wide[0], wide[-1], paired=True)),
        Claim(
            "The error shrinks with information in z", greater(kept[0], kept[min(fullest, len(kept)) - 1], paired=True)
        ),
    ]
    for cause in CAUSES:
        others = [parts["depth"][other][-1] for other in CAUSES if other != cause]
        rest = Sample(tuple(max(values) for values in zip(*(o.values for o in others), strict=True)), percent=False)
        text = f"At {config.depths[-1]} hidden layers {cause} is the largest part"
        claims.append(Claim(text, greater(parts["depth"][cause][-1], rest, paired=True)))
    return claims


BUDGET = experiment(
    "hierarchy-budget",
    "The error of the reformulated update, split into its causes",
    BudgetConfig,
    cell_per_run,
    _work,
    _findings,
    smoke={
        "runs": 2,
        "bits": 4,
        "depth": 1,
        "depths": (1, 2),
        "widths": (2, 4),
        "keeps": (0, 4),
        "steps": 3,
        "nodes": 3,
    },
    paper={"runs": 30, "bits": 10, "depths": (1, 2, 3, 4, 5), "widths": (2, 4, 8, 16, 32, 64), "steps": 2000},
)
EXPERIMENTS = (BUDGET,)
