import pytest
import torch

import gatelab as gl
from gatelab.errors import InputError, UnsupportedModelError
from gatelab.figures import Panels, draw, save_figure
from gatelab.gates import HardGate
from gatelab.models import DeepLinearlyGatedNetwork, mlp
from gatelab.papers.halfspace.figure1 import figure1, jumping_network, line_panel, square_panel
from gatelab.regions import draw_regions, linear_regions_2d, region_picture
from gatelab.regions.drawing import disc_panel, half_space_discs, open_part


def dlgn(inputs=2):
    model = DeepLinearlyGatedNetwork([inputs, 4, 3, 1], gate=HardGate())
    for layer in model.feature:
        torch.nn.init.normal_(layer.bias, std=0.3)
    return model


def test_discs_show_the_half_spaces(generator):
    model = dlgn()
    layers = half_space_discs(model, radius=1.5)
    assert [len(discs) for discs in layers] == [4, 3]
    angles = 2 * torch.pi * torch.rand(40_000, generator=generator)
    radii = 1.5 * torch.rand(40_000, generator=generator).sqrt()
    x = torch.stack([radii * angles.cos(), radii * angles.sin()], 1)
    pattern = gl.capture_gates(model, x)
    for name, discs in zip(pattern, layers, strict=True):
        for unit, (a, b, c) in enumerate(discs):
            measured = pattern[name][:, unit].double().mean().item()
            outline = open_part((a, b, c), corners=400)
            assert share(outline) == pytest.approx(measured, abs=4 * 0.5 / 200)
            if 0 < measured < 1:  # the chord lies on the boundary, the arc beyond it
                q = torch.tensor(outline) @ torch.tensor([a, b]) + c
                assert abs(q[0]) < 1e-12
                assert abs(q[-1]) < 1e-12
                assert (q[1:-1] > 0).all()


def share(outline):
    """Area of a polygon, as a share of the unit disc's."""
    x, y = torch.tensor(outline or [(0.0, 0.0)]).T
    return float((x * y.roll(-1) - y * x.roll(-1)).sum()) / (2 * torch.pi)


@pytest.mark.parametrize(
    ("half_space", "expected"),
    [
        ((0.0, 0.0, 1.0), 1.0),  # degenerate: open everywhere
        ((0.0, 0.0, 0.0), 0.0),  # or nowhere
        ((1.0, 0.0, 0.0), 0.5),
        ((1.0, 0.0, 5.0), 1.0),
        ((1.0, 0.0, -5.0), 0.0),
    ],
)
def test_degenerate_discs(half_space, expected):
    outline = open_part(half_space, corners=4000)
    assert share(outline) == pytest.approx(expected, abs=1e-6)
    assert (outline == ()) is (expected == 0)


def test_discs_stand_layer_below_layer():
    layers = half_space_discs(dlgn())
    panel = disc_panel(layers, per_row=3, corners=8)
    circles = [polygon for polygon in panel.polygons if polygon.shade == 0]
    assert len(circles) == 7
    centres = [tuple(sum(axis) / 8 for axis in zip(*circle.points, strict=True)) for circle in circles]
    rows = [round(-y / 2.3) for _, y in centres]
    assert rows == [0, 0, 0, 1, 2, 2, 2]  # four discs of the first layer take two rows
    opened = sum(open_part(disc) != () for discs in layers for disc in discs)
    assert len(panel.polygons) == 7 + opened


def test_pictures_are_drawn(tmp_path):
    partition = linear_regions_2d(mlp([2, 8, 8, 1], bias=True))
    picture = region_picture(partition, partition.areas, "area", "ReLU")
    assert len(picture.polygons) == len(picture.values) == len(partition)
    assert picture.polygons[3].tolist() == partition.polygon(3).tolist()
    figure = draw_regions([picture, picture])
    assert sum(len(axes.collections) > 0 and axes.get_title() == "ReLU" for axes in figure.axes) == 2
    figures = {"regions": figure, "discs": draw(disc_panel(half_space_discs(dlgn()))), "one": draw(panels(figure1()))}
    for name, drawn in figures.items():
        for ending in ("png", "svg"):
            save_figure(drawn, tmp_path / f"{name}.{ending}")
            assert (tmp_path / f"{name}.{ending}").stat().st_size > 3000


def panels(facts):
    return Panels((line_panel(facts), *(square_panel(facts, epsilon) for epsilon in facts.regions)), 3)


def test_figure_1():
    facts = figure1((1e-7, -1e-7))
    assert facts.intervals == ((0.5, 1.5), (2.5, 3.5))
    assert facts.areas == {1e-7: 2.0, -1e-7: 1.0}
    x = torch.tensor([[0.5, 0.5], [0.5, -0.5], [-0.5, 0.5], [-0.5, -0.5]])
    for epsilon, expected in ((1e-7, [1, 1, 0, 0]), (-1e-7, [1, 0, 0, 0])):
        pattern = gl.capture_gates(jumping_network(epsilon), x)
        assert (pattern["1"][:, 0] & pattern["3"][:, 0]).tolist() == expected


def test_a_network_jumps_however_small_epsilon_is(single_precision):
    assert jumping_network(1e-50)[2].weight[0, 2].item() == 1e-50
    assert jumping_network(0.1)[2].weight[0, 2].item() == 0.1


def test_figure_1_shows_its_facts():
    facts = figure1((0.1, -0.1))
    line, *squares = draw(panels(facts)).axes
    given, *active = [drawn.get_xydata().tolist() for drawn in line.lines]
    assert given == [list(point) for point in zip(facts.ends, facts.green, strict=True)]
    assert active == [[[0.5, 0.0], [1.5, 0.0]], [[2.5, 0.0], [3.5, 0.0]]]
    assert [axes.get_title() for axes in squares] == ["ε = 0.1", "ε = −0.1"]
    for axes, polygons in zip(squares, facts.regions.values(), strict=True):
        square, *parts = [patch.get_xy()[:-1].tolist() for patch in axes.patches]
        assert square == [[-1.0, -1.0], [1.0, -1.0], [1.0, 1.0], [-1.0, 1.0]]
        assert parts == [[list(point) for point in polygon] for polygon in polygons]


def test_bad_requests():
    partition = linear_regions_2d(mlp([2, 4, 1]))
    for call, message in (
        (lambda: region_picture(partition, [1.0], "x"), "give one for each"),
        (lambda: draw_regions([]), "nothing to draw"),
        (lambda: half_space_discs(dlgn(3)), "two inputs, the network takes"),
        (lambda: half_space_discs(dlgn(), radius=0.0), "must be positive"),
    ):
        with pytest.raises(InputError, match=message):
            call()
    with pytest.raises(UnsupportedModelError, match="to_dlgn"):
        half_space_discs(mlp([2, 3, 1]))
