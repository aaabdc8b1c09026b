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
    plot, matrix, shapes, _ = figure.axes
    assert plot.get_yscale() == "log"
    assert plot.lines[0].get_ydata().tolist() == [0.5, 0.25]
    assert matrix.images[0].get_array().tolist() == [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]
    assert matrix.images[0].get_clim() == (0.0, 4.0)
    assert shapes.patches[0].get_xy().tolist()[1] == [2.0, 0.0]
    assert not shapes.axison
    columns = [axes.get_subplotspec().colspan.start for axes in figure.axes[:3]]
    assert columns == [0, 1, 0]
    assert [axes.get_ylabel() for axes in figure.axes] == ["above", "", "below", ""]


def test_a_single_panel_can_be_saved(tmp_path):
    save_figure(draw(MATRIX), tmp_path / "matrix.png")
    assert (tmp_path / "matrix.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(InputError, match="its suffix must be one of"):
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


def _limits(axes):
    return axes.images[0].get_clim()


def test_heat_maps_of_one_scale_share_their_colours_and_one_bar():
    start, end = (
        Heatmap("start", ((0.0, 1.0),), scale="overlap"),
        Heatmap("end", ((-2.0, float("nan")),), scale="overlap"),
    )
    figure = draw(Panels((start, end), columns=2))
    left, right, bar = figure.axes
    assert _limits(left) == _limits(right) == (-2.0, 1.0)
    assert bar.get_ylabel() == "overlap"
    assert bar.get_ylim() == (-2.0, 1.0)


def test_scales_of_other_names_have_their_own_colours():
    overlap, difference = Heatmap("Λ", ((0.0, 1.0),), scale="Λ"), Heatmap("", ((-1.0, 3.0),), diverging=True, scale="Δ")
    photograph = Heatmap("a photograph", ((0.0, 9.0),), scale=None)
    figure = draw(Panels((overlap, difference, photograph, overlap), columns=2))
    assert [_limits(axes) for axes in figure.axes[:4]] == [(0.0, 1.0), (-3.0, 3.0), (0.0, 9.0), (0.0, 1.0)]
    bars = [[bar.get_ylabel() for bar in axes.child_axes] for axes in figure.axes]
    assert bars == [["Λ"], ["Δ"], [], ["Λ"]]  # in every row, as high as its matrix


def test_an_entry_that_is_not_known_has_no_shade_of_the_scale():
    (axes,) = draw(Heatmap("", ((0.0, float("nan"), 1.0),), scale=None)).axes
    image = axes.images[0]
    low, unknown, high = image.to_rgba(image.get_array())[0]
    assert len({*unknown[:3]}) == 1  # grey, which viridis does not have
    assert all(len({*colour[:3]}) == 3 for colour in (low, high))


def test_minor_ticks_have_the_size_of_major_ones():
    (axes,) = draw(Plot("x", "y", (Curve("", (0.0, 1.0), (2.0, 7.0)),), log_y=True)).axes
    axes.figure.canvas.draw()
    sizes = {label.get_fontsize() for label in (*axes.yaxis.get_ticklabels(), *axes.yaxis.get_minorticklabels())}
    assert sizes == {8.5}


def test_rows_and_columns_have_names():
    (axes,) = draw(Heatmap("", ((1.0, 2.0),), x_ticks=("cat", "dog"), y_ticks=("mean",))).axes
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["cat", "dog"]
    assert [tick.get_text() for tick in axes.get_yticklabels()] == ["mean"]


@pytest.mark.parametrize("picture", [LINE, MATRIX, TRIANGLE, Panels((LINE, MATRIX), columns=2)])
def test_a_notebook_shows_facts_as_a_picture(picture):
    png, size = picture._repr_png_()
    width, height = (int.from_bytes(png[place : place + 4]) for place in (16, 20))
    assert png.startswith(b"\x89PNG")
    # Twice the size on the page, for sharp screens, but for the rounding of an odd number of pixels.
    assert (width, height) == pytest.approx((2 * size["width"], 2 * size["height"]), abs=1)
    assert "\n" not in repr(picture)
    assert len(repr(picture)) < 100
