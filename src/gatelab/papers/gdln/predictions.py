"""gdln, 2.2 and 2.3: does the flow under frozen gates, or under renewed ones, predict what a ReLU network learns?

GDLN: gated deep linear network.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace
from statistics import mean

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor

from gatelab.dynamics import (
    GatedLinearFlow,
    PiecewiseFlow,
    inverse_participation_ratio,
    match_location,
    moments_of,
    self_gated_flow,
    sign_flip_rate,
)
from gatelab.dynamics.localisation import peak, site_distance
from gatelab.lab.findings import FigureFacts, Findings, Table, mean_curve
from gatelab.lab.runs import Cell, Context, Result
from gatelab.lab.verdicts import Claim, Sample, Verdict, above, below, greater, share_above
from gatelab.papers.common import experiment, figure, findings, line, numbers
from gatelab.papers.gdln.training import SMOKE, GatesConfig, Training, cell_per_gain

START, RENEWED = "the first weights themselves", "gates renewed by the flow itself"
KEYS = ("hit", "elsewhere", "cosine", "error")


class PredictConfig(GatesConfig):
    """Predictions of where a unit localises, from gates frozen at several moments."""

    runs: int = Field(default=64, ge=1)  # each run is a hit or a miss; in 16 runs the share of hits was off by a third
    rate: float = Field(default=0.2, gt=0)
    moments: tuple[float, ...] = (0.0, 0.01, 0.03, 0.1, 1.0)  # when gates are frozen, as shares of training
    tolerance: float = Field(default=0.02, ge=0, lt=1)  # share of flips at which the flow renews its own gates


def _location_work(config: PredictConfig, cell: Cell, context: Context) -> Result:
    training = Training(config, cell, context, 0.5)
    x, y, horizon = training.x, training.y, training.horizon
    rows: dict[str, dict[str, list[float]]] = {}
    for run in range(config.runs):
        start, gates = training.weights[0, run], training.gates(run)
        predictions = {START: start}
        for share in config.moments:
            frozen = gates[training.nearest_record(share)].T
            predictions[_frozen(share)] = GatedLinearFlow.from_data(x, y, frozen, initial=start).weights(horizon)
        renewed = self_gated_flow(x, y, start, horizon, tolerance=config.tolerance)
        predictions[RENEWED] = renewed.flow.weights(horizon)
        for name, predicted in predictions.items():
            match = match_location(predicted, training.weights[-1, run])
            row = rows.setdefault(name, {key: [] for key in KEYS})
            row["hit"].append((match.distance <= 1).double().mean().item())
            row["elsewhere"].append(_hits_elsewhere(predicted, training.weights[-1], run))
            row["cosine"].append(match.cosine.mean().item())
            row["error"].append(training.error(predicted, run))
        context.tell(0.5 + (run + 1) / config.runs / 2, f"run {run + 1} of {config.runs}")
    ipr = inverse_participation_ratio(training.weights[-1]).mean(dim=1).tolist()
    return {"rows": rows, "ipr": ipr, "sites": peak(training.weights[-1]).flatten().tolist()}


def _hits_elsewhere(predicted: Float[Tensor, "k d"], observed: Float[Tensor, "r k d"], run: int) -> float:
    """Return the share of other runs' units within one site of a prediction: the hits by chance in this sample."""
    # A uniform draw of sites would underestimate chance: a finite sample makes all runs prefer some sites.
    others = torch.cat([observed[:run], observed[run + 1 :]])
    distance = site_distance(peak(predicted).expand(len(others), -1), peak(others), (predicted.shape[1],))
    return (distance <= 1).double().mean().item() if len(others) else 0.0


def _frozen(share: float) -> str:
    names = {0.0: "gates at initialisation", 1.0: "gates at the end"}
    return names.get(share, f"gates at {100 * share:g} % of training")


def _tick(name: str) -> str:
    """Return a short name for an axis."""
    short = name.removeprefix("gates at ").replace(" of training", "").replace("initialisation", "start")
    return {START: "w(0)", RENEWED: "renewed"}.get(name, short)


Samples = Mapping[str, Mapping[str, Mapping[str, Sample]]]  # data → prediction → key → a number per run


def _location_figures(samples: Samples) -> Iterator[FigureFacts]:
    ticks = tuple(map(_tick, next(iter(samples.values()))))
    for key, label in (("hit", "share of units within one site"), ("error", "relative error of the field")):
        curves = [
            replace(mean_curve(name, range(len(own)), [predictor[key] for predictor in own.values()]), line=False)
            for name, own in samples.items()
        ]
        yield figure(label.capitalize(), "prediction", label, curves, ticks=ticks)


def _location_claims(config: PredictConfig, samples: Samples) -> Iterator[Claim]:
    for place, (name, own) in enumerate(samples.items()):
        text = f"{name}: with the final gates the flow reproduces the field (relative error below 0.05)"
        yield Claim(text, below(own[_frozen(1.0)]["error"], 0.05))
        if place == 0:
            continue  # in the Gaussian limit fields are not local, so they have no location
        first = own[_frozen(0.0)]
        text = "tell the location better than that of other units (share within one site)"
        yield Claim(f"{name}: {_frozen(0.0)} {text}", greater(first["hit"], first["elsewhere"], paired=True))
        for gates in (_frozen(config.moments[-2]), RENEWED):
            text = f"{name}: {gates} tell the location of more than three units of four"
            yield Claim(text, _mostly(own[gates]["hit"], config.units))


def _mostly(hits: Sample, units: int) -> Verdict:
    """Decide whether more than three in four units are hit: by counts of runs, or by shares if runs have more units."""
    return share_above(round(sum(hits.values)), hits.runs, 0.75) if units == 1 else above(hits, 0.75)


def _location_findings(config: PredictConfig, results: Mapping[str, Result]) -> Findings:
    samples, rows = {}, []
    for name, result in results.items():
        samples[name] = {
            predictor: {key: numbers(values) for key, values in row.items()}
            for predictor, row in result["rows"].items()
        }
        rows += [(name, predictor, *(row[key].text() for key in KEYS)) for predictor, row in samples[name].items()]
    sharpest = list(results.values())[-1]
    first, early = (sharpest["rows"][_frozen(share)] for share in (0.0, config.moments[-2]))
    table = Table(
        f"GDLN flow from the network's start, under gates frozen at a moment; {config.runs} runs",
        ("data", "gates", "within one site", "of another unit", "cosine", "relative error"),
        tuple(rows),
    )
    return findings(
        "gdln, 2.2: does a gate chosen up front predict where a unit localises?",
        f"For the sharpest data, the flow under the gates at initialisation places {100 * mean(first['hit']):.0f} % of "
        f"the units within one site of the ReLU network's (chance {100 * mean(first['elsewhere']):.0f} %), under the "
        f"gates at {100 * config.moments[-2]:g} % of training {100 * mean(early['hit']):.0f} %.",
        table,
        *_location_figures(samples),
        *_location_claims(config, samples),
        "Chance is how often a prediction lies within one site of another run's unit; both rates include the "
        f"sites that a finite sample prefers. The sharpest data's units end at {len(set(sharpest['sites']))} sites.",
        f"The flow runs to the same time as descent, t = {config.horizon:g}τ per unit, on the same examples.",
    )


PREDICT_LOCATION = experiment(
    "gdln-predict-location",
    "Whether frozen gates predict where a unit localises",
    PredictConfig,
    cell_per_gain,
    _location_work,
    _location_findings,
    smoke=SMOKE | {"tolerance": 0.2},
    paper={"runs": 256, "examples": 40_000, "rate": 0.03, "tolerance": 0.005},
)


class EvolvingConfig(GatesConfig):
    """Gates renewed at some of the network's switches, or by the flow itself."""

    runs: int = Field(default=16, ge=1)
    rate: float = Field(default=0.05, gt=0)
    switches: tuple[int, ...] = (0, 1, 2, 4, 8, 16, 32, 64)
    tolerances: tuple[float, ...] = (0.2, 0.1, 0.05, 0.02, 0.01)
    records: int = Field(default=400, ge=4)


def even_switches(flips: Float[Tensor, " steps"], count: int) -> list[int]:
    """Return up to ``count`` records, after record 0, at which to renew the gates, with equal flips between them."""
    total = flips.cumsum(0)
    places = {0}
    for part in range(1, count + 1):
        # Flips come in bursts, so records at equal times would miss most of them.
        reached = (total >= total[-1] * part / (count + 1)).nonzero()
        places.add(int(reached[0]) + 1)
    return sorted(place for place in places if place < len(flips))


def _evolving_work(config: EvolvingConfig, cell: Cell, context: Context) -> Result:
    training = Training(config, cell, context, 0.5)
    kept, used, own, restarts = (defaultdict[str, list[float]](list) for _ in range(4))
    for run in range(config.runs):
        gates, start = training.gates(run), training.weights[0, run]
        flips = sign_flip_rate(gates).mean(dim=1)
        for count in config.switches:
            places = even_switches(flips, count)
            moments = [moments_of(training.x, training.y, gates[place].T) for place in places]
            flow = PiecewiseFlow([training.times[place] for place in places], moments, initial=start)
            kept[str(count)].append(training.error(flow.weights(training.horizon), run))
            used[str(count)].append(float(len(places) - 1))
        for tolerance in config.tolerances:
            renewed = self_gated_flow(training.x, training.y, start, training.horizon, tolerance=tolerance)
            own[str(tolerance)].append(training.error(renewed.flow.weights(training.horizon), run))
            restarts[str(tolerance)].append(float(len(renewed.flips)))
        context.tell(0.5 + (run + 1) / config.runs / 2, f"run {run + 1} of {config.runs}")
    return {"kept": dict(kept), "used": dict(used), "own": dict(own), "restarts": dict(restarts)}


def _evolving_findings(config: EvolvingConfig, results: Mapping[str, Result]) -> Findings:
    rows, curves, claims = [], [], []
    segments = [count + 1 for count in config.switches]
    for name, r in results.items():
        for key, values in r["kept"].items():
            rows.append((name, "the network's", key, f"{mean(r['used'][key]):.0f}", numbers(values).text()))
        for key, values in r["own"].items():
            flips = f"its own, at {100 * float(key):g} % flips"
            rows.append((name, flips, "", f"{mean(r['restarts'][key]):.0f}", numbers(values).text()))
        errors = [numbers(r["kept"][str(count)]) for count in config.switches]
        curves.append(line(name, segments, [max(e.mean, 1e-6) for e in errors]))  # the axis is logarithmic
        better = f"{name}: the most switches predict better than one (relative error)"
        near = f"{name}: {config.switches[-1]} switches predict the network to a relative error of 0.05"
        claims += [
            Claim(better, greater(errors[1], errors[-1], paired=True)),
            Claim(near, below(errors[-1], 0.05)),
        ]
    last, most = list(results.values())[-1]["kept"], str(config.switches[-1])
    title = f"Error of the predicted weights at the end, {config.runs} runs"
    axes = ("segments (switches + 1)", "relative error")
    caption = "Gates are renewed after equal numbers of flips."
    return findings(
        "gdln, 2.3: gates that evolve",
        f"For the sharpest data the flow misses the ReLU network's weights by {100 * mean(last['0']):.0f} % with the "
        f"first gates alone, and by {100 * mean(last[most]):.1f} % with gates renewed at {most} of its switches.",
        Table(title, ("data", "switches", "allowed", "used", "relative error"), tuple(rows)),
        figure("Error against the number of segments", *axes, curves, caption, log=True),
        *claims,
        "The network's switches come from its training; the flow's own switches need no training.",
        "A small margin decides early which site wins. A small early error may lead to another site, so the error "
        "of a single run need not fall with every switch.",
    )


EVOLVING_GATES = experiment(
    "gdln-evolving-gates",
    "How many switches of the gates a prediction needs",
    EvolvingConfig,
    cell_per_gain,
    _evolving_work,
    _evolving_findings,
    smoke=SMOKE | {"records": 20, "switches": (0, 1, 4), "tolerances": (0.1,)},
    paper={"runs": 30, "examples": 40_000, "rate": 0.01, "records": 2000},
)
EXPERIMENTS = (PREDICT_LOCATION, EVOLVING_GATES)
