import math
import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import gatelab as gl
from gatelab.errors import InputError, TooManyPathsError, UnsupportedModelError
from gatelab.gates import HardGate
from gatelab.models import DeepGatedNetwork, DeepLinearlyGatedNetwork, dln, mlp
from gatelab.paths.features import path_activity
from gatelab.regions import (
    Plane,
    RegionPlan,
    activation_region,
    cells,
    linear_regions_1d,
    linear_regions_2d,
    paths_per_region,
    region_counts,
)
from gatelab.regions.census import active_path_counts
from tests import zoo
from tests.references import regions as reference
from tests.regions.test_halfspaces import Residual, with_biases

BOUNDS = ((-2.0, 3.0), (-1.5, 2.0))


def uniform(n: int, bounds=BOUNDS) -> torch.Tensor:
    low, high = torch.tensor(bounds).T
    return low + torch.rand(n, 2) * (high - low)


def plane_in(*shape: int) -> Plane:
    return Plane(torch.randn(shape), torch.randn(shape), torch.randn(shape))


def hard(model):
    return model.set_gates(HardGate())


MODELS = {
    "relu": (lambda: mlp([2, 7, 6, 5, 3], bias=True), None),
    "relu, no bias": (lambda: mlp([2, 7, 6, 1]), None),
    "relu in five dimensions": (lambda: mlp([5, 8, 8, 2], bias=True), (5,)),
    "leaky": (zoo.leaky, (5,)),
    "functional": (zoo.Functional, (5,)),
    "residual": (zoo.Residual, (5,)),
    "dlgn": (lambda: DeepLinearlyGatedNetwork([2, 6, 5, 2], gate=HardGate()), None),
    "dlgn-pwc": (lambda: DeepLinearlyGatedNetwork([2, 6, 5, 2], gate=HardGate(), piecewise_constant=True), None),
    "dlgn-sf": (lambda: DeepLinearlyGatedNetwork([4, 6, 5, 1], gate=HardGate(), shallow=True), (4,)),
    "dgn": (lambda: DeepGatedNetwork([2, 6, 5, 2], gate=HardGate(), bias=True, padding=2), None),
    "converted dlgn": (lambda: hard(gl.to_dlgn(mlp([3, 6, 5, 2], bias=True))), (3,)),
    "converted leaky dlgn": (lambda: hard(gl.to_dlgn(zoo.leaky())), (5,)),
    "converted dgn": (lambda: gl.to_dgn(mlp([3, 6, 5, 2], bias=True), gl.Regime.FRNPF_II), (3,)),
    "convolutional": (lambda: gl.models.gconv(channels=[2, 3], dense=[4], inputs=1, outputs=2), (1, 5, 5)),
    "convolutional dlgn": (lambda: hard(gl.to_dlgn(Residual())), (2, 6, 6)),
    "relu6": (
        lambda: nn.Sequential(nn.Linear(2, 6), nn.ReLU6(), nn.Linear(6, 5), nn.Hardtanh(-0.3, 0.5), nn.Linear(5, 2)),
        None,
    ),
    "prelu": (
        lambda: nn.Sequential(nn.Linear(2, 6), nn.PReLU(6, init=-0.4), nn.Linear(6, 4), nn.ReLU(), nn.Linear(4, 1)),
        None,
    ),
    "max-pooling": (
        lambda: nn.Sequential(
            nn.Conv2d(1, 2, 2),
            nn.ReLU(),
            nn.MaxPool2d(2, 1, 1),
            nn.Conv2d(2, 2, 2),
            nn.AdaptiveMaxPool2d(1),
            nn.Flatten(),
            nn.Linear(2, 2),
        ),
        (1, 4, 4),
    ),
    "batch-norm": (lambda: nn.Sequential(nn.Linear(2, 9), nn.BatchNorm1d(9), nn.ReLU(), nn.Linear(9, 1)).eval(), None),
}


def made(name):
    make, shape = MODELS[name]
    return with_biases(make()).double(), None if shape is None else plane_in(*shape)


@pytest.mark.parametrize("name", MODELS)
def test_a_partition_is_exact(name):
    model, plane = made(name)
    partition = linear_regions_2d(model, plane, BOUNDS)
    assert partition.areas.sum().item() == pytest.approx(5 * 3.5, rel=1e-12)
    assert (partition.areas > 0).all()
    points = uniform(3000)
    x = (plane or Plane.of_inputs()).at(points)
    torch.testing.assert_close(partition.evaluate(points), model(x).detach(), rtol=1e-9, atol=1e-10)
    # Each region has the gates of its centre, and no two the same.
    centres = (plane or Plane.of_inputs()).at(partition.centres)
    pattern = gl.capture_gates(model, centres)
    assert partition.path_layers == pattern.layers
    wide = partition.areas > 1e-9
    for layer in pattern:
        assert torch.equal(partition.gates[layer][wide], pattern[layer][wide])
    bits = torch.cat([partition.gates[layer].flatten(1) for layer in partition.gates], 1)
    assert len(bits.unique(dim=0)) == len(partition)
    # Nothing that a grid sees is missing.
    seen = reference.patterns_on_grid(model, x)
    own = torch.cat([partition.gates[layer].flatten(1) for layer in pattern], 1)
    assert seen <= set(map(tuple, own.tolist()))
    assert len(partition) > 3


@settings(deadline=None, max_examples=25)
@given(
    widths=st.lists(st.integers(1, 9), min_size=1, max_size=4), seed=st.integers(0, 9999),
    scale=st.sampled_from([1e-6, 1.0, 1e6]),
)  # fmt: skip
def test_any_relu_network_at_any_scale(widths, seed, scale):
    generator = torch.Generator().manual_seed(seed)
    model = mlp([2, *widths, 2], bias=True, generator=generator)
    for layer in model[::2]:
        nn.init.normal_(layer.bias, std=scale, generator=generator)
    bounds = ((-2 * scale, 3 * scale), (-1.5 * scale, 2 * scale))
    partition = linear_regions_2d(model, None, bounds)
    assert partition.areas.sum().item() == pytest.approx(17.5 * scale**2, rel=1e-9)
    points = uniform(300, bounds)
    torch.testing.assert_close(partition.evaluate(points), model(points).detach(), rtol=1e-9, atol=1e-9 * scale)


@settings(deadline=None, max_examples=6)
@given(widths=st.lists(st.integers(1, 3), min_size=1, max_size=2), seed=st.integers(0, 999))
def test_the_cells_of_a_dlgn_are_those_of_its_lines(widths, seed):
    generator = torch.Generator().manual_seed(seed)
    model = DeepLinearlyGatedNetwork([2, *widths, 1], gate=HardGate(), generator=generator)
    for layer in model.feature:
        nn.init.normal_(layer.bias, generator=generator)
    layers = gl.half_spaces(model).values()
    normals, offsets = torch.cat([a.normals() for a in layers]), torch.cat([a.offsets for a in layers])
    counts = region_counts(model, bounds=BOUNDS)
    assert counts.patterns == reference.cells_of_an_arrangement(normals, offsets, BOUNDS) <= counts.most_patterns
    assert counts.active_paths == reference.nonempty_paths(model, BOUNDS) <= counts.paths
    with pytest.raises(TooManyPathsError, match="limit of 0"):
        region_counts(model, limit=0)


def test_numba_is_loaded_at_first_use():
    code = (
        "import sys, gatelab.regions as r; from gatelab.models import mlp; print('numba' in sys.modules); "
        "print(len(r.linear_regions_2d(mlp([2, 1, 1]))), 'numba' in sys.modules)"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert told == ["False", "2", "True"]


def test_degenerate_networks():
    one = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))
    with torch.no_grad():
        one[0].weight.zero_()  # gates that never change
        assert len(linear_regions_2d(one, None, BOUNDS)) == 1
        one[0].weight[:] = torch.tensor([[1.0, 2.0], [1.0, 2.0], [-2.0, -4.0]])  # three times the same line
        one[0].bias[:] = torch.tensor([0.5, 0.5, -1.0])
        assert len(linear_regions_2d(one, None, BOUNDS)) == 2
        one[0].bias[:] = torch.tensor([0.5, 0.5 + 1e-15, -1.0])  # but for rounding
        assert len(linear_regions_2d(one, None, BOUNDS)) == 2
        one[0].weight[:] = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])  # three lines through a point
        one[0].bias.zero_()
        assert len(linear_regions_2d(one, None, BOUNDS)) == 6
        one[0].bias[:] = torch.tensor([2.0, 0.0, 9.0])  # a line along the rectangle's side
        assert len(linear_regions_2d(one, None, BOUNDS)) == 2
    assert len(linear_regions_2d(dln([2, 3, 1]), None, BOUNDS)) == 1


def test_dead_layers_do_not_split():
    model = mlp([2, 5, 5, 1], bias=True)
    with torch.no_grad():
        model[0].weight.zero_()
        model[0].bias.fill_(-1.0)
    assert len(linear_regions_2d(model, None, BOUNDS)) == 1
    half = mlp([2, 1, 3, 1])  # dead on a half-plane, where later gates are given 0 exactly: closed
    partition = linear_regions_2d(half, None, BOUNDS)
    assert len(partition) == 2
    assert not partition.gates["3"][~partition.gates["1"][:, 0]].any()
    assert gl.capture_gates(half, partition.centres) == partition.gates


def test_blocks_make_no_difference(monkeypatch):
    model = mlp([2, 9, 8, 7, 2], bias=True)
    whole = linear_regions_2d(model, None, BOUNDS)
    monkeypatch.setattr(cells, "BLOCK_ENTRIES", 100)
    parts = linear_regions_2d(model, None, BOUNDS)
    assert torch.equal(whole.starts, parts.starts)
    torch.testing.assert_close(whole.corners, parts.corners, rtol=0, atol=1e-14)
    torch.testing.assert_close(whole.maps, parts.maps, rtol=1e-12, atol=1e-13)


def test_softly_gated_networks_are_cut_as_hard_ones():
    soft = DeepLinearlyGatedNetwork([2, 5, 4, 1])
    partition = linear_regions_2d(soft, None, BOUNDS)
    soft.gate = HardGate()
    points = uniform(200)
    torch.testing.assert_close(partition.evaluate(points), soft(points).detach())


def test_single_precision_models_are_cut_in_double_precision():
    model = mlp([2, 8, 8, 1], bias=True, dtype=torch.float32)
    partition = linear_regions_2d(model, None, BOUNDS)
    assert partition.maps.dtype == torch.float64
    points = uniform(200)
    torch.testing.assert_close(partition.evaluate(points), model.double()(points).detach(), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("bounds", [((-0.1, 0.1), (-0.3, 0.7)), ((1000.1, 1000.2), (0, 1))])
def test_bounds_are_not_rounded(bounds, single_precision):
    model = with_biases(mlp([2, 16, 16, 1], bias=True, dtype=torch.float64))
    partition = linear_regions_2d(model, None, bounds)
    low, high = torch.tensor(bounds, dtype=torch.float64).T
    torch.testing.assert_close(partition.corners.amin(0), low, rtol=1e-15, atol=0)
    torch.testing.assert_close(partition.corners.amax(0), high, rtol=1e-15, atol=0)
    assert partition.areas.sum().item() == pytest.approx((high - low).prod().item(), rel=1e-11)
    points = low + torch.rand(500, 2, dtype=torch.float64) * (high - low)
    torch.testing.assert_close(partition.evaluate(points), model(points).detach(), rtol=1e-11, atol=1e-11)


def test_the_model_is_left_alone():
    model = mlp([2, 4, 1], bias=True, dtype=torch.float32)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    linear_regions_2d(model, None, BOUNDS)
    activation_region(model, torch.randn(2))
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert all(parameter.requires_grad for parameter in model.parameters())


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: linear_regions_2d(mlp([3, 4, 1])), InputError, r"shape \(3,\); to cut them by a plane give one"),
        (lambda: linear_regions_2d(mlp([3, 4, 1]), plane_in(4)), InputError,
         r"does not take examples of shape \(4,\)"),
        (lambda: linear_regions_2d(nn.Linear(5, 1), plane_in(3)), InputError,
         r"does not take examples of shape \(3,\)"),
        (lambda: linear_regions_2d(mlp([2, 4, 1]), None, (0, 1)), InputError, "each of 2 axes"),
        (lambda: linear_regions_1d(mlp([2, 4, 1]), (0, 1), origin=torch.zeros(3), direction=torch.ones(3)), InputError,
         r"does not take examples of shape \(3,\)"),
        (lambda: linear_regions_1d(mlp([1, 4, 1]), 3), InputError, "each of 1 axes"),
        (lambda: activation_region(mlp([3, 4, 1]), torch.zeros(2)), InputError,
         r"does not take examples of shape \(2,\)"),
        (lambda: linear_regions_2d(mlp([2, 4, 1])).along((1.0,)), InputError, "unit 1.0 of layer '1' is no number"),
        (lambda: linear_regions_2d(mlp([2, 4, 1])).along("1"), InputError, "unit 1 of layer '1' is no number"),
        (lambda: linear_regions_2d(mlp([2, 4, 1])).along(torch.tensor([1.0])), InputError, "is no number"),
        (lambda: linear_regions_2d(mlp([2, 4, 1])).along(1), InputError, "path is 1; give a unit for each"),
        (lambda: linear_regions_2d(mlp([2, 4, 1]), None, ((0, 1),)), InputError, "each of 2 axes"),
        (lambda: linear_regions_2d(mlp([2, 9, 1], bias=True), limit=1), TooManyPathsError, "limit of 1"),
        (lambda: linear_regions_2d(nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Softmax(1))), UnsupportedModelError,
         "Softmax.*neither a gate nor affine"),
        (lambda: linear_regions_2d(zoo.Tokens(), plane_in(5, 3)), UnsupportedModelError, "gelu"),
        (lambda: linear_regions_2d(mlp([2, 4, 1])).polygon(99), InputError, "region 99 does not exist"),
        (lambda: linear_regions_2d(mlp([2, 4, 1])).evaluate(torch.full((1, 2), 9.0)), InputError, "outside"),
        (lambda: linear_regions_2d(mlp([2, 4, 1])).locate(torch.zeros(2)), InputError, r"\(n, 2\)"),
        (lambda: linear_regions_2d(mlp([2, 4, 1])).locate([[0.0, 0.0]]), InputError, "points must be a torch.Tensor"),
        (lambda: linear_regions_2d(mlp([2, 4, 1])).evaluate(torch.full((1, 2), math.nan)), InputError, "nan.*outside"),
        (lambda: linear_regions_2d(mlp([2, 4, 1])).along((4,)), InputError, "unit 4 does not exist"),
        (lambda: linear_regions_2d(mlp([2, 4, 1])).along((0, 0)), InputError, "passes 2 units"),
        (lambda: linear_regions_1d(mlp([2, 4, 1]), (0, 1)), InputError, "give origin= and direction="),
        (lambda: linear_regions_1d(dln([1, 4, 1]), (0, 1)), InputError, "has no gates"),
        (lambda: linear_regions_1d(mlp([2, 4, 1]), (0, 1), origin=torch.zeros(2), direction=torch.zeros(2)), InputError,
         "finite and not zero"),
        (lambda: activation_region(mlp([3, 4, 1]), torch.zeros(2, 3)), InputError, "give one example"),
        (lambda: activation_region(dln([3, 4, 1]), torch.zeros(3)), InputError, "has no gates"),
        (lambda: active_path_counts(gl.capture_gates(zoo.cnn(), torch.zeros(1, 4, 8, 8))), UnsupportedModelError,
         "count_active_paths"),
        (lambda: region_counts(mlp([2, 4, 1])), UnsupportedModelError, "to_dlgn"),
        (lambda: region_counts(gl.to_dlgn(Residual()), plane_in(2, 6, 6)), UnsupportedModelError, "dense networks"),
    ],
)  # fmt: skip
def test_bad_requests(call, error, message, unchecked):
    with pytest.raises(error, match=message):
        call()


@pytest.mark.parametrize("name", MODELS)
def test_the_activation_region_of_an_input(name):
    model, plane = made(name)
    x = (torch.randn(1, 2) if plane is None else plane.origin[None]).requires_grad_(False)
    region = activation_region(model, x)
    pattern = gl.capture_gates(model, x)
    for layer in pattern:
        assert torch.equal(region.gates[layer], pattern[layer])
    assert region.polyhedron.contains(x).all()
    ball = region.polyhedron.chebyshev_ball()
    # A point in the interior has the same gates, and the map is the network's there.
    distance = region.polyhedron.offsets - region.polyhedron.normals @ ball.centre
    radius = (distance / region.polyhedron.normals.norm(dim=1)).nan_to_num(1.0).clamp(max=1.0).min()
    direction = torch.nn.functional.normalize(torch.randn(50, x.numel()), dim=1)
    inside = (ball.centre + 0.99 * radius * direction).view(50, *x.shape[1:])
    assert region.polyhedron.contains(inside).all()
    torch.testing.assert_close(region.map(inside), model(inside).detach(), rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(region.map(x), model(x).detach(), rtol=1e-10, atol=1e-11)
    # Whether a point is inside is whether its gates are the same.
    around = x + 0.3 * torch.randn(300, *x.shape[1:])
    others = gl.capture_gates(model, around)
    layers = [layer for layer in pattern if layer in region.gates]
    same = torch.stack([(others[layer] == pattern[layer]).flatten(1).all(1) for layer in layers]).all(0)
    if set(region.gates.layers) == set(layers):
        assert torch.equal(region.polyhedron.contains(around), same)
    else:  # gates that decide over gates bound the region too
        assert (same | ~region.polyhedron.contains(around)).all()


def test_the_affine_map_is_the_gradient():
    model = with_biases(mlp([4, 8, 8, 3]))
    x = torch.randn(4)
    jacobian = torch.autograd.functional.jacobian(lambda z: model(z[None])[0], x)
    torch.testing.assert_close(activation_region(model, x).weight, jacobian)


def test_cells_and_activation_regions_are_the_same_polygons():
    model = with_biases(mlp([2, 6, 5, 1], bias=True))
    partition = linear_regions_2d(model, None, BOUNDS)
    for region in range(0, len(partition), 7):
        polyhedron = activation_region(model, partition.centres[region]).polyhedron
        corners = polyhedron.polygon(BOUNDS)
        x, y = corners[:, 0], corners[:, 1]
        area = (x * y.roll(-1) - y * x.roll(-1)).sum() / 2
        assert area.item() == pytest.approx(partition.areas[region].item(), rel=1e-6, abs=1e-12)


def test_pieces_of_a_line_are_those_of_the_plane():
    model = with_biases(mlp([3, 6, 5, 2], bias=True))
    origin, direction = torch.randn(3), torch.randn(3)
    pieces = linear_regions_1d(model, (-2, 3), origin=origin, direction=direction)
    assert pieces.ends[0, 0] == -2
    assert pieces.ends[-1, 1] == 3
    assert torch.equal(pieces.ends[1:, 0], pieces.ends[:-1, 1])
    s = pieces.ends.mean(1, keepdim=True)
    x = origin + s * direction
    values = pieces.maps[..., 0] + s * pieces.maps[..., 1]
    torch.testing.assert_close(values, model(x).detach(), rtol=1e-10, atol=1e-12)
    pattern = gl.capture_gates(model, x)
    assert pattern == pieces.gates
    bits = torch.cat([pattern[layer] for layer in pattern], 1)
    assert (bits[1:] != bits[:-1]).any(1).all()  # every end is one
    fine = origin + torch.linspace(-2, 3, 4001)[:, None] * direction
    assert reference.patterns_on_grid(model, fine) <= set(map(tuple, bits.tolist()))


def test_counts_of_active_paths_are_those_of_listed_paths():
    model, x = mlp([3, 4, 5, 3, 1]), torch.randn(20, 3)
    activity = path_activity(model, x)
    counts = torch.tensor(active_path_counts(gl.capture_gates(model, x)))
    assert torch.equal(activity.sum(1), 3 * counts)  # npk's paths also name the input node


def test_counts_do_not_overflow():
    gates = {str(layer): torch.ones(1, 128, dtype=torch.bool) for layer in range(60)}
    assert active_path_counts(gl.GatePattern(gates)) == [128**60]


@pytest.mark.parametrize(
    "make", [lambda: mlp([2, 6, 5, 1], bias=True), lambda: DeepGatedNetwork([2, 6, 5, 2], bias=True)]
)
def test_distribution_of_active_paths_over_the_area(make):
    model = with_biases(make())
    distribution = paths_per_region(linear_regions_2d(model, None, BOUNDS))
    assert sum(distribution.shares) == pytest.approx(1)
    sampled = torch.tensor(active_path_counts(gl.capture_gates(model, uniform(40_000))), dtype=torch.float64)
    error = sampled.std() / 200
    assert abs(distribution.mean - sampled.mean()) < 4 * error
    assert distribution.quantile(0) == distribution.counts[0]
    assert distribution.quantile(1) == distribution.counts[-1]
    assert abs((sampled <= distribution.quantile(0.5)).double().mean() - 0.5) < 0.5
    with pytest.raises(InputError, match="between 0 and 1"):
        distribution.quantile(2)


def union_and_hull(partition, path) -> tuple[float, float]:
    """Area of a path's active region, and of its convex hull."""
    from scipy.spatial import ConvexHull

    chosen = partition.along(path)
    if not chosen.any():
        return 0.0, 0.0
    corners = torch.cat([partition.polygon(region) for region in chosen.nonzero()[:, 0].tolist()])
    return partition.areas[chosen].sum().item(), ConvexHull(corners.numpy()).volume


@settings(deadline=None, max_examples=8)
@given(
    widths=st.lists(st.integers(1, 2), min_size=1, max_size=3), seed=st.integers(0, 9999), shallow=st.booleans(),
    constant=st.booleans(),
)  # fmt: skip
def test_no_path_region_of_a_dlgn_is_ever_non_convex(widths, seed, shallow, constant):
    generator = torch.Generator().manual_seed(seed)
    model = DeepLinearlyGatedNetwork([2, *widths, 1], shallow=shallow, piecewise_constant=constant, generator=generator)
    for layer in model.feature:
        nn.init.normal_(layer.bias, generator=generator)
    partition, plan = linear_regions_2d(model, None, BOUNDS), RegionPlan(model)
    for path in torch.cartesian_prod(*[torch.arange(width) for width in widths]).reshape(-1, len(widths)).tolist():
        area, hull = union_and_hull(partition, path)
        assert area == pytest.approx(hull, rel=1e-9, abs=1e-12)
        corners = gl.active_region(model, path, plan=plan).polygon(BOUNDS)
        x, y = corners[:, 0], corners[:, 1]
        exact = (x * y.roll(-1) - y * x.roll(-1)).sum().item() / 2
        assert area == pytest.approx(exact, rel=1e-7, abs=1e-9)


def test_path_regions_of_relu_networks_can_be_non_convex():
    model = with_biases(mlp([2, 6, 6, 1], bias=True))
    partition = linear_regions_2d(model, None, BOUNDS)
    pairs = [union_and_hull(partition, (i, j)) for i in range(6) for j in range(6)]
    assert max(hull - area for area, hull in pairs) > 0.1


@pytest.mark.slow
def test_wide_networks():
    model = mlp([2, 64, 64, 64, 64, 1], bias=True)
    for layer in model[::2]:
        nn.init.normal_(layer.bias, std=0.3)
    partition = linear_regions_2d(model, None, ((-3, 3), (-3, 3)))
    assert len(partition) > 5000
    assert partition.areas.sum().item() == pytest.approx(36, rel=1e-9)
    points = uniform(5000)
    torch.testing.assert_close(partition.evaluate(points), model(points).detach(), rtol=1e-9, atol=1e-9)


def test_a_path_may_be_given_by_units_by_names_or_as_a_top_path():
    model = mlp([2, 4, 3, 1], bias=True, generator=torch.Generator().manual_seed(3)).double()
    partition = linear_regions_2d(model)
    best = gl.top_paths(model, torch.tensor([0.4, -0.3], dtype=torch.float64), 30)
    path = next(path for path in best if path.start == 0)
    first, second = path.units[1:3]
    expected = (
        partition.gates[partition.path_layers[0]][:, first] & partition.gates[partition.path_layers[1]][:, second]
    )
    assert 0 < expected.sum() < len(partition)
    assert partition.along(path).equal(expected)
    for units in ([first, second], np.array([first, second]), torch.tensor([first, second])):
        assert partition.along(units).equal(expected)
    assert partition.along({partition.path_layers[1]: second}).equal(
        partition.gates[partition.path_layers[1]][:, second]
    )
    with pytest.raises(InputError, match="nowhere"):
        partition.along({"nowhere": 0})


def test_units_of_an_image_have_an_index_and_a_number():
    model = gl.models.vconv(channels=[2], dense=[3], inputs=(1, 4, 4)).double()
    partition = linear_regions_2d(model, plane_in(1, 4, 4))
    first = partition.path_layers[0]
    assert partition.along({first: (1, 2, 3)}).equal(partition.gates[first][:, 1, 2, 3])
    assert partition.along({first: 16 + 2 * 4 + 3}).equal(partition.gates[first][:, 1, 2, 3])
