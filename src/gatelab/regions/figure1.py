"""Figure 1 of the half-space paper: what the active regions of ReLU paths can look like.

The paper draws two networks without giving their weights; these have the properties that its caption states.
"""

from dataclasses import dataclass

import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Polygon
from torch import nn

from gatelab.regions.line import linear_regions_1d
from gatelab.regions.partition import linear_regions_2d

RED_GREEN = (0, 0)
GREEN_BROWN = (0, 0)
SQUARE = ((-1.0, 1.0), (-1.0, 1.0))


def disconnected_network() -> nn.Sequential:
    """A ReLU network of one input whose path through red and green is active on ]0.5, 1.5[ ∪ ]2.5, 3.5[ alone.

    Red, relu(x), is unit 0 of the first layer; green is the second layer's only unit. What green is given has two
    teeth, relu(x) − 2 relu(x − 1) + 2 relu(x − 2) − 2 relu(x − 3) − ½.
    """
    first, second, last = nn.Linear(1, 4), nn.Linear(4, 1), nn.Linear(1, 1)
    _fill(first, [[1.0], [1.0], [1.0], [1.0]], [0.0, -1.0, -2.0, -3.0])
    _fill(second, [[1.0, -2.0, 2.0, -2.0]], [-0.5])
    _fill(last, [[1.0]], [0.0])
    return nn.Sequential(first, nn.ReLU(), second, nn.ReLU(), last).double()


def jumping_network(epsilon: float) -> nn.Sequential:
    """A ReLU network of two inputs whose path region jumps when ε changes sign, however small ε is.

    Green, relu(x₁), is unit 0 of the first layer; brown, the second layer's only unit, is given relu(x₂) + ε relu(−x₂).
    Both are open on the right half-plane if ε > 0 (but for the ray x₂ = 0, on which brown is given 0), and on the first
    quadrant if ε ≤ 0.
    """
    first, second, last = nn.Linear(2, 3), nn.Linear(3, 1), nn.Linear(1, 1)
    _fill(first, [[1.0, 0.0], [0.0, 1.0], [0.0, -1.0]], [0.0, 0.0, 0.0])
    _fill(second, [[0.0, 1.0, epsilon]], [0.0])
    _fill(last, [[1.0]], [0.0])
    return nn.Sequential(first, nn.ReLU(), second, nn.ReLU(), last).double()


@dataclass(frozen=True)
class Figure1:
    """The facts of the figure.

    Attributes:
        ends: the places where the left network bends.
        green: what green is given there.
        intervals: where the path through red and green is active.
        regions: for each ε the polygons of the unit square where the path through green and brown is active.
        areas: for each ε their total area.
    """

    ends: tuple[float, ...]
    green: tuple[float, ...]
    intervals: tuple[tuple[float, float], ...]
    regions: dict[float, tuple[tuple[tuple[float, float], ...], ...]]
    areas: dict[float, float]


def figure1(epsilons: tuple[float, ...] = (0.1, -0.1)) -> Figure1:
    """The regions of both networks, exactly."""
    network = disconnected_network()
    pieces = linear_regions_1d(network, (-0.5, 4.5))
    opened = pieces.gates["1"][:, RED_GREEN[0]] & pieces.gates["3"][:, RED_GREEN[1]]
    ends = torch.cat([pieces.ends[:, 0], pieces.ends[-1:, 1]])
    green = network[:3](ends[:, None]).detach()[:, 0]
    regions, areas = {}, {}
    for epsilon in epsilons:
        partition = linear_regions_2d(jumping_network(epsilon), None, SQUARE)
        active = partition.along(GREEN_BROWN)
        areas[epsilon] = float(partition.areas[active].sum())
        regions[epsilon] = tuple(
            tuple((s, t) for s, t in partition.polygon(region).tolist()) for region in active.nonzero()[:, 0].tolist()
        )
    intervals = tuple(pieces.intervals(opened))
    return Figure1(tuple(ends.tolist()), tuple(green.tolist()), intervals, regions, areas)


def draw_figure1(facts: Figure1) -> Figure:
    """The figure: green's input over x with the path's region, and the path regions for each ε."""
    figure = Figure(figsize=(3.4 + 2.6 * len(facts.regions), 2.9), layout="constrained")
    FigureCanvasAgg(figure)
    widths = [1.5, *[1.0] * len(facts.regions)]
    left, *others = figure.subplots(1, len(widths), width_ratios=widths)
    left.axhline(0, color="0.6", linewidth=0.8)
    left.plot(facts.ends, facts.green, color="#2f7d4f", label="what green is given")
    for place, (low, high) in enumerate(facts.intervals):
        left.axvspan(low, high, color="#4878a8", alpha=0.35, label="red and green open" if place == 0 else None)
    left.set(xlabel="x", title="active on two intervals")
    left.legend(fontsize=7, loc="lower center")
    for axes, (epsilon, polygons) in zip(others, facts.regions.items(), strict=True):
        for polygon in polygons:
            axes.add_patch(Polygon(polygon, facecolor="#4878a8", edgecolor="none", alpha=0.6))
        axes.axhline(0, color="0.6", linewidth=0.8)
        axes.axvline(0, color="0.6", linewidth=0.8)
        axes.set(xlim=SQUARE[0], ylim=SQUARE[1], xlabel="x₁", ylabel="x₂", aspect="equal")
        axes.set_title(f"ε = {epsilon:g}".replace("-", "−"))
    return figure


@torch.no_grad()
def _fill(layer: nn.Linear, weight: list[list[float]], bias: list[float]) -> None:
    layer.weight.copy_(torch.tensor(weight))
    layer.bias.copy_(torch.tensor(bias))
