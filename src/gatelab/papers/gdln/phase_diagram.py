"""gdln, Section 1: where are fields local? Predicted by the population flow without training, tested by networks.

NLGP: nonlinear Gaussian process.
"""

from collections.abc import Iterator, Mapping
from math import log
from statistics import mean

import torch
from pydantic import Field

from gatelab.data import NLGP
from gatelab.data.power_field import PowerField
from gatelab.dynamics import inverse_participation_ratio
from gatelab.dynamics.population import FieldSource, PopulationFlow, excess_kurtosis
from gatelab.dynamics.population_centre import predict_fields
from gatelab.figures import Heatmap
from gatelab.lab.experiment import SeededConfig
from gatelab.lab.findings import FigureFacts, Findings, Table
from gatelab.lab.runs import Cell, Context, Result
from gatelab.lab.verdicts import Claim, share_above
from gatelab.papers.common import dots, experiment, figure, findings, line
from gatelab.papers.gdln.training import Activation, Descent, initial_weights, neighbour_correlation, train_fields

MAP, HELD, MARGINALS = "map", "held-back networks", "marginals"


class PhaseConfig(SeededConfig):
    """Gains and correlation lengths of the map, held-back points between them, and powers for other marginals."""

    runs: int = Field(default=2, ge=1)  # networks at each held-back point
    sites: int = Field(default=40, ge=20)
    fixed_length: float = Field(default=1.0, gt=0)  # ξ₂ of the map
    gains: int = Field(default=20, ge=2)
    lengths: int = Field(default=20, ge=2)
    least: tuple[float, float] = (0.1, 0.2)  # the least gain and the least ξ₁
    largest: tuple[float, float] = (30.0, 5.0)
    held_gains: int = Field(default=6, ge=1)
    held_lengths: int = Field(default=8, ge=1)
    anywhere: int = Field(default=32, ge=0)  # held-back points with arbitrary ξ₂
    powers: tuple[float, ...] = (0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.3, 1.7, 2.5)
    kurtosis_gains: tuple[float, ...] = (0.1, 0.3, 0.5, 0.8, 1.3, 3.0, 30.0)
    marginal_lengths: tuple[float, float] = (3.0, 0.1)
    horizon: float = Field(default=300.0, gt=0)
    rate: float = Field(default=0.3, gt=0)
    batch: int = Field(default=1000, ge=2)

    @property
    def local(self) -> float:
        """The IPR (inverse participation ratio) above which a field counts as local: twice the noise's IPR."""
        return 6 / self.sites

    def axis(self, which: int, count: int, *, between: bool = False) -> list[float]:
        """Return gains (0) or ξ₁ (1) in geometric progression; held-back values lie between those of the map."""
        low, high = self.least[which], self.largest[which]
        shares = [(place + 0.5) / count if between else place / (count - 1) for place in range(count)]
        return [low * (high / low) ** share for share in shares]

    def points(self) -> list[tuple[float, float, float]]:
        """Return the held-back points (gain, ξ₁, ξ₂): a grid in the plane of the map, then points anywhere."""
        plane = [
            (gain, length, self.fixed_length)
            for gain in self.axis(0, self.held_gains, between=True)
            for length in self.axis(1, self.held_lengths, between=True)
            if abs(log(length / self.fixed_length)) > log(1.2)  # equal classes leave nothing to learn
        ]
        generator = torch.Generator().manual_seed(self.seed)
        low = torch.tensor([self.least[0], self.least[1], 0.1], dtype=torch.float64).log()
        high = torch.tensor([self.largest[0], self.largest[1], self.largest[1]], dtype=torch.float64).log()
        free = []
        while len(free) < self.anywhere:
            gain, first, second = (low + (high - low) * torch.rand(3, generator=generator, dtype=torch.float64)).exp()
            if abs(float((first / second).log())) > log(1.5):
                free.append((float(gain), float(first), float(second)))
        return plane + free

    def source(self, gain: float, first: float, second: float) -> NLGP:
        """Return the data of a point."""
        return NLGP((first, second), gain, (self.sites,))


def _cells(config: PhaseConfig) -> list[Cell]:
    gains = config.axis(0, config.gains)
    cells = [Cell(f"{MAP}, gain {gain:.3g}", {"kind": MAP, "gain": gain}) for gain in gains]
    points = config.points()
    held = [
        Cell(f"{HELD}, from {start}", {"kind": HELD, "start": start}, weight=4.0) for start in range(0, len(points), 8)
    ]
    return [*cells, *held, Cell(MARGINALS, {"kind": MARGINALS}, weight=8.0)]


def _start(config: PhaseConfig) -> torch.Tensor:
    return initial_weights(config.seeds(), 1, config.sites, 0.1)[:, 0]


def _network(config: PhaseConfig, source: FieldSource) -> dict[str, float]:
    """Train networks and return the mean IPR and the correlation of neighbours of their fields."""
    descent = Descent(round(config.horizon / config.rate), config.rate, config.batch)
    fields = train_fields(source, Activation.RELU, 1, list(config.seeds()), descent, records=2).weights[-1][:, 0]
    ipr, neighbours = inverse_participation_ratio(fields), neighbour_correlation(fields)
    return {"ipr": float(ipr.mean()), "neighbours": float(neighbours.mean())}


def _predicted(config: PhaseConfig, source: FieldSource) -> dict[str, float]:
    start = _start(config)[:1]
    finer = predict_fields(source, start, config.horizon)
    plain = PopulationFlow.of_marginal(source).solve(start, [config.horizon], tolerance=3e-3).weights[0]
    return {
        "ipr": float(finer.ipr.mean()),
        "neighbours": float(neighbour_correlation(finer.weights).mean()),
        "marginal": float(inverse_participation_ratio(plain).mean()),
    }


def _work(config: PhaseConfig, cell: Cell, context: Context) -> Result:
    kind = cell.parameters["kind"]
    if kind == MAP:
        gain = float(cell.parameters["gain"])
        sources = [config.source(gain, length, config.fixed_length) for length in config.axis(1, config.lengths)]
        return {"predicted": [_predicted(config, source) for source in sources]}
    if kind == HELD:
        start = int(cell.parameters["start"])
        points = config.points()[start : start + 8]
        sources = [config.source(*point) for point in points]
        labels = [{"gain": gain, "first": first, "second": second} for gain, first, second in points]
    else:
        pair, shape = config.marginal_lengths, (config.sites,)
        sources = [NLGP(pair, gain, shape) for gain in config.kurtosis_gains]
        sources += [PowerField(pair, power, shape) for power in config.powers]
        labels = [
            {"family": "erf" if isinstance(s, NLGP) else "power", "kurtosis": excess_kurtosis(s)} for s in sources
        ]
    rows = []
    for place, (label, source) in enumerate(zip(labels, sources, strict=True)):
        rows.append(label | {"predicted": _predicted(config, source), "network": _network(config, source)})
        context.tell((place + 1) / len(sources), f"network {place + 1} of {len(sources)}")
    return {"rows": rows}


def border(config: PhaseConfig, ipr: list[list[float]]) -> list[tuple[float, float]]:
    """Return (ξ₁, gain) where the predicted IPR first crosses the border, for each ξ₁; rows are gains."""
    gains, lengths = config.axis(0, len(ipr)), config.axis(1, len(ipr[0]))
    found = []
    for column, length in enumerate(lengths):
        for row in range(len(gains) - 1):
            below, above = ipr[row][column], ipr[row + 1][column]
            if below <= config.local < above:
                share = (config.local - below) / (above - below)
                found.append((length, gains[row] * (gains[row + 1] / gains[row]) ** share))
                break
    return found


def _agreement(config: PhaseConfig, rows: list[Result], key: str = "ipr") -> int:
    return sum((row["predicted"][key] > config.local) == (row["network"]["ipr"] > config.local) for row in rows)


def _claims(config: PhaseConfig, held: list[Result], marginals: list[Result]) -> Iterator[Claim]:
    smooth = [row for row in held if row["first"] > row["second"]]
    rough = [row for row in held if row["first"] < row["second"]]
    for name, rows in (("ξ₁ > ξ₂", smooth), ("ξ₁ < ξ₂", rough)):
        text = f"{name}: the population flow tells local from extended fields at more than 80 % of the held-back points"
        yield Claim(text, share_above(_agreement(config, rows), len(rows), 0.8))
    signs = sum((row["predicted"]["neighbours"] > 0) == (row["network"]["neighbours"] > 0) for row in held)
    yield Claim("it tells smooth from oscillating fields at more than 80 %", share_above(signs, len(held), 0.8))
    text = "the flow that knows one marginal and two covariances tells local from extended at more than 80 %"
    both = held + marginals
    yield Claim(text, share_above(_agreement(config, both, "marginal"), len(both), 0.8))
    powers = [row for row in marginals if row["family"] == "power" and abs(row["kurtosis"]) > 0.3]
    agreed = sum((row["kurtosis"] < 0) == (row["network"]["ipr"] > config.local) for row in powers)
    text = "powers of a Gaussian field: fields are local where the excess kurtosis is below 0, not where it is above"
    yield Claim(text, share_above(agreed, len(powers), 0.5))


def _figures(
    config: PhaseConfig, ipr: list[list[float]], held: list[Result], marginals: list[Result]
) -> Iterator[FigureFacts]:
    shades = Heatmap(
        f"predicted IPR, ξ₂ = {config.fixed_length:g}",
        tuple(tuple(row) for row in ipr[::-1]),
        low=0.0,
        x_label=f"ξ₁, {config.least[1]:g} to {config.largest[1]:g} (logarithmic)",
        y_label=f"gain, {config.least[0]:g} (bottom) to {config.largest[0]:g}",
        scale="IPR",
    )
    points, highest = len(ipr) * len(ipr[0]), max(max(row) for row in ipr)
    caption = f"{points} points, no network trained. The largest IPR is {highest:.2f}."
    yield FigureFacts(f"Predicted IPR over gain and ξ₁, ξ₂ = {config.fixed_length:g}", shades, caption)
    crossing = border(config, ipr)
    plane = [row for row in held if row["second"] == config.fixed_length]
    networks = {
        "local network": [row for row in plane if row["network"]["ipr"] > config.local],
        "extended network": [row for row in plane if row["network"]["ipr"] <= config.local],
    }
    curves = [
        dots(name, [r["first"] for r in rows], [r["gain"] for r in rows]) for name, rows in networks.items() if rows
    ]
    if crossing:
        curves.append(line("predicted border", *zip(*crossing, strict=True)))
    caption = f"The predicted phase is right at {_agreement(config, plane)} of {len(plane)} points of this plane."
    title = f"Networks over the predicted border, ξ₂ = {config.fixed_length:g}"
    yield figure(title, "ξ₁", "gain", curves, caption, log_y=True)
    pairs = {
        "ξ₁ > ξ₂": [row for row in held if row["first"] > row["second"]],
        "ξ₁ < ξ₂": [row for row in held if row["first"] < row["second"]],
    }
    scatter = [
        dots(name, [r["predicted"]["ipr"] for r in rows], [r["network"]["ipr"] for r in rows])
        for name, rows in pairs.items()
    ]
    title = "IPR of held-back networks against the prediction"
    yield figure(title, "predicted IPR", "IPR of the network", scatter, f"{len(held)} points.", diagonal="equal")
    families = []
    for family in ("erf", "power"):
        rows = sorted((row for row in marginals if row["family"] == family), key=lambda row: row["kurtosis"])
        rows = [row for row in rows if row["kurtosis"] < 3]  # larger values would squeeze the others to the margin
        kurtosis = [row["kurtosis"] for row in rows]
        families.append(dots(f"{family}, networks", kurtosis, [row["network"]["ipr"] for row in rows]))
        families.append(line(f"{family}, predicted", kurtosis, [row["predicted"]["ipr"] for row in rows]))
    one, two = config.marginal_lengths
    caption = f"ξ = ({one:g}, {two:g}); local is above {config.local:g}. Points beyond 3 are in the table only."
    yield figure("Localisation against the kurtosis of one site", "excess kurtosis", "IPR", families, caption)


def _findings(config: PhaseConfig, results: Mapping[str, Result]) -> Findings:
    maps = [result["predicted"] for name, result in results.items() if name.startswith(MAP)]
    held = [row for name, result in results.items() if name.startswith(HELD) for row in result["rows"]]
    marginals = results[MARGINALS]["rows"]
    agreed = _agreement(config, held)
    ipr = [[point["ipr"] for point in row] for row in maps]
    rows = tuple(
        (
            f"{row['gain']:.3g}",
            f"{row['first']:.3g}",
            f"{row['second']:.3g}",
            f"{row['predicted']['ipr']:.3f}",
            f"{row['network']['ipr']:.3f}",
            f"{row['predicted']['neighbours']:+.2f}",
            f"{row['network']['neighbours']:+.2f}",
        )
        for row in held
    )
    shown = ("marginal", "ipr")
    others = tuple(
        (
            row["family"],
            f"{row['kurtosis']:+.2f}",
            *(f"{row['predicted'][key]:.3f}" for key in shown),
            f"{row['network']['ipr']:.3f}",
        )
        for row in marginals
    )
    gaps = mean(abs(row["predicted"]["ipr"] - row["network"]["ipr"]) for row in held)
    columns = ("gain", "ξ₁", "ξ₂", "predicted IPR", "network", "predicted neighbours", "network")
    return findings(
        "gdln, Section 1: the phase diagram of localisation",
        f"The population flow, without training, tells local from extended fields at {agreed} of {len(held)} held-back "
        f"points (gain, ξ₁, ξ₂); its IPR is off by {gaps:.3f} on average.",
        Table(f"Held-back points, {config.runs} networks each", columns, rows),
        Table(
            "Other marginals",
            ("family", "excess kurtosis", "from the marginal", "predicted IPR", "network"),
            others,
            "erf: NLGP of several gains. power: sign(z)|z|^p.",
        ),
        *_figures(config, ipr, held, marginals),
        *_claims(config, held, marginals),
        f"Local means an IPR above 6/n = {config.local:g}; fields are compared at t = {config.horizon:g}τ.",
        "Points are independent; the runs of a point differ only by their start.",
    )


PHASE_DIAGRAM = experiment(
    "gdln-phase-diagram",
    "Where receptive fields are local: predicted without training, and measured",
    PhaseConfig,
    _cells,
    _work,
    _findings,
    smoke={"gains": 2, "lengths": 2, "held_gains": 1, "held_lengths": 2, "anywhere": 0, "sites": 20, "horizon": 0.6}
    | {"batch": 50, "largest": (30.0, 2.0), "powers": (2.0,), "kurtosis_gains": (3.0,), "runs": 1}
    | {"marginal_lengths": (2.0, 0.1)},
    paper={"runs": 8, "batch": 4000, "held_gains": 10, "held_lengths": 12, "anywhere": 120},
)
EXPERIMENTS = (PHASE_DIAGRAM,)
