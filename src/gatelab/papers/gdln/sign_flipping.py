"""gdln, 2.1: how often do gates flip while a ReLU network trains?"""

from collections.abc import Iterator, Mapping
from statistics import mean

import torch

from gatelab.dynamics import inverse_participation_ratio, sign_flip_rate
from gatelab.dynamics.localisation import gate_agreement
from gatelab.lab.findings import FigureFacts, Findings, Table
from gatelab.lab.runs import Cell, Context, Result
from gatelab.lab.verdicts import Claim, above
from gatelab.papers.common import experiment, figure, findings, line, numbers
from gatelab.papers.gdln.training import SMOKE, GatesConfig, Training, cell_per_gain

SHARES = (0.0, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0)  # of training, at which gates are compared


def _work(config: GatesConfig, cell: Cell, context: Context) -> Result:
    training = Training(config, cell, context)
    gates = [training.gates(run) for run in range(config.runs)]
    last = training.weights[-1]
    direction = torch.nn.functional.cosine_similarity(training.weights, last.expand_as(training.weights), dim=-1)
    tenth = training.nearest_record(0.1)
    places = [training.nearest_record(share) for share in SHARES]
    seen = [g[places] for g in gates]
    return {
        "final": torch.stack([gate_agreement(g, g[-1]) for g in seen]).mean(dim=(0, 2)).tolist(),
        "flips": torch.stack([sign_flip_rate(g) for g in seen]).mean(dim=(0, 2)).tolist(),
        "ipr": inverse_participation_ratio(training.weights[places]).mean(dim=(1, 2)).tolist(),
        "from_start": [gate_agreement(g[0], g[-1]).mean().item() for g in gates],
        "from_tenth": [gate_agreement(g[tenth], g[-1]).mean().item() for g in gates],
        "ever": [(g != g[0]).any(dim=0).double().mean().item() for g in gates],
        "direction": direction[tenth].mean(dim=1).tolist(),
        "growth": (last.norm(dim=-1) / training.weights[0].norm(dim=-1)).mean(dim=1).tolist(),
    }


FIGURES = {  # key of a result → title, label, caption
    "final": ("Gates that are already final", "share of gates", "A gate is final if it equals the gate at the end."),
    "flips": ("Gates that flipped since the record before", "share of gates", "Records are those on the axis."),
    "ipr": ("Localisation over the same time", "IPR", "Inverse participation ratio at the same records."),
}


def _figures(results: Mapping[str, Result]) -> Iterator[FigureFacts]:
    ticks = tuple(f"{100 * share:g} %" for share in SHARES)
    for key, (title, label, caption) in FIGURES.items():
        places = range(1 if key == "flips" else 0, len(SHARES))  # flips are between records
        curves = [line(name, places, result[key]) for name, result in results.items()]
        yield figure(title, "share of training", label, curves, caption, ticks=ticks)


def _findings(config: GatesConfig, results: Mapping[str, Result]) -> Findings:
    keys = ("from_start", "from_tenth", "ever", "direction", "growth")
    rows = tuple((name, *(numbers(result[key]).text() for key in keys)) for name, result in results.items())
    claims = [
        Claim(f"{name}: {text}", above(numbers(r[key]), 0.9))
        for name, r in results.items()
        for text, key in (
            ("the gate at initialisation is the final one for more than 0.9 of the examples", "from_start"),
            ("the gate at a tenth of training is the final one for more than 0.9 of the examples", "from_tenth"),
            ("from a tenth of training on, w only grows (cosine with its end above 0.9)", "direction"),
        )
    ]
    sharpest = list(results.values())[-1]
    same = ("same at start and end", "same at a tenth and end", "ever flipped")
    table = Table(
        f"Gates of {config.units} ReLU units, {config.runs} runs, {config.examples} examples",
        ("gain", *same, "cosine w(tenth), w(end)", "growth"),
        rows,
        "Shares of examples; growth is ‖w(end)‖/‖w(0)‖.",
    )
    return findings(
        "gdln, 2.1: sign flipping",
        f"Gates are not constant. At initialisation {100 * mean(sharpest['from_start']):.0f} % of them equal the final "
        f"gates, at a tenth of training {100 * mean(sharpest['from_tenth']):.1f} % (sharpest gain).",
        table,
        *_figures(results),
        *claims,
        "Networks descend on all of a fixed sample, so only learning flips a gate.",
    )


SIGN_FLIPPING = experiment(
    "gdln-sign-flipping",
    "How often gates flip while a ReLU network trains",
    GatesConfig,
    cell_per_gain,
    _work,
    _findings,
    smoke=SMOKE,
    paper={"runs": 50, "examples": 40_000, "rate": 0.03},
)
EXPERIMENTS = (SIGN_FLIPPING,)
