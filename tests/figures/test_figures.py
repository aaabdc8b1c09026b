"""Facts become drawings that show them."""

import pytest

from gatelab.errors import InputError
from gatelab.figures import Curve, Heatmap, Panels, Plot, Shapes, draw, save_figure
from gatelab.figures.facts import Polygon

LINE = Plot("epoch", "loss", (Curve("ours", (1.0, 2.0), (0.5, 0.25), line=True),), log_y=True, title="loss")
MATRIX = Heatmap("Λ", ((0.0, 1.0, 2.0), (3.0, 4.0, 5.0)), high=4.0)
TRIANGLE = Shapes("half", (Polygon(((0.0, 0.0), (2.0, 0.0), (0.0, 1.0)), 1.0),), axes=False)


def test_panels_are_laid_out_in_rows():
    figure = draw(Panels((LINE, MATRIX, TRIANGLE), columns=2, row_labels=("above", "below")), "title")
    plot, matrix, shapes = figure.axes
    assert plot.get_yscale() == "log"
    assert plot.lines[0].get_ydata().tolist() == [0.5, 0.25]
    assert matrix.images[0].get_array().tolist() == [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]
    assert matrix.images[0].get_clim() == (0.0, 4.0)
    assert shapes.patches[0].get_xy().tolist()[1] == [2.0, 0.0]
    assert not shapes.axison
    columns = [axes.get_subplotspec().colspan.start for axes in figure.axes]
    assert columns == [0, 1, 0]
    assert [axes.get_ylabel() for axes in figure.axes] == ["above", "", "below"]


def test_a_single_panel_can_be_saved(tmp_path):
    save_figure(draw(MATRIX), tmp_path / "matrix.png")
    assert (tmp_path / "matrix.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(InputError, match="the ending must be one of"):
        save_figure(draw(MATRIX), tmp_path / "matrix.nothing")


def test_every_tick_has_its_place_and_its_room():
    ticks = ("ReLU", "DLGN, frozen gates", "linear in NTK features", "DLN", "PWC", "DLGN")
    plot = Plot("", "accuracy", (Curve("ours", (0.0, 1.0), (3.0, 4.0)),), ticks=ticks)  # nothing is known of the others
    (axes,) = draw(plot).axes
    left, right = axes.get_xlim()
    assert left < 0
    assert right > len(ticks) - 1
    labels = [label.get_text() for label in axes.get_xticklabels()]
    assert [label.replace("\n", " ") for label in labels] == list(ticks)
    assert max(len(line) for label in labels for line in label.splitlines()) <= 12
