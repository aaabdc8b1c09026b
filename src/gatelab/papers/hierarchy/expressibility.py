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
from gatelab.hierarchy.random_rank import random_activations
from gatelab.hierarchy.rules import joint
from gatelab.lab.experiment import SeededConfig, cell_per_run
from gatelab.lab.findings import Findings, Table, mean_curve
from gatelab.lab.runs import Cell, Context, Result
from gatelab.lab.verdicts import Claim, all_of, below, readable, share_above, undecided, within
from gatelab.lab.verdicts.verdict import exact
from gatelab.papers.common import dots, experiment, figure, findings, line, numbers, over


class ExpressibilityConfig(SeededConfig):
    """One region over d bits whose variable is the whole string: m = 2^d events."""

    depth: int = Field(default=1, ge=1)  # layers with weights; below the top, windows of two neighbours
    runs: int = Field(default=3, ge=1)
    sizes: tuple[int, ...] = (2, 3, 4, 5, 6)
    steps: int = Field(default=2000, ge=1)
    learning_rate: float = Field(default=1.0, gt=0)  # relative to 1 / the loss's largest curvature, about 1 + d/2


def _work(config: ExpressibilityConfig, cell: Cell, context: Context) -> Result:
    size = int(cell.parameters["size"])
    below = [2] * min(config.depth - 1, size - 2)  # a window as wide as the string is the top itself
    events = exact_events(Teacher(string_fields(size, below, [1] * len(below)), joint))
    nodes = {region: len(events.priors[region]) for region in events.fields.hidden}
    best = expressibility(events)
    trained: dict[str, list[float]] = {"ReLU": [], "linear": []}
    closed = []
    for name, losses in trained.items():
        top = NodeOptions(relu=name == "ReLU")
        for number, seed in enumerate(config.seeds()):
            generator = torch.Generator().manual_seed(seed)
            network = LocalNetwork(
                events.fields,
                nodes,
                len(events.priors["top"]),
                hidden=top,
                top=top,
                dtype=torch.float64,
                generator=generator,
            )
            trainer = ReformulatedTrainer(network, events, config.learning_rate / (1 + size / 2))
            for _ in range(config.steps):
                trainer.step()
            occurring = events.priors["top"] > 0
            output = reformulate(network, events).activations["top"][occurring][:, occurring]
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
        "Closed: nodes of the trained ReLU networks that are zero for their own event. Networks were trained by"
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


class RandomRankConfig(SeededConfig):
    """A hidden layer with random weights over a region whose variable is the whole string; only the top is trained."""

    runs: int = Field(default=5, ge=1)  # each run draws ``draws`` layers
    depth: int = Field(default=1, ge=1)  # random layers
    sizes: tuple[int, ...] = (3, 4, 5)
    ratios: tuple[float, ...] = (1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 6.0)
    draws: int = Field(default=100, ge=1)


def _rank_work(config: RandomRankConfig, cell: Cell, context: Context) -> Result:
    generator = torch.Generator().manual_seed(int(cell.parameters["seed"]))
    found: Result = {}
    for size in config.sizes:
        events = exact_events(Teacher(string_fields(size, []), joint))
        rows = torch.cat([events.matrix("top", child) for child in events.fields.children("top")], dim=1)
        m = len(rows)
        for bias in (False, True):
            shares = []
            for ratio in config.ratios:
                ranks = []
                for _ in range(config.draws):
                    f = rows
                    for _layer in range(config.depth):
                        f = random_activations(f, round(ratio * m), bias=bias, generator=generator)
                    ranks.append(int(torch.linalg.matrix_rank(f)))
                shares.append({"full": sum(r == m for r in ranks) / len(ranks), "missing": m - sum(ranks) / len(ranks)})
            found[f"{size} {bias}"] = shares
        context.tell((size - min(config.sizes) + 1) / len(config.sizes), f"{size} bits")
    return found


def _rank_findings(config: RandomRankConfig, results: Mapping[str, Result]) -> Findings:
    runs, count = list(results.values()), len(config.ratios)
    cases = [(size, bias) for size in config.sizes for bias in (False, True)]
    full = {c: over(runs, count, lambda run, i, c=c: run[f"{c[0]} {c[1]}"][i]["full"]) for c in cases}
    missing = {c: over(runs, count, lambda run, i, c=c: run[f"{c[0]} {c[1]}"][i]["missing"]) for c in cases}

    def name(case: tuple[int, bool]) -> str:
        return f"{2 ** case[0]} events{', biases' if case[1] else ''}"

    table = Table(
        "Share of draws in which F has full row rank",
        ("n / m", *map(name, cases)),
        tuple((f"{ratio:g}", *(full[case][i].text() for case in cases)) for i, ratio in enumerate(config.ratios)),
        f"{config.draws} random layers in each of {config.runs} runs; without full rank the best top layer has the "
        "loss m − rank.",
    )
    shares = [mean_curve(name(case), config.ratios, full[case]) for case in cases]
    lost = [mean_curve(name(case), config.ratios, missing[case]) for case in cases]
    certain, enough = (
        "Random W makes F full rank at n = m (share above 0.99)",
        "Four times as many nodes suffice (above 0.95)",
    )
    trials = config.runs * config.draws
    claims = []
    for text, ratio, level in ((certain, 1.0, 0.99), (enough, 4.0, 0.95)):
        places = [i for i, own in enumerate(config.ratios) if own == ratio]
        counts = [round(full[case][i].mean * trials) for case in cases for i in places]
        verdict = (
            all_of([share_above(count, trials, level) for count in counts]) if counts else undecided("not measured")
        )
        claims.append(Claim(text, verdict))
    return findings(
        "hierarchy, after Theorem 7: do random weights suffice?",
        f"At n = {config.ratios[0]:g} m nodes F has full row rank in {min(s[0].mean for s in full.values()):.0%} to "
        f"{max(s[0].mean for s in full.values()):.0%} of draws, at {config.ratios[-1]:g} m in "
        f"at least {min(s[-1].mean for s in full.values()):.0%}.",
        table,
        figure("Full row rank against width", "n / m", "share of draws", shares, "Mean and standard error over runs."),
        figure(
            "What the top layer cannot learn",
            "n / m",
            "m − rank F",
            lost,
            "The loss ‖F W₁ − I‖² of the best top layer.",
        ),
        *claims,
        'The paper says "with probability 1", for n = m. A ReLU that is closed for all events adds no rank, and one '
        "that is open for all adds a linear column.",
    )


RANDOM_RANK = experiment(
    "hierarchy-random-rank",
    "Random hidden weights: when does training the top layer suffice?",
    RandomRankConfig,
    cell_per_run,
    _rank_work,
    _rank_findings,
    smoke={"runs": 2, "sizes": (2,), "ratios": (1.0, 4.0), "draws": 5},
    paper={"runs": 10, "sizes": (3, 4, 5, 6), "draws": 1000},
)
EXPERIMENTS = (EXPRESSIBILITY, RANDOM_RANK)
