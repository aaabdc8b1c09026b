import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from gatelab.errors import InputError, UnsupportedModelError
from gatelab.hierarchy import ReceptiveFields, fields_of, image_fields, string_fields


def test_parents_children_and_layers_by_definition():
    fields = string_fields(6, [3, 2], [1, 1])
    regions = {name: set(positions) for name, positions in fields.regions.items()}
    for a, inside in regions.items():
        for b, outside in regions.items():
            between = any(inside < other < outside for other in regions.values())
            assert (b in fields.parents(a)) == (inside < outside and not between)
            assert (a in fields.children(b)) == (b in fields.parents(a))
    assert fields.layer("top") == 0
    for parent, child in fields.edges:
        assert fields.layer(child) == fields.layer(parent) + 1
    assert fields.depth == 3
    assert set(fields.leaves) == {f"x{i}" for i in range(6)}
    assert fields.n_positions == 6


@given(st.lists(st.integers(2, 3), min_size=1, max_size=3))
@settings(max_examples=20, deadline=None)
def test_disjoint_kernels_tile_the_string(kernels):
    length = 1
    for kernel in kernels:
        length *= kernel
    fields = string_fields(length, kernels)
    assert fields.depth == len(kernels)
    for region in fields.inner:
        children = [set(fields.positions(child)) for child in fields.children(region)]
        assert sum(map(len, children)) == len(fields.positions(region))


def test_images_and_groups_of_positions():
    fields = image_fields(4, 6, [2, (2, 3)])
    assert fields.positions("h1_0") == (0, 1, 6, 7)
    assert fields.children("top") == tuple(f"h1_{i}" for i in range(6))
    overlapping = image_fields(3, 3, [2], [1])
    assert len(overlapping.children("top")) == 4
    assert overlapping.parents("x4") == ("h1_0", "h1_1", "h1_2", "h1_3")
    assert string_fields(6, [], leaf=3).regions == {"x0": (0, 1, 2), "x1": (3, 4, 5), "top": tuple(range(6))}


def test_the_hierarchy_of_a_network_is_that_of_its_kernels():
    net = nn.Sequential(
        nn.Sequential(nn.Conv2d(1, 4, 2, stride=2), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 4, 1)),
        *(nn.AvgPool2d(2), nn.Flatten(), nn.Linear(4, 10)),
    )
    assert fields_of(net, (8, 8)).regions == image_fields(8, 8, [2, 2]).regions
    assert fields_of(nn.Sequential(nn.Conv1d(1, 2, 3), nn.Conv1d(2, 2, 2)), (6,)).regions == (
        string_fields(6, [3, 2], [1, 1]).regions
    )


def test_gradients_of_the_network_reach_exactly_its_regions():
    """The regions that fields_of names are those on which the layers' units depend."""
    first = nn.Conv1d(1, 1, 3, stride=2)
    x = torch.ones(1, 1, 7, requires_grad=True)
    fields = fields_of(nn.Sequential(first), (7,))
    for unit in range(3):
        (gradient,) = torch.autograd.grad(first(x)[0, 0, unit], x)
        assert tuple(gradient[0, 0].nonzero().flatten().tolist()) == fields.positions(f"h1_{unit}")


@pytest.mark.parametrize(
    ("regions", "message"),
    [
        ({}, "needs at least one region"),
        ({"a": []}, "region 'a' is empty"),
        ({"a": [0], "b": [0]}, "cover the same positions"),
        ({"a": [0, 1], "b": [1, 2]}, "no region covers everything"),
        ({"a": [0, 2]}, r"positions \[1\] are in no region"),
        ({"a.b": [0]}, "cannot name a region"),
        ({"top": [0, 1, 2], "a": [0], "b": [1]}, r"positions \[2\] are in none of its children"),
        (
            {"top": [0, 1, 2, 3], "left": [0, 1, 2], "l": [0, 1], "c": [2], "a": [0], "b": [1],
             "right": [2, 3], "d": [3], "mid": [1, 2, 3]},
            "several layers",
        ),
    ],
)  # fmt: skip
def test_regions_that_form_no_hierarchy_are_refused(regions, message):
    with pytest.raises(InputError, match=message):
        ReceptiveFields(regions)


def test_kernels_that_do_not_fit_are_refused():
    with pytest.raises(InputError, match="windows of 2 with stride 2 do not tile 5 regions"):
        string_fields(5, [2])
    with pytest.raises(InputError, match="1 kernels and 2 strides"):
        string_fields(4, [2], [1, 1])
    with pytest.raises(InputError, match="does not split into leaves of 3"):
        string_fields(4, [2], leaf=3)
    with pytest.raises(InputError, match="there is no region 'nowhere'"):
        string_fields(4, [2]).children("nowhere")


@pytest.mark.parametrize(
    ("net", "message"),
    [
        (nn.Sequential(nn.Conv1d(1, 1, 4, padding="same")), "'same', even kernel"),
        (nn.Sequential(nn.LSTM(3, 3)), r"'0' \(LSTM\) is not a local layer"),
    ],
)
def test_unsupported_layers_are_refused(net, message):
    with pytest.raises(UnsupportedModelError, match=message):
        fields_of(net, (6,))
    with pytest.raises(InputError, match="2 axes, the input 1"):
        fields_of(nn.Sequential(nn.Conv2d(1, 1, 2)), (4,))
