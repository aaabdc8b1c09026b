"""gdln, 3.3: which gates let a linear network do best?"""

from collections.abc import Mapping
from statistics import mean

import torch
from pydantic import Field
from scipy.stats import spearmanr
from torch import Tensor

from gatelab.data import NLGP, SinglePulse, TwoClasses
from gatelab.dynamics import (
    GatedLinearFlow,
    GatedMoments,
    angle_half_spaces,
    exhaustive_gates,
    greedy_gates,
    kmeans_cells,
    learnt_half_spaces,
    minimum_loss,
    moments_of,
    random_half_spaces,
    random_tiling,
)
from gatelab.figures import Curve, Plot
from gatelab.lab.experiment import Experiment, SeededConfig
from gatelab.lab.findings import FigureFacts, Findings, Table
from gatelab.lab.runs import Cell, Context, Result
from gatelab.lab.verdicts import Claim, Sample, Verdict, greater
from gatelab.models import ChosenGates, NodeGates, OpenGates
from gatelab.papers.gdln.fields import pulse_widths


class BestGatesConfig(SeededConfig):
    """The least loss of several kinds of gates, on examples that did not choose the weights."""

    runs: int = Field(default=10, ge=1)
    sites: int = Field(default=20, ge=20)
    lengths: tuple[float, float] = (2.0, 0.1)
    gain: float = Field(default=100.0, gt=0)
    planes: int = Field(default=2, ge=1)  # K = 2^planes gates
    pool: int = Field(default=12, ge=4)
    examples: int = Field(default=20_000, ge=2)
    steps: int = Field(default=3000, ge=1)  # of the network whose gates are learnt
    draws: int = Field(default=5, ge=1)  # random sets whose losses a run averages
    random_sets: int = Field(default=40, ge=3)  # whose precision matrices are compared

    @property
    def units(self) -> int:
        """K."""
        return 2**self.planes

    def source(self, kind: str) -> TwoClasses:
        """NLGP, or single pulses, half of them turned over and all centred."""
        if kind == "NLGP":
            return NLGP(self.lengths, self.gain, (self.sites,))
        return SinglePulse(pulse_widths(self.sites), (self.sites,), inverted=True, centred=True)


def _cells(config: BestGatesConfig) -> list[Cell]:
    return [
        Cell(f"{kind}, run {run}", {"kind": kind, "seed": seed})
        for kind in ("NLGP", "pulses")
        for run, seed in enumerate(config.seeds())
    ]


def off_diagonal_share(moments: GatedMoments) -> float:
    """How much of the precision matrix A⁺ lies outside its K diagonal blocks, by squares: 0 for exclusive gates."""
    precision = torch.linalg.pinv(moments.A, hermitian=True)
    blocks = precision.view(moments.units, moments.dim, moments.units, moments.dim)
    inside = sum(float(blocks[k, :, k].square().sum()) for k in range(moments.units))
    return 1 - inside / float(precision.square().sum())


class Held:
    """Two samples: one to choose weights, one to judge them."""

    def __init__(self, source: TwoClasses, count: int, generator: torch.Generator):
        """Draw both."""
        self.x, self.y = source.sample(count, generator=generator, dtype=torch.float64)
        self._judge = source.sample(count, generator=generator, dtype=torch.float64)

    def moments(self, gates: NodeGates) -> GatedMoments:
        """On the first sample."""
        return moments_of(self.x, self.y, gates)

    def loss(self, gates: NodeGates) -> float:
        """⟨(y − ŷ)²⟩ on the second sample, with the weights that are best on the first."""
        weights = GatedLinearFlow.from_moments(self.moments(gates)).limit()
        return 2 * float(moments_of(*self._judge, gates).loss(weights))


def fourier_plane(sites: int) -> Tensor:
    """The longest wave on the ring and its quarter shift: the plane in which half-spaces turn around the ring."""
    angle = 2 * torch.pi * torch.arange(sites, dtype=torch.float64) / sites
    return torch.stack([angle.cos(), angle.sin()])


def _work(config: BestGatesConfig, cell: Cell, context: Context) -> Result:
    generator = torch.Generator().manual_seed(int(cell.parameters["seed"]))
    data = Held(config.source(str(cell.parameters["kind"])), config.examples, generator)
    K, n, double = config.units, config.sites, torch.float64
    learnt = learnt_half_spaces(data.x, data.y, K, steps=config.steps, generator=generator)
    context.tell(0.4, "gates learnt")
    pool = random_half_spaces(n, config.pool, generator=generator, dtype=double)
    of_pool = data.moments(pool)
    best, greedy = exhaustive_gates(of_pool, K), greedy_gates(of_pool, K)
    context.tell(0.6, "pool searched")
    sets: dict[str, list[NodeGates]] = {
        "no gates": [OpenGates(1)],
        "random half-spaces": [
            random_half_spaces(n, K, generator=generator, dtype=double) for _ in range(config.draws)
        ],
        "half-spaces at equal angles": [angle_half_spaces(fourier_plane(n), K)],
        "random tiling": [
            random_tiling(n, config.planes, generator=generator, dtype=double) for _ in range(config.draws)
        ],
        "k-means cells": [kmeans_cells(data.x[:5000], K, seed=config.seed)],
        f"greedy, {config.pool} half-spaces": [ChosenGates(pool, greedy.places)],
        f"exhaustive, {config.pool} half-spaces": [ChosenGates(pool, best.places)],
        "learnt half-spaces": [learnt],
    }
    losses = {name: mean(data.loss(gates) for gates in several) for name, several in sets.items()}
    shares, random_losses = [], []
    for _ in range(config.random_sets):
        moments = data.moments(random_half_spaces(n, K, generator=generator, dtype=double))
        shares.append(off_diagonal_share(moments))
        random_losses.append(minimum_loss(moments))
    rank = float(spearmanr(shares, random_losses)[0])  # pyright: ignore[reportArgumentType]
    return {
        "losses": losses,
        "gap": greedy.loss - best.loss,
        "tried": [greedy.tried, best.tried],
        "shares": shares,
        "random": random_losses,
        "rank": rank,
    }


def _findings(config: BestGatesConfig, results: Mapping[str, Result]) -> Findings:
    rows, claims, figures, answers = [], [], [], []
    for kind in ("NLGP", "pulses"):
        own = [result for name, result in results.items() if name.startswith(kind)]
        losses = {
            name: Sample(tuple(result["losses"][name] for result in own), percent=False) for name in own[0]["losses"]
        }
        rows += [(kind, name, loss.text()) for name, loss in losses.items()]
        best = min(losses, key=lambda name: losses[name].mean)
        answers.append(f"{kind}: {best} ({losses[best].mean:.3f}, no gates {losses['no gates'].mean:.3f})")
        halves, tiling = losses["random half-spaces"], losses["random tiling"]
        exhaustive = losses[f"exhaustive, {config.pool} half-spaces"]
        gaps = [result["gap"] for result in own]
        claims += [
            greater(
                f"{kind}: gates that tile the space do better than overlapping half-spaces (loss)",
                halves,
                tiling,
            ),
            greater(
                f"{kind}: the gates that a ReLU network learns do better than the best random ones of a pool",
                exhaustive,
                losses["learnt half-spaces"],
            ),
            Claim(
                f"{kind}: a greedy search comes within 1 % of the loss of an exhaustive one",
                Verdict.HOLDS if max(gaps) < 0.01 * exhaustive.mean else Verdict.FAILS,
                f"largest difference {max(gaps):.2g}, {own[0]['tried'][0]} sets against {own[0]['tried'][1]}",
            ),
            greater(
                f"{kind}: more diagonal precision matrices mean less loss (rank correlation above 0)",
                Sample(tuple(result["rank"] for result in own), percent=False),
                Sample((0.0,) * config.runs, percent=False),
            ),
        ]
        points = Curve("random sets", tuple(own[0]["shares"]), tuple(own[0]["random"]))
        figures.append(
            FigureFacts(
                f"Least loss against the precision matrix, {kind}",
                Plot("share of A⁺ off its diagonal blocks", "least ⟨(y − ŷ)²⟩", (points,)),
                f"Rank correlation {mean(result['rank'] for result in own):+.2f} over runs.",
            )
        )
    return Findings(
        "gdln, 3.3: which gates are best?",
        f"Least loss with K = {config.units} gates: {'; '.join(answers)}.",
        (
            Table(
                f"⟨(y − ŷ)²⟩ on examples that did not choose the weights, K = {config.units}, {config.runs} runs",
                ("data", "gates", "loss"),
                tuple(rows),
                "½ is what ŷ = 0 leaves, ¼ what ŷ = ½ would.",
            ),
        ),
        tuple(figures),
        tuple(claims),
        (
            "The notes guess that tiling gates and a diagonal precision matrix are best.",
            "Exclusive gates have a diagonal precision matrix by construction; the correlation is among half-spaces.",
        ),
    )


BEST_GATES = Experiment(
    "gdln-best-gates",
    "Which gates let a linear network do best",
    BestGatesConfig,
    {
        "smoke": {"runs": 2, "examples": 400, "steps": 20, "pool": 5, "random_sets": 4},
        "quick": {},
        "paper": {
            "runs": 20,
            "sites": 40,
            "lengths": (3.0, 0.1),
            "examples": 100_000,
            "steps": 10_000,
            "random_sets": 200,
        },
    },
    _cells,
    _work,
    _findings,
)
EXPERIMENTS = (BEST_GATES,)
