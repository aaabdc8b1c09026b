"""Level sets and decision boundaries where functions are equal: along an edge, in a region, three at a time."""

import pytest
import torch
from torch import nn

from gatelab.regions import linear_regions_2d


def two_layers(first, offsets, second) -> nn.Sequential:
    model = nn.Sequential(nn.Linear(2, len(first)), nn.ReLU(), nn.Linear(len(first), len(second))).double()
    for parameter, values in zip(model.parameters(), (first, offsets, second, [0.0] * len(second)), strict=True):
        parameter.data = torch.tensor(values, dtype=torch.float64)
    return model


def lines(number: int) -> list[tuple[list[list[float]], list[float], float]]:
    """Lines that cross the square, as weights and offset, with their length in it."""
    found = []
    generator = torch.Generator().manual_seed(0)
    while len(found) < number:
        weight, offset = (
            torch.randn(2, generator=generator).double(),
            0.3 * torch.randn((), generator=generator).double(),
        )
        partition = linear_regions_2d(two_layers([weight.tolist()], [float(offset)], [[1.0]]))
        if len(partition) == 2:
            inner = partition.graph.inner
            found.append(([weight.tolist()], [float(offset)], float(partition.graph.lengths[inner].sum())))
    return found


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_beside_a_plateau_the_level_is_crossed_at_its_edge_or_not_at_all(sign):
    """relu(w·x + b) rises above 0 at the line; −relu(w·x + b) never does."""
    for weight, offset, length in lines(40):
        found = linear_regions_2d(two_layers(weight, offset, [[sign]])).level_set(0.0)
        assert found.length == pytest.approx(length if sign > 0 else 0.0)
        assert len(found) == (sign > 0)


def test_a_line_on_which_the_slope_changes_is_found_once():
    """relu(q) − 2 relu(−q) crosses 0 where both regions meet."""
    for weight, offset, length in lines(40):
        first = [*weight, [-entry for entry in weight[0]]]
        found = linear_regions_2d(two_layers(first, [*offset, -offset[0]], [[1.0, -2.0]])).level_set(0.0)
        assert found.length == pytest.approx(length)
        assert found.classes.sort(dim=1).values.tolist() == [[0, 1]] * len(found)


@pytest.mark.parametrize(
    ("second", "classes"),
    [
        ([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]], {1, 2}),
        ([[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]], {0, 1}),
        ([[0.0, 0.0], [1.0, 0.0], [1.0, 0.0]], {0, 1}),
        ([[1.0, 1.0], [0.0, 0.0], [1.0, 1.0]], set()),
    ],
    ids=["first never", "last never", "twins", "one wins"],
)
def test_three_classes_that_are_equal_on_a_line(second, classes):
    """Each side of the line has one class, the first of the largest; the line is found once."""
    found = linear_regions_2d(two_layers([[1.0, 0.0], [-1.0, 0.0]], [0.0, 0.0], second)).decision_boundary()
    assert found.length == (2.0 if classes else 0.0)
    assert set(found.classes.flatten().tolist()) == classes


def test_three_classes_that_are_equal_on_a_line_inside_a_region():
    model = nn.Linear(2, 4, bias=False).double()
    model.weight.data = torch.tensor([[0.0, 0.0], [1.0, 0.5], [-1.0, -0.5], [1.0, 0.5]], dtype=torch.float64)
    found = linear_regions_2d(model).decision_boundary()
    assert (len(found), found.length) == (1, pytest.approx(5**0.5))
    assert found.classes.sort(dim=1).values.tolist() == [[1, 2]]


def test_a_level_set_along_the_seam_of_a_domain_with_dents():
    corner = torch.tensor([[-1.0, -1.0], [1.0, -1.0], [1.0, 0.0], [0.0, 0.0], [0.0, 1.0], [-1.0, 1.0]])
    model = nn.Linear(2, 1, bias=False).double()
    for weight in ([1.0, 0.0], [0.0, 1.0]):
        model.weight.data = torch.tensor([weight], dtype=torch.float64)
        found = linear_regions_2d(model, None, corner).level_set()
        assert (len(found), found.length) == (1, 1.0)
