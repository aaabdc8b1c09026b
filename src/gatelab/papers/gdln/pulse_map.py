"""gdln, Section 1: how local fields become on centred, inverted pulses, for every pair of widths."""

from collections.abc import Iterator, Mapping

import torch
from pydantic import Field

from gatelab.data import SinglePulse
from gatelab.dynamics import inverse_participation_ratio
from gatelab.figures import Heatmap
from gatelab.lab.experiment import SeededConfig
from gatelab.lab.findings import FigureFacts, Findings, Table, mean_curve
from gatelab.lab.runs import Cell, Context, Result
from gatelab.lab.verdicts import Claim, above, below
from gatelab.papers.common import experiment, figure, findings, numbers
from gatelab.papers.gdln.training import initial_weights, relu_descent


class PulseMapConfig(SeededConfig):
    """One ReLU unit learns pulses of one width per class by descent on the whole support, without sampling."""

    runs: int = Field(default=8, ge=1)
    sites: int = Field(default=40, ge=20)
    wide: tuple[int, ...] = (2, 3, 4, 6, 8, 10, 14, 18)  # widths of y = 1
    narrow: tuple[int, ...] = (1, 2, 3, 4, 6)  # widths of y = 0
    horizon: float = Field(default=600.0, gt=0)
    rate: float = Field(default=0.2, gt=0)

    def pairs(self) -> list[tuple[int, int]]:
        """Return the pairs of widths, the class y = 1 wider."""
        return [(wide, narrow) for wide in self.wide for narrow in self.narrow if narrow < wide]


def _name(wide: int, narrow: int) -> str:
    return f"width {wide} against {narrow}"


def _cells(config: PulseMapConfig) -> list[Cell]:
    return [Cell(_name(*pair), {"wide": pair[0], "narrow": pair[1]}) for pair in config.pairs()]


def _work(config: PulseMapConfig, cell: Cell, context: Context) -> Result:
    wide, narrow = int(cell.parameters["wide"]), int(cell.parameters["narrow"])
    source = SinglePulse(((wide, wide), (narrow, narrow)), (config.sites,), inverted=True, centred=True)
    one, zero = source.support(1), source.support(0)
    x, y = torch.cat([one, zero]), torch.cat([torch.ones(len(one)), torch.zeros(len(zero))]).to(one)
    start = initial_weights(config.seeds(), 1, config.sites, 0.1)
    steps = round(config.horizon / config.rate)
    last = relu_descent(x, y, start, steps, config.rate, records=2, tell=context.tell).weights[-1]
    return {"ipr": inverse_participation_ratio(last)[:, 0].tolist()}


def _figures(config: PulseMapConfig, results: Mapping[str, Result]) -> Iterator[FigureFacts]:
    mean = {pair: numbers(results[_name(*pair)]["ipr"]).mean for pair in config.pairs()}
    rows = tuple(tuple(mean.get((wide, narrow), float("nan")) for wide in config.wide) for narrow in config.narrow)
    shades = Heatmap(
        "IPR at the end",
        rows,
        low=0.0,
        x_label="width of y = 1",
        y_label="width of y = 0",
        scale="IPR",
        x_ticks=tuple(map(str, config.wide)),
        y_ticks=tuple(map(str, config.narrow)),
    )
    caption = f"Means over {config.runs} runs, at most {max(mean.values()):.2f}. Empty: y = 1 is not wider."
    yield FigureFacts("The map of widths", shades, caption)
    narrowest = config.narrow[0]
    widths = [wide for wide in config.wide if wide > narrowest]
    curve = mean_curve(
        f"y = 0 has width {narrowest}", widths, [numbers(results[_name(wide, narrowest)]["ipr"]) for wide in widths]
    )
    caption = f"Local is above 6/n = {6 / config.sites:g}; means and standard errors."
    yield figure("Localisation against the width of the pulses", "width of y = 1", "IPR", [curve], caption)


def _findings(config: PulseMapConfig, results: Mapping[str, Result]) -> Findings:
    local, narrowest = 6 / config.sites, config.narrow[0]
    thin, thick = (wide for wide in (min(w for w in config.wide if w > narrowest), max(config.wide)))
    samples = {pair: numbers(results[_name(*pair)]["ipr"]) for pair in config.pairs()}
    share = sum(sample.mean > local for sample in samples.values())
    rows = tuple((str(wide), str(narrow), sample.text()) for (wide, narrow), sample in samples.items())
    return findings(
        "gdln, Section 1: pulses of any width",
        f"On centred pulses, half of them inverted, fields are local for {share} of {len(samples)} pairs of widths.",
        Table(f"IPR at the end, {config.runs} runs", ("width, y = 1", "width, y = 0", "IPR"), rows),
        *_figures(config, results),
        Claim(f"widths {thin} and {narrowest}: local (IPR)", above(samples[thin, narrowest], local)),
        Claim(f"widths {thick} and {narrowest}: not local (IPR)", below(samples[thick, narrowest], local)),
        "Descent runs on the whole support, so nothing is sampled; runs differ by their start.",
        f"Local means an IPR above 6/n = {local:g}, twice the IPR of Gaussian noise.",
    )


PULSE_MAP = experiment(
    "gdln-pulse-map",
    "How local fields are on pulses, by their widths",
    PulseMapConfig,
    _cells,
    _work,
    _findings,
    smoke={"runs": 2, "sites": 20, "wide": (2, 4), "narrow": (1, 2), "horizon": 3.0},
    paper={"runs": 32, "sites": 100, "wide": (2, 4, 8, 12, 16, 20, 25, 30, 40), "narrow": (1, 2, 4, 8, 12)},
)
EXPERIMENTS = (PULSE_MAP,)
