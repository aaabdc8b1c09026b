"""Animations are pages that hold their facts."""

import json
import re

from gatelab.figures import Curve, Heatmap, Panels, Plot, Shapes
from gatelab.figures.facts import Polygon
from gatelab.lab.findings import Animation, Frame
from gatelab.lab.report.animation import animation_page


def _page(title="half-spaces"):
    panels = (
        Plot("angle", "output", (Curve("net", (0.0, 1.0), (1 / 3, float("nan")), line=True),)),
        Heatmap("Λ", ((-1.0, 0.0), (1.0, 3.0)), low=-1.0, high=1.0),
        Shapes("layer 1", (Polygon(((0.0, 0.0), (1.0, 0.0), (0.0, 1.0)), 0.5),)),
    )
    return animation_page(Animation(title, "what to see", (Frame("epoch 0", Panels(panels, 3)),)))


def _frames(page):
    return json.loads(re.search(r"^const frames = (.*);$", page, re.MULTILINE).group(1))


def test_the_facts_are_in_the_page():
    (frame,) = _frames(_page())
    plot, matrix, shapes = frame["panels"]
    assert frame["columns"] == 3
    assert plot["curves"][0]["y"] == [0.3333, None]
    assert matrix["rows"] == [[0, 128], [255, 255]]
    assert shapes["polygons"][0]["points"][1] == [1.0, 0.0]


def test_nothing_breaks_out_of_the_page():
    page = _page("</script><b>")
    assert "<b>" not in page
    assert page.count("</script>") == 1
    assert "http" not in page


def test_all_frames_share_a_scale():
    frames = tuple(
        Frame(str(k), Panels((Heatmap("Λ", ((float(k), 0.0),), scale="Λ"), Heatmap("", ((float(k),),), scale=None)), 2))
        for k in (1, 2)
    )
    shown = _frames(animation_page(Animation("", "", frames)))
    assert [frame["panels"][0]["rows"] for frame in shown] == [[[128, 0]], [[255, 0]]]
    assert {frame["panels"][0]["scale"]["high"] for frame in shown} == {2.0}
    assert [frame["panels"][1]["scale"]["high"] for frame in shown] == [1.0, 2.0]  # a picture has its own range
    assert shown[0]["panels"][1]["scale"]["label"] is None  # and no colour bar
