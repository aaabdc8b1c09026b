"""gdln, Section 1: which data and activations make receptive fields local?

NLGP: nonlinear Gaussian process.
"""

from collections.abc import Callable, Iterator, Mapping
from itertools import product
from statistics import mean

from pydantic import Field

from gatelab.data import NLGP, SinglePulse
from gatelab.data.ring import TwoClasses
from gatelab.dynamics import fit_gabor, inverse_participation_ratio
from gatelab.figures import Curve
from gatelab.lab.experiment import SeededConfig
from gatelab.lab.findings import FigureFacts, Findings, Table
from gatelab.lab.runs import Cell, Context, Result
from gatelab.lab.verdicts import Claim, Sample, above, below
from gatelab.papers.common import experiment, figure, findings, line, numbers
from gatelab.papers.gdln.training import Activation, Descent, neighbour_correlation, pulse_widths, train_fields

PULSES = ("pulses", "turned and centred pulses")


class LocalisationConfig(SeededConfig):
    """Receptive fields of single units, or of several, on NLGPs and pulses."""

    runs: int = Field(default=4, ge=1)
    sites: int = Field(default=40, ge=20)
    lengths: tuple[float, float] = (3.0, 0.1)
    gains: tuple[float, ...] = (0.01, 3.0, 100.0)
    steps: int = Field(default=1000, ge=1)
    batch: int = Field(default=500, ge=2)
    units: int = Field(default=1, ge=1)
    activations: tuple[Activation, ...] = tuple(Activation)

    def gain_names(self) -> list[str]:
        """Return the gains as text; each names a kind of data."""
        return [f"{gain:g}" for gain in self.gains]

    def source(self, kind: str, long_first: bool) -> TwoClasses:
        """Return the data of a kind; if ``long_first``, y = 1 is the class with long-range structure."""
        order = 1 if long_first else -1
        if kind in PULSES:
            first, second = pulse_widths(self.sites)[::order]
            turned = kind == PULSES[1]
            return SinglePulse((first, second), (self.sites,), inverted=turned, centred=turned)
        one, zero = self.lengths[::order]
        return NLGP((one, zero), float(kind), (self.sites,))

    def descent(self, activation: Activation, kind: str) -> Descent:
        """Return how to train: ReLU without biases, others with negative ones, so that units respond to large inputs.

        erf is odd, so a positive bias gives the same result with the classes swapped.
        """
        if activation is Activation.RELU:
            # Pulses of half amplitude have a few large eigenvalues, which limit the step of a unit without saturation.
            steps = 3 * self.steps if kind == PULSES[1] else self.steps
            return Descent(steps, self.units * (0.2 if kind in PULSES else 0.3), self.batch)
        rate, bias = {Activation.ERF: (1.0, -1.0), Activation.SIGMOID: (10.0, -2.0)}[activation]
        return Descent(2 * self.steps, self.units * rate, self.batch, scale=1.0, bias=bias)


def _order(long_first: bool) -> str:
    return "ξ₁ > ξ₂" if long_first else "ξ₁ < ξ₂"


def _name(activation: Activation, kind: str, long_first: bool) -> str:
    return f"{activation}, {kind if kind in PULSES else f'gain {kind}'}, {_order(long_first)}"


def _cells(config: LocalisationConfig) -> list[Cell]:
    cells = []
    for activation, kind, first in product(config.activations, (*config.gain_names(), *PULSES), (True, False)):
        parameters = {"activation": activation.value, "kind": kind, "first": first}
        weight = 1.0 if activation is Activation.RELU else 2.0
        cells.append(Cell(_name(activation, kind, first), parameters, weight=weight))
    return cells


def _work(config: LocalisationConfig, cell: Cell, context: Context) -> Result:
    activation, kind = Activation(cell.parameters["activation"]), str(cell.parameters["kind"])
    source, descent = config.source(kind, bool(cell.parameters["first"])), config.descent(activation, kind)
    fields = train_fields(source, activation, config.units, config.seeds(), descent, tell=context.tell)
    last = fields.weights[-1].flatten(0, 1).double()
    fits = [fit_gabor(field) for field in last]
    return {
        "steps": list(fields.steps),
        "ipr": inverse_participation_ratio(fields.weights).mean(dim=2).tolist(),
        "neighbours": neighbour_correlation(fields.weights[-1]).mean(dim=1).tolist(),
        # Centre each field on its peak, so that fields of different runs can be compared.
        "field": last[0].roll(source.dim // 2 - int(last[0].abs().argmax())).tolist(),
        "gabor": [[fit.width, fit.frequency, fit.r_squared] for fit in fits],
        "loss": fields.loss[-1].tolist(),
    }


def _ipr(result: Result) -> Sample:
    return numbers(result["ipr"][-1])


def _row(name: str, result: Result) -> tuple[str, ...]:
    ipr, (width, frequency, r_squared) = _ipr(result), map(mean, zip(*result["gabor"], strict=True))
    sites, neighbours = f"{1 / ipr.mean:.1f}", f"{mean(result['neighbours']):+.2f}"
    gabor = (f"{width:.1f}", f"{frequency:.2f}", f"{r_squared:.2f}")
    return (name, ipr.text(), sites, neighbours, *gabor, f"{mean(result['loss']):.3f}")


def _claims(config: LocalisationConfig, results: Mapping[str, Result]) -> Iterator[Claim]:
    local = 6 / config.sites  # Gaussian noise has 3/n
    softest, *sharp = config.gain_names()
    for activation in config.activations:
        for first in (True, False):
            names = {gain: _name(activation, gain, first) for gain in (softest, *sharp)}
            yield Claim(f"{names[softest]}: not local (IPR)", below(_ipr(results[names[softest]]), local))
            for gain in sharp:
                yield Claim(f"{names[gain]}: local", above(_ipr(results[names[gain]]), local))
    if Activation.RELU in config.activations:
        smooth, rough = (
            numbers(results[_name(Activation.RELU, sharp[-1], first)]["neighbours"]) for first in (True, False)
        )
        yield Claim("ReLU, ξ₁ > ξ₂: the local field is smooth (neighbours' correlation above 0)", above(smooth, 0.0))
        yield Claim("ReLU, ξ₁ < ξ₂: it oscillates at short range (below 0)", below(rough, 0.0))
        ipr = _ipr(results[_name(Activation.RELU, PULSES[0], True)])
        yield Claim(f"ReLU on {PULSES[0]}, wide ones y = 1: local (IPR)", above(ipr, local))


def _figures(config: LocalisationConfig, results: Mapping[str, Result]) -> Iterator[FigureFacts]:
    def curves(activation: Activation, long_first: bool, curve: Callable[[str, Result], Curve]) -> list[Curve]:
        names = {gain: _name(activation, gain, long_first) for gain in config.gain_names()}
        return [curve(f"gain {gain}", results[name]) for gain, name in names.items()]

    flat = f"1 is a single site, 1/n = {1 / config.sites:.3f} a flat field."
    for activation in config.activations:
        title = f"{activation}: localisation over training, {_order(True)}"
        ratios = curves(activation, True, lambda gain, result: line(gain, result["steps"], map(mean, result["ipr"])))
        yield figure(title, "step", "IPR", ratios, flat)
    sites, shown = [site - config.sites // 2 for site in range(config.sites)], config.activations[0]
    for first in (True, False):
        title = f"{shown}: receptive fields at the end, {_order(first)}"
        fields = curves(shown, first, lambda gain, result: line(gain, sites, result["field"]))
        yield figure(title, "site, from the peak", "weight", fields, "One run each.")


def _findings(config: LocalisationConfig, results: Mapping[str, Result]) -> Findings:
    gains, shown = config.gain_names(), config.activations[0]
    sharp, soft = (_ipr(results[_name(shown, gain, True)]).mean for gain in (gains[-1], gains[0]))
    table = Table(
        f"Fields at the end of training, {config.runs} runs",
        ("data", "IPR", "sites", "neighbours", "Gabor width", "frequency", "R²", "loss"),
        tuple(_row(name, result) for name, result in results.items()),
        "Neighbours: Σ w_i w_{i+1}/Σ w_i². Gabor: width in sites, frequency in cycles per site.",
    )
    return findings(
        "gdln, Section 1: localisation of receptive fields",
        f"With {shown} and ξ₁ > ξ₂ the inverse participation ratio (IPR) ends at {sharp:.2f} for the sharpest gain and "
        f"at {soft:.2f} in the Gaussian limit.",
        table,
        *_figures(config, results),
        *_claims(config, results),
        "Local means an IPR above 6/n, twice the IPR of Gaussian noise.",
        "Runs share their batches; they differ by their initial weights.",
        "erf and sigmoid start with a negative bias; erf is odd, so a positive one swaps the roles of the classes.",
        "The number of active sites separates the notes' pulses, which needs no locality. It does not separate "
        "pulses that are inverted with probability ½ and centred; how local their fields are depends on the "
        "pulses' widths, which gdln-pulse-map maps.",
    )


_SMALL = {"runs": 2, "steps": 20, "batch": 50, "sites": 20, "lengths": (2.0, 0.1), "gains": (0.01, 100.0)}
LOCALISATION = experiment(
    "gdln-localisation",
    "Which data and activations make receptive fields local",
    LocalisationConfig,
    _cells,
    _work,
    _findings,
    smoke={**_SMALL, "activations": (Activation.RELU,)},
    paper={"runs": 10, "steps": 4000, "batch": 2000},
)
EXPERIMENTS = (LOCALISATION,)
