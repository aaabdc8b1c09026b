"""Numbers of active paths against paths that are listed one by one."""

from itertools import pairwise

import pytest
import torch
from torch import nn

import gatelab as gl
from gatelab.errors import PathCountOverflowError, UnsupportedModelError
from gatelab.models import DeepGatedNetwork, DeepLinearlyGatedNetwork, mlp
from gatelab.regions import count_active_paths, linear_regions_2d, paths_per_region, region_counts
from gatelab.regions.census import active_path_counts
from tests.references import regions as reference
from tests.regions.test_halfspaces import Residual, with_biases
from tests.regions.test_partition import BOUNDS


class Skipping(nn.Module):
    """A dense network whose second layer can be passed by."""

    def __init__(self, widths):
        super().__init__()
        self.a, self.b, self.c = (nn.Linear(*pair) for pair in pairwise(widths))

    def forward(self, x):
        h = torch.relu(self.a(x))
        return self.c(h - torch.relu(self.b(h)))


class Around(Skipping):
    """The input passes by the first layer; gates and weights in other places."""

    def forward(self, x):
        x = torch.relu(x)
        return self.c(torch.cat([x / 2, torch.relu(self.a(x) + 3.0)], 1))


class Images(nn.Module):
    """Two layers of images, written with functions or with modules."""

    def __init__(self, kernel, padding, pool, end):
        super().__init__()
        self.a, self.b = nn.Conv2d(2, 3, 3, padding=1), nn.Conv2d(3, 2, kernel, padding=padding)
        self.norm, self.pool, self.end = nn.BatchNorm2d(3), nn.AvgPool2d(pool), end
        self.head = nn.LazyLinear(2)

    def forward(self, x):
        x = self.pool(torch.relu(self.norm(self.a(x))))
        return self.head(self.end(torch.relu(self.b(x))))


@pytest.mark.parametrize(
    "model",
    [
        mlp([3, 4, 5, 3, 1]),
        mlp([3, 4, 5, 3, 2], bias=True),
        nn.Sequential(
            nn.Linear(3, 5), nn.BatchNorm1d(5), nn.LeakyReLU(0.3), nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 2)
        ),
        nn.Sequential(nn.Linear(3, 9), nn.ReLU(), nn.Linear(9, 8), nn.ReLU()),
        DeepGatedNetwork([3, 6, 5, 2], bias=True),
        DeepLinearlyGatedNetwork([3, 6, 5, 2]),
        DeepLinearlyGatedNetwork([3, 6, 5, 2], piecewise_constant=True),
        gl.to_dlgn(mlp([3, 6, 5, 2], bias=True)),
    ],
)
def test_counts_of_a_dense_chain_are_products_of_open_units(model):
    model, x = model.eval().double(), torch.randn(200, 3)
    for parameter in model.parameters():  # not as collected: other test files drew random numbers before
        nn.init.normal_(parameter)
    expected = active_path_counts(gl.capture_gates(model, x))
    assert len(set(expected)) > 3
    assert count_active_paths(model, x).tolist() == expected


def test_counts_where_signals_pass_by_a_layer():
    model, x = with_biases(Skipping([3, 4, 4, 2])), torch.randn(20, 3)
    first, second = (gl.capture_gates(model, x)[name].sum(1) for name in gl.capture_gates(model, x))
    assert count_active_paths(model, x).tolist() == (first * (1 + second)).tolist()
    model = with_biases(Around([3, 4, 4, 2]))
    model.c = nn.Linear(7, 2)
    first, second = (gl.capture_gates(model, x)[name].sum(1) for name in gl.capture_gates(model, x))
    assert count_active_paths(model, x).tolist() == (first + first * second).tolist()


@pytest.mark.parametrize("end", [lambda x: x.flatten(1), lambda x: x.mean((2, 3)), nn.Flatten()])
@pytest.mark.parametrize(("kernel", "padding", "pool"), [(3, 1, 1), (2, 0, 2), (3, 2, 3)])
def test_counts_of_images_are_those_of_listed_paths(kernel, padding, pool, end):
    model, x = Images(kernel, padding, pool, end).eval(), torch.randn(4, 2, 6, 6)
    model(x)
    nn.init.normal_(model.b.weight)  # or no gate might be open
    first, second = (gl.capture_gates(model, x)[name] for name in gl.capture_gates(model, x))
    expected = [reference.open_image_paths(a, b, kernel, padding, pool) for a, b in zip(first, second, strict=True)]
    assert len(set(expected)) > 1
    assert count_active_paths(model, x).tolist() == expected
    assert count_active_paths(model, x[:1]).tolist() == expected[:1]


def test_counts_of_paths_in_residual_networks_of_images():
    model, x = Residual(), torch.randn(4, 2, 7, 7)
    first, second = (gl.capture_gates(model, x)[name] for name in gl.capture_gates(model, x))
    through = [reference.open_image_paths(a, b, 3, 1, 1) for a, b in zip(first, second, strict=True)]
    expected = torch.tensor(through) + (first & second).flatten(1).sum(1)
    assert count_active_paths(model, x).tolist() == expected.tolist()


class Product(Skipping):
    def forward(self, x):
        return self.c(torch.relu(self.a(x)) @ torch.eye(4))


class Unequal(Skipping):
    def forward(self, x):
        return torch.cat([self.c(torch.relu(self.a(x))), self.a(x)], 1)


class ByName(Skipping):
    def forward(self, x):
        return self.c(torch.add(torch.relu(self.a(x)), other=self.a(x)))


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (Product([3, 4, 4, 2]).double(), "matmul in the model's forward.*no rule"),
        (Unequal([3, 4, 4, 2]), "different numbers of paths"),
        (nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Softmax(1)), "Softmax"),
    ],
)
def test_paths_that_cannot_be_counted(model, message):
    with pytest.raises(UnsupportedModelError, match=message):
        count_active_paths(model, torch.randn(5, 3))


def test_a_sum_by_name_is_counted_as_one_by_place():
    class ByPlace(ByName):
        def forward(self, x):
            return self.c(torch.relu(self.a(x)) + self.a(x))

    model, same, x = ByName([3, 4, 4, 2]), ByPlace([3, 4, 4, 2]), torch.randn(5, 3)
    same.load_state_dict(model.state_dict())
    counts = count_active_paths(model, x)
    assert torch.equal(counts, count_active_paths(same, x))
    assert torch.equal(counts, gl.capture_gates(model, x)["relu"].sum(1) + 4.0)


class Copying(Skipping):
    """Every stage makes 256 copies of each path."""

    def __init__(self, stages):
        super().__init__([1, 1, 1, 1])
        self.stages, self.rest = stages, nn.Identity()  # a module ends the tracer's search for shapes

    def forward(self, x):
        for _ in range(self.stages):
            x = self.rest(torch.cat([x] * 256, 1).mean(1, keepdim=True))
        return torch.relu(x)


def test_counts_beyond_float64_are_refused():
    assert count_active_paths(Copying(127), torch.ones(1, 1)).tolist() == [2.0**1016]
    with pytest.raises(PathCountOverflowError, match="float64"):
        count_active_paths(Copying(128), torch.ones(1, 1))


def test_the_model_is_not_changed_by_counting():
    model = mlp([2, 3, 1], bias=True)
    before = [parameter.clone() for parameter in model.parameters()]
    count_active_paths(model, torch.randn(5, 2))
    assert all(map(torch.equal, before, model.parameters()))


def test_distribution_where_signals_pass_by_a_layer():
    model = with_biases(Skipping([2, 5, 5, 1]))
    partition = linear_regions_2d(model, None, BOUNDS)
    distribution = paths_per_region(partition)
    counts = count_active_paths(model, partition.centres)
    assert sorted(set(counts.tolist())) == list(distribution.counts)
    assert distribution.mean == pytest.approx(float((counts * partition.areas).sum() / partition.areas.sum()))


def test_regions_of_paths_that_pass_by_a_layer_are_not_counted():
    with pytest.raises(UnsupportedModelError, match="joins several signals"):
        region_counts(gl.to_dlgn(Skipping([2, 3, 3, 1])))
