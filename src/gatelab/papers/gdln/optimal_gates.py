"""gdln, 3.3: the best of all gates, how far half-spaces are from them, and what is proved.

NLGP: nonlinear Gaussian process.
"""

from collections.abc import Iterator, Mapping
from statistics import mean

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor

from gatelab.data import NLGP, SinglePulse
from gatelab.dynamics import GatedLinearFlow, minimum_loss, moments_of
from gatelab.dynamics.gate_optimum import (
    OptimalGates,
    Overlap,
    alternate_gates,
    certify_gates,
    choose_gates,
    predict,
)
from gatelab.dynamics.gate_search import kmeans_cells, learnt_half_spaces, random_half_spaces
from gatelab.lab.experiment import SeededConfig
from gatelab.lab.findings import FigureFacts, Findings, Table, mean_curve
from gatelab.lab.runs import Cell, Context, Result
from gatelab.lab.verdicts import Claim, all_of, below, greater, within
from gatelab.papers.common import cells_per_kind, experiment, figure, findings, numbers, runs_of
from gatelab.papers.gdln.training import pulse_widths

FIELD, PULSES, SMALL = "NLGP", "pulses", "small rings"
KINDS = {Overlap.TILING: "tiling", Overlap.EXCLUSIVE: "exclusive", Overlap.ANY: "overlapping"}
LEARNT, RANDOM = "learnt half-spaces", "random half-spaces"


class OptimalConfig(SeededConfig):
    """Gates without restriction, searched on samples and on whole supports."""

    runs: int = Field(default=5, ge=1)
    sites: int = Field(default=20, ge=20)
    lengths: tuple[float, float] = (2.0, 0.1)
    gain: float = Field(default=100.0, gt=0)
    units: tuple[int, ...] = (1, 2, 4, 6)
    pulse_units: tuple[int, ...] = (1, 2, 3, 4)
    examples: int = Field(default=4000, ge=2, multiple_of=2)
    steps: int = Field(default=3000, ge=1)
    restarts: int = Field(default=3, ge=1)
    rounds: int = Field(default=30, ge=1)  # rounds of assignment and least squares, from each start
    rings: tuple[int, ...] = (4, 5, 6)
    nodes: int = Field(default=3000, ge=1)  # nodes of branch and bound


def _features(x: Float[Tensor, "n d"]) -> Float[Tensor, "n f"]:
    """Return shift-invariant features that separate smooth from rough fields: the mean of x_i x_{i+k} for every k."""
    spectrum = torch.fft.rfft(x).abs().square()
    products = torch.fft.irfft(spectrum, n=x.shape[1])[:, 1 : x.shape[1] // 2 + 1] / x.shape[1]
    return torch.cat([products, products.square(), torch.ones_like(x[:, :1])], dim=1)


def class_probability(
    x: Float[Tensor, "n d"], y: Float[Tensor, " n"], others: Float[Tensor, "m d"]
) -> tuple[Float[Tensor, " n"], Float[Tensor, " m"]]:
    """Estimate P(y = 1 | x) by logistic regression on products of sites (Newton's method), for two samples."""
    features = _features(x)
    w = features.new_zeros(features.shape[1])
    for _ in range(25):
        p = torch.sigmoid(features @ w)
        slope = features.T @ (y - p) - 1e-3 * w
        curvature = (features * (p * (1 - p))[:, None]).T @ features + 1e-3 * torch.eye(len(w), dtype=x.dtype)
        w = w + torch.linalg.solve(curvature, slope)
    return torch.sigmoid(features @ w), torch.sigmoid(_features(others) @ w)


def search_all(
    x: Tensor, target: Tensor, units: int, restarts: int, rounds: int, generator: torch.Generator
) -> dict[Overlap, OptimalGates]:
    """Search tiling, exclusive and overlapping gates; each contains the kind before and also starts from its best."""
    cells = kmeans_cells(x, units, seed=0).opened(x)
    starts, found = [cells, cells & (target[:, None] > 0.5)], {}
    for overlap in Overlap:
        given = starts[:1] if overlap is Overlap.TILING else starts
        found[overlap] = alternate_gates(
            x, target, units, overlap, starts=given, restarts=restarts, rounds=rounds, generator=generator
        )
        starts.append(found[overlap].gates)
    return found


def _field_work(config: OptimalConfig, generator: torch.Generator, context: Context) -> Result:
    source = NLGP(config.lengths, config.gain, (config.sites,))
    x, y = source.sample(config.examples, generator=generator, dtype=torch.float64)
    judge, labels = source.sample(config.examples, generator=generator, dtype=torch.float64)
    target, judged = class_probability(x, y, judge)
    losses: dict[str, list[float]] = {name: [] for name in (*KINDS.values(), LEARNT, RANDOM)}
    for place, units in enumerate(config.units):
        for overlap, found in search_all(x, target, units, config.restarts, config.rounds, generator).items():
            # A gate reads x, never y: it opens the units that come closest to the estimated probability.
            gates = choose_gates(judge, judged, found.weights, overlap)
            losses[KINDS[overlap]].append(float((labels - predict(judge, gates, found.weights)).square().mean()))
        learnt = learnt_half_spaces(x, y, units, steps=config.steps, generator=generator)
        halves = random_half_spaces(config.sites, units, generator=generator, dtype=torch.float64)
        for name, gates in ((LEARNT, learnt), (RANDOM, halves)):
            weights = GatedLinearFlow.from_data(x, y, gates).limit()
            losses[name].append(2 * float(moments_of(judge, labels, gates).loss(weights)))
        context.tell((place + 1) / len(config.units), f"K = {units}")
    return {"losses": losses, "bound": float((labels - judged).square().mean())}


def support(sites: int, widths: tuple[tuple[int, int], tuple[int, int]]) -> tuple[Tensor, Tensor]:
    """Return all centred pulses, including inverted ones, and their classes."""
    source = SinglePulse(widths, (sites,), inverted=True, centred=True)
    one, zero = source.support(1), source.support(0)
    if len(one) != len(zero):
        raise ValueError("the classes have as many widths each, so all examples are equally likely")
    return torch.cat([one, zero]), torch.cat([torch.ones(len(one)), torch.zeros(len(zero))]).to(one)


def _pulse_work(config: OptimalConfig, generator: torch.Generator, context: Context) -> Result:
    x, y = support(config.sites, pulse_widths(config.sites))
    losses: dict[str, list[float]] = {name: [] for name in (*KINDS.values(), LEARNT, RANDOM)}
    for place, units in enumerate(config.pulse_units):
        for overlap, found in search_all(x, y, units, 6 * config.restarts, 200, generator).items():
            losses[KINDS[overlap]].append(found.loss if found.loss > 1e-12 else 0.0)  # rounding
        learnt = learnt_half_spaces(x, y, units, steps=config.steps, generator=generator)
        halves = random_half_spaces(config.sites, units, generator=generator, dtype=torch.float64)
        for name, gates in ((LEARNT, learnt), (RANDOM, halves)):
            losses[name].append(max(0.0, minimum_loss(moments_of(x, y, gates))))
        context.tell((place + 1) / len(config.pulse_units), f"K = {units}")
    return {"losses": losses, "bound": 0.0}


def _small_work(config: OptimalConfig, generator: torch.Generator, context: Context) -> Result:
    rows = []
    for place, sites in enumerate(config.rings):
        x, y = support(sites, ((2, 2), (1, 1)))
        for units in (1, 2):
            found = search_all(x, y, units, config.restarts, 200, generator)
            for overlap, known in found.items():
                proved = certify_gates(x, y, units, overlap, most=config.nodes, known=known)
                row = {"sites": sites, "units": units, "kind": KINDS[overlap], "searched": known.loss}
                rows.append(row | {"loss": proved.loss, "bound": proved.bound})
        context.tell((place + 1) / len(config.rings), f"ring of {sites}")
    return {"rows": rows}


def _work(config: OptimalConfig, cell: Cell, context: Context) -> Result:
    generator = torch.Generator().manual_seed(int(cell.parameters["seed"]))
    work = {FIELD: _field_work, PULSES: _pulse_work, SMALL: _small_work}[str(cell.parameters["kind"])]
    return work(config, generator, context)


def _cells(config: OptimalConfig) -> list[Cell]:
    return [*cells_per_kind(config, FIELD, PULSES), Cell(f"{SMALL}, run 0", {"kind": SMALL, "seed": config.seed})]


def _claims(config: OptimalConfig, results: Mapping[str, Result]) -> Iterator[Claim]:
    for kind, units in ((FIELD, config.units), (PULSES, config.pulse_units)):
        own = runs_of(kind, results)

        def of(name: str, place: int, own: list[Result] = own) -> list[float]:
            return [result["losses"][name][place] for result in own]

        several = [place for place, count in enumerate(units) if count > 1]
        kinds = {"tiling": "tile the space", "exclusive": "exclude each other and leave examples uncovered"}
        for name, what in kinds.items():
            verdicts = [greater(numbers(of(LEARNT, p)), numbers(of(name, p)), paired=True) for p in several]
            text = f"{kind}: the best gates that {what} beat a ReLU network's half-spaces at every K > 1"
            yield Claim(text, all_of(verdicts))
        costs = [numbers(of("overlapping", p)).minus(numbers(of("exclusive", p))) for p in range(len(units))]
        text = f"{kind}: at no K does overlap cost more than 0.01 (its gates include the exclusive ones)"
        yield Claim(text, all_of([below(cost, 0.01) for cost in costs]))
    rows = results[f"{SMALL}, run 0"]["rows"]
    missed = sum(row["searched"] > row["loss"] + 1e-9 for row in rows)
    yield Claim("small rings: no gates found by branch and bound beat those of the search", within(missed, 0, "cases"))


def _figures(config: OptimalConfig, results: Mapping[str, Result]) -> Iterator[FigureFacts]:
    for kind, units in ((FIELD, config.units), (PULSES, config.pulse_units)):
        own = runs_of(kind, results)
        curves = [
            mean_curve(name, units, [numbers(max(r["losses"][name][p], 1e-6) for r in own) for p in range(len(units))])
            for name in own[0]["losses"]
        ]
        caption = "Means and standard errors over runs; losses below 1e-6 are drawn there."
        yield figure(f"Least loss against the number of gates, {kind}", "K", "⟨(y − ŷ)²⟩", curves, caption, log_y=True)


def _findings(config: OptimalConfig, results: Mapping[str, Result]) -> Findings:
    rows, answers = [], []
    for kind, units in ((FIELD, config.units), (PULSES, config.pulse_units)):
        own = runs_of(kind, results)
        bound = mean(result["bound"] for result in own)
        for name in own[0]["losses"]:
            samples = [numbers(result["losses"][name][p] for result in own) for p in range(len(units))]
            gap = f"{samples[units.index(4)].mean - bound:.2g}" if 4 in units else ""
            rows.append((kind, name, *(f"{count}: {s.text()}" for count, s in zip(units, samples, strict=True)), gap))
        if 4 in units:
            four = {name: mean(r["losses"][name][units.index(4)] for r in own) for name in own[0]["losses"]}
            answers.append(f"{kind}: " + ", ".join(f"{name} {loss:.2g}" for name, loss in four.items()))
    small = tuple(
        (
            *(str(row[key]) for key in ("sites", "units", "kind")),
            *(f"{max(value, 0):.4f}" for value in (row["loss"], row["bound"], row["loss"] - row["bound"])),
        )
        for row in results[f"{SMALL}, run 0"]["rows"]
    )
    places = max(len(config.units), len(config.pulse_units))
    rows = [(*row[:-1], *[""] * (3 + places - len(row)), row[-1]) for row in rows]
    columns = ("data", "gates", *["K: loss"] * places, "gap at K = 4")
    return findings(
        "gdln, 3.3: the best gates of all",
        f"Loss with K = 4: {'; '.join(answers)}.",
        Table(
            f"⟨(y − ŷ)²⟩ by K, {config.runs} runs",
            columns,
            tuple(rows),
            "NLGP: on examples used to choose neither gates nor weights. Pulses: on the whole support. The gap is to a "
            "bound for any gates: 0 for pulses; for the NLGP the squared error of the estimated class probability, "
            "itself an estimate.",
        ),
        Table(
            f"Branch and bound, {config.nodes} nodes: pulses of width 2 against width 1",
            ("sites", "K", "gates", "best known", "proved bound", "gap"),
            small,
        ),
        *_figures(config, results),
        *_claims(config, results),
        "Gates may be any function of x. They know the class only through x: on the NLGP by a logistic regression.",
        "Overlapping gates include the exclusive ones, and these include the tilings, which must cover every x.",
    )


OPTIMAL_GATES = experiment(
    "gdln-optimal-gates",
    "The best gates of all, without restriction, and how far half-spaces are from them",
    OptimalConfig,
    _cells,
    _work,
    _findings,
    smoke={"runs": 1, "examples": 100, "steps": 5, "restarts": 1, "units": (2,), "pulse_units": (2,)}
    | {"rings": (4,), "nodes": 10},
    paper={"runs": 10, "examples": 40_000, "steps": 10_000, "restarts": 20} | {"rounds": 200, "nodes": 100_000},
)
EXPERIMENTS = (OPTIMAL_GATES,)
