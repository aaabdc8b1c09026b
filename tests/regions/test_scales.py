"""Regions far smaller than the box, and weights so small or large that their products leave the range of float64."""

from math import log

import pytest
import torch
from torch import nn

from gatelab.regions import (
    Polyhedron,
    activation_region,
    linear_regions_1d,
    linear_regions_2d,
    linear_regions_3d,
    region_walk,
)
from gatelab.regions.volume import log_volume_estimate
from tests.regions.test_graph import seeded

SCALES = [2.0**-664, 2.0**-565, 2.0**664]  # 1e-200, 1e-170 and 1e200; powers of two round nothing


def scaled(factor: float, *widths: int) -> nn.Sequential:
    """The same function at every scale: the first layer is multiplied by the factor, the second divided by it."""
    model = seeded(*widths)
    with torch.no_grad():
        model[0].weight *= factor
        model[0].bias *= factor
        model[2].weight /= factor
    return model


@pytest.mark.parametrize("factor", SCALES)
def test_the_scale_of_the_first_layer_changes_nothing_in_the_plane(factor):
    bounds = ((-3, 3), (-3, 3))
    plain, other = (linear_regions_2d(scaled(own, 2, 6, 5, 3), None, bounds) for own in (1.0, factor))
    assert other.areas.sum().item() == pytest.approx(36, rel=1e-12)
    torch.testing.assert_close(other.corners, plain.corners, rtol=0, atol=1e-12)
    torch.testing.assert_close(other.maps, plain.maps)
    assert torch.equal(other.graph.adjacent, plain.graph.adjacent)
    torch.testing.assert_close(other.decision_boundary().pieces, plain.decision_boundary().pieces)
    torch.testing.assert_close(other.level_set(0.1).pieces, plain.level_set(0.1).pieces)


@pytest.mark.parametrize("factor", SCALES)
def test_the_scale_of_the_first_layer_changes_nothing_in_space_and_on_lines(factor):
    plain, other = (linear_regions_3d(scaled(own, 3, 4, 3, 1), ((-3, 3),) * 3) for own in (1.0, factor))
    torch.testing.assert_close(other.volumes, plain.volumes)
    assert torch.equal(other.neighbours, plain.neighbours)
    ends = [linear_regions_1d(scaled(own, 1, 8, 5, 1), (-3, 3)).ends for own in (1.0, factor)]
    torch.testing.assert_close(ends[1], ends[0])


@pytest.mark.parametrize("factor", SCALES)
def test_the_scale_of_the_first_layer_changes_no_walk(factor):
    walks = [
        region_walk(
            scaled(own, 4, 6, 5, 1), torch.zeros(4), 4, ((-1, 1),) * 4, generator=torch.Generator().manual_seed(0)
        )
        for own in (1.0, factor)
    ]
    assert walks[1].crossed == walks[0].crossed
    volumes = [
        [e.value for e in walk.log_volumes(rounds=2, generator=torch.Generator().manual_seed(0))] for walk in walks
    ]
    assert volumes[1] == pytest.approx(volumes[0], abs=1e-6)


@pytest.mark.parametrize("factor", SCALES)
def test_the_scale_of_the_outputs_does_not_move_a_boundary(factor):
    """Three outputs are equal on one line; the third is the largest nowhere."""
    model = nn.Linear(2, 3, bias=False)
    model.weight.data = factor * torch.tensor([[1.0, 0.5], [-1.0, -0.5], [0, 0]])
    boundary = linear_regions_2d(model).decision_boundary()
    assert boundary.classes.sort().values.tolist() == [[0, 1]]
    assert boundary.length == pytest.approx(5**0.5)


@pytest.mark.parametrize("factor", [1.0, 1e4, 1e6, 1e7, 1e8])
def test_points_are_found_in_regions_far_smaller_than_the_box(factor):
    model = seeded(2, 16, 16, 1)
    model[0].weight.data *= factor  # the lines meet in a square of 1 / factor around 0
    partition = linear_regions_2d(model)
    points = (torch.rand(5000, 2, generator=torch.Generator().manual_seed(0)) * 2 - 1) * min(1.0, 3 / factor)
    with torch.no_grad():
        hidden = model[0](points)
        first, second, output = hidden > 0, model[2](hidden.relu()) > 0, model(points)
    regions, states = partition.locate(points), list(partition.states.values())
    right = (states[0][regions] == first).all(1) & (states[1][regions] == second).all(1)
    assert right.all()
    torch.testing.assert_close(partition.evaluate(points), output, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("bounds", [((-1, 1), (-1, 1)), ((1000.1, 1001.3), (-7.7, -7.2)), ((0.1, 0.7), (1e-9, 3e-9))])
def test_no_point_of_the_box_falls_between_regions(bounds):
    model = seeded(2, 24, 24, 1)
    low, high = torch.tensor(bounds).T
    with torch.no_grad():
        model[0].weight /= (high - low) / 2
        model[0].bias -= model[0].weight @ ((low + high) / 2)
    partition = linear_regions_2d(model, None, bounds)
    assert len(partition) > 100
    corners = partition.corners
    beside = torch.nextafter(corners, corners.mean(0))
    box = torch.cartesian_prod(*torch.tensor(bounds).unbind())
    inside = torch.cat([corners, beside, partition.centres, box])
    assert (partition.locate(inside.clamp(low, high)) >= 0).all()
    assert torch.equal(partition.locate(partition.centres), torch.arange(len(partition)))
    outside = torch.stack([low - 1e-6 * (high - low), high + torch.tensor([0, 1e-6]) * (high - low)])
    assert partition.locate(outside).tolist() == [-1, -1]


APART = torch.tensor([1e6, 1.0, 1e-6])


def diamond(size: float) -> Polyhedron:
    """|x| / size + |y| · size ≤ 1, of area 2."""
    signs = torch.tensor([[1.0, 1], [1, -1], [-1, 1], [-1, -1]])
    return Polyhedron(signs / torch.tensor([size, 1 / size]), torch.ones(4))


@pytest.mark.parametrize("size", [1.0, 1e4, 1e5, 1e6])
def test_a_polyhedron_whose_coordinates_have_sizes_far_apart(size):
    body, generator = diamond(size), torch.Generator().manual_seed(0)
    torch.testing.assert_close(body.bounding_box(), torch.tensor([[-size, size], [-1 / size, 1 / size]]))
    assert len(body.vertices()) == 4
    assert body.irredundant().faces == 4
    for estimate, truth in (
        (body.volume_estimate(generator=generator), 2.0),
        (log_volume_estimate(body, generator=generator), log(2)),
    ):
        assert estimate.value == pytest.approx(truth, abs=4 * estimate.error)


@pytest.mark.parametrize("slope", [1e8, 1e9, 1e12])
def test_a_triangle_with_one_small_coefficient(slope):
    triangle = Polyhedron(torch.tensor([[-1.0, 0], [0, -1], [1, slope]]), torch.tensor([0.0, 0, 1]))
    torch.testing.assert_close(triangle.bounding_box(), torch.tensor([[0, 1], [0, 1 / slope]]))
    assert len(triangle.vertices()) == 3
    found = log_volume_estimate(triangle, generator=torch.Generator().manual_seed(0))
    assert found.value == pytest.approx(-log(2 * slope), abs=4 * found.error)


@pytest.mark.parametrize("seed", range(4))
def test_a_region_is_the_same_in_inputs_of_any_units(seed):
    plain, other = seeded(3, 6, 1, seed=seed), seeded(3, 6, 1, seed=seed)
    other[0].weight.data /= APART
    here = torch.zeros(3)
    expected, found = (
        activation_region(model, here).polyhedron.within(tuple((-float(s), float(s)) for s in sizes))
        for model, sizes in ((plain, torch.ones(3)), (other, APART))
    )
    boxes = expected.bounding_box(), found.bounding_box() / APART[:, None]
    torch.testing.assert_close(*boxes, rtol=1e-6, atol=1e-6)
    assert expected.vertices().shape == found.vertices().shape
    assert expected.irredundant().faces == found.irredundant().faces
    one, two = (log_volume_estimate(body, generator=torch.Generator().manual_seed(0)) for body in (expected, found))
    assert one.value == pytest.approx(two.value, abs=1e-3)


@pytest.mark.parametrize("seed", range(4))
def test_rounding_errors_among_the_normals_are_no_sizes(seed):
    """Entries of 1e-14 in place of zeros: rescaling by them would hide the others from the linear programmes."""
    generator = torch.Generator().manual_seed(seed)
    normals = torch.randn(9, 4, generator=generator) * (torch.rand(9, 4, generator=generator) < 0.5)
    normals = torch.cat([normals, torch.eye(4), -torch.eye(4)])
    offsets = torch.cat([torch.rand(9, generator=generator) + 0.1, torch.full((8,), 6.0)])
    noise = 1e-14 * torch.randn(normals.shape, generator=generator) * (normals == 0)
    clean, noisy = Polyhedron(normals, offsets), Polyhedron(normals + noise, offsets)
    torch.testing.assert_close(noisy.bounding_box(), clean.bounding_box(), rtol=1e-9, atol=1e-9)
    assert noisy.vertices().shape == clean.vertices().shape
