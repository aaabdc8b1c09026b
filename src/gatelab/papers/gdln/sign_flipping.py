"""gdln, 2.1: how often do gates flip while a ReLU network trains?"""

from collections.abc import Mapping
from statistics import mean

import torch

from gatelab.dynamics import gate_agreement, inverse_participation_ratio, sign_flip_rate
from gatelab.figures import Curve, Plot
from gatelab.lab.experiment import Experiment
from gatelab.lab.findings import FigureFacts, Findings, Table
from gatelab.lab.runs import Cell, Context, Result
from gatelab.lab.verdicts import Sample, greater
from gatelab.papers.gdln.training import GatesConfig, Training, cell_per_gain

SHARES = (0.0, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0)  # of training, at which gates are compared


def _flipping_work(config: GatesConfig, cell: Cell, context: Context) -> Result:
    training = Training(config, cell, context)
    gates = [training.gates(run) for run in range(config.runs)]
    last = training.weights[-1]
    direction = torch.nn.functional.cosine_similarity(training.weights, last.expand_as(training.weights), dim=-1)
    tenth = training.place(0.1)
    places = [training.place(share) for share in SHARES]
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


def _flipping_findings(config: GatesConfig, results: Mapping[str, Result]) -> Findings:
    def sample(result: Result, key: str) -> Sample:
        return Sample(tuple(result[key]), percent=False)

    columns = (
        "gain",
        "same at start and end",
        "same at a tenth and end",
        "ever flipped",
        "cosine w(tenth), w(end)",
        "growth",
    )
    rows = tuple(
        (name, *(sample(r, key).text() for key in ("from_start", "from_tenth", "ever", "direction", "growth")))
        for name, r in results.items()
    )
    ticks = tuple(f"{100 * share:g} %" for share in SHARES)
    axis = tuple(float(place) for place in range(len(SHARES)))
    plots = [
        FigureFacts(title, Plot("share of training", label, curves, ticks=ticks), caption)
        for title, label, caption, curves in (
            (
                "Gates that are already final",
                "share of gates",
                "A gate is final if it is what it is at the end, for an example.",
                tuple(Curve(name, axis, tuple(r["final"]), line=True) for name, r in results.items()),
            ),
            (
                "Gates that flipped since the moment before",
                "share of gates",
                "Moments are those on the axis.",
                tuple(Curve(name, axis[1:], tuple(r["flips"]), line=True) for name, r in results.items()),
            ),
            (
                "Localisation meanwhile",
                "IPR",
                "Fields localise while their gates settle.",
                tuple(Curve(name, axis, tuple(r["ipr"]), line=True) for name, r in results.items()),
            ),
        )
    ]
    claims = []
    for name, r in results.items():
        for text, key, bound in (
            ("the gate at initialisation is the final one for more than 0.9 of the examples", "from_start", 0.9),
            ("the gate at a tenth of training, too", "from_tenth", 0.9),
            ("from a tenth of training on, w only grows (cosine with its end above 0.9)", "direction", 0.9),
        ):
            claims.append(greater(f"{name}: {text}", sample(r, key), Sample((bound,) * config.runs, percent=False)))
    middle = list(results.values())[-1]
    return Findings(
        "gdln, 2.1: sign flipping",
        f"Gates are not constant: {100 * mean(middle['from_start']):.0f} % of them are at initialisation what they are "
        f"in the end, but {100 * mean(middle['from_tenth']):.1f} % at a tenth of training (sharpest gain).",
        (
            Table(
                f"Gates of {config.units} ReLU units, {config.runs} runs, {config.examples} examples",
                columns,
                rows,
                "Shares of examples; growth is ‖w(end)‖/‖w(0)‖.",
            ),
        ),
        tuple(plots),
        tuple(claims),
        ("Descent on all of a fixed sample, so that nothing but learning flips a gate.",),
    )


SIGN_FLIPPING = Experiment(
    "gdln-sign-flipping",
    "How often gates flip while a ReLU network trains",
    GatesConfig,
    {
        "smoke": {"runs": 2, "examples": 100, "horizon": 5.0, "records": 10, "sites": 20, "lengths": (2.0, 0.1)},
        "quick": {},
        "paper": {"runs": 50, "examples": 40_000, "rate": 0.03},
    },
    cell_per_gain,
    _flipping_work,
    _flipping_findings,
)
EXPERIMENTS = (SIGN_FLIPPING,)
