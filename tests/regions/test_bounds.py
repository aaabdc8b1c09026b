"""Gates with two bounds whose q equals a bound all over a region: closed there, in every kind of partition."""

import pytest
import torch
from torch import nn

import gatelab as gl
from gatelab.regions import (
    activation_region,
    linear_regions_2d,
    linear_regions_3d,
    region_walk,
    regions_between,
)


def clipped(inputs: int, bound: float, slope: float, act: nn.Module) -> nn.Sequential:
    """The q of the second gate is bound + slope · max(x₀, 0): equal to the bound on half of the inputs."""
    model = nn.Sequential(nn.Linear(inputs, 1), nn.ReLU(), nn.Linear(1, 1), act, nn.Linear(1, 1))
    values = torch.eye(inputs)[:1], torch.zeros(1), torch.tensor([[slope]]), torch.tensor([bound])
    for parameter, value in zip(model.parameters(), values, strict=False):
        parameter.data.copy_(value)
    return model


CASES = [
    pytest.param(bound, slope, act, id=f"{type(act).__name__} at {bound}, slope {slope}")
    for act, bounds in ((nn.Hardtanh(), (-1.0, 1.0)), (nn.ReLU6(), (0.0, 6.0)), (nn.Hardtanh(-0.3, 0.7), (-0.3, 0.7)))
    for bound in bounds
    for slope in (0.5, -0.5)
]


@pytest.mark.parametrize(("bound", "slope", "act"), CASES)
class TestQAtABound:
    def test_in_a_plane(self, bound, slope, act):
        model = clipped(2, bound, slope, act)
        partition = linear_regions_2d(model)
        captured = gl.capture_gates(model, partition.centres)
        assert len(partition) == 2
        for name in captured:
            assert torch.equal(partition.gates[name], captured[name])
        regions = [activation_region(model, centre) for centre in partition.centres]
        for name, states in partition.states.items():
            assert torch.equal(torch.cat([region.states[name] for region in regions]), states)

    def test_in_space(self, bound, slope, act):
        partition = linear_regions_3d(clipped(3, bound, slope, act))
        points = torch.rand(200, 3, generator=torch.Generator().manual_seed(0)) * 2 - 1
        regions = partition.locate(points)
        assert torch.equal(regions, regions[points[:, 0].argmax()] ^ (points[:, 0] <= 0).long())
        assert partition.neighbours.tolist() == [[0, 1]]

    def test_on_the_way_between_two_inputs(self, bound, slope, act):
        model, ends = clipped(2, bound, slope, act), torch.tensor([[-1.0, 0], [1.0, 0]])
        captured = gl.capture_gates(model, ends)
        journey = regions_between(model, ends)
        assert journey.flips == captured[[0]].flips(captured[[1]])
        for name in captured:
            assert torch.equal(journey.gates[name], captured[name])

    def test_on_a_walk(self, bound, slope, act):
        model, box = clipped(3, bound, slope, act), ((-1, 1),) * 3
        walk = region_walk(model, torch.tensor([-0.5, 0.1, 0.1]), 4, box, generator=torch.Generator().manual_seed(0))
        assert walk.visits.tolist() == [0, 1, 0, 1, 0]
        first, second = (walk.regions[number].states for number in (0, 1))
        changed = tuple((name, 0) for name in first if not torch.equal(first[name], second[name]))
        assert walk.crossed == (changed,) * 4


@pytest.mark.usefixtures("single_precision")  # torch.where of two numbers has torch's default type
@pytest.mark.parametrize("act", [nn.Hardtanh(-0.3, 0.7), nn.Hardtanh(-0.25, 0.75)], ids=["rounded", "exact"])
def test_bounds_that_float32_cannot_represent(act):
    """float32(0.7) < 0.7: a gate whose q is the bound of the one before it would be open there."""
    model = nn.Sequential(nn.Linear(2, 3), act, nn.Linear(3, 3, bias=False), act, nn.Linear(3, 1)).double()
    generator = torch.Generator().manual_seed(0)
    for parameter in model.parameters():
        parameter.data.copy_(3 * torch.randn(parameter.shape, generator=generator))
    model[2].weight.data.copy_(torch.eye(3))
    partition = linear_regions_2d(model)
    points = torch.rand(500, 2, dtype=torch.float64, generator=generator) * 2 - 1
    regions = partition.locate(points)
    captured = gl.capture_gates(model, points)
    assert all(torch.equal(partition.gates[[int(r) for r in regions]][name], captured[name]) for name in captured)
    torch.testing.assert_close(partition.evaluate(points), model(points).detach(), rtol=0, atol=1e-13)
    region = activation_region(model, points[0])
    torch.testing.assert_close(region.map(points[:1]), model(points[:1]).detach(), rtol=0, atol=1e-13)


@pytest.mark.usefixtures("single_precision")
def test_bounds_beyond_float32():
    model = nn.Sequential(nn.Linear(1, 1), nn.Hardtanh(-1e39, 1e39), nn.Linear(1, 1)).double()
    for parameter, value in zip(model.parameters(), (1e39, 0.0, 1e-39, 0.0), strict=True):
        parameter.data.fill_(value)
    journey = regions_between(model, torch.tensor([[-2.0], [2.0]], dtype=torch.float64))
    assert journey.variation.tolist() == pytest.approx([2.0])
