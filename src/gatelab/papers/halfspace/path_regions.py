"""Is the active region of a ReLU path as simple as a DLGN (deep linearly gated network) path's? On the circle.

The paper (Section 2.1) shows that A_π of a ReLU network can be disconnected, and calls it hard to analyse. In the plane
it is a union of finitely many polygons, so it can be measured.
"""

from collections.abc import Mapping
from typing import Any

import torch
from pydantic import Field
from torch import Tensor, nn

from gatelab.errors import InputError
from gatelab.figures import Panels, Plot, Shapes
from gatelab.figures.facts import Polygon
from gatelab.lab.findings import FigureFacts, Findings, Table
from gatelab.lab.looks import Look
from gatelab.lab.runs import Cell, Context, Result
from gatelab.lab.training_cells import train_and_look
from gatelab.lab.verdicts import Claim, Sample, above, below, greater
from gatelab.papers.common import experiment, findings, numbers
from gatelab.papers.halfspace.circle import CircleConfig
from gatelab.papers.halfspace.circle_figures import band
from gatelab.papers.halfspace.circle_runs import KINDS, LEARNERS
from gatelab.regions import Partition, linear_regions_2d, path_components

MEASURES = {
    "connected": "share of paths with a connected region",
    "components": "components of a region, mean",
    "convex": "area over that of the convex hull, mean",
    "polygons": "linear regions in a region, mean",
}


class PathRegionsConfig(CircleConfig):
    """Regions of paths of ReLU networks and DLGNs that learn the circle."""

    runs: int = Field(default=16, ge=1)
    paths: int = Field(default=100, ge=1)  # for each network and look
    side: float = Field(default=1.5, gt=0)  # regions are cut to the square from −side to side
    frames: int = Field(default=8, ge=2)  # looks

    def square(self) -> tuple[tuple[float, float], tuple[float, float]]:
        """The part of the plane."""
        return ((-self.side, self.side), (-self.side, self.side))


def draw_paths(partition: Partition, count: int, generator: torch.Generator) -> Tensor:
    """Return active paths: a region drawn with probability proportional to its area, and a random open unit per layer.

    A region in which a layer is closed has no path and is redrawn.
    """
    if partition.gates is None:
        raise InputError("the network has no gates, hence no paths; give one with ReLU or other gates")
    layers = [partition.gates[name].double() for name in partition.path_layers]
    areas = partition.areas.double().clone()
    for gates in layers:
        areas[gates.sum(dim=1) == 0] = 0
    if not bool(areas.sum() > 0):
        return torch.zeros(0, len(layers), dtype=torch.int64)
    regions = torch.multinomial(areas, count, replacement=True, generator=generator)
    return torch.stack([torch.multinomial(gates[regions], 1, generator=generator)[:, 0] for gates in layers], dim=1)


def look(model: nn.Module, config: PathRegionsConfig, generator: torch.Generator, *, picture: bool) -> Look:
    """Observe the regions of some paths of a network, exactly; ``picture`` keeps the most scattered one."""
    partition = linear_regions_2d(model.double(), None, config.square())
    found = [
        path_components(partition, tuple(path)) for path in draw_paths(partition, config.paths, generator).tolist()
    ]
    seen: Look = {
        "regions": len(partition),
        "connected": _mean([one.count == 1 for one in found]),
        "components": _mean([one.count for one in found]),
        "convex": _mean([_convexity(one) for one in found]),
        "polygons": _mean([one.polygons for one in found]),
    }
    if picture and found:
        most = max(found, key=lambda one: (one.count, float(one.areas.sum())))
        pieces = most.regions.nonzero()[:, 0].tolist()
        seen["scattered"] = [most.count, [_rounded(partition.polygon(piece)) for piece in pieces]]
    return seen


def _rounded(corners: Tensor) -> list[list[float]]:
    return [[round(value, 4) for value in corner] for corner in corners.tolist()]


def _convexity(found: Any) -> float:
    """Return the total area of all components over the total area of their hulls."""
    return float(found.areas.sum() / (found.areas / found.convexity).sum())


def _mean(values: list[Any]) -> float:
    return sum(map(float, values)) / max(1, len(values))


def _work(config: PathRegionsConfig, cell: Cell, context: Context) -> Result:
    seeds = config.seeds()
    nets = [config.make(cell.name, seed) for seed in seeds]

    def see(model: nn.Module, epoch: int, place: int) -> Look:
        generator = torch.Generator().manual_seed(1_000_003 * seeds[place] + epoch)
        return look(model, config, generator, picture=place == 0 and epoch in (0, config.epochs))

    return train_and_look(nets, seeds, config.data(), config.train(cell.name), context, config.moments(), see)


class _Runs:
    """The observations of one kind of network."""

    def __init__(self, result: Result):
        self._seen = result["seen"]
        self.epochs = [entry["epoch"] for entry in self._seen]

    def sample(self, what: str, place: int) -> Sample:
        return numbers(look[what] for look in self._seen[place]["members"])

    def histories(self, what: str) -> list[list[float]]:
        return [list(run) for run in zip(*(self.sample(what, k).values for k in range(len(self.epochs))), strict=True)]

    def scattered(self, place: int) -> tuple[int, list[Any]]:
        return tuple(self._seen[place]["members"][0].get("scattered", (0, [])))


def _findings(config: PathRegionsConfig, results: Mapping[str, Result]) -> Findings:
    seen = {kind: _Runs(results[kind]) for kind in LEARNERS}
    relu, dlgn = seen["relu"], seen["dlgn"]
    share, parts = relu.sample("connected", -1), relu.sample("components", -1)
    return findings(
        "Is the region of a ReLU path as simple as that of a DLGN path?",
        f"After training, {100 * share.mean:.1f} % of the ReLU network's path regions are connected; they have "
        f"{parts.text()} components and fill {100 * relu.sample('convex', -1).mean:.1f} % of their hulls. At the "
        f"start: {100 * relu.sample('connected', 0).mean:.1f} % connected, {relu.sample('components', 0).text()} "
        f"components, {100 * relu.sample('convex', 0).mean:.1f} % of the hulls. Every region of a DLGN path is one "
        "convex polygon.",
        _table(seen),
        _curves(seen),
        _pictures(seen, config),
        Claim("ReLU: the region of a path is connected in more than half of the cases, at the end", above(share, 0.5)),
        Claim("ReLU: yet not in all cases (share of connected regions below 99 %)", below(share, 0.99)),
        Claim("ReLU: training breaks regions up (components, end against start)", _grows(relu, "components")),
        Claim("ReLU: training makes regions less convex (share of the hull, start against end)", _shrinks(relu)),
        Claim(
            "A region of the ReLU network has more components than one of the DLGN at the end",
            greater(parts, dlgn.sample("components", -1)),
        ),
        "The paper gives one constructed example (Figure 1) and leaves the question open.",
        f"{config.paths} paths for each network and observation. A path is drawn by area: a random point of the square "
        f"from −{config.side:g} to {config.side:g}, then in each layer one of the units open there. Regions are exact "
        "and cut to the square: parts that meet outside it count as two.",
        f"{config.layers} hidden layers of {config.width}; hard gates, q > 0.",
        *config.told(),
    )


def _grows(one: _Runs, what: str) -> Any:
    return greater(one.sample(what, -1), one.sample(what, 0), paired=True)


def _shrinks(one: _Runs) -> Any:
    return greater(one.sample("convex", 0), one.sample("convex", -1), paired=True)


def _table(seen: Mapping[str, _Runs]) -> Table:
    rows = []
    for kind, one in seen.items():
        middle = len(one.epochs) // 2
        for place, when in ((0, "start"), (middle, f"epoch {one.epochs[middle]}"), (-1, f"epoch {one.epochs[-1]}")):
            values = [one.sample(what, place).text() for what in ("regions", *MEASURES)]
            rows.append((f"{KINDS[kind]}, {when}", *values))
    return Table(
        "Regions of paths, mean ± standard deviation over runs",
        ("network", "linear regions of the square", *MEASURES.values()),
        tuple(rows),
    )


def _curves(seen: Mapping[str, _Runs]) -> FigureFacts:
    both = list(seen.items())
    panels = tuple(
        Plot("epoch", "", tuple(band(KINDS[kind], one.epochs, one.histories(what)) for kind, one in both), title=name)
        for what, name in MEASURES.items()
    )
    caption = "Lines are medians over runs, bands reach from the lowest to the highest run."
    return FigureFacts("Regions of paths over training", Panels(panels, 2), caption)


def _pictures(seen: Mapping[str, _Runs], config: PathRegionsConfig) -> FigureFacts:
    """Show the drawn path with the most components, at the start and at the end."""
    (left, right), (low, high) = config.square()
    square = Polygon(((left, low), (right, low), (right, high), (left, high)), 0.0)
    panels = []
    for kind, one in seen.items():
        for place, when in ((0, "start"), (-1, "end")):
            count, pieces = one.scattered(place)
            shapes = tuple(Polygon(tuple((x, y) for x, y in piece), 1.0) for piece in pieces)
            title = f"{KINDS[kind]}, {when}: {count} component{'' if count == 1 else 's'}"
            panels.append(Shapes(title, (square, *shapes)))
    caption = (
        f"The first run: the region with the most components among {config.paths} paths. Lines separate linear regions."
    )
    return FigureFacts("The most scattered region", Panels(tuple(panels), 2), caption)


_SMOKE: dict[str, Any] = {"runs": 2, "points": 20, "layers": 2, "width": 4, "epochs": 4, "batch_size": 10}
EXPERIMENTS = (
    experiment(
        "halfspace-path-regions",
        "Active regions of ReLU paths over training: connected, convex, how many pieces",
        PathRegionsConfig,
        lambda _config: [Cell(kind) for kind in LEARNERS],
        _work,
        _findings,
        smoke={**_SMOKE, "paths": 5, "frames": 2},
        paper={"paths": 1000},
    ),
)
