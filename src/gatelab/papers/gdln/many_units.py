"""gdln, Section 1: many units on sharp data and on their Gaussian clone (Ingrosso and Goldt's control).

NLGP: nonlinear Gaussian process.
"""

from collections.abc import Iterator, Mapping
from itertools import product
from math import sqrt

import torch
from jaxtyping import Int64
from pydantic import Field
from torch import Tensor

from gatelab.data import NLGP, GaussianClone
from gatelab.data.ring import TwoClasses
from gatelab.dynamics import inverse_participation_ratio
from gatelab.dynamics.localisation import peak
from gatelab.lab.experiment import SeededConfig
from gatelab.lab.findings import FigureFacts, Findings, Table, mean_curve
from gatelab.lab.runs import Cell, Context, Result
from gatelab.lab.verdicts import Claim, above, all_of, below, undecided
from gatelab.papers.common import experiment, figure, findings, line, numbers
from gatelab.papers.gdln.training import Activation, Descent, train_fields

DATA = ("NLGP", "Gaussian clone")
READOUTS = {False: "fixed mean", True: "trained"}


class ManyUnitsConfig(SeededConfig):
    """Networks of several widths on an NLGP of large gain, and on Gaussians with its class covariances."""

    runs: int = Field(default=5, ge=1)
    sites: int = Field(default=40, ge=20)
    lengths: tuple[float, float] = (3.0, 0.1)
    gain: float = Field(default=100.0, gt=0)
    units: tuple[int, ...] = (10, 40, 100)
    steps: int = Field(default=1000, ge=1)
    batch: int = Field(default=500, ge=2)

    def source(self, data: str) -> TwoClasses:
        """Return the NLGP or its clone."""
        nlgp = NLGP(self.lengths, self.gain, (self.sites,))
        return nlgp if data == DATA[0] else GaussianClone(nlgp)


def _name(data: str, units: int, second: bool) -> str:
    return f"{data}, K = {units}, second layer {READOUTS[second]}"


def _cells(config: ManyUnitsConfig) -> list[Cell]:
    return [
        Cell(_name(data, units, second), {"data": data, "units": units, "second": second}, weight=float(units))
        for data, units, second in product(DATA, config.units, READOUTS)
    ]


def dispersion(sites: Int64[Tensor, " units"], ring: int, parts: int = 8) -> float:
    """Return variance/mean of the number of centres in equal parts of a ring: 1 by chance, less if centres tile it."""
    counts = torch.bincount((sites * parts).long() // ring, minlength=parts).double()
    # For m uniform centres the counts are multinomial, with variance m/parts · (1 − 1/parts).
    return float(counts.var(unbiased=False) / (counts.mean() * (1 - 1 / parts)))


def _work(config: ManyUnitsConfig, cell: Cell, context: Context) -> Result:
    units = int(cell.parameters["units"])
    descent = Descent(config.steps, 0.3 * units, config.batch, second=bool(cell.parameters["second"]))
    source = config.source(str(cell.parameters["data"]))
    seeds = list(config.seeds())
    fields = train_fields(source, Activation.RELU, units, seeds, descent, records=2, tell=context.tell)
    last = fields.weights[-1].double()
    ipr, local = inverse_participation_ratio(last), 6 / config.sites
    centres = [peak(own[ratio > local]) for own, ratio in zip(last, ipr, strict=True)]
    largest = last[0][int(ipr[0].argmax())]
    return {
        "ipr": ipr.mean(dim=1).tolist(),
        "local": (ipr > local).double().mean(dim=1).tolist(),
        "dispersion": [dispersion(own, config.sites) if len(own) > 1 else None for own in centres],
        "covered": [len(own.unique()) / config.sites for own in centres],
        "loss": fields.loss[-1].tolist(),
        "field": largest.roll(config.sites // 2 - int(largest.abs().argmax())).tolist(),
    }


def _claims(config: ManyUnitsConfig, results: Mapping[str, Result]) -> Iterator[Claim]:
    for second, text in READOUTS.items():
        sharp, clone = ([results[_name(data, units, second)] for units in config.units] for data in DATA)
        share = [above(numbers(result["local"]), 0.5) for result in sharp]
        yield Claim(f"NLGP, second layer {text}: more than half of the units are local at every K", all_of(share))
        ratios = [below(numbers(result["ipr"]), 6 / config.sites) for result in clone]
        yield Claim(f"Gaussian clone, second layer {text}: fields are not local at any K (mean IPR)", all_of(ratios))
    wide = results[_name(DATA[0], config.units[-1], False)]
    spread = [value for value in wide["dispersion"] if value is not None]
    text = f"NLGP, K = {config.units[-1]}: centres are more even than by chance (variance/mean below 1)"
    yield Claim(text, below(numbers(spread), 1.0) if spread else undecided("no network has two local units"))


def _figures(config: ManyUnitsConfig, results: Mapping[str, Result]) -> Iterator[FigureFacts]:
    curves = []
    for data, second in product(DATA, READOUTS):
        shares = [numbers(results[_name(data, units, second)]["local"]) for units in config.units]
        curves.append(mean_curve(f"{data}, second layer {READOUTS[second]}", config.units, shares))
    caption = "Means and standard errors over runs."
    yield figure("Local units against the number of units", "K", "share of local units", curves, caption)
    sites = [site - config.sites // 2 for site in range(config.sites)]
    fields = [line(data, sites, _normalised(results[_name(data, config.units[0], False)]["field"])) for data in DATA]
    title = f"The most local field of a network, K = {config.units[0]}"
    yield figure(title, "site, from the peak", "weight, norm 1", fields, "One network each.")


def _normalised(field: list[float]) -> list[float]:
    norm = sqrt(sum(weight * weight for weight in field))
    return [weight / norm for weight in field]


def _findings(config: ManyUnitsConfig, results: Mapping[str, Result]) -> Findings:
    rows = []
    for name, result in results.items():
        even = [value for value in result["dispersion"] if value is not None]
        shown = [numbers(result[key]).text() for key in ("ipr", "local")]
        rows.append((name, *shown, numbers(even).text() if even else "–", numbers(result["covered"]).text()))
    shares = {data: numbers(results[_name(data, config.units[0], False)]["local"]).mean for data in DATA}
    return findings(
        "gdln, Section 1: many units, and the Gaussian clone as a control",
        f"With K = {config.units[0]} units, {100 * shares[DATA[0]]:.0f} % are local on the NLGP (gain {config.gain:g}) "
        f"and {100 * shares[DATA[1]]:.0f} % on Gaussians with the same class covariances.",
        Table(
            f"Fields at the end, {config.runs} runs",
            ("network", "IPR", "local units", "variance/mean of centres", "sites with a centre"),
            tuple(rows),
            "Local: IPR above 6/n. Variance/mean of the number of centres in eighths of the ring: 1 by chance.",
        ),
        *_figures(config, results),
        *_claims(config, results),
        "The learning rate is 0.3 K, so every unit learns as fast as a single one.",
    )


GAUSSIAN_CLONE = experiment(
    "gdln-gaussian-clone",
    "Many units on sharp data and on their Gaussian clone",
    ManyUnitsConfig,
    _cells,
    _work,
    _findings,
    smoke={"runs": 2, "units": (2, 4), "steps": 10, "batch": 50, "sites": 20, "lengths": (2.0, 0.1)},
    paper={"runs": 20, "steps": 4000, "batch": 2000},
)
EXPERIMENTS = (GAUSSIAN_CLONE,)
