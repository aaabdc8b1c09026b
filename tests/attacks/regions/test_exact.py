"""Partitions of a plane against the same partition in fractions: numbers of regions, areas, maps and gates."""

from fractions import Fraction
from itertools import pairwise

import pytest
import torch
from torch import Tensor, nn

from gatelab.regions import Plane, linear_regions_2d, linear_regions_3d, path_components
from tests.attacks.outcomes import SilentlyWrongError, refusal
from tests.attacks.regions.exact_cells import SQUARE, Cell, cells, components, fractions, level_length

pytestmark = pytest.mark.attack("regions")


# gatelab draws no cell that is thinner than 1e-12 of its domain, and its documentation says so.
THINNEST = 1e-11


def width(cell: Cell) -> float:
    """About how wide a cell is where it is thin: its area over its diameter."""
    reach = max(abs(float(p[axis] - q[axis])) for p in cell.corners for q in cell.corners for axis in (0, 1))
    return float(cell.area) / reach


def compare(partition, expected: list[Cell], tolerance: float = 1e-9) -> None:
    """Check that every cell is one region, with its area and its map; ``tolerance`` is relative to the whole."""
    thinnest = THINNEST * float(sum(cell.area for cell in expected)) ** 0.5
    expected = [cell for cell in expected if width(cell) > thinnest]
    if len(partition) != len(expected):
        raise SilentlyWrongError(f"{len(partition)} regions instead of {len(expected)}")
    centres = torch.tensor([[float(part) for part in cell.centre] for cell in expected])
    areas = torch.tensor([float(cell.area) for cell in expected])
    maps = torch.tensor([[[float(part) for part in line] for line in cell.values] for cell in expected])
    where = partition.locate(centres)
    if sorted(where.tolist()) != list(range(len(expected))):
        raise SilentlyWrongError("a region holds the centres of two cells, or of none")
    if float((partition.areas[where].double() - areas).abs().max()) > tolerance * float(areas.sum()):
        raise SilentlyWrongError("other areas")
    if float((partition.maps[where].double() - maps).abs().max()) > tolerance * (1 + float(maps.abs().max())):
        raise SilentlyWrongError("other maps")


def linear(inputs: int, outputs: int, generator: torch.Generator, whole: bool) -> nn.Linear:
    """Small whole numbers and halves make many lines meet in one point; other numbers never do."""
    layer = nn.Linear(inputs, outputs)
    draw = (
        (lambda *shape: torch.randint(-2, 3, shape, generator=generator).double())
        if whole
        else (lambda *shape: torch.randn(*shape, generator=generator))
    )
    layer.weight.data, layer.bias.data = draw(outputs, inputs), draw(outputs) / 2
    return layer


def sloped(units: int, generator: torch.Generator) -> nn.PReLU:
    """A slope for each channel, above 1, below 0 and in between."""
    gate = nn.PReLU(units)
    gate.weight.data = 2 * torch.randn(units, generator=generator)
    return gate


GATES = {
    "ReLU": lambda units, _: nn.ReLU(),
    "slope 2": lambda units, _: nn.LeakyReLU(2.0),
    "slope −1/2": lambda units, _: nn.LeakyReLU(-0.5),
    "slope −1": lambda units, _: nn.LeakyReLU(-1.0),
    "slope 1": lambda units, _: nn.LeakyReLU(1.0),
    "ReLU6": lambda units, _: nn.ReLU6(),
    "Hardtanh": lambda units, _: nn.Hardtanh(),
    "crooked Hardtanh": lambda units, _: nn.Hardtanh(-0.5, 0.25),
    "narrow Hardtanh": lambda units, _: nn.Hardtanh(0.0, 2.0**-20),
    "PReLU": sloped,
}


def chain(kind: str, seed: int, whole: bool, widths=(2, 3, 3, 1)) -> list[nn.Module]:
    generator = torch.Generator().manual_seed(seed)
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(widths[:-1]):
        layers += [linear(inputs, outputs, generator, whole), GATES[kind](outputs, generator)]
    return [*layers, linear(widths[-2], widths[-1], generator, whole)]


@pytest.mark.parametrize("whole", [True, False], ids=["whole", "real"])
@pytest.mark.parametrize("kind", GATES)
def test_partition(kind, whole):
    layers = chain(kind, len(kind), whole)
    compare(linear_regions_2d(nn.Sequential(*layers)), cells(layers))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("kind", GATES)
def test_many_partitions(kind, seed):
    layers = chain(kind, 100 + seed, seed % 2 == 0, (2, 4, 4, 1) if seed % 3 else (2, 3, 3, 2, 2))
    compare(linear_regions_2d(nn.Sequential(*layers)), cells(layers))


class Pooled(nn.Module):
    """Maxima over pairs of units, then another layer."""

    def __init__(self, first, last):
        super().__init__()
        self.first, self.last, self.pool = first, last, nn.MaxPool1d(2)

    def forward(self, x):
        return self.last(self.pool(self.first(x).unsqueeze(1)).squeeze(1))


@pytest.mark.parametrize("seed", range(4))
def test_max_pooling(seed):
    generator = torch.Generator().manual_seed(seed)
    first, last = linear(2, 6, generator, seed % 2 == 0), linear(3, 1, generator, True)
    if seed == 2:
        first.weight.data[1], first.bias.data[1] = first.weight.data[0], first.bias.data[0]  # a tie everywhere
    expected = cells([first, nn.MaxPool1d(2), last])
    partition = linear_regions_2d(Pooled(first, last), Plane.of_inputs())
    if abs(float(partition.areas.sum()) - 4) > 1e-9:
        raise SilentlyWrongError("areas do not add up")
    points = torch.tensor([[float(part) for part in cell.centre] for cell in expected])
    values = torch.tensor([[float(sum(a * b for a, b in zip(line, (1, *cell.centre), strict=True)))
                            for line in cell.values] for cell in expected])  # fmt: skip
    if not torch.allclose(partition.evaluate(points).double(), values, atol=1e-9):
        raise SilentlyWrongError("other values")
    if len(partition) != len(expected):
        raise SilentlyWrongError(f"{len(partition)} regions instead of {len(expected)}")


def _with(layers: list[nn.Module], change) -> list[nn.Module]:
    with torch.no_grad():
        change(layers)
    return layers


def _duplicate(layers):
    layers[0].weight[1], layers[0].bias[1] = layers[0].weight[0], layers[0].bias[0]


def _opposite(layers):
    layers[0].weight[1], layers[0].bias[1] = -layers[0].weight[0], -layers[0].bias[0]


def _multiple(layers):
    layers[0].weight[1], layers[0].bias[1] = 4 * layers[0].weight[0], 4 * layers[0].bias[0]


def _parallel(distance):
    def change(layers):
        layers[0].weight[1], layers[0].bias[1] = layers[0].weight[0], layers[0].bias[0] + distance

    return change


def _dead(layers):
    layers[0].weight[1], layers[0].bias[1] = 0.0, -1.0


def _zero(layers):
    layers[0].weight[1], layers[0].bias[1] = 0.0, 0.0


def _huge(layers):
    layers[0].weight.mul_(2.0**47), layers[0].bias.mul_(2.0**47), layers[2].weight.mul_(2.0**-47)


def _one_huge(layers):
    layers[0].weight[1] *= 2.0**47
    layers[0].bias[1] *= 2.0**47


def _tiny(layers):
    layers[0].weight.mul_(2.0**-47), layers[0].bias.mul_(2.0**-47), layers[2].weight.mul_(2.0**47)


def _through_the_corners(layers):
    layers[0].weight[0], layers[0].bias[0] = torch.tensor([1.0, 1.0]), 0.0
    layers[0].weight[1], layers[0].bias[1] = torch.tensor([1.0, -1.0]), 0.0


def _along_the_sides(layers):
    layers[0].weight[0], layers[0].bias[0] = torch.tensor([1.0, 0.0]), 1.0
    layers[0].weight[1], layers[0].bias[1] = torch.tensor([0.0, 1.0]), -1.0


def _through_one_point(layers):
    layers[0].bias.zero_()
    layers[2].bias.zero_()


DEGENERATE = {
    "duplicated units": _duplicate,
    "opposite units": _opposite,
    "multiples of a unit": _multiple,
    "parallel lines 1e-3 apart": _parallel(2.0**-10),
    "parallel lines 1e-6 apart": _parallel(2.0**-20),
    "parallel lines 1e-9 apart": _parallel(2.0**-30),
    "a dead unit": _dead,
    "a unit of zeros": _zero,
    "units of scale 1e14": _huge,
    "one unit of scale 1e14": _one_huge,
    "units of scale 1e-14": _tiny,
    "lines through the corners": _through_the_corners,
    "lines along the sides": _along_the_sides,
    "lines through one point": _through_one_point,
}


@pytest.mark.parametrize("kind", ["ReLU", "slope −1/2", "Hardtanh"])
@pytest.mark.parametrize("name", DEGENERATE)
def test_degenerate_lines(name, kind):
    layers = _with(chain(kind, 3, name == "lines through one point"), DEGENERATE[name])
    compare(linear_regions_2d(nn.Sequential(*layers)), cells(layers))


@pytest.mark.parametrize("kind", ["ReLU", "PReLU", "ReLU6"])
def test_network_in_single_precision(kind):
    """Its weights are the numbers that float32 holds, and the regions are exact for these."""
    layers = [layer.float() for layer in chain(kind, 5, False)]
    compare(linear_regions_2d(nn.Sequential(*layers)), cells(layers), 1e-6)


DOMAINS = {
    "a triangle": ((-1, -1), (1, 0), (0, 1)),
    "a hexagon": ((2, 0), (1, 1), (-1, 1), (-2, 0), (-1, -1), (1, -1)),
    "a thin triangle": ((-1, 0), (1, 0), (0, Fraction(1, 2**20))),
    "a far square": ((2**20, 2**20), (2**20 + 1, 2**20), (2**20 + 1, 2**20 + 1), (2**20, 2**20 + 1)),
    "a large square": ((-(2**30), -(2**30)), (2**30, -(2**30)), (2**30, 2**30), (-(2**30), 2**30)),
    "a small square": tuple((Fraction(s, 2**30), Fraction(t, 2**30)) for s, t in SQUARE),
}


@pytest.mark.parametrize("name", DOMAINS)
def test_domains(name):
    layers = chain("ReLU", 7, True)
    bounds = torch.tensor([[float(part) for part in corner] for corner in DOMAINS[name]])
    compare(linear_regions_2d(nn.Sequential(*layers), None, bounds), cells(layers, DOMAINS[name]))


def _plane(origin: Tensor, first: Tensor, second: Tensor):
    rows = zip(*map(fractions, (origin, first, second)), strict=True)
    return Plane(origin, first, second), [tuple(row) for row in rows]


@pytest.mark.parametrize("seed", range(3))
def test_planes_of_a_larger_space(seed):
    generator = torch.Generator().manual_seed(seed)
    origin, first, second = (torch.randn(5, generator=generator) for _ in range(3))
    if seed == 1:  # nearly parallel directions
        second = first + 2.0**-16 * second
    plane, exact = _plane(origin, first, second)
    layers = chain("ReLU", seed, False, (5, 4, 3, 1))
    compare(linear_regions_2d(nn.Sequential(*layers), plane), cells(layers, SQUARE, exact), 1e-7)


@pytest.mark.parametrize(
    "points",
    [
        torch.ones(3, 4),
        torch.stack([torch.zeros(4), torch.ones(4), 2 * torch.ones(4)]),
        torch.stack([torch.zeros(4), torch.ones(4), torch.ones(4)]),
        torch.zeros(2, 4),
        torch.full((3, 4), torch.nan),
    ],
    ids=["equal", "on a line", "two equal", "two points", "NaN"],
)
def test_planes_that_are_none(points):
    layers = chain("ReLU", 0, False, (4, 3, 3, 1))
    refusal(lambda: linear_regions_2d(nn.Sequential(*layers), points))


@pytest.mark.parametrize(
    "bounds", [((1, -1), (-1, 1)), ((0, 0), (-1, 1)), ((0, torch.inf), (0, 1)), ((0, 1),), "all"], ids=str
)
def test_bounds_that_are_none(bounds):
    refusal(lambda: linear_regions_2d(nn.Sequential(*chain("ReLU", 0, False)), None, bounds))


@pytest.mark.parametrize("level", [0.0, 0.25, -0.5])
@pytest.mark.parametrize("kind", ["ReLU", "slope −1/2", "Hardtanh", "PReLU"])
def test_level_sets(kind, level):
    layers = chain(kind, 11, False)
    partition = linear_regions_2d(nn.Sequential(*layers))
    found, expected = partition.level_set(level), level_length(cells(layers), level)
    if abs(found.length - expected) > 1e-9 * (1 + expected):
        raise SilentlyWrongError(f"length {found.length} instead of {expected}")
    if len(found) and float((partition.evaluate(found.pieces.flatten(0, 1)) - level).abs().max()) > 1e-9:
        raise SilentlyWrongError("an end of a piece is not on the level")


@pytest.mark.parametrize("seed", range(3))
def test_components_of_paths(seed):
    """Every path through two layers of gates: the number of components, and their area."""
    layers = chain("ReLU", 20 + seed, seed == 0)
    partition, expected = linear_regions_2d(nn.Sequential(*layers)), cells(layers)
    for first in range(3):
        for second in range(3):
            chosen = [bool(cell.states[0][first] and cell.states[1][second]) for cell in expected]
            ours = path_components(partition, (first, second))
            area = float(sum((cell.area for cell, wanted in zip(expected, chosen, strict=True) if wanted), Fraction(0)))
            if ours.count != components(expected, chosen) or abs(float(ours.areas.sum()) - area) > 1e-9:
                raise SilentlyWrongError(f"path {first, second}: {ours.count} components, area {ours.areas.sum()}")


@pytest.mark.parametrize("axis", range(3))
@pytest.mark.parametrize("kind", ["ReLU", "Hardtanh"])
def test_space_of_a_network_that_ignores_one_input(kind, axis):
    """A plane's regions, each as a prism: as many, with twice the area as their volume."""
    layers = chain(kind, 30 + axis, axis == 0)
    expected = cells(layers)
    solid = nn.Linear(3, 3)
    with torch.no_grad():
        solid.weight.zero_()
        solid.weight[:, [place for place in range(3) if place != axis]] = layers[0].weight
        solid.bias.copy_(layers[0].bias)
    partition = linear_regions_3d(nn.Sequential(solid, *layers[1:]))
    areas = torch.tensor(sorted(float(cell.area) for cell in expected))
    volumes = partition.volumes.sort().values
    if len(volumes) != len(areas) or not torch.allclose(volumes.double(), 2 * areas, atol=1e-9):
        raise SilentlyWrongError(f"{len(volumes)} solids instead of {len(areas)}, or other volumes")
