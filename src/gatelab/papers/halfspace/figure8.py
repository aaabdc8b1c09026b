"""halfspace, Figure 8: a DLGN with two layers of two units, its half-spaces and its four paths, after training.

DLGN: deep linearly gated network; DLGN-PWC: its piecewise constant variant.
"""

from collections.abc import Mapping
from itertools import product
from math import hypot

import torch
from pydantic import Field
from torch import nn

from gatelab.data import circle
from gatelab.figures import Panels, Shapes
from gatelab.figures.facts import Polygon
from gatelab.lab.experiment import SeededConfig
from gatelab.lab.findings import FigureFacts, Findings, Table
from gatelab.lab.looks import Look, short
from gatelab.lab.runs import Cell, Context, Result
from gatelab.lab.training import Loss
from gatelab.lab.training_cells import train_and_look
from gatelab.papers.common import experiment, findings, training
from gatelab.papers.halfspace.options import DlgnOptions
from gatelab.paths import mixture_of_experts
from gatelab.regions import active_region, half_spaces

SQUARE = ((-1.5, 1.5), (-1.5, 1.5))
PATHS = tuple(product((0, 1), repeat=2))
_DISC = 0.16  # radius of a unit in the diagram
_COLUMNS = (("x₁", "x₂"), ("1", "2"), ("1", "2"), ("y",))


class Figure8Config(DlgnOptions, SeededConfig):
    """A DLGN with two layers of two units learns a target on the circle."""

    runs: int = Field(default=1, ge=1, le=1)
    points: int = Field(default=100, ge=8)
    high: int = Field(default=2, ge=1)
    epochs: int = Field(default=600, ge=1)
    batch_size: int = Field(default=20, ge=1)
    learning_rate: float = Field(default=1e-2, gt=0)


def illustrate(net: nn.Module) -> Look:
    """Return the half-spaces of the four units, and each path's region in the square and its value at two points.

    The value is affine in x, f(x) = v₀ + v·x: a constant for a DLGN-PWC.
    """
    net = net.double()
    mixture = mixture_of_experts(net, gates="hard")
    corners = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]], dtype=torch.float64)
    paths = []
    for path in PATHS:
        region = active_region(net, path)
        at = mixture.expert(corners, path).flatten()
        value = [float(at[0]), float(at[1] - at[0]), float(at[2] - at[0])]
        polygon = [] if region.is_empty() else region.polygon(SQUARE).tolist()
        paths.append({"polygon": polygon, "value": [round(part, 4) for part in value]})
    layers = half_spaces(net).values()
    return {
        "half_spaces": [short(torch.cat([one.normals(), one.offsets.unsqueeze(1)], 1)) for one in layers],
        "paths": paths,
    }


def _work(config: Figure8Config, cell: Cell, context: Context) -> Result:
    del cell
    nets = [config.dlgn([2, 2, 2, 1], seed) for seed in config.seeds()]
    data = circle(config.points, 1, config.high)

    def see(model: nn.Module, _epoch: int, _place: int) -> Look:
        return illustrate(model)

    return train_and_look(
        nets, config.seeds(), data, training(config, loss=Loss.SQUARED), context, [0, config.epochs], see
    )


def _findings(config: Figure8Config, results: Mapping[str, Result]) -> Findings:
    seen = results["dlgn"]["seen"][-1]["members"][0]
    empty = sum(not path["polygon"] for path in seen["paths"])
    rows = tuple(
        (f"{one + 1} → {other + 1}", value_text(path["value"]), "nowhere" if not path["polygon"] else "see the picture")
        for (one, other), path in zip(PATHS, seen["paths"], strict=True)
    )
    return findings(
        f"halfspace, Figure 8: the four paths of a small {config.name()}",
        f"Each path is active where the half-spaces of its two units intersect; {4 - empty} of the four paths are "
        "active somewhere in the square.",
        Table("Values of the paths", ("path", "value where it is active", "region"), rows),
        FigureFacts(f"A trained {config.name()} and its paths (Figure 8)", panels(seen), _CAPTION),
        *config.told(),
        f"Trained for {config.epochs} epochs on the circle, frequencies 1 and {config.high}; gates are shown hard.",
    )


_CAPTION = (
    "Top: each path takes one unit of each layer; gates and values have weights of their own. Middle: the half-spaces "
    "of the four units, dark where the gate is open. Bottom: where each path is active, the intersection of the "
    "half-spaces of its two units, and the value that it adds to the output there."
)


def panels(seen: Look) -> Panels:
    """The picture: the network, the units' half-spaces, the paths' regions."""
    units = [space for layer in seen["half_spaces"] for space in layer]
    names = [f"layer {layer}, unit {unit}" for layer, unit in product((1, 2), repeat=2)]
    spaces = [_region(name, clipped(space)) for name, space in zip(names, units, strict=True)]
    paths = [
        _region(f"{one + 1} → {other + 1}: value {value_text(path['value'])}", path["polygon"])
        for (one, other), path in zip(PATHS, seen["paths"], strict=True)
    ]
    diagrams = [diagram(f"path {one + 1} → {other + 1}", (one, other)) for one, other in PATHS]
    return Panels((*diagrams, *spaces, *paths), 4)


def value_text(value: list[float]) -> str:
    """The value of a path: a number, or an affine function of x."""
    constant, *slopes = value
    terms = [f"{constant:.2f}"] if constant or not any(slopes) else []
    terms += [f"{slope:.2f} x{'₁₂'[place]}" for place, slope in enumerate(slopes) if slope]
    return " + ".join(terms).replace("+ -", "− ").replace("-", "−")


def clipped(half_space: list[float]) -> list[list[float]]:
    """The part of the square inside a half-plane a x + b y + c > 0, by Sutherland and Hodgman."""
    (left, right), (low, high) = SQUARE
    corners = [(left, low), (right, low), (right, high), (left, high)]
    a, b, c = half_space

    def side(point: tuple[float, float]) -> float:
        return a * point[0] + b * point[1] + c

    kept: list[list[float]] = []
    for here, there in zip(corners, corners[1:] + corners[:1], strict=True):
        if side(here) > 0:
            kept.append(list(here))
        if side(here) * side(there) < 0:
            share = side(here) / (side(here) - side(there))
            kept.append([x + share * (y - x) for x, y in zip(here, there, strict=True)])
    return kept


def _region(title: str, polygon: list[list[float]]) -> Shapes:
    (left, right), (low, high) = SQUARE
    square = Polygon(((left, low), (right, low), (right, high), (left, high)), 0.0)
    own = (Polygon(tuple((x, y) for x, y in polygon), 1.0),) if polygon else ()
    return Shapes(title, (square, *own), axes=False)


def diagram(title: str, path: tuple[int, int]) -> Shapes:
    """The network as discs and edges; the edges of a path are dark."""
    places = [
        [(float(column), (len(names) - 1) / 2 - row) for row in range(len(names))]
        for column, names in enumerate(_COLUMNS)
    ]
    polygons = []
    for column in range(len(places) - 1):
        for one, other in product(range(len(places[column])), range(len(places[column + 1]))):
            shade = float(_on(path, column, one, other))
            polygons.append(_edge(places[column][one], places[column + 1][other], shade))
    disc = [(_DISC * c, _DISC * s) for c, s in _circle(16)]
    texts = []
    for names, column in zip(_COLUMNS, places, strict=True):
        for name, (x, y) in zip(names, column, strict=True):
            polygons.append(Polygon(tuple((x + a, y + b) for a, b in disc), 0.0))
            texts.append((x, y, name))
    return Shapes(title, tuple(polygons), axes=False, texts=tuple(texts))


def _on(path: tuple[int, int], column: int, one: int, other: int) -> bool:
    """Whether an edge belongs to a path; all inputs do."""
    wanted = (None, *path, 0)
    return wanted[column] in (None, one) and wanted[column + 1] == other


def _edge(start: tuple[float, float], end: tuple[float, float], shade: float) -> Polygon:
    (x, y), (u, v) = start, end
    length = hypot(u - x, v - y)
    a, b = 0.025 * (v - y) / length, 0.025 * (x - u) / length
    return Polygon(((x + a, y + b), (u + a, v + b), (u - a, v - b), (x - a, y - b)), shade)


def _circle(corners: int) -> list[tuple[float, float]]:
    angles = torch.arange(corners) * (2 * torch.pi / corners)
    return list(zip(angles.cos().tolist(), angles.sin().tolist(), strict=True))


EXPERIMENTS = (
    experiment(
        "halfspace-figure8",
        "The half-spaces and the four paths of a small DLGN, drawn from a trained one",
        Figure8Config,
        lambda _config: [Cell("dlgn")],
        _work,
        _findings,
        smoke={"points": 20, "epochs": 3},
    ),
)
