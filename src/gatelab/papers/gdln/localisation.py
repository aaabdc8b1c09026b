"""gdln, Section 1: which data and activations make receptive fields local?"""

from collections.abc import Mapping
from statistics import mean

from pydantic import Field

from gatelab.data import NLGP, SinglePulse, TwoClasses
from gatelab.dynamics import fit_gabor, inverse_participation_ratio
from gatelab.figures import Curve, Plot
from gatelab.lab.experiment import Experiment, SeededConfig
from gatelab.lab.findings import FigureFacts, Findings, Table
from gatelab.lab.runs import Cell, Context, Result
from gatelab.lab.verdicts import Claim, Sample, greater
from gatelab.papers.gdln.fields import Activation, Descent, neighbour_correlation, pulse_widths, train_fields

PULSES = ("pulses", "turned and centred pulses")


class LocalisationConfig(SeededConfig):
    """Fields of single units on NLGPs and pulses."""

    runs: int = Field(default=4, ge=1)
    sites: int = Field(default=40, ge=20)
    lengths: tuple[float, float] = (3.0, 0.1)
    gains: tuple[float, ...] = (0.01, 3.0, 100.0)
    steps: int = Field(default=1000, ge=1)
    batch: int = Field(default=500, ge=2)
    units: int = Field(default=1, ge=1)
    activations: tuple[Activation, ...] = tuple(Activation)

    def source(self, kind: str, long_first: bool) -> TwoClasses:
        """The data: a gain as text, or a kind of pulse; y = 1 where structure is long if ``long_first``."""
        order = 1 if long_first else -1
        if kind in PULSES:
            first, second = pulse_widths(self.sites)[::order]
            turned = kind == PULSES[1]
            return SinglePulse((first, second), (self.sites,), inverted=turned, centred=turned)
        one, zero = self.lengths[::order]
        return NLGP((one, zero), float(kind), (self.sites,))

    def descent(self, activation: Activation, kind: str) -> Descent:
        """ReLU needs no biases; the others start with a negative one, from which a unit answers to large inputs.

        erf is odd, so that a positive one is the same with the classes swapped.
        """
        # Pulses of half amplitude have a few large eigenvalues, which limit the step of a unit without saturation.
        rate = {Activation.RELU: 0.2 if kind in PULSES else 0.3, Activation.ERF: 1.0, Activation.SIGMOID: 10.0}
        if activation is Activation.RELU:
            return Descent(3 * self.steps if kind == PULSES[1] else self.steps, rate[activation], self.batch)
        start = {Activation.ERF: -1.0, Activation.SIGMOID: -2.0}[activation]
        return Descent(2 * self.steps, rate[activation], self.batch, scale=1.0, bias=start)


def _name(activation: Activation, kind: str, long_first: bool) -> str:
    order = "ξ₁ > ξ₂" if long_first else "ξ₁ < ξ₂"
    return f"{activation}, {kind if kind in PULSES else f'gain {kind}'}, {order}"


def _cells(config: LocalisationConfig) -> list[Cell]:
    kinds = [f"{gain:g}" for gain in config.gains] + list(PULSES)
    return [
        Cell(
            _name(activation, kind, first),
            {"activation": activation.value, "kind": kind, "first": first},
            weight=1.0 if activation is Activation.RELU else 2.0,
        )
        for activation in config.activations
        for kind in kinds
        for first in (True, False)
    ]


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
        "field": last[0].roll(source.dim // 2 - int(last[0].abs().argmax())).tolist(),
        "gabor": [[fit.width, fit.frequency, fit.r_squared] for fit in fits],
        "loss": fields.loss[-1].tolist(),
    }


def _ipr(result: Result) -> Sample:
    return Sample(tuple(result["ipr"][-1]), percent=False)


def _row(name: str, result: Result) -> tuple[str, ...]:
    ipr = _ipr(result)
    width, frequency, r_squared = map(mean, zip(*result["gabor"], strict=True))
    return (
        name,
        ipr.text(),
        f"{1 / ipr.mean:.1f}",
        f"{mean(result['neighbours']):+.2f}",
        f"{width:.1f}",
        f"{frequency:.2f}",
        f"{r_squared:.2f}",
        f"{mean(result['loss']):.3f}",
    )


def _claims(config: LocalisationConfig, results: Mapping[str, Result]) -> list[Claim]:
    # Twice what Gaussian noise has.
    local = Sample((6 / config.sites,) * config.runs, percent=False)
    names = [f"{gain:g}" for gain in config.gains]
    claims = []
    for activation in config.activations:
        for first in (True, False):
            own = {gain: _ipr(results[_name(activation, gain, first)]) for gain in names}
            claims.append(greater(f"{_name(activation, names[0], first)}: not local (IPR)", local, own[names[0]]))
            claims += [greater(f"{_name(activation, gain, first)}: local", own[gain], local) for gain in names[1:]]
    nothing = Sample((0.0,) * config.runs, percent=False)
    if Activation.RELU in config.activations:
        smooth, rough = (
            Sample(tuple(results[_name(Activation.RELU, names[-1], first)]["neighbours"]), percent=False)
            for first in (True, False)
        )
        claims += [
            greater("ReLU, ξ₁ > ξ₂: the local field is smooth (neighbours' correlation above 0)", smooth, nothing),
            greater("ReLU, ξ₁ < ξ₂: it oscillates at short range (below 0)", nothing, rough),
        ]
        claims += [
            greater(
                f"ReLU on {kind}, wide ones y = 1: local (IPR)",
                _ipr(results[_name(Activation.RELU, kind, True)]),
                local,
            )
            for kind in PULSES
        ]
    return claims


def _findings(config: LocalisationConfig, results: Mapping[str, Result]) -> Findings:
    figures = []
    for activation in config.activations:
        curves = []
        for gain in config.gains:
            result = results[_name(activation, f"{gain:g}", True)]
            means = tuple(map(mean, result["ipr"]))
            curves.append(Curve(f"gain {gain:g}", tuple(float(s) for s in result["steps"]), means, line=True))
        figures.append(
            FigureFacts(
                f"{activation}: localisation over training, ξ₁ > ξ₂",
                Plot("step", "IPR", tuple(curves)),
                f"1 is a single site, 1/n = {1 / config.sites:.3f} a flat field.",
            )
        )
    sites = tuple(float(site - config.sites // 2) for site in range(config.sites))
    for first in (True, False):
        curves = tuple(
            Curve(f"gain {gain:g}", sites, tuple(results[_name(activation, f"{gain:g}", first)]["field"]), line=True)
            for activation in config.activations[:1]
            for gain in config.gains
        )
        title = f"{config.activations[0]}: receptive fields at the end, {'ξ₁ > ξ₂' if first else 'ξ₁ < ξ₂'}"
        figures.append(FigureFacts(title, Plot("site, from the peak", "weight", curves), "Of one run each."))
    columns = ("data", "IPR", "sites", "neighbours", "Gabor width", "frequency", "R²", "loss")
    rows = tuple(_row(name, result) for name, result in results.items())
    claims = _claims(config, results)
    sharp, soft = (_ipr(results[_name(config.activations[0], f"{config.gains[g]:g}", True)]).mean for g in (-1, 0))
    return Findings(
        "gdln, Section 1: localisation of receptive fields",
        f"With {config.activations[0]} and ξ₁ > ξ₂ the inverse participation ratio ends at {sharp:.2f} for the "
        f"sharpest gain and at {soft:.2f} in the Gaussian limit.",
        (
            Table(
                f"Fields at the end of training, {config.runs} runs",
                columns,
                rows,
                "Neighbours: Σ w_i w_{i+1}/Σ w_i². Gabor: width in sites, frequency in cycles per site.",
            ),
        ),
        tuple(figures),
        tuple(claims),
        (
            "Local means an IPR above 6/n, twice that of Gaussian noise.",
            "Runs share their batches; they differ by their start.",
            "erf and sigmoid start with a negative bias; erf is odd, so that a positive one swaps the classes' roles.",
            "Pulses as the notes define them are told apart by how many sites are on, which needs no locality; "
            "turned over with probability ½ and centred they are not.",
        ),
    )


LOCALISATION = Experiment(
    "gdln-localisation",
    "Which data and activations make receptive fields local",
    LocalisationConfig,
    {
        "smoke": {
            "runs": 2,
            "steps": 20,
            "batch": 50,
            "sites": 20,
            "lengths": (2.0, 0.1),
            "gains": (0.01, 100.0),
            "activations": (Activation.RELU,),
        },
        "quick": {},
        "paper": {"runs": 10, "steps": 4000, "batch": 2000},
    },
    _cells,
    _work,
    _findings,
)
EXPERIMENTS = (LOCALISATION,)
