"""halfspace, Figure 1: what the active regions of ReLU paths can look like.

The paper draws two networks without their weights; these have the properties that its caption states.
"""

from dataclasses import dataclass

import torch
from torch import nn

from gatelab.figures import Plot, Shapes
from gatelab.figures.facts import Polygon
from gatelab.papers.common import line
from gatelab.regions import linear_regions_1d, linear_regions_2d

RED_GREEN = (0, 0)
GREEN_BROWN = (0, 0)
SQUARE = ((-1.0, 1.0), (-1.0, 1.0))


def disconnected_network() -> nn.Sequential:
    """Return a ReLU network of one input whose path through red and green is active on ]0.5, 1.5[ ∪ ]2.5, 3.5[ only.

    Red, relu(x), is unit 0 of the first layer; green is the second layer's only unit. Green's input has two teeth,
    relu(x) − 2 relu(x − 1) + 2 relu(x − 2) − 2 relu(x − 3) − ½.
    """
    first = _layer([[1.0], [1.0], [1.0], [1.0]], [0.0, -1.0, -2.0, -3.0])
    return nn.Sequential(first, nn.ReLU(), _layer([[1.0, -2.0, 2.0, -2.0]], [-0.5]), nn.ReLU(), _layer([[1.0]], [0.0]))


def jumping_network(epsilon: float) -> nn.Sequential:
    """Return a ReLU network of two inputs whose path region jumps when ε changes sign, however small ε is.

    Green, relu(x₁), is unit 0 of the first layer; brown, the second layer's only unit, has the input
    relu(x₂) + ε relu(−x₂). Both are open on the right half-plane if ε > 0 (except on the ray x₂ = 0, where brown's
    input is 0), and on the first quadrant if ε ≤ 0.
    """
    first = _layer([[1.0, 0.0], [0.0, 1.0], [0.0, -1.0]], [0.0, 0.0, 0.0])
    return nn.Sequential(first, nn.ReLU(), _layer([[0.0, 1.0, epsilon]], [0.0]), nn.ReLU(), _layer([[1.0]], [0.0]))


@dataclass(frozen=True)
class Figure1:
    """The facts of the figure.

    Attributes:
        ends: the places where the left network bends.
        green: green's input there.
        intervals: where the path through red and green is active.
        regions: for each ε, the polygons of the square where the path through green and brown is active.
        areas: for each ε, their total area.
    """

    ends: tuple[float, ...]
    green: tuple[float, ...]
    intervals: tuple[tuple[float, float], ...]
    regions: dict[float, tuple[tuple[tuple[float, float], ...], ...]]
    areas: dict[float, float]


def figure1(epsilons: tuple[float, ...] = (0.1, -0.1)) -> Figure1:
    """Compute the regions of both networks, exactly."""
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


def line_panel(facts: Figure1) -> Plot:
    """Return green's input over x, and the intervals where the path through red and green is active."""
    open_on = "red and green open on"
    active = [line(f"{open_on} ]{low:g}, {high:g}[", (low, high), (0, 0)) for low, high in facts.intervals]
    given = line("green's input", facts.ends, facts.green)
    return Plot("x", "", (given, *active), title="active on two intervals")


def square_panel(facts: Figure1, epsilon: float) -> Shapes:
    """Return the part of the square where the path through green and brown is active, for one ε."""
    (left, right), (low, high) = SQUARE
    square = Polygon(((left, low), (right, low), (right, high), (left, high)), 0.0)
    active = tuple(Polygon(points, 1.0) for points in facts.regions[epsilon])
    return Shapes(f"ε = {epsilon:g}".replace("-", "−"), (square, *active), "x₁", "x₂")


def _layer(weight: list[list[float]], bias: list[float]) -> nn.Linear:
    layer = nn.Linear(len(weight[0]), len(weight), dtype=torch.float64)
    layer.weight.data, layer.bias.data = (torch.tensor(part, dtype=torch.float64) for part in (weight, bias))
    return layer
