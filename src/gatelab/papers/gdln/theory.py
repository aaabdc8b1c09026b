"""gdln, Section 4: theory over simulation, for general, single, exclusive and redundant gates."""

from collections.abc import Iterator, Mapping
from enum import StrEnum
from math import log10

import torch
from pydantic import Field

from gatelab.data import SinglePulse
from gatelab.dynamics import GatedLinearFlow, exact_moments
from gatelab.dynamics.gate_search import kmeans_cells, random_half_spaces
from gatelab.lab.experiment import SeededConfig
from gatelab.lab.findings import FigureFacts, Findings, Table
from gatelab.lab.runs import Cell, Context, Result
from gatelab.lab.verdicts import Claim, near, within
from gatelab.lab.verdicts.fits import fitted_power
from gatelab.models import ChosenGates
from gatelab.models.node_gates import NodeGates
from gatelab.papers.common import cells_per_kind, dots, experiment, figure, findings, line, numbers, runs_of
from gatelab.papers.gdln.simulation import descended, integrated
from gatelab.papers.gdln.training import pulse_widths

SHARES = (0.0025, 0.005, 0.0125, 0.025, 0.05, 0.125, 0.25, 0.5, 1.0)  # of the time, where both are compared


class Case(StrEnum):
    """The cases of the notes."""

    GENERAL = "general gates"
    SINGLE = "single gate"
    EXCLUSIVE = "exclusive gates"
    REDUNDANT = "redundant gates"


class TheoryConfig(SeededConfig):
    """Single pulses under given gates; their moments are exact, so the theory has no free parameter."""

    runs: int = Field(default=3, ge=1)
    sites: int = Field(default=40, ge=8)
    units: int = Field(default=4, ge=2)
    horizon: float = Field(default=400.0, gt=0)
    steps: tuple[int, ...] = (4000, 8000, 16000)

    def source(self) -> SinglePulse:
        """Return wide and narrow pulses, half of them inverted."""
        return SinglePulse(pulse_widths(self.sites), (self.sites,), inverted=True)

    def gates(self, case: Case, generator: torch.Generator) -> NodeGates:
        """Return half-spaces, a single one, k-means cells, or half-spaces in pairs."""
        if case is Case.EXCLUSIVE:
            examples = torch.cat([self.source().support(label) for label in (0, 1)])
            return kmeans_cells(examples, self.units, seed=generator.initial_seed())
        count = {Case.GENERAL: self.units, Case.SINGLE: 1, Case.REDUNDANT: self.units // 2}[case]
        halves = random_half_spaces(self.sites, count, generator=generator, dtype=torch.float64)
        twice = [place for place in range(count) for _ in range(2)]
        return ChosenGates(halves, twice) if case is Case.REDUNDANT else halves


def _work(config: TheoryConfig, cell: Cell, context: Context) -> Result:
    case, generator = Case(cell.parameters["kind"]), torch.Generator().manual_seed(int(cell.parameters["seed"]))
    gates = config.gates(case, generator)
    moments = exact_moments(config.source(), gates)
    initial = 0.1 * torch.randn(gates.count, config.sites, generator=generator, dtype=torch.float64)
    flow = GatedLinearFlow.from_moments(moments, initial=initial)
    times = config.horizon * torch.tensor((0.0, *SHARES), dtype=torch.float64)
    dense = config.horizon * torch.logspace(log10(SHARES[0]), 0, 60, dtype=torch.float64)
    # Looser tolerances than in the theorems: these flows are ten times as long.
    theory, simulation = flow.weights(times), integrated(moments, initial, times, rtol=1e-10, atol=1e-12)
    moved = int((theory[-1] - theory[0]).abs().argmax())
    context.tell(0.5, "gradient flow integrated")
    ends = [descended(moments, initial, config.horizon, steps) for steps in config.steps]
    drift = None
    if case is Case.REDUNDANT:
        difference = simulation[:, 0] - simulation[:, 1]
        drift = float((difference - difference[0]).abs().max())
    return {
        "times": times.tolist(),
        "dense": dense.tolist(),
        "loss": {"theory": flow.loss(dense).tolist(), "simulation": moments.loss(simulation).tolist()},
        "weight": {
            "theory": flow.weights(dense).flatten(1)[:, moved].tolist(),
            "simulation": simulation.flatten(1)[:, moved].tolist(),
        },
        "difference": float((theory - simulation).abs().max()),
        "descent": [float((end - theory[-1]).abs().max()) for end in ends],
        "groups": len(flow.groups),
        "components": len(flow.components),
        "drift": drift,
    }


def _figures(results: Mapping[str, Result]) -> Iterator[FigureFacts]:
    for what, label, log in (("loss", "L = ½⟨(y − ŷ)²⟩", True), ("weight", "the weight that moves most", False)):
        curves = []
        for case in Case:
            shown = results[f"{case}, run 0"]
            # A logarithmic axis cannot show the start.
            curves.append(dots(f"{case}, simulation", shown["times"][1:], shown[what]["simulation"][1:]))
            curves.append(line(f"{case}, theory", shown["dense"], shown[what]["theory"]))
        caption = "Lines are the closed form, points the integrated gradient flow."
        yield figure(f"Theory over simulation: {what}", "time / τ", label, curves, caption, log=log)


def _findings(config: TheoryConfig, results: Mapping[str, Result]) -> Findings:
    rows, claims = [], []
    for case in Case:
        own = runs_of(case, results)
        worst = max(result["difference"] for result in own)
        orders = [fitted_power([config.horizon / count for count in config.steps], result["descent"]) for result in own]
        shown = own[0]
        shown_orders = " to ".join(f"{order:.4f}" for order in (min(orders), max(orders)))
        gaps = ", ".join(f"{gap:.1e}" for gap in shown["descent"])
        rows.append((case.value, f"{worst:.1e}", gaps, shown_orders, str(shown["groups"]), str(shown["components"])))
        claims += [
            Claim(
                f"{case}: theory and simulated gradient flow differ by less than 1e-6",
                within(worst, 1e-6, "largest difference of a weight over all times and runs"),
            ),
            Claim(
                f"{case}: gradient descent approaches it linearly in the step (order 1 ± 0.05)",
                near(numbers(orders), 1.0, 0.05),
            ),
        ]
        if case is Case.REDUNDANT:
            drift = max(result["drift"] for result in own)
            conserved = within(drift, 1e-6, "largest drift in the simulation")
            claims.append(Claim("redundant gates: w₁ − w₂ is conserved", conserved))
    worst = max(result["difference"] for result in results.values())
    descent = f"descent − theory, {' / '.join(map(str, config.steps))} steps"
    columns = ("gates", "flow − theory", descent, "order, least to largest", "different gates", "solved separately")
    return findings(
        "gdln, Section 4: theory over simulation",
        f"In all four cases the closed form and the simulated gradient flow differ by {worst:.1e} at most.",
        Table(f"Closed form against simulation, {config.runs} runs", columns, tuple(rows)),
        *_figures(results),
        *claims,
        "Single pulses, half of them inverted; moments are exact sums over their support.",
    )


THEORY = experiment(
    "gdln-theory",
    "Closed-form learning curves over simulated ones, four kinds of gates",
    TheoryConfig,
    lambda config: cells_per_kind(config, *Case),
    _work,
    _findings,
    smoke={"runs": 2, "sites": 12, "horizon": 20.0, "steps": (200, 400, 800)},
    paper={"runs": 10, "sites": 100, "units": 10, "steps": (20_000, 40_000, 80_000)},
)
EXPERIMENTS = (THEORY,)
