"""gdln, 3.3: which of several simple kinds of gates do best? ``optimal_gates`` searches among all gates.

NLGP: nonlinear Gaussian process.
"""

from collections.abc import Mapping
from statistics import mean

import torch
from pydantic import Field
from scipy.stats import spearmanr

from gatelab.data import NLGP, SinglePulse
from gatelab.data.ring import TwoClasses
from gatelab.dynamics import (
    GatedLinearFlow,
    GatedMoments,
    exhaustive_gates,
    greedy_gates,
    minimum_loss,
    moments_of,
)
from gatelab.dynamics.gate_search import kmeans_cells, learnt_half_spaces, random_half_spaces
from gatelab.lab.experiment import SeededConfig
from gatelab.lab.findings import Findings, Table
from gatelab.lab.runs import Cell, Context, Result
from gatelab.lab.verdicts import Claim, Sample, above, below, greater
from gatelab.models import ChosenGates, HalfSpaceGates, OpenGates
from gatelab.models.node_gates import CodeGates, NodeGates
from gatelab.papers.common import cells_per_kind, dots, experiment, figure, findings, numbers, runs_of
from gatelab.papers.gdln.training import pulse_widths

KINDS = ("NLGP", "pulses")
LOSS = "least ⟨(y − ŷ)²⟩"


class BestGatesConfig(SeededConfig):
    """The least loss of several kinds of gates, on examples that were not used to fit the weights."""

    runs: int = Field(default=10, ge=1)
    sites: int = Field(default=20, ge=20)
    lengths: tuple[float, float] = (2.0, 0.1)
    gain: float = Field(default=100.0, gt=0)
    planes: int = Field(default=2, ge=1)  # K = 2^planes gates
    pool: int = Field(default=12, ge=4)
    examples: int = Field(default=20_000, ge=2)
    steps: int = Field(default=3000, ge=1)  # training steps of the network whose gates are learnt
    draws: int = Field(default=5, ge=1)  # random sets over which a run averages the loss
    random_sets: int = Field(default=40, ge=3)  # for the correlation of loss and precision matrix

    @property
    def units(self) -> int:
        """K."""
        return 2**self.planes

    def source(self, kind: str) -> TwoClasses:
        """Return an NLGP, or centred single pulses, half of them inverted."""
        if kind == "NLGP":
            return NLGP(self.lengths, self.gain, (self.sites,))
        return SinglePulse(pulse_widths(self.sites), (self.sites,), inverted=True, centred=True)


def off_diagonal_share(moments: GatedMoments) -> float:
    """Return the share of the squares of the precision matrix A⁺ off its K diagonal blocks: 0 for exclusive gates."""
    precision = torch.linalg.pinv(moments.A, hermitian=True)
    blocks = precision.view(moments.units, moments.dim, moments.units, moments.dim)
    inside = sum(float(blocks[k, :, k].square().sum()) for k in range(moments.units))
    return 1 - inside / float(precision.square().sum())


def ring_half_spaces(sites: int, count: int) -> HalfSpaceGates:
    """Return half-spaces whose normals are the longest wave on a ring, at equal phases."""
    # Saturated inputs lie on some of these boundaries up to rounding, so the order of operations sets their gates.
    sites_around, phases = (2 * torch.pi * torch.arange(n, dtype=torch.float64) / n for n in (sites, count))
    wave = torch.stack([sites_around.cos(), sites_around.sin()])
    return HalfSpaceGates(torch.stack([phases.cos(), phases.sin()], dim=1) @ wave)


class _TwoSamples:
    """One sample to fit weights, another to evaluate them."""

    def __init__(self, source: TwoClasses, count: int, generator: torch.Generator):
        """Draw both."""
        self.x, self.y = source.sample(count, generator=generator, dtype=torch.float64)
        self._judge = source.sample(count, generator=generator, dtype=torch.float64)

    def moments(self, gates: NodeGates) -> GatedMoments:
        """Return the moments of the first sample."""
        return moments_of(self.x, self.y, gates)

    def loss(self, gates: NodeGates) -> float:
        """Return ⟨(y − ŷ)²⟩ on the second sample, with the weights that are best on the first."""
        # The flow ends at least squares on the first sample.
        weights = GatedLinearFlow.from_moments(self.moments(gates)).limit()
        return 2 * float(moments_of(*self._judge, gates).loss(weights))


def _work(config: BestGatesConfig, cell: Cell, context: Context) -> Result:
    generator = torch.Generator().manual_seed(int(cell.parameters["seed"]))
    data = _TwoSamples(config.source(str(cell.parameters["kind"])), config.examples, generator)
    K, n = config.units, config.sites

    def halves(count: int) -> HalfSpaceGates:
        return random_half_spaces(n, count, generator=generator, dtype=torch.float64)

    learnt = learnt_half_spaces(data.x, data.y, K, steps=config.steps, generator=generator)
    context.tell(0.4, "gates learnt")
    pool = halves(config.pool)
    of_pool = data.moments(pool)
    best, greedy = exhaustive_gates(of_pool, K), greedy_gates(of_pool, K)
    context.tell(0.6, "pool searched")
    sets: dict[str, list[NodeGates]] = {
        "no gates": [OpenGates(1)],
        "random half-spaces": [halves(K) for _ in range(config.draws)],
        "half-spaces at equal angles": [ring_half_spaces(n, K)],
        "random tiling": [CodeGates(halves(config.planes)) for _ in range(config.draws)],
        "k-means cells": [kmeans_cells(data.x[:5000], K, seed=config.seed)],
        f"greedy, {config.pool} half-spaces": [ChosenGates(pool, greedy.places)],
        f"exhaustive, {config.pool} half-spaces": [ChosenGates(pool, best.places)],
        "learnt half-spaces": [learnt],
    }
    losses = {name: mean(data.loss(gates) for gates in several) for name, several in sets.items()}
    random_moments = [data.moments(halves(K)) for _ in range(config.random_sets)]
    shares, random_losses = [[f(m) for m in random_moments] for f in (off_diagonal_share, minimum_loss)]
    return {
        "losses": losses,
        "gap": greedy.loss - best.loss,
        "tried": [greedy.tried, best.tried],
        "shares": shares,
        "random": random_losses,
        "rank": float(spearmanr(shares, random_losses)[0]),  # pyright: ignore[reportArgumentType]
    }


def _claims(config: BestGatesConfig, kind: str, losses: Mapping[str, Sample], own: list[Result]) -> list[Claim]:
    exhaustive = losses[f"exhaustive, {config.pool} half-spaces"]
    few, many = own[0]["tried"]
    excess = numbers(r["gap"] / loss for r, loss in zip(own, exhaustive.values, strict=True))
    tiling = f"{kind}: random gates that tile the space do better than random half-spaces (loss)"
    learnt = f"{kind}: the gates that a ReLU network learns do better than the best random ones of a pool"
    diagonal = f"{kind}: more diagonal precision matrices mean less loss (rank correlation above 0)"
    greedy = f"{kind}: a greedy search ({few} sets) comes within 1 % of the loss of an exhaustive one ({many} sets)"
    return [
        Claim(tiling, greater(losses["random half-spaces"], losses["random tiling"], paired=True)),
        Claim(learnt, greater(exhaustive, losses["learnt half-spaces"], paired=True)),
        Claim(greedy, below(excess, 0.01)),
        Claim(diagonal, above(numbers(result["rank"] for result in own), 0.0)),
    ]


def _findings(config: BestGatesConfig, results: Mapping[str, Result]) -> Findings:
    rows, claims, figures, answers = [], [], [], []
    for kind in KINDS:
        own = runs_of(kind, results)
        losses = {name: numbers(result["losses"][name] for result in own) for name in own[0]["losses"]}
        rows += [(kind, name, loss.text()) for name, loss in losses.items()]
        best = min(losses, key=lambda name: losses[name].mean)
        answers.append(f"{kind}: {best} ({losses[best].mean:.3f}, no gates {losses['no gates'].mean:.3f})")
        claims += _claims(config, kind, losses, own)
        title, axes = f"Least loss against the precision matrix, {kind}", ("share of A⁺ off its diagonal blocks", LOSS)
        caption = f"Rank correlation {mean(result['rank'] for result in own):+.2f} over runs."
        figures.append(figure(title, *axes, [dots("random sets", own[0]["shares"], own[0]["random"])], caption))
    table = Table(
        f"⟨(y − ŷ)²⟩ on examples not used to fit the weights, K = {config.units}, {config.runs} runs",
        ("data", "gates", "loss"),
        tuple(rows),
        "ŷ = 0 leaves ½, ŷ = ½ leaves ¼.",
    )
    return findings(
        "gdln, 3.3: which half-spaces and cells are best?",
        f"Least loss with K = {config.units} gates: {'; '.join(answers)}.",
        table,
        *figures,
        *claims,
        "The notes guess that tiling gates and a diagonal precision matrix are best among all gates: "
        "gdln-optimal-gates searches these. Here tilings and half-spaces are random.",
        "Exclusive gates have a diagonal precision matrix by construction; the correlation is among half-spaces.",
    )


BEST_GATES = experiment(
    "gdln-best-gates",
    "Which half-spaces and cells let a linear network do best",
    BestGatesConfig,
    lambda config: cells_per_kind(config, *KINDS),
    _work,
    _findings,
    smoke={"runs": 2, "examples": 400, "steps": 20, "pool": 5, "random_sets": 4},
    paper={"runs": 20, "sites": 40, "lengths": (3.0, 0.1)} | {"examples": 100_000, "steps": 10_000, "random_sets": 200},
)
EXPERIMENTS = (BEST_GATES,)
