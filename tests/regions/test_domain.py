"""Domains with dents: their parts, and regions that the seams between them do not divide."""

import numpy as np
import pytest
import torch
from torch import nn

import gatelab as gl
from gatelab.errors import InputError
from gatelab.gates import HardGate
from gatelab.models import DeepLinearlyGatedNetwork, mlp
from gatelab.regions import linear_regions_2d, path_components
from gatelab.regions import partition as partition_module
from gatelab.regions.domain import Domain, domain_of
from tests.regions.test_halfspaces import with_biases

ELL = [[0.0, 0], [2, 0], [2, 1], [1, 1], [1, 2], [0, 2]]
COMB = [[0.0, 0], [5, 0], [5, 3], [4, 3], [4.1, 1], [3, 1], [3, 3], [2, 3], [2, 1], [1, 1.1], [1, 3], [0, 3]]
STAR = [[(2 - k % 2) * np.cos(np.pi * k / 5), (2 - k % 2) * np.sin(np.pi * k / 5)] for k in range(10)]
SPIRAL = [[0.0, 0], [4, 0], [4, 4], [1, 4], [1, 2], [2, 2], [2, 3], [3, 3], [3, 1], [0, 1]]
DOMAINS = {"ell": ELL, "comb": COMB, "star": STAR, "spiral": SPIRAL}


def area(corners) -> float:
    x, y = np.asarray(corners, dtype=float).T
    return float(x @ np.roll(y, -1) - y @ np.roll(x, -1)) / 2


def network(*widths: int, seed: int = 0):
    torch.manual_seed(seed)
    return with_biases(mlp([2, *widths, 2], bias=True)).double()


def triangles(domain: Domain) -> Domain:
    """The same domain in as many parts as possible, fans from a corner of each convex part."""
    parts = [(part[0], part[k], part[k + 1]) for part in domain.parts for k in range(1, len(part) - 1)]
    return Domain(domain.box, domain.corners, tuple(parts))


def signature(partition):
    """What must not depend on how the domain is taken apart: gates with areas and maps, and the graph's size."""
    bits = torch.cat([state.flatten(1) for state in partition.states.values()], 1).double()
    rows = torch.cat(
        [bits, partition.areas.unsqueeze(1).round(decimals=9), partition.maps.flatten(1).round(decimals=8)], 1
    )
    graph = partition.graph
    order = np.lexsort(rows.numpy().T[::-1])
    labels = sorted(
        zip(graph.layer.tolist(), graph.unit.tolist(), graph.lengths.round(decimals=8).tolist(), strict=True)
    )
    return rows[order], len(graph.vertices), labels


@pytest.mark.parametrize("name", DOMAINS)
def test_parts_are_convex_and_fill_the_domain(name):
    domain = domain_of(DOMAINS[name])
    parts = [domain.corners[list(part)] for part in domain.parts]
    assert sum(map(area, parts)) == pytest.approx(area(domain.corners))
    for part in parts:
        assert len(domain_of(part.tolist()).parts) == 1  # refuses what is not convex
    assert len(parts) == len(domain.seams()) + 1
    assert len(domain_of(DOMAINS[name][::-1]).parts) == len(parts)


@pytest.mark.parametrize("name", DOMAINS)
def test_regions_of_a_domain_with_dents(name):
    model = network(8, 7)
    partition = linear_regions_2d(model, None, torch.tensor(DOMAINS[name]))
    assert partition.areas.sum().item() == pytest.approx(area(DOMAINS[name]), rel=1e-12)
    assert (partition.areas > 0).all()
    graph = partition.graph
    assert len(graph.vertices) - len(graph) + len(partition) == 1
    # No edge has the same gates on both sides, and each neighbour differs in the unit that the edge names.
    bits = [state.flatten(1) for state in partition.states.values()]
    for edge in graph.inner.nonzero()[:, 0].tolist():
        left, right = graph.pairs[edge].tolist()
        layer, unit = int(graph.layer[edge]), int(graph.unit[edge])
        assert bits[layer][left, unit] != bits[layer][right, unit]
    # Points of the domain are in a region with their gates; others in none.
    low, high = torch.tensor(partition.bounds).T
    points = low + torch.rand(2000, 2) * (high - low)
    inside = partition.locate(points) >= 0
    assert inside.double().mean().item() == pytest.approx(area(DOMAINS[name]) / float((high - low).prod()), abs=0.05)
    torch.testing.assert_close(partition.evaluate(points[inside]), model(points[inside]).detach())
    pattern = gl.capture_gates(model, points[inside])
    for layer in pattern:
        assert torch.equal(partition.gates[layer][partition.locate(points[inside])], pattern[layer])
    assert torch.equal(partition.locate(partition.centres), torch.arange(len(partition)))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", ["square", *DOMAINS])
def test_results_do_not_depend_on_the_seams(name, seed, monkeypatch):
    corners = [[-1.0, -1], [1, -1], [1, 1], [-1, 1]] if name == "square" else DOMAINS[name]
    model = network(7, 6, 5, seed=seed)
    whole = linear_regions_2d(model, None, torch.tensor(corners))
    monkeypatch.setattr(partition_module, "domain_of", lambda bounds: triangles(domain_of(bounds)))
    divided = linear_regions_2d(model, None, torch.tensor(corners))
    assert divided.parts is not None
    one, other = signature(whole), signature(divided)
    torch.testing.assert_close(one[0], other[0], rtol=0, atol=1e-7)
    assert one[1] == other[1]
    assert one[2] == other[2]
    assert whole.decision_boundary().length == pytest.approx(divided.decision_boundary().length)
    path = (0, 0, 0)
    first, second = path_components(whole, path), path_components(divided, path)
    assert (first.count, first.holes.tolist()) == (second.count, second.holes.tolist())


def test_a_line_along_a_seam_is_a_boundary():
    """The gate's line goes from one dent of the domain to another, where the parts meet."""
    corners = torch.tensor([[-2.0, -1], [0, 0], [2, -1], [2, 2], [0, 1], [-2, 2]])
    assert domain_of(corners).seams()
    model = nn.Sequential(nn.Linear(2, 1, bias=False), nn.ReLU(), nn.Linear(1, 1)).double()
    model[0].weight.data[:] = torch.tensor([1.0, 0.0])  # x = 0, through both dents
    partition = linear_regions_2d(model, None, corners)
    assert len(partition) == 2
    (edge,) = partition.graph.inner.nonzero()[:, 0].tolist()
    assert partition.graph.label(edge) == (partition.graph.layers[0], 0)


def test_a_network_without_a_line_in_the_domain_has_one_region_with_the_domains_corners():
    model = nn.Sequential(nn.Linear(2, 1), nn.ReLU(), nn.Linear(1, 1)).double()
    model[0].bias.data[:] = 100
    partition = linear_regions_2d(model, None, torch.tensor(SPIRAL))
    assert len(partition) == 1
    assert {tuple(corner) for corner in partition.polygon(0).tolist()} == {tuple(corner) for corner in SPIRAL}


def test_one_pattern_may_have_several_regions():
    model = nn.Sequential(nn.Linear(2, 1), nn.ReLU(), nn.Linear(1, 1)).double()
    model[0].weight.data[:], model[0].bias.data[:] = torch.tensor([0.0, 1.0]), -2.0  # y = 2 cuts the teeth
    partition = linear_regions_2d(model, None, torch.tensor(COMB))
    assert len(partition) == 4
    assert partition.states[partition.graph.layers[0]].sum() == 3


def test_hard_gates_of_a_dlgn():
    model = with_biases(DeepLinearlyGatedNetwork([2, 5, 5, 1], gate=HardGate())).double()
    partition = linear_regions_2d(model, None, torch.tensor(STAR))
    points = partition.centres
    torch.testing.assert_close(partition.evaluate(points), model(points).detach())
    assert partition.level_set(0.0).regions.max() < len(partition)


@pytest.mark.parametrize(
    "corners",
    [
        [[0.0, 0], [1, 1], [1, 0], [0, 1]],  # crosses itself
        [[0.0, 0], [1, 0], [2, 0], [1, 1]],  # three on a line
        [[0.0, 0], [2, 0], [2, 2], [0, 2], [1, 1e-30], [0, 1]],  # touches itself
    ],
)
def test_what_is_no_polygon_is_refused(corners):
    with pytest.raises(InputError, match="no polygon"):
        domain_of(corners)
