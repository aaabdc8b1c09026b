"""Theorem 6: what linear and ReLU networks can express about a region, against its size."""

from collections.abc import Mapping
from itertools import pairwise

import torch
from pydantic import Field

from gatelab.hierarchy import (
    LocalNetwork,
    NodeOptions,
    ReformulatedTrainer,
    Teacher,
    exact_events,
    expressibility,
    reformulate,
    string_fields,
)
from gatelab.hierarchy.rules import joint
from gatelab.lab.experiment import SeededConfig
from gatelab.lab.findings import Findings, Table, mean_curve
from gatelab.lab.runs import Cell, Context, Result
from gatelab.lab.verdicts import Claim, all_of, below, readable, undecided, within
from gatelab.lab.verdicts.verdict import exact
from gatelab.papers.common import dots, experiment, figure, findings, line, numbers


class ExpressibilityConfig(SeededConfig):
    """One region over d bits whose variable is the whole string: m = 2^d events."""

    runs: int = Field(default=3, ge=1)
    sizes: tuple[int, ...] = (2, 3, 4, 5, 6)
    steps: int = Field(default=2000, ge=1)
    learning_rate: float = Field(default=1.0, gt=0)  # relative to 1 / the loss's largest curvature, about 1 + d/2


def _work(config: ExpressibilityConfig, cell: Cell, context: Context) -> Result:
    size = int(cell.parameters["size"])
    events = exact_events(Teacher(string_fields(size, []), joint))
    best = expressibility(events)
    trained: dict[str, list[float]] = {"ReLU": [], "linear": []}
    closed = []
    for name, losses in trained.items():
        top = NodeOptions(relu=name == "ReLU")
        for number, seed in enumerate(config.seeds()):
            generator = torch.Generator().manual_seed(seed)
            network = LocalNetwork(events.fields, 1, best.events, top=top, dtype=torch.float64, generator=generator)
            trainer = ReformulatedTrainer(network, events, config.learning_rate / (1 + size / 2))
            for _ in range(config.steps):
                trainer.step()
            output = reformulate(network, events).activations["top"]
            losses.append(float((output - torch.eye(best.events)).square().sum()))
            if name == "ReLU":
                closed.append(int((output.diagonal() == 0).sum()))
            context.tell((number + 1) / config.runs, f"{name} network {number + 1}")
    return {
        "events": best.events,
        "linear": best.linear,
        "relu": best.relu,
        "closed": closed,
        **{f"trained {name}": losses for name, losses in trained.items()},
    }


def _findings(config: ExpressibilityConfig, results: Mapping[str, Result]) -> Findings:
    found = [results[f"{size} bits"] for size in config.sizes]
    linear, relu = ([result[kind] for result in found] for kind in ("linear", "relu"))
    ratios = [b / a for a, b in pairwise(linear)]
    trained, trained_linear = ([numbers(r[f"trained {kind}"]) for r in found] for kind in ("ReLU", "linear"))
    excess = max(abs(sample.mean - best) / best for sample, best in zip(trained_linear, linear, strict=True))
    rows = tuple(
        (
            *(str(size), str(r["events"]), readable(r["linear"]), t_linear.text(), f"{r['relu']:.1e}", t_relu.text()),
            numbers(r["closed"]).text(),
        )
        for size, r, t_linear, t_relu in zip(config.sizes, found, trained_linear, trained, strict=True)
    )
    table = Table(
        "‖F_ω − I‖² over d bits",
        (*("bits", "events", "best linear", "linear, trained"), "ReLU, constructed", "ReLU, trained", "closed"),
        rows,
        "Closed: the nodes of the trained ReLU networks that are zero for their own event. Trained by"
        f" {config.steps} steps of reformulated gradient descent from {config.runs} random starts.",
    )
    places = tuple(map(float, range(len(config.sizes))))
    curves = (
        line("best linear network, 2^d − d − 1", places, linear),
        dots("linear, trained", places, [sample.mean for sample in trained_linear]),
        mean_curve("ReLU, trained", places, trained),
        dots("ReLU, constructed", places, relu),
    )
    axes = ("bits d under the region", "‖F_ω − I‖²")
    caption = "There are m = 2^d events; F_ω = 0 has the loss m."
    growth = f"each bit multiplies it by {', '.join(f'{ratio:.2f}' for ratio in ratios)}"
    bounded = "Descent on a linear network ends at the Eckart–Young bound"
    zero = "Gradient descent finds the zero that Theorem 6 constructs"
    exponential = "The linear loss is exponential in the region's size"
    return findings(
        "hierarchy, Theorem 6: expressibility against region size",
        f"The best linear network's loss grows from {readable(linear[0])} to {readable(linear[-1])}, by at least "
        f"{min(ratios, default=1):.2g} with each bit; the constructed ReLU network's is {max(relu):.1e} throughout.",
        table,
        figure("Loss against region size", *axes, curves, caption, ticks=tuple(map(str, config.sizes))),
        Claim(
            exponential,
            exact(min(ratios) >= 2, min(ratios), growth) if ratios else undecided("there is only one size"),
        ),
        Claim("ReLU networks reach zero loss", within(max(relu), 1e-10, "largest loss of the construction")),
        Claim(bounded, within(excess, 1e-3, "largest relative distance")),
        Claim(zero, all_of([below(sample, 1e-3) for sample in trained])),
        "The paper assumes that each P_αβ alone is all-vert. Here none is (rows repeat), yet the rows of all "
        "children side by side are vertices, which is enough: the theorem needs less than it assumes.",
        "The last claim is ours, not the paper's.",
    )


EXPRESSIBILITY = experiment(
    "hierarchy-expressibility",
    "What linear and ReLU networks can express, against region size",
    ExpressibilityConfig,
    lambda config: [Cell(f"{size} bits", {"size": size}, weight=4.0**size) for size in config.sizes],
    _work,
    _findings,
    smoke={"runs": 1, "sizes": (2, 3), "steps": 10},
    paper={"runs": 10, "sizes": (2, 3, 4, 5, 6, 7, 8), "steps": 10000},
)
EXPERIMENTS = (EXPRESSIBILITY,)
