"""Beyond gdln: which pathway wins the race? Shared ones, as Saxe, Sodhani and Lewallen (2022) found for GDLNs."""

from collections.abc import Iterator, Mapping
from statistics import mean

import numpy as np
import torch
from pydantic import Field

from gatelab.dynamics import NeuralRace, PathwayFlow, context_moments
from gatelab.dynamics.graph_race import PathwayGraph, TaskContext, aligned_start
from gatelab.lab.experiment import SeededConfig
from gatelab.lab.findings import FigureFacts, Findings, Table, mean_curve
from gatelab.lab.runs import Cell, Context, Result
from gatelab.lab.verdicts import Claim, above, below, near, within
from gatelab.models import OpenGates, PathwayNetwork
from gatelab.papers.common import cells_per_kind, dots, experiment, figure, findings, line, numbers, runs_of

SHALLOW, DEEP, ROUTING, EXACT = "shared", "shared, one layer deeper", "routing", "exact race"
MODES = np.array([1.0, 0.6, 0.3])  # the singular values of each task's map


class RaceConfig(SeededConfig):
    """Inputs and outputs that tasks connect, through one shared hidden node and through a node of their own."""

    runs: int = Field(default=5, ge=2)
    domains: int = Field(default=5, ge=2)
    tasks: tuple[int, ...] = (1, 2, 3, 5)  # numbers of outputs with which every input is trained
    start: float = Field(default=0.01, gt=0)
    horizon: float = Field(default=20.0, gt=0)  # per task
    width: int = Field(default=4, ge=3)
    routing_time: float = Field(default=200.0, gt=0)


def race_graph(domains: int, tasks: int, deeper: bool, bases: Mapping[str, np.ndarray] | None = None) -> PathwayGraph:
    """Return the graph in which every task (i, o) may use input i → S → output o, shared, or i → D_io → o, its own.

    Args:
        domains: number of inputs and of outputs.
        tasks: outputs with which every input is trained.
        deeper: whether the shared pathway has one more node.
        bases: singular vectors of every node for whole matrices; without them the graph is the reduced one.

    Returns:
        The graph, with the same map in every task.
    """
    pairs = [(i, (i + step) % domains) for i in range(domains) for step in range(tasks)]
    middle = ["S", "T"] if deeper else ["S"]
    edges = [(f"x{i}", "S") for i in range(domains)] + [(middle[-1], f"y{o}") for o in range(domains)]
    edges += [("S", "T")] if deeper else []
    edges += [edge for i, o in pairs for edge in ((f"x{i}", f"D{i}{o}"), (f"D{i}{o}", f"y{o}"))]
    modes = MODES[:, None, None]
    contexts = []
    for i, o in pairs:
        x, y = f"x{i}", f"y{o}"
        if bases is None:
            second, target = np.ones_like(modes), modes
        else:
            second, target = np.eye(len(bases[x])), bases[y] @ np.diag(MODES) @ bases[x].T
        power = float((MODES**2).sum())
        opened = frozenset([*middle, f"D{i}{o}"])
        contexts.append(TaskContext(1 / len(pairs), opened, {x: second}, {(y, x): target}, power))
    return PathwayGraph(edges, contexts)


def _race(config: RaceConfig, tasks: int, deeper: bool, rng: np.random.Generator, whole: bool) -> Result:
    reduced = race_graph(config.domains, tasks, deeper)
    strength = {edge: config.start * (1 + 0.2 * rng.random(len(MODES))) for edge in reduced.edges}
    horizon = config.horizon * config.domains * tasks
    times = np.linspace(0, horizon, 41)
    solved = reduced.solve({edge: s[:, None, None] for edge, s in strength.items()}, list(times))
    shares = []
    for number in range(len(reduced.contexts)):
        paths = reduced.pathways(number)
        products = {path: reduced.strength(path, {e: w[-1] for e, w in solved.weights.items()}) for path in paths}
        shared = next(product for path, product in products.items() if path[1] == "S")
        shares.append(float((shared / sum(products.values()))[0, 0, 0]))
    gap = None
    if whole:
        nodes = {node for edge in reduced.edges for node in edge}
        bases = {node: np.linalg.qr(rng.standard_normal((config.width, len(MODES))))[0] for node in sorted(nodes)}
        full = race_graph(config.domains, tasks, deeper, bases)
        start = aligned_start(full, dict.fromkeys(nodes, config.width), strength, bases)
        some = list(times[::10])
        gap = float(np.abs(full.solve(start, some).loss - solved.loss[::10]).max())
    return {"share": mean(shares), "times": (times / horizon).tolist(), "loss": solved.loss.tolist(), "gap": gap}


def _routing(rng: np.random.Generator, horizon: float) -> Result:
    """Two tasks want opposite outputs for the same input; two hidden nodes, which tasks may learn to open."""
    one = np.ones((1, 1))
    tasks = [TaskContext(0.5, frozenset("st"), {"x": one}, {("y", "x"): sign * one}, 1.0) for sign in (1, -1)]
    graph = PathwayGraph([("x", "s"), ("s", "y"), ("x", "t"), ("t", "y")], tasks)
    start = {edge: 0.3 * rng.standard_normal((1, 1)) for edge in graph.edges}
    times = list(np.linspace(0, horizon, 41))
    learnt = graph.solve(start, times, routing=0.1 * rng.standard_normal((2, 2)))
    fixed = graph.solve(start, times)
    return {"times": times, "learnt": learnt.loss.tolist(), "fixed": fixed.loss.tolist()}


def _exact(seed: int) -> Result:
    """Compare the closed form of two tasks with PathwayFlow; tasks set the gates, so no gate reads x."""
    random = torch.Generator().manual_seed(seed)
    n, d = 40, 4
    task = torch.arange(n) % 2
    x = torch.randn(n, d, generator=random, dtype=torch.float64)
    for place in (0, 1):
        own = task == place
        root = torch.linalg.cholesky(x[own].T @ x[own] / n)
        x[own] = torch.linalg.solve_triangular(root, x[own].T, upper=False).T
    y = torch.einsum("nkd,nd->nk", torch.randn(2, 3, d, generator=random, dtype=torch.float64)[task], x)
    network = PathwayNetwork(d, 3, [OpenGates(2)], [d], dtype=torch.float64, generator=random)
    moments = context_moments(network, x, y, opened=[torch.nn.functional.one_hot(task, 2).bool()])
    race = NeuralRace(moments)
    race.align(network, 1e-3, random)
    flow, times = PathwayFlow(moments, network), torch.linspace(0, 8, 17, dtype=torch.float64)
    solved = flow.solve(times)
    losses = [flow.loss([layer[t] for layer in solved]) for t in range(len(times))]
    return {"times": times.tolist(), "exact": race.loss(times, 1e-3).tolist(), "integrated": losses}


def _work(config: RaceConfig, cell: Cell, context: Context) -> Result:
    kind, seed = str(cell.parameters["kind"]), int(cell.parameters["seed"])
    rng = np.random.default_rng(seed)
    if kind == ROUTING:
        return _routing(rng, config.routing_time)
    if kind == EXACT:
        return _exact(seed)
    rows = []
    for place, tasks in enumerate(config.tasks):
        # Whole matrices take longer, so only the smallest race is also followed in full.
        rows.append(_race(config, tasks, kind == DEEP, rng, whole=place == 0 and seed == config.seeds()[0]))
        context.tell((place + 1) / len(config.tasks), f"{tasks} tasks for each input")
    return {"races": rows}


def _claims(config: RaceConfig, results: Mapping[str, Result]) -> Iterator[Claim]:
    shallow = [run["races"] for run in runs_of(SHALLOW, results)]
    first, last = (numbers(run[place]["share"] for run in shallow) for place in (0, -1))
    yield Claim(
        f"{config.tasks[0]} task for each input: the shared pathway takes half (0.5 ± 0.2)", near(first, 0.5, 0.2)
    )
    yield Claim(f"{config.tasks[-1]} tasks: it takes more than 0.9 of the strongest mode", above(last, 0.9))
    gaps = [row["gap"] for kind in (SHALLOW, DEEP) for run in runs_of(kind, results) for row in run["races"]]
    worst = max(gap for gap in gaps if gap is not None)
    yield Claim(
        "the reduction is the flow of the whole matrices", within(worst, 1e-6, "largest difference of the loss")
    )
    exact = runs_of(EXACT, results)
    worst = max(abs(a - b) for run in exact for a, b in zip(run["exact"], run["integrated"], strict=True))
    yield Claim("the closed form is PathwayFlow's", within(worst, 1e-6, "largest difference of the loss"))
    routing = runs_of(ROUTING, results)
    yield Claim(
        "conflicting tasks: learnt routing ends below 0.05", below(numbers(r["learnt"][-1] for r in routing), 0.05)
    )
    yield Claim("with all nodes open the loss stays above 0.4", above(numbers(r["fixed"][-1] for r in routing), 0.4))


def _figures(config: RaceConfig, results: Mapping[str, Result]) -> Iterator[FigureFacts]:
    curves = []
    for kind in (SHALLOW, DEEP):
        own = [run["races"] for run in runs_of(kind, results)]
        samples = [numbers(run[place]["share"] for run in own) for place in range(len(config.tasks))]
        curves.append(mean_curve(kind, config.tasks, samples))
    caption = "Share of the strongest mode that the shared pathway carries at the end; the rest is the task's own."
    yield figure(
        "Who wins the race?", "outputs trained with each input", "share of the shared pathway", curves, caption
    )
    shown = runs_of(EXACT, results)[0]
    exact = [
        line("closed form", shown["times"], shown["exact"]),
        dots("PathwayFlow", shown["times"], shown["integrated"]),
    ]
    yield figure("Two tasks, each with its own node", "time / τ", "L", exact, "One run.")
    shown = runs_of(ROUTING, results)[0]
    routes = [line("routing learnt", shown["times"], shown["learnt"]), line("all open", shown["times"], shown["fixed"])]
    yield figure("Conflicting tasks", "time / τ", "L", routes, "One run; the gates of tasks follow the gradient.")


def _findings(config: RaceConfig, results: Mapping[str, Result]) -> Findings:
    rows, ends = [], {}
    for kind in (SHALLOW, DEEP):
        own = [run["races"] for run in runs_of(kind, results)]
        for place, tasks in enumerate(config.tasks):
            share = numbers(run[place]["share"] for run in own)
            rows.append((kind, str(tasks), share.text(), f"{mean(run[place]['loss'][-1] for run in own):.2g}"))
            ends[kind, tasks] = share.mean
    few, many = config.tasks[0], config.tasks[-1]
    return findings(
        "Beyond gdln: races between pathways",
        f"A hidden node that all tasks share carries {ends[SHALLOW, few]:.2f} of the strongest mode when every input "
        f"is trained with {few} output, and {ends[SHALLOW, many]:.2f} with {many}: the more tasks share it, the faster "
        "it learns.",
        Table("The shared pathway at the end", ("shared pathway", "outputs per input", "share", "loss"), tuple(rows)),
        *_figures(config, results),
        *_claims(config, results),
        f"{config.domains} inputs and outputs, the same map in all tasks; edges start between 1 and 1.2 times "
        f"{config.start:g}.",
    )


SHARED_PATHWAYS = experiment(
    "gdln-shared-pathways",
    "Races between shared and separate pathways, and routing that is learnt",
    RaceConfig,
    lambda config: cells_per_kind(config, SHALLOW, DEEP, ROUTING, EXACT),
    _work,
    _findings,
    smoke={"runs": 2, "domains": 2, "tasks": (1, 2), "horizon": 2.0, "routing_time": 2.0},
    paper={"runs": 20, "domains": 10, "tasks": (1, 2, 4, 7, 10)},
)
EXPERIMENTS = (SHARED_PATHWAYS,)
