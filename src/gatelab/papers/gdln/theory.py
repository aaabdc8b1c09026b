"""gdln, Section 4: theory over simulation, for general, single, exclusive and redundant gates."""

from collections.abc import Mapping
from enum import StrEnum

import numpy as np
import torch
from pydantic import Field
from scipy.integrate import solve_ivp
from torch import Tensor

from gatelab.data import SinglePulse
from gatelab.dynamics import GatedLinearFlow, GatedMoments, exact_moments, kmeans_cells, random_half_spaces
from gatelab.figures import Curve, Plot
from gatelab.lab.experiment import Experiment, SeededConfig
from gatelab.lab.findings import FigureFacts, Findings, Table
from gatelab.lab.measure import fitted_power
from gatelab.lab.runs import Cell, Context, Result
from gatelab.lab.verdicts import Claim, Verdict
from gatelab.models import ChosenGates, NodeGates
from gatelab.papers.gdln.fields import pulse_widths

MOMENTS = (0.0025, 0.005, 0.0125, 0.025, 0.05, 0.125, 0.25, 0.5, 1.0)  # at which theory meets simulation, as shares


class Case(StrEnum):
    """The notes' cases."""

    GENERAL = "general gates"
    SINGLE = "single gate"
    EXCLUSIVE = "exclusive gates"
    REDUNDANT = "redundant gates"


class TheoryConfig(SeededConfig):
    """Single pulses under given gates: their moments are exact, so that theory has nothing to fit."""

    runs: int = Field(default=3, ge=1)
    sites: int = Field(default=40, ge=8)
    units: int = Field(default=4, ge=2)
    horizon: float = Field(default=400.0, gt=0)
    steps: tuple[int, ...] = (4000, 8000, 16000)

    def source(self) -> SinglePulse:
        """Wide and narrow pulses, half of them turned over."""
        return SinglePulse(pulse_widths(self.sites), (self.sites,), inverted=True)

    def gates(self, case: Case, generator: torch.Generator) -> NodeGates:
        """Half-spaces, one of them, k-means cells, or half-spaces each twice."""
        count = {Case.GENERAL: self.units, Case.SINGLE: 1, Case.REDUNDANT: self.units // 2}.get(case, 0)
        if case is Case.EXCLUSIVE:
            examples = torch.cat([self.source().support(label) for label in (0, 1)])
            return kmeans_cells(examples, self.units, seed=generator.initial_seed())
        halves = random_half_spaces(self.sites, count, generator=generator, dtype=torch.float64)
        twice = [place for place in range(count) for _ in range(2)]
        return ChosenGates(halves, twice) if case is Case.REDUNDANT else halves


def _cells(config: TheoryConfig) -> list[Cell]:
    return [
        Cell(f"{case}, run {run}", {"case": case.value, "seed": seed})
        for case in Case
        for run, seed in enumerate(config.seeds())
    ]


def simulated(moments: GatedMoments, initial: Tensor, times: Tensor) -> Tensor:
    """Gradient flow by a Runge-Kutta method of order eight, which knows A and b but not the closed form."""
    A, b, K = moments.A.numpy(), moments.b.numpy(), moments.units

    def rate(_time: float, w: np.ndarray) -> np.ndarray:
        return (b - A @ w / K) / K

    span = (0.0, float(times[-1]))
    found = solve_ivp(rate, span, initial.flatten().numpy(), "DOP853", times.numpy(), rtol=1e-10, atol=1e-12)
    return torch.from_numpy(found.y.T.copy()).view(len(times), *initial.shape)


def descended(moments: GatedMoments, initial: Tensor, horizon: float, steps: int) -> Tensor:
    """Where ``steps`` steps of gradient descent end."""
    w, K, step = initial.flatten(), moments.units, horizon / steps
    A, b = moments.A * (-step / K**2), moments.b * (step / K)
    for _ in range(steps):
        w = torch.addmv(w, A, w).add_(b)
    return w.view_as(initial)


def _work(config: TheoryConfig, cell: Cell, context: Context) -> Result:
    case, generator = Case(cell.parameters["case"]), torch.Generator().manual_seed(int(cell.parameters["seed"]))
    gates = config.gates(case, generator)
    moments = exact_moments(config.source(), gates)
    initial = 0.1 * torch.randn(gates.count, config.sites, generator=generator, dtype=torch.float64)
    flow = GatedLinearFlow.from_moments(moments, initial=initial)
    times = config.horizon * torch.tensor((0.0, *MOMENTS), dtype=torch.float64)
    dense = config.horizon * torch.logspace(np.log10(MOMENTS[0]), 0, 60, dtype=torch.float64)
    theory, simulation = flow.weights(times), simulated(moments, initial, times)
    moved = int((theory[-1] - theory[0]).abs().argmax())
    context.tell(0.5, "gradient flow followed")
    gaps = [
        float((descended(moments, initial, config.horizon, steps) - theory[-1]).abs().max()) for steps in config.steps
    ]
    kept = (initial[0] - initial[1]) if case is Case.REDUNDANT else torch.zeros(1)
    return {
        "times": times.tolist(),
        "dense": dense.tolist(),
        "loss": {"theory": flow.loss(dense).tolist(), "simulation": moments.loss(simulation).tolist()},
        "weight": {
            "theory": flow.weights(dense).flatten(1)[:, moved].tolist(),
            "simulation": simulation.flatten(1)[:, moved].tolist(),
        },
        "difference": float((theory - simulation).abs().max()),
        "descent": gaps,
        "groups": len(flow.groups),
        "components": len(flow.components),
        "drift": float((simulation[:, 0] - simulation[:, 1] - kept).abs().max()) if case is Case.REDUNDANT else None,
    }


def _findings(config: TheoryConfig, results: Mapping[str, Result]) -> Findings:
    rows, claims, figures = [], [], []
    for case in Case:
        own = [result for name, result in results.items() if name.startswith(f"{case}, ")]
        worst = max(result["difference"] for result in own)
        orders = [fitted_power([config.horizon / count for count in config.steps], result["descent"]) for result in own]
        off = max(abs(order - 1) for order in orders)
        shown = own[0]
        rows.append(
            (
                case.value,
                f"{worst:.1e}",
                ", ".join(f"{gap:.1e}" for gap in shown["descent"]),
                ", ".join(f"{order:.3f}" for order in orders),
                str(shown["groups"]),
                str(shown["components"]),
            )
        )
        claims += [
            Claim(
                f"{case}: theory and simulated gradient flow differ by less than 1e-6",
                _decide(worst < 1e-6),
                f"largest difference of a weight over all times and runs {worst:.1e}",
            ),
            Claim(
                f"{case}: gradient descent approaches it linearly in the step",
                _decide(off < 0.05),
                f"fitted orders {', '.join(f'{order:.3f}' for order in orders)}; linear means 1 ± 0.05",
            ),
        ]
        drifts = [result["drift"] for result in own if result["drift"] is not None]
        if drifts:
            claims.append(
                Claim(
                    "redundant gates: w₁ − w₂ stays what it was",
                    _decide(max(drifts) < 1e-6),
                    f"largest drift in the simulation {max(drifts):.1e}",
                )
            )
    for what, label, log in (("loss", "L = ½⟨(y − ŷ)²⟩", True), ("weight", "the weight that moves most", False)):
        curves = []
        for case in Case:
            shown = results[f"{case}, run 0"]
            curves += [
                Curve(f"{case}, simulation", tuple(shown["times"][1:]), tuple(shown[what]["simulation"][1:])),
                Curve(f"{case}, theory", tuple(shown["dense"]), tuple(shown[what]["theory"]), line=True),
            ]
        caption = "Lines are the closed form, points an integrated gradient flow."
        figures.append(
            FigureFacts(f"Theory over simulation: {what}", Plot("time / τ", label, tuple(curves), log=log), caption)
        )
    worst = max(result["difference"] for result in results.values())
    return Findings(
        "gdln, Section 4: theory over simulation",
        f"In all four cases the closed form and the simulated gradient flow differ by {worst:.1e} at most.",
        (
            Table(
                f"Closed form against simulation, {config.runs} runs",
                (
                    "gates",
                    "flow − theory",
                    f"descent − theory, {' / '.join(map(str, config.steps))} steps",
                    "orders",
                    "different gates",
                    "solved apart",
                ),
                tuple(rows),
            ),
        ),
        tuple(figures),
        tuple(claims),
        ("Single pulses, half of them turned over; moments are exact sums over their support.",),
    )


def _decide(holds: bool) -> Verdict:
    return Verdict.HOLDS if holds else Verdict.FAILS


THEORY = Experiment(
    "gdln-theory",
    "Closed-form learning curves over simulated ones, four kinds of gates",
    TheoryConfig,
    {
        "smoke": {"runs": 2, "sites": 12, "horizon": 20.0, "steps": (200, 400, 800)},
        "quick": {},
        "paper": {"runs": 10, "sites": 100, "units": 10, "steps": (20_000, 40_000, 80_000)},
    },
    _cells,
    _work,
    _findings,
)
EXPERIMENTS = (THEORY,)
