"""Regions, half-spaces and walks against plain sampling of the network's own signs."""

import pytest
import torch
from torch import Tensor, nn

import gatelab as gl
from gatelab.regions import (
    Plane,
    activation_region,
    active_region,
    half_spaces,
    linear_regions_2d,
    linear_regions_3d,
    region_walk,
    regions_between,
)
from tests.attacks.outcomes import SilentlyWrongError, refusal

pytestmark = pytest.mark.attack("regions")


def signs(model: nn.Sequential, x: Tensor) -> Tensor:
    """Which pre-activations of a chain are positive, side by side, straight from its layers."""
    found, h = [], x
    with torch.no_grad():
        for layer in model:
            if isinstance(layer, nn.ReLU | nn.LeakyReLU | nn.PReLU):
                found.append((h > 0).flatten(1))
            h = layer(h)
    return torch.cat(found, 1)


def net(inputs: int = 3, seed: int = 0, gate: type[nn.Module] = nn.ReLU) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(inputs, 5), gate(), nn.Linear(5, 4), gate(), nn.Linear(4, 2))


def image_net(seed: int) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Conv2d(1, 2, 2), nn.ReLU(), nn.Flatten(), nn.Linear(8, 3), nn.ReLU(), nn.Linear(3, 1))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("gate", [nn.ReLU, nn.PReLU, lambda: nn.LeakyReLU(3.0)], ids=["ReLU", "PReLU", "slope 3"])
def test_region_of_a_point_holds_its_signs(gate, seed):
    model = net(3, seed, gate)
    x, near = torch.randn(1, 3), torch.randn(400, 3)
    region = activation_region(model, x)
    same = (signs(model, near) == signs(model, x)).all(1)
    if not torch.equal(region.polyhedron.contains(near), same):
        raise SilentlyWrongError("other points than those with the same signs")
    if not torch.allclose(region.map(near[same]), model(near[same]).detach()):
        raise SilentlyWrongError("another map")


@pytest.mark.parametrize("seed", range(3))
def test_images(seed):
    model = image_net(seed)
    corners = torch.randn(3, 1, 3, 3)
    plane = Plane.through(*corners)
    partition = linear_regions_2d(model, plane, ((-1, 2), (-1, 2)))
    places = 3 * torch.rand(500, 2) - 1
    points = plane.at(places)
    where = partition.locate(places)
    ours = torch.cat([partition.gates[name].flatten(1)[where] for name in partition.gates.layers], 1)
    if not torch.equal(ours, signs(model, points)):
        raise SilentlyWrongError("other gates")
    if len(signs(model, points).unique(dim=0)) > len(partition):
        raise SilentlyWrongError("fewer regions than patterns that were met")
    if not torch.allclose(partition.evaluate(places), model(points).detach()):
        raise SilentlyWrongError("other values")


@pytest.mark.parametrize("seed", range(2))
def test_space(seed):
    model, points = net(3, seed), 2 * torch.rand(1000, 3) - 1
    partition = linear_regions_3d(model)
    where = partition.locate(points)
    states = torch.cat([partition.states[name].flatten(1).bool()[where] for name in partition.states], 1)
    if bool((where < 0).any()) or not torch.equal(states, signs(model, points)):
        raise SilentlyWrongError("other regions")
    if abs(float(partition.volumes.sum()) - 8) > 1e-6:
        raise SilentlyWrongError("volumes do not add up")
    if not torch.equal(
        signs(model, partition.centres), torch.cat([s.flatten(1).bool() for s in partition.states.values()], 1)
    ):
        raise SilentlyWrongError("a centre lies outside its region")


@pytest.mark.parametrize("shallow", [False, True])
def test_half_spaces_and_paths_of_a_dlgn(shallow):
    model = gl.to_dlgn(net(3, 1), shallow=shallow, generator=torch.Generator().manual_seed(0))
    x = torch.randn(500, 3)
    gates = gl.capture_gates(model, x).hard()
    layers = half_spaces(model)
    for name, layer in layers.items():
        if not torch.equal(x @ layer.normals().T + layer.offsets > 0, gates[name]):
            raise SilentlyWrongError(f"half-spaces of {name}")
    first, second = (gates[name] for name in layers)
    for i in (0, 3):
        for j in range(4):
            if not torch.equal(active_region(model, (i, j)).contains(x), first[:, i] & second[:, j]):
                raise SilentlyWrongError(f"the region of path {i, j}")


@pytest.mark.parametrize(
    "path", [(9, 0), (0,), (0, 0, 0), (-9, 0), ("a", "b"), None, {"nothing": 0}, (0.5, 0), ()], ids=str
)
def test_paths_that_are_not_there(path):
    model = gl.to_dlgn(net(3, 1), generator=torch.Generator().manual_seed(0))
    refusal(lambda: active_region(model, path))


@pytest.mark.parametrize("seed", range(2))
def test_walks_cross_one_facet_at_a_time(seed):
    model = net(4, seed)
    walk = region_walk(model, torch.zeros(4), 12, ((-2, 2),) * 4, generator=torch.Generator().manual_seed(seed))
    if len(walk.visits) != 13:
        raise SilentlyWrongError(f"{len(walk.visits)} stops")


@pytest.mark.parametrize(
    ("x", "steps", "bounds"),
    [
        (torch.zeros(3), -1, ((-1, 1),) * 3),
        (torch.zeros(3), 1.5, ((-1, 1),) * 3),
        (torch.zeros(2), 3, ((-1, 1),) * 3),
        (torch.zeros(3), 3, ((-1, 1),) * 2),
        (torch.full((3,), 5.0), 3, ((-1, 1),) * 3),
        (torch.full((3,), torch.nan), 3, ((-1, 1),) * 3),
        (torch.zeros(3), 3, ((1, -1),) * 3),
    ],
    ids=["negative", "fraction", "other input", "other box", "outside", "NaN", "crossed"],
)
def test_walks_that_cannot_be(x, steps, bounds):
    refusal(lambda: region_walk(net(3), x, steps, bounds, generator=torch.Generator().manual_seed(0)))


@pytest.mark.parametrize("seed", range(3))
def test_journey_meets_every_pattern_on_the_way(seed):
    model = net(3, seed)
    ends = 3 * torch.randn(2, 3)
    journey = regions_between(model, ends)
    way = ends[0] + torch.linspace(0, 1, 4001)[:, None] * (ends[1] - ends[0])
    met = signs(model, way)
    changes = int((met[1:] != met[:-1]).any(1).sum()) + 1
    if journey.regions < changes:
        raise SilentlyWrongError(f"{journey.regions} regions, {changes} were met")
    between = (model(way)[1:] - model(way)[:-1]).abs().sum(0).detach()
    # Samples miss the kinks between them, and so see a little less than there is.
    if not bool(((between <= journey.variation + 1e-9) & (journey.variation <= 1.01 * between)).all()):
        raise SilentlyWrongError(f"variation {journey.variation} instead of {between}")


def test_a_matrix_that_is_too_large_for_exact_signs_is_told(monkeypatch):
    """0.1 + 0.2 − 0.3 is 2.8e-17 in float64: its sign is lost in rounding, and only exact arithmetic has it."""
    monkeypatch.setattr("gatelab.regions.exact.MOST_ENTRIES", 1)
    model = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1, bias=False), nn.ReLU(), nn.Linear(1, 1))
    with torch.no_grad():
        model[0].weight.copy_(torch.tensor([[0.7, -0.3]]).expand(3, 2))
        model[0].bias.fill_(0.1)
        model[2].weight.copy_(torch.tensor([[0.1, 0.2, -0.3]]))
    with pytest.warns(RuntimeWarning, match="too large to decide them exactly"):
        linear_regions_2d(model)


def test_bounds_that_cross_are_refused():
    class Crossed(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.last = nn.Linear(2, 3), nn.Linear(3, 1)

        def forward(self, x):
            return self.last(self.first(x).clamp(1.0, -1.0))

    refusal(lambda: linear_regions_2d(Crossed()))
