"""Regions as a graph: neighbours, path components, boundaries, domains, and decisions that need exact arithmetic."""

import numpy as np
import pytest
import torch
from scipy import ndimage
from torch import nn

import gatelab as gl
from gatelab.errors import InputError
from gatelab.gates import HardGate
from gatelab.models import DeepLinearlyGatedNetwork, mlp
from gatelab.regions import (
    cutting,
    exact,
    linear_regions_1d,
    linear_regions_2d,
    path_components,
    regions_between,
)
from gatelab.regions.components import component_counts
from tests.references.exact_gates import exact_patterns
from tests.regions.test_halfspaces import ClosedOver, with_biases
from tests.regions.test_partition import BOUNDS, made, uniform

SQUARE = ((-3.0, 3.0), (-3.0, 3.0))


def set_weights(model: nn.Sequential, *values) -> nn.Sequential:
    with torch.no_grad():
        for parameter, value in zip(model.parameters(), values, strict=True):
            parameter.copy_(torch.tensor(value))
    return model


def seeded(*widths: int, seed: int = 0) -> nn.Sequential:
    generator = torch.Generator().manual_seed(seed)
    model = mlp(widths, bias=True, generator=generator, dtype=torch.float64)
    for layer in model[::2]:
        nn.init.normal_(layer.bias, std=0.5, generator=generator)
    return model


def across(partition, distance=1e-7):
    """Both sides of every edge that is not tiny: the region that locate finds, and the one that the graph names."""
    graph = partition.graph
    ends, pairs = graph.vertices[graph.ends[graph.inner]], graph.pairs[graph.inner]
    way = ends[:, 1] - ends[:, 0]
    long = way.norm(dim=1) > 1e-4
    normal = torch.stack([-way[:, 1], way[:, 0]], 1) / way.norm(dim=1, keepdim=True)
    for sign, side in ((1, 0), (-1, 1)):
        yield partition.locate(ends.mean(1) + sign * distance * normal)[long], pairs[long, side]


@pytest.mark.parametrize("name", ["relu", "relu6", "prelu", "max-pooling", "dlgn", "residual", "converted dgn"])
def test_edges_lie_between_neighbours(name):
    model, plane = made(name)
    partition = linear_regions_2d(model, plane, BOUNDS)
    graph = partition.graph
    assert len(graph.vertices) - len(graph) + len(partition) == 1  # Euler
    for found, named in across(partition):
        assert torch.equal(found, named)
    states = torch.cat([state.flatten(1).long() for state in partition.states.values()], 1)
    assert len(states.unique(dim=0)) == len(partition)
    left, right = graph.pairs[graph.inner].T
    for edge, (a, b) in enumerate(zip(left.tolist()[:50], right.tolist()[:50], strict=True)):
        layer, unit = graph.label(int(graph.inner.nonzero()[edge]))
        assert partition.states[layer][a].flatten()[unit] != partition.states[layer][b].flatten()[unit]
    border = graph.lengths[~graph.inner].sum().item()
    assert border == pytest.approx(2 * (5 + 3.5), rel=1e-12)
    assert graph.label(int((~graph.inner).nonzero()[0])) is None
    assert graph.degrees.sum() == 2 * len(graph.adjacent)
    assert set(graph.neighbours(0).tolist()) == {int(p.sum()) for p in graph.adjacent if 0 in p.tolist()}


def test_pre_activations_that_jump_leave_edges_with_ends_on_one_side_only():
    torch.manual_seed(1)
    model = with_biases(ClosedOver()).double()
    partition = linear_regions_2d(model, None, BOUNDS)
    assert not partition.replay.plan.is_continuous
    for found, named in across(partition):
        assert torch.equal(found, named)
    assert len(partition.graph.vertices) - len(partition.graph) + len(partition) == 1


@pytest.mark.parametrize("lines", [3, 7])
def test_lines_in_general_position(lines):
    partition = linear_regions_2d(seeded(2, lines, 1), None, ((-1e3, 1e3), (-1e3, 1e3)))
    assert len(partition) == 1 + lines + lines * (lines - 1) // 2  # Zaslavsky
    graph = partition.graph
    assert len(graph.vertices) == lines * (lines - 1) // 2 + 2 * lines + 4
    assert graph.inner.sum() == lines * lines  # each line is cut into as many pieces as there are lines


@pytest.mark.parametrize("seed", range(4))
def test_networks_of_small_integers_agree_with_rational_arithmetic(seed):
    """Many lines through one point, parallel and coincident lines, and units that are copies or follow others."""
    generator = torch.Generator().manual_seed(seed)
    model = nn.Sequential(nn.Linear(2, 4), nn.ReLU(), nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 1)).double()
    for parameter in model.parameters():
        parameter.data.copy_(torch.randint(-1, 2, parameter.shape, generator=generator))
    partition = linear_regions_2d(model, None, SQUARE)
    steps = torch.linspace(-2.97, 2.96, 40, dtype=torch.float64)
    points = torch.cartesian_prod(steps, steps + 0.003)
    own = torch.cat([partition.gates[layer] for layer in partition.gates], 1)[partition.locate(points)]
    assert list(map(tuple, own.tolist())) == exact_patterns(model, points)
    assert len({tuple(row) for row in own.tolist()}) <= len(partition)
    assert len(partition.graph.vertices) - len(partition.graph) + len(partition) == 1


def test_noise_is_that_of_each_unit():
    model = nn.Sequential(nn.Linear(2, 2, bias=False), nn.ReLU(), nn.Linear(2, 1, bias=False)).double()
    set_weights(model, [[1e15, 0.0], [0.0, 1.0]], [[1e-15, 1.0]])
    assert len(linear_regions_2d(model)) == 4
    assert len(regions_between(model, torch.tensor([[-1.0, -0.5], [1.0, 1.0]])).ways[0]) == 3


@pytest.mark.parametrize("seed", range(3))
def test_units_that_cancel_are_decided_exactly(seed, monkeypatch):
    """0.1 + 0.2 − 0.3 is 2.8e-17 for the float64 numbers of these names, not 0 and not noise."""
    generator = torch.Generator().manual_seed(seed)
    model = nn.Sequential(
        nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1, bias=False), nn.ReLU(), nn.Linear(1, 1)
    ).double()  # fmt: skip
    row, bias = torch.randn(1, 2, generator=generator), 0.1 * torch.randn(1, generator=generator)
    set_weights(model, row.expand(3, 2).tolist(), bias.expand(3).tolist(), [[0.1, 0.2, -0.3]], [[1.0]], [0.0])
    partition = linear_regions_2d(model)
    assert len(partition) == 2
    assert torch.equal(partition.gates["3"][:, 0], partition.gates["1"][:, 0])
    assert len(linear_regions_1d(model, (-1, 1), origin=torch.zeros(2), direction=row[0])) == 2

    def refuse(*_args):
        raise exact.TooLargeError

    monkeypatch.setattr(cutting.ExactNetwork, "lines", refuse)  # then float64 decides
    with pytest.warns(RuntimeWarning, match="too large to decide them exactly; they are those of float64"):
        assert len(linear_regions_2d(model)) >= 2


def pooled(seed):
    """Four units and their maximum; the third and the fourth are copies of the first and the second."""
    generator = torch.Generator().manual_seed(seed)
    model = nn.Sequential(
        nn.Linear(2, 4), nn.Unflatten(1, (1, 4)), nn.MaxPool1d(4), nn.Flatten(), nn.Linear(1, 1)
    ).double()
    rows, biases = torch.randn(2, 2, generator=generator), torch.randn(2, generator=generator)
    set_weights(model, [*rows.tolist(), *rows.tolist()], [*biases.tolist(), *biases.tolist()], [[1.0]], [0.0])
    return model


@pytest.mark.parametrize("seed", range(3))
def test_copies_in_a_window_win_nowhere_and_are_no_matter_for_a_warning(seed, monkeypatch, recwarn):
    model = pooled(seed)
    expected = linear_regions_2d(model, None, SQUARE)
    assert len(expected) == 2

    def refuse(*_args):
        raise exact.TooLargeError

    monkeypatch.setattr(cutting.ExactNetwork, "lines", refuse)  # then equal to the last bit counts as equal
    found = linear_regions_2d(model, None, SQUARE)
    torch.testing.assert_close(found.corners, expected.corners, rtol=0, atol=1e-14)
    assert not found.gates["2"][..., 2:].any()
    assert not recwarn.list
    with torch.no_grad():  # a copy that differs in its last bit is another matter
        model[0].bias[2] = torch.nextafter(model[0].bias[2], model[0].bias[2] + 1)
    with pytest.warns(RuntimeWarning, match="too large to decide them exactly"):
        linear_regions_2d(model, None, SQUARE)


def brute_force_winners(model, points):
    """The first of the largest inputs of each window, at each point."""
    q = model[0](points)
    return (q == q.amax(1, keepdim=True)).double().argmax(1)


@pytest.mark.parametrize("seed", range(4))
def test_windows_are_divided_where_their_winner_changes(seed):
    """Some taps never win, some win in a corner, some are equal."""
    generator = torch.Generator().manual_seed(seed)
    model = nn.Sequential(
        nn.Linear(2, 9), nn.Unflatten(1, (1, 9)), nn.MaxPool1d(9), nn.Flatten(), nn.Linear(1, 1)
    ).double()
    rows, biases = torch.randn(9, 2, generator=generator), 2 * torch.randn(9, generator=generator)
    rows[5], biases[5], biases[7] = rows[1], biases[1], -100.0
    set_weights(model, rows.tolist(), biases.tolist(), [[1.0]], [0.0])
    partition = linear_regions_2d(model, None, SQUARE)
    points = 6 * torch.rand(4000, 2, generator=generator, dtype=torch.float64) - 3
    own = partition.gates["2"].flatten(1).double().argmax(1)[partition.locate(points)]
    assert torch.equal(own, brute_force_winners(model, points))
    assert len(partition) == len(own.unique())


def test_numbers_that_are_exact():
    values = np.array([0.1, -3e-200, 7e150, 0.0, 5e-324])
    both = exact.Dyadic.of(values)
    assert both.rounded().tolist() == values.tolist()
    total = exact.Dyadic.of(np.array([[0.1, 0.2, -0.3]])) @ exact.Dyadic.of(np.ones((3, 1)))
    assert total.rounded().item() == 2.0**-55


def test_components_are_those_of_pixels():
    model = seeded(2, 6, 6, 5, 1, seed=3)
    partition, size = linear_regions_2d(model, None, SQUARE), 700
    steps = (torch.arange(size, dtype=torch.float64) + 0.5) * 6 / size - 3
    gates = gl.capture_gates(model, torch.cartesian_prod(steps, steps))
    paths = torch.cartesian_prod(torch.arange(6), torch.arange(6), torch.arange(5)).tolist()
    counts = component_counts(partition, paths).tolist()
    assert max(counts) > 1
    checked = 0
    for path, count in list(zip(paths, counts, strict=True))[::7]:
        found = path_components(partition, path)
        assert found.count == count
        if found.count and found.areas.min() < 0.01:  # too small for the pixels
            continue
        opened = torch.stack([gates[name][:, unit] for name, unit in zip(gates, path, strict=True)]).all(0)
        labels = ndimage.label(opened.view(size, size).numpy())[0]
        sizes = np.bincount(labels.ravel())[1:]
        sizes = np.sort(sizes[sizes > 20])[::-1] * (6 / size) ** 2
        assert found.areas.tolist() == pytest.approx(sizes.tolist(), abs=0.05)
        checked += 1
    assert checked > 10


def test_components_with_holes_and_in_pieces():
    layers = nn.Linear(2, 4), nn.ReLU(), nn.Linear(4, 2), nn.ReLU(), nn.Linear(2, 1)
    model = set_weights(
        nn.Sequential(*layers).double(),
        [[1.0, 0], [-1, 0], [0, 1], [0, -1]], [0.0] * 4, [[1.0] * 4, [1, 1, -1, -1]], [-0.5, -0.5], [[1.0, 1]], [0.0],
    )  # fmt: skip
    partition = linear_regions_2d(model)
    ring, pieces = path_components(partition, {"3": 0}), path_components(partition, {"3": 1})
    assert (ring.count, ring.holes.tolist(), ring.areas.tolist()) == (1, [1], [3.5])  # |s| + |t| > ½
    assert ring.convexity.item() == pytest.approx(3.5 / 4)
    assert (pieces.count, pieces.holes.tolist()) == (2, [0, 0])  # |s| − |t| > ½
    assert pieces.convexity.tolist() == pytest.approx([1.0, 1.0])
    assert set(pieces.labels.tolist()) == {-1, 0, 1}
    assert component_counts(partition, []).shape == (0,)


def test_the_path_region_of_a_dlgn_has_one_component():
    model = DeepLinearlyGatedNetwork([2, 3, 3, 1], gate=HardGate(), generator=torch.Generator().manual_seed(0))
    partition = linear_regions_2d(with_biases(model).double(), None, SQUARE)
    paths = torch.cartesian_prod(torch.arange(3), torch.arange(3)).tolist()
    assert max(component_counts(partition, paths).tolist()) == 1
    assert all(path_components(partition, path).convexity.gt(1 - 1e-9).all() for path in paths)


def crossings(pieces: np.ndarray, s: np.ndarray, t: float) -> np.ndarray:
    """How many pieces cross the line at height t between neighbouring s."""
    (x0, y0), (x1, y1) = pieces[:, 0].T, pieces[:, 1].T
    hit = (y0 > t) != (y1 > t)
    places = x0[hit] + (t - y0[hit]) / (y1[hit] - y0[hit]) * (x1[hit] - x0[hit])
    return np.histogram(places, s)[0]


@pytest.mark.parametrize(
    ("make", "outputs"),
    [
        (lambda: seeded(2, 12, 12, 1, seed=1), 1),
        (lambda: seeded(2, 12, 12, 4, seed=2), 4),
        (lambda: DeepLinearlyGatedNetwork([2, 7, 6, 1], gate=HardGate()), 1),  # jumps
        (lambda: DeepLinearlyGatedNetwork([2, 6, 6, 3], gate=HardGate(), piecewise_constant=True), 3),
    ],
)
def test_decisions_change_at_the_boundary_and_nowhere_else(make, outputs):
    torch.manual_seed(0)
    model = with_biases(make()).double()
    if isinstance(model, nn.Sequential):  # all outputs are 0 at the origin, so that the boundary passes it
        model[-1].bias.data -= model(torch.zeros(1, 2, dtype=torch.float64)).detach()[0]
    boundary = linear_regions_2d(model, None, SQUARE).decision_boundary()
    assert len(boundary) > 5

    def decided(points):
        with torch.no_grad():
            answer = model(points)
        return (answer[:, 0] > 0).long() if outputs == 1 else answer.argmax(1)

    s = torch.linspace(-2.999, 2.998, 900, dtype=torch.float64)
    for t in (-2.3, -0.71, 0.02, 1.4, 2.6):
        classes = decided(torch.stack([s, torch.full_like(s, t)], 1))
        changed, count = (classes[1:] != classes[:-1]).numpy(), crossings(boundary.pieces.numpy(), s.numpy(), t)
        assert (count[changed] > 0).all()
        assert changed.sum() >= (count == 1).sum()
        assert outputs > 1 or (count % 2 == changed).all()
    way = boundary.pieces[:, 1] - boundary.pieces[:, 0]
    long = way.norm(dim=1) > 1e-4
    normal = torch.stack([-way[:, 1], way[:, 0]], 1) / way.norm(dim=1, keepdim=True)
    for sign, side in ((1, 0), (-1, 1)):
        beside = boundary.pieces.mean(1) + sign * 1e-8 * normal
        inside = long & (beside.abs() < 3).all(1)
        assert torch.equal(decided(beside)[inside], boundary.classes[inside, side])


def test_a_level_set_is_where_the_output_has_that_value():
    model = seeded(2, 10, 10, 2, seed=4)
    partition = linear_regions_2d(model, None, SQUARE)
    with torch.no_grad():
        level = float(model(torch.zeros(1, 2, dtype=torch.float64))[0, 1])
        found = partition.level_set(level, output=1)
        values = model(found.pieces.flatten(0, 1))[:, 1]
    assert (values - level).abs().max() < 1e-12
    assert torch.equal(found.regions[:, 0], found.regions[:, 1])
    assert found.length > 0
    assert repr(found).startswith("Boundary")
    with pytest.raises(InputError, match="output 2 does not exist"):
        partition.level_set(output=2)


def test_a_domain_may_be_a_polygon():
    model = seeded(2, 9, 8, 1)
    corners = torch.tensor([[-2.0, -1.0], [2.5, -1.5], [1.0, 2.0], [-1.0, 1.5]])
    whole, part = linear_regions_2d(model, None, SQUARE), linear_regions_2d(model, None, corners)
    area = sum(float(a[0] * b[1] - a[1] * b[0]) for a, b in zip(corners, corners.roll(-1, 0), strict=True)) / 2
    assert part.areas.sum().item() == pytest.approx(area, rel=1e-12)
    assert linear_regions_2d(model, None, corners.flip(0)).areas.sum().item() == pytest.approx(area)
    assert part.locate(torch.tensor([[-2.0, 1.9]])).item() == -1
    assert len(part.graph.vertices) - len(part.graph) + len(part) == 1
    points = part.centres
    torch.testing.assert_close(part.evaluate(points), whole.evaluate(points))
    for bad in ([[0.0, 0], [1, 1], [2, 2]], [[0.0, 0], [1, 1], [0, 1], [1, 0]]):
        with pytest.raises(InputError, match="no polygon"):
            linear_regions_2d(model, None, bad)


def test_three_examples_make_a_plane(unchecked):
    model, x = with_biases(mlp([5, 8, 8, 2], bias=True)).double(), torch.randn(20, 5, dtype=torch.float64)
    partition = linear_regions_2d(model, x[[3, 7, 12]])
    places = partition.plane.coordinates(x[[3, 7, 12]])
    torch.testing.assert_close(partition.plane.at(places), x[[3, 7, 12]])
    torch.testing.assert_close(torch.pdist(places), torch.pdist(x[[3, 7, 12]]))
    assert (partition.locate(places) >= 0).all()
    torch.testing.assert_close(partition.evaluate(places), model(x[[3, 7, 12]]).detach(), rtol=1e-9, atol=1e-10)
    with pytest.raises(InputError, match="three make a plane"):
        linear_regions_2d(model, x[:4])


def test_the_way_between_inputs():
    model, x = with_biases(mlp([4, 9, 7, 2], bias=True)).double(), torch.randn(3, 4, dtype=torch.float64) * 2
    journey = regions_between(model, x)
    t = torch.linspace(0, 1, 20001, dtype=torch.float64)[:, None]
    dense = torch.cat([x[0] + t * (x[1] - x[0]), x[1] + t * (x[2] - x[1])])
    gates = gl.capture_gates(model, dense)
    flips = {name: int((gates[name][1:] != gates[name][:-1]).sum()) for name in gates}
    assert journey.flips == flips
    assert journey.regions == 1 + sum(flips.values())  # one at a time
    with torch.no_grad():
        variation = model(dense).diff(dim=0).abs().sum(0)
    torch.testing.assert_close(journey.variation, variation, rtol=1e-4, atol=1e-4)
    assert journey.lengths.sum().item() == pytest.approx(x.diff(dim=0).norm(dim=1).sum().item())
    ends = gates[[0]].flips(gates[[gates.n - 1]])
    assert all(journey.detour[name] >= 1 for name in flips)
    assert all(journey.detour[name] == flips[name] / ends[name] for name in flips if ends[name])
    with pytest.raises(InputError, match="two inputs or more"):
        regions_between(model, x[:1])
    with pytest.raises(InputError, match="are equal"):
        regions_between(model, x[[0, 0]])
    with pytest.raises(InputError, match="no gates"):
        regions_between(nn.Linear(4, 1), x)


def test_uniform_points_lie_in_regions_by_area():
    model, plane = made("max-pooling")
    partition = linear_regions_2d(model, plane, BOUNDS)
    found = torch.bincount(partition.locate(uniform(20_000)), minlength=len(partition)) / 20_000
    shares = partition.areas / partition.areas.sum()
    error = (shares * (1 - shares) / 20_000).sqrt()
    assert ((found - shares).abs() / error)[shares > 1e-3].max() < 5
