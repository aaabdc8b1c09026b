"""Networks that are cut into regions although they are unusual, and those that cannot be."""

import pytest
import torch
from torch import nn

import gatelab as gl
from gatelab.errors import InputError, UnsupportedModelError
from gatelab.models import mlp
from gatelab.regions import activation_region, exact, linear_regions_1d, linear_regions_2d
from tests.regions.test_halfspaces import with_biases
from tests.regions.test_partition import BOUNDS, uniform


class Loose(nn.Module):
    """A weight that belongs to no layer."""

    def __init__(self):
        super().__init__()
        self.first, self.head = nn.Parameter(torch.randn(4, 2)), nn.Linear(4, 1)

    def forward(self, x):
        return self.head(torch.relu(nn.functional.linear(x, self.first)))


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda: mlp([2, 4, 4, 1], bias=True), "2.weight"),
        (
            lambda: nn.Sequential(nn.Linear(2, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 1)).eval(),
            "1.running_mean",
        ),
        (Loose, "first"),
    ],
)
def test_networks_without_finite_weights_are_refused(make, name, value):
    model = make()
    model.state_dict()[name].view(-1)[1] = value
    for look in (
        lambda: linear_regions_2d(model),
        lambda: activation_region(model, torch.zeros(2)),
        lambda: linear_regions_1d(model, (0, 1), origin=torch.zeros(2), direction=torch.ones(2)),
        lambda: gl.half_spaces(gl.to_dlgn(model)),
    ):
        with pytest.raises(InputError, match=rf"{name}' holds NaN or infinite values"):
            look()


def test_weights_that_the_output_does_not_use_may_be_anything():
    model = mlp([2, 4, 1])
    model.register_buffer("least_loss_so_far", torch.tensor(float("inf")))
    assert len(linear_regions_2d(model)) > 1


class OneNumber(nn.Module):
    """Returns a number for each example, (n,)."""

    def __init__(self, last=lambda y: y[:, 0]):
        super().__init__()
        self.inner, self.last = mlp([2, 5, 4, 1], bias=True), last

    def forward(self, x):
        return self.last(self.inner(x))


class GateWithoutUnits(OneNumber):
    def forward(self, x):
        return torch.relu(self.inner(x)[:, 0])


def test_gates_without_an_axis_of_units_are_refused():
    for look in (
        lambda: linear_regions_2d(GateWithoutUnits()),
        lambda: activation_region(GateWithoutUnits(), torch.zeros(2)),
        lambda: linear_regions_1d(GateWithoutUnits(), (0, 1), origin=torch.zeros(2), direction=torch.ones(2)),
    ):
        with pytest.raises(UnsupportedModelError, match=r"gate 'relu' has shape \(\d+,\) for \d+ examples"):
            look()


@pytest.mark.parametrize("last", [lambda y: y[:, 0], lambda y: y.squeeze(), lambda y: y.flatten()])
def test_a_number_for_each_example_is_one_output(last):
    model = with_biases(OneNumber(last))
    partition = linear_regions_2d(model, None, BOUNDS)
    points = uniform(200)
    torch.testing.assert_close(partition.evaluate(points)[:, 0], model(points).detach(), rtol=1e-10, atol=1e-12)
    region = activation_region(model, points[0])
    assert region.weight.shape == (1, 2)
    torch.testing.assert_close(region.map(points[:1]), model.inner(points[:1]).detach(), rtol=1e-10, atol=1e-12)
    line = linear_regions_1d(model, (-1, 1), origin=points[0], direction=torch.ones(2))
    assert line.maps.shape == (len(line), 1, 2)


def test_without_exact_signs_the_gates_are_those_of_float64(monkeypatch):
    """AlexNet and ResNet-18 had closed gates where q lay within the bound of its rounding error."""
    monkeypatch.setattr(exact, "MOST_ENTRIES", 0)
    generator = torch.Generator().manual_seed(2)
    layers = [nn.Linear(2 if place == 0 else 24, 24) for place in range(25)]
    for layer in layers:
        nn.init.kaiming_normal_(layer.weight, generator=generator)
    net = nn.Sequential(*(part for layer in layers for part in (layer, nn.ReLU())), nn.Linear(24, 3))
    origin, direction = torch.randn(2, 2, generator=generator)
    with pytest.warns(RuntimeWarning, match="they are those of float64") as warned:
        pieces = gl.regions.linear_regions_1d(net, (0.0, 1.0), origin=origin, direction=direction)
    assert len(warned) == 1  # not one for each of the layers
    middle = pieces.ends.mean(1)
    predicted = pieces.maps[..., 0] + pieces.maps[..., 1] * middle[:, None]
    torch.testing.assert_close(predicted, net(origin + middle[:, None] * direction).detach(), rtol=1e-9, atol=1e-9)
