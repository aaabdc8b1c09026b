"""gdln, 2.1: how often do gates flip while a ReLU network trains?"""

from collections.abc import Mapping
from statistics import mean

import torch

from gatelab.dynamics import gate_agreement, inverse_participation_ratio, sign_flip_rate
from gatelab.experiments.findings import FigureFacts, Findings, Sample, Table, greater
from gatelab.experiments.gdln_training import GatesConfig, Training, cell_per_gain, plain, sample_of
from gatelab.experiments.registry import Experiment
from gatelab.figures import Curve, Plot
from gatelab.runs import Cell, Context, Result


def _flipping_work(config: GatesConfig, cell: Cell, context: Context) -> Result:
    training = Training(config, cell, context)
    gates = [training.gates(run) for run in range(config.runs)]
    last = training.weights[-1]
    direction = torch.nn.functional.cosine_similarity(training.weights, last.expand_as(training.weights), dim=-1)
    tenth = training.place(0.1)
    return {
        "times": [t / training.times[-1] for t in training.times],
        "final": torch.stack([gate_agreement(g, g[-1]) for g in gates]).mean(dim=(0, 2)).tolist(),
        "first": torch.stack([gate_agreement(g, g[0]) for g in gates]).mean(dim=(0, 2)).tolist(),
        "flips": torch.stack([sign_flip_rate(g).mean(dim=1) for g in gates]).mean(dim=0).tolist(),
        "ipr": inverse_participation_ratio(training.weights).mean(dim=(1, 2)).tolist(),
        "from_start": [gate_agreement(g[0], g[-1]).mean().item() for g in gates],
        "from_tenth": [gate_agreement(g[tenth], g[-1]).mean().item() for g in gates],
        "ever": [(g != g[0]).any(dim=0).double().mean().item() for g in gates],
        "direction": direction[tenth].mean(dim=1).tolist(),
        "growth": (last.norm(dim=-1) / training.weights[0].norm(dim=-1)).mean(dim=1).tolist(),
    }


def _flipping_findings(config: GatesConfig, results: Mapping[str, Result]) -> Findings:
    columns = (
        "gain",
        "same at start and end",
        "same at a tenth and end",
        "ever flipped",
        "cosine w(tenth), w(end)",
        "growth",
    )
    rows = tuple(
        (name, *(plain(sample_of(r[key])) for key in ("from_start", "from_tenth", "ever", "direction", "growth")))
        for name, r in results.items()
    )
    agreement = tuple(Curve(n, tuple(r["times"][1:]), tuple(r["final"][1:]), line=True) for n, r in results.items())
    flips = tuple(Curve(n, tuple(r["times"][1:]), tuple(r["flips"]), line=True) for n, r in results.items())
    claims = []
    for name, r in results.items():
        for text, key, bound in (
            ("the gate at initialisation is the final one for more than 90 % of examples", "from_start", 0.9),
            ("the gate at a tenth of training, too", "from_tenth", 0.9),
            ("from a tenth of training on, w only grows (cosine with its end above 90 %)", "direction", 0.9),
        ):
            claims.append(greater(f"{name}: {text}", sample_of(r[key]), Sample((bound,) * config.runs)))
    middle = list(results.values())[-1]
    return Findings(
        "gdln, 2.1: sign flipping",
        f"Gates are not constant: {100 * mean(middle['from_start']):.0f} % of them are at initialisation what they are "
        f"in the end, but {100 * mean(middle['from_tenth']):.1f} % at a tenth of training (sharpest gain).",
        (
            Table(
                f"Gates of {config.units} ReLU units, {config.runs} runs, {config.bases} examples and their shifts",
                columns,
                rows,
                "Shares of examples; growth is ‖w(end)‖/‖w(0)‖.",
            ),
        ),
        (
            FigureFacts(
                "Share of gates that are already final",
                Plot("share of training", "agreement", agreement),
                "A gate agrees if it is open for the same examples as at the end.",
            ),
            FigureFacts(
                "Share of gates that flip from one record to the next",
                Plot("share of training", "flips", flips),
                "Records are the denser the earlier.",
            ),
        ),
        tuple(claims),
        ("Descent on all of a fixed, translation-invariant sample, so that nothing but learning flips a gate.",),
    )


SIGN_FLIPPING = Experiment(
    "gdln-sign-flipping",
    "How often gates flip while a ReLU network trains",
    GatesConfig,
    {
        "smoke": {"runs": 2, "bases": 4, "horizon": 5.0, "records": 10, "sites": 20, "lengths": (2.0, 0.1)},
        "quick": {},
        "paper": {"runs": 50, "bases": 1000, "rate": 0.03},
    },
    cell_per_gain,
    _flipping_work,
    _flipping_findings,
)
EXPERIMENTS = (SIGN_FLIPPING,)
