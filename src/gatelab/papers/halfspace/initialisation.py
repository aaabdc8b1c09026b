"""Feature allocation depends on the initialisation: the circle from four starts. Not in the paper.

DLGN: deep linearly gated network.
"""

from collections.abc import Mapping
from itertools import permutations
from math import inf, log2
from typing import Any

from pydantic import Field, field_validator

from gatelab.errors import InputError
from gatelab.figures import Curve
from gatelab.lab.findings import FigureFacts, Findings, Table
from gatelab.lab.runs import Cell, Context, Result
from gatelab.lab.verdicts import Claim, Sample, Verdict, above, any_of, greater, larger_ratio
from gatelab.models.init import Start
from gatelab.papers.common import experiment, figure, findings, numbers
from gatelab.papers.halfspace.circle import CircleConfig, observe_kind
from gatelab.papers.halfspace.circle_runs import KINDS, LEARNERS, CircleRuns, times_text
from gatelab.papers.halfspace.options import STARTS

NAMES = {Start.PYTORCH: "PyTorch", Start.GLOROT: "Glorot", Start.KAIMING: "Kaiming", Start.SIGNS: "±σ"}


class InitialisationConfig(CircleConfig):
    """ReLU networks and DLGNs learn the circle from several starts."""

    starts: tuple[Start, ...] = tuple(Start)
    runs: int = Field(default=32, ge=1)
    frames: int = Field(default=2, ge=2)
    kernel_points: int = Field(default=8, ge=4)

    @field_validator("starts")
    @classmethod
    def _several(cls, starts: tuple[Start, ...]) -> tuple[Start, ...]:
        if len(set(starts)) < 2 or len(set(starts)) < len(starts):
            raise InputError(f"starts are {list(starts)}; give at least two different ones")
        return starts

    @field_validator("start")
    @classmethod
    def _of_the_circle_only(cls, start: Start) -> Start:
        if start is not Start.PYTORCH:
            raise InputError(
                f"this experiment compares starts, and start={start.value} would change nothing; set starts"
            )
        return start


def _cells(config: InitialisationConfig) -> list[Cell]:
    return [
        Cell(f"{start.value}, {kind}", {"start": start.value, "kind": kind})
        for start in config.starts
        for kind in LEARNERS
    ]


def _work(config: InitialisationConfig, cell: Cell, context: Context) -> Result:
    own = config.model_copy(update={"start": Start(cell.parameters["start"])})
    return observe_kind(own, str(cell.parameters["kind"]), context)


def _findings(config: InitialisationConfig, results: Mapping[str, Result]) -> Findings:
    shown = (0, 3, config.epochs)
    seen = {
        start: CircleRuns(
            {kind: results[f"{start.value}, {kind}"] for kind in LEARNERS},
            config.data(),
            shown,
            config.epochs,
            config.high,
        )
        for start in config.starts
    }
    ratios = {
        (start, kind): larger_ratio(*runs.halves(kind, "paths", config.epochs))
        for start, runs in seen.items()
        for kind in LEARNERS
    }
    return findings(
        "Feature allocation and the initialisation: the circle from several starts",
        _answer(ratios),
        _table(seen),
        _layers(seen),
        _figure(seen),
        *_claims(seen, ratios),
        "Not in the paper, which does not print its initialisation. Everything else is as in halfspace-circle.",
        *config.told()[:1],
        "; ".join(f"{NAMES[start]}: {STARTS[start]}" for start in config.starts) + ".",
        "Run i of every start has the same seed, so starts are compared within runs.",
    )


def _answer(ratios: Mapping[tuple[Start, str], Verdict]) -> str:
    def told(kind: str) -> str:
        each = [f"{NAMES[start]} {v.effect:.2f}{_interval(v)}" for (start, own), v in ratios.items() if own == kind]
        return f"{KINDS[kind]} {', '.join(each)}"

    return (
        "Active paths on the smooth half over those on the rough after training, geometric mean and 95 % interval: "
        f"{'; '.join(map(told, LEARNERS))}."
    )


def _interval(verdict: Verdict) -> str:
    return "" if verdict.interval is None else " ({:.2f} to {:.2f})".format(*verdict.interval)


def _table(seen: Mapping[Start, CircleRuns]) -> Table:
    rows = []
    for start, runs in seen.items():
        for kind in LEARNERS:
            ratios = [larger_ratio(*runs.halves(kind, "paths", epoch)) for epoch in runs.shown]
            texts = [f"{verdict.effect:.2f}{_interval(verdict)}" for verdict in ratios]
            times = times_text(runs.epochs_to_learn(kind), runs.end(kind))
            rows.append((f"{KINDS[kind]}, {NAMES[start]}", *texts, times))
    _, early, end = next(iter(seen.values())).shown
    return Table(
        "Active paths, smooth over rough half: geometric mean over runs (95 % interval)",
        ("network, start", "at the start", f"at epoch {early}", f"at epoch {end}", "epochs to 0.01"),
        tuple(rows),
        "Runs that do not reach 0.01 are counted but left out of the mean.",
    )


def _layers(seen: Mapping[Start, CircleRuns]) -> Table:
    """How the last layer's gates turn, from each start."""
    rows = []
    for start, runs in seen.items():
        first, _, end = runs.shown
        last = runs.layers - 1
        tilts = [runs.tilt(kind, epoch, last).text() for kind in LEARNERS for epoch in (first, end)]
        gathered = [runs.concentration(epoch, last)[0].text() for epoch in (first, end)]
        rows.append((NAMES[start], *tilts, *gathered))
    columns = [f"{name} tilt, {when}" for name in ("ReLU", "DLGN") for when in ("start", "end")]
    return Table(
        "The last layer: how much more of the smooth half its gates are open on, and how much its half-spaces gather",
        ("start", *columns, "DLGN concentration, start", "end"),
        tuple(rows),
        "Tilt: 1 is exactly the smooth half, 0 no preference. Concentration: the length of the mean unit normal.",
    )


def _logs(runs: CircleRuns, kind: str) -> Sample:
    """Return log₂ of the final ratio of paths, over runs; −∞, which decides nothing, if a run has no paths above."""
    ratios = runs.path_ratio(kind, runs.shown[2]).values
    return numbers(log2(ratio) if ratio > 0 else -inf for ratio in ratios)


def _figure(seen: Mapping[Start, CircleRuns]) -> FigureFacts:
    curves = []
    for kind, aside in zip(LEARNERS, (-0.08, 0.08), strict=True):
        verdicts = [above(_logs(runs, kind), 0.0) for runs in seen.values()]
        reach = [0.0 if v.interval is None else (v.interval[1] - v.interval[0]) / 2 for v in verdicts]
        places = tuple(place + aside for place in range(len(seen)))
        curves.append(Curve(KINDS[kind], places, tuple(v.effect for v in verdicts), tuple(reach)))
    label = "log₂ of active paths, smooth over rough half"
    caption = "Means over runs after training, with 95 % intervals; 0 is no preference, 1 twice as many."
    ticks = tuple(NAMES[start] for start in seen)
    return figure("Feature allocation from several starts", "start", label, curves, caption, ticks=ticks)


def _claims(seen: Mapping[Start, CircleRuns], ratios: Mapping[tuple[Start, str], Verdict]) -> list[Claim]:
    more = [
        Claim(f"{KINDS[kind]}, {NAMES[start]} start: more paths on the smooth half at the end", verdict)
        for (start, kind), verdict in ratios.items()
    ]
    differ = []
    for kind in LEARNERS:
        pairs = [greater(_logs(seen[a], kind), _logs(seen[b], kind), paired=True) for a, b in permutations(seen, 2)]
        text = f"{KINDS[kind]}: feature allocation depends on the initialisation (log₂ of the ratio, some two starts)"
        differ.append(Claim(text, any_of(pairs)))
    return [*differ, *more]


_SMOKE: dict[str, Any] = {"runs": 2, "points": 20, "layers": 2, "width": 4, "epochs": 4, "batch_size": 10}
EXPERIMENTS = (
    experiment(
        "halfspace-initialisation",
        "Where paths go on the circle, from four starts",
        InitialisationConfig,
        _cells,
        _work,
        _findings,
        smoke=_SMOKE,
        paper={"runs": 64},
    ),
)
