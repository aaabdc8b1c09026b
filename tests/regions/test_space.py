"""Regions in three dimensions, walks over regions in any dimension, volumes."""

from math import factorial, log

import pytest
import torch
from torch import nn

from gatelab.errors import InputError, TooManyPathsError
from gatelab.regions import Plane, Polyhedron, linear_regions_2d, linear_regions_3d, region_walk
from gatelab.regions.volume import log_volume_estimate
from gatelab.regions.walking import RegionWalker
from tests.regions.test_graph import seeded

BOX = ((-3.0, 3.0),) * 3


def bounded():
    torch.manual_seed(0)
    layers = nn.Linear(3, 4), nn.Hardtanh(-0.5, 0.7), nn.Linear(4, 3), nn.PReLU(init=0.2), nn.Linear(3, 2)
    return nn.Sequential(*layers).double()


def pooled():
    torch.manual_seed(0)
    layers = nn.Unflatten(1, (1, 3)), nn.Conv1d(1, 3, 2), nn.MaxPool1d(2), nn.Flatten(), nn.Linear(3, 2), nn.ReLU()
    return nn.Sequential(*layers, nn.Linear(2, 1)).double()


@pytest.mark.parametrize("make", [lambda: seeded(3, 6, 5, 2), bounded, pooled])
def test_a_box_is_cut_exactly(make):
    model = make()
    partition = linear_regions_3d(model, BOX)
    assert partition.volumes.sum().item() == pytest.approx(216, rel=1e-9)
    points = torch.rand(4000, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) * 6 - 3
    regions = partition.locate(points)
    assert (regions >= 0).all()
    values = torch.einsum("nkc,nc->nk", partition.maps[regions], torch.cat([torch.ones(4000, 1), points], 1))
    torch.testing.assert_close(values, model(points).detach(), rtol=1e-9, atol=1e-10)
    share = partition.volumes / 216
    error = (share * (1 - share) / 4000).sqrt()
    found = torch.bincount(regions, minlength=len(partition)) / 4000
    assert ((found - share).abs() / error)[share > 3e-3].max() < 5
    assert torch.equal(partition.locate(partition.centres), torch.arange(len(partition)))
    # A plane through the box meets the same regions.
    height = 0.37
    plane = Plane(torch.tensor([0, 0, height]).double(), *torch.eye(3, dtype=torch.float64)[:2])
    section = linear_regions_2d(model, plane, BOX[:2])
    ranges = [(float(v[:, 2].min()), float(v[:, 2].max())) for v in map(partition.vertices, range(len(partition)))]
    assert len(section) == sum(low < height < high for low, high in ranges)
    met = {(min(a, b), max(a, b)) for a, b in _met(partition, section, plane)}
    assert met <= set(map(tuple, partition.neighbours.tolist()))


def _met(partition, section, plane):
    """The pairs of regions of the box that are neighbours in a plane."""
    of_cell = partition.locate(plane.at(section.centres)).tolist()
    return [(of_cell[a], of_cell[b]) for a, b in section.graph.adjacent.tolist()]


def test_planes_in_general_position():
    partition = linear_regions_3d(seeded(3, 6, 1), ((-1e5, 1e5),) * 3)
    assert len(partition) == 1 + 6 + 15 + 20  # Zaslavsky
    assert len(partition.neighbours) == 6 * (1 + 5 + 10)  # each plane is cut by the five others into so many facets


def test_bad_requests():
    with pytest.raises(TooManyPathsError, match="limit of 5"):
        linear_regions_3d(seeded(3, 6, 1), BOX, limit=5)
    with pytest.raises(InputError, match="does not take examples"):
        linear_regions_3d(seeded(2, 6, 1), BOX)
    with pytest.raises(InputError, match="has no gates"):
        linear_regions_3d(nn.Linear(3, 1), BOX)
    with pytest.raises(InputError, match="region 99999 does not exist"):
        linear_regions_3d(seeded(3, 2, 1), BOX).vertices(99999)


def flooded(model, dimension: int) -> tuple[int, int]:
    """All regions of a box and all pairs of neighbours, by crossing every facet of every region."""
    x = torch.zeros(1, dimension, dtype=torch.float64)
    walker = RegionWalker(model, x, ((-3.0, 3.0),) * dimension)

    def key(region):
        return tuple(bool(bit) for state in region.states.values() for bit in state.flatten())

    waiting = [walker.region(x)]
    seen, pairs = {key(waiting[0])}, set()
    while waiting:
        here = waiting.pop()
        for facet in walker.facets(here):
            there = walker.across(here, facet)
            pairs.add(frozenset((key(here), key(there))))
            if key(there) not in seen:
                seen.add(key(there))
                waiting.append(there)
    return len(seen), len(pairs)


def test_crossing_every_facet_finds_every_region():
    plane, space = seeded(2, 4, 3, 1), seeded(3, 3, 2, 1)
    flat = linear_regions_2d(plane, None, BOX[:2])
    assert flooded(plane, 2) == (len(flat), len(flat.graph.adjacent))
    solid = linear_regions_3d(space, BOX)
    assert flooded(space, 3) == (len(solid), len(solid.neighbours))


def test_a_walk_visits_regions_by_their_number_of_neighbours():
    model, generator = seeded(2, 3, 2, 1), torch.Generator().manual_seed(0)
    partition = linear_regions_2d(model, None, BOX[:2])
    walk = region_walk(model, torch.zeros(2), 300, BOX[:2], generator=generator)
    assert len(walk.regions) == len(partition)
    assert sum(walk.crossings.values()) == 300
    centres = torch.stack([r.polyhedron.within(BOX[:2]).chebyshev_ball().centre for r in walk.regions])
    numbers = partition.locate(centres)
    visits = torch.bincount(walk.visits, minlength=len(partition)).double() / 301
    expected = partition.graph.degrees[numbers].double()
    assert (visits - expected / expected.sum()).abs().max() < 0.06
    estimates = walk.log_volumes(generator=generator)
    away = [(e.value - log(partition.areas[n])) / e.error for e, n in zip(estimates, numbers.tolist(), strict=True)]
    assert max(map(abs, away)) < 4.5
    with pytest.raises(InputError, match="inside the bounds"):
        region_walk(model, torch.full((2,), 9.0), 1, BOX[:2])


def test_a_walk_in_many_dimensions():
    model = seeded(12, 10, 10, 1)
    walk = region_walk(model, torch.zeros(12), 6, ((-1, 1),) * 12, generator=torch.Generator().manual_seed(0))
    for before, after, units in zip(walk.visits[:-1].tolist(), walk.visits[1:].tolist(), walk.crossed, strict=True):
        a, b = walk.regions[before], walk.regions[after]
        changed = {n: (a.states[n] != b.states[n]).flatten().nonzero().flatten().tolist() for n in a.states}
        assert [(name, unit) for name, own in changed.items() for unit in own] == list(units)


@pytest.mark.parametrize("dimension", [2, 6])
def test_the_volume_of_a_simplex(dimension):
    faces = torch.cat([-torch.eye(dimension), torch.ones(1, dimension)]).double()
    simplex = Polyhedron(faces, torch.cat([torch.zeros(dimension), torch.ones(1)]).double())
    estimate = log_volume_estimate(simplex, generator=torch.Generator().manual_seed(1))
    assert abs(estimate.value + log(factorial(dimension))) < 4 * estimate.error < 0.5
    with pytest.raises(InputError, match="not bounded"):
        log_volume_estimate(Polyhedron(faces[:dimension], torch.zeros(dimension).double()))


@pytest.mark.slow
def test_three_layers_of_sixteen():
    partition = linear_regions_3d(seeded(3, 16, 16, 16, 1), BOX)
    assert len(partition) > 3000
    assert partition.volumes.sum().item() == pytest.approx(216, rel=1e-9)


def test_a_walk_in_a_small_box_is_the_same_walk():
    """Without biases the network looks the same at every scale, so that the walk must, too."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(3, 6, bias=False), nn.ReLU(), nn.Linear(6, 6, bias=False), nn.ReLU(), nn.Linear(6, 1)
    )
    start, walks = torch.tensor([0.3, 0.2, -0.4], dtype=torch.float64), {}
    for size in (1.0, 2.0**-20, 2.0**-27):
        generator = torch.Generator().manual_seed(1)
        walks[size] = region_walk(model.double(), size * start, 15, ((-size, size),) * 3, generator=generator)
    volumes = {}
    for size, walk in walks.items():
        assert walk.visits.tolist() == walks[1.0].visits.tolist()
        assert all(len(units) == 1 for units in walk.crossed)
        found = walk.log_volumes(rounds=2, generator=torch.Generator().manual_seed(2))
        volumes[size] = [estimate.value - 3 * log(size) for estimate in found]
    assert volumes[2.0**-20] == pytest.approx(volumes[1.0])
    assert volumes[2.0**-27] == pytest.approx(volumes[1.0])
