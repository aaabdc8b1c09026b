"""The page: its size, what a user wrote in it, what is left out, and what is refused."""

import base64
import json
import re

import numpy as np
import pytest
import torch
from torch import nn

import gatelab as gl
from gatelab.data.user_data import UserData
from gatelab.errors import InputError, RunError
from gatelab.lab.explore.encoding import array_size, encoded, encoded_size
from gatelab.lab.explore.planes import shown_plane

HOSTILE = "</script><script>alert(1)</script><!-- & ' \" \u2028"
X = torch.randn(30, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
Y = torch.arange(30) % 3


def net(inputs=4, width=5, outputs=3):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(inputs, width), nn.ReLU(), nn.Linear(width, outputs))


def facts_in(path):
    """The JSON inside a page, as a browser would find it."""
    text = path.read_text(encoding="utf-8")
    (held,) = re.findall(r'<script type="application/json" id="facts">(.*?)</script>', text, flags=re.DOTALL)
    return json.loads(held), text


def small(tmp_path, model=None, data=None, **options):
    chosen = {"examples": 4, "paths": 2, "planes": 0} | options
    return gl.explore(model or net(), (X, Y) if data is None else data, tmp_path / "page.html", **chosen)


def test_everything_a_user_wrote_is_escaped(tmp_path):
    class Hostile(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleDict({"<img src=x onerror=alert(1)>": nn.ReLU()})
            self.one, self.two = nn.Linear(4, 5), nn.Linear(5, 2)

        def forward(self, x):
            return self.two(next(iter(self.layers.values()))(self.one(x)))

    Hostile.__name__ = Hostile.__qualname__ = "<b>net</b>"
    data = UserData(HOSTILE, X, Y % 2, X, Y % 2, (HOSTILE, "fine"))
    small(tmp_path, Hostile(), data)
    found, text = facts_in(tmp_path / "page.html")
    assert found["classes"] == [HOSTILE, "fine"]
    assert found["data"] == HOSTILE
    assert found["gates"][0]["name"] == "layers.<img src=x onerror=alert(1)>"
    assert "<img" not in text
    assert "<b>net" not in text
    assert text.count("<script") == 2  # the facts and the page's own
    assert "<title>&lt;b&gt;net&lt;/b&gt; on &lt;/script&gt;" in text


def test_arrays_come_back_as_they_went():
    values = np.array([[1.5, -2.0], [0.0, 1e-30]], np.float32)
    held = json.loads(encoded({"values": values, "none": float("nan")}))
    back = np.frombuffer(base64.b64decode(held["values"]["data"]), "<f4").reshape(held["values"]["shape"])
    assert np.array_equal(back, values)
    assert held["none"] is None
    assert encoded_size(values) <= array_size(values.size, 4) + 32


def test_a_page_keeps_to_its_size(tmp_path):
    wide, x, y = net(inputs=2000), torch.randn(20, 2000), torch.arange(20) % 3
    page = small(tmp_path, wide, (x, y), examples=20, paths=1, most_mb=0.2)
    assert page.size == (tmp_path / "page.html").stat().st_size <= 200_000
    shown = len(page.contents.examples.numbers)
    assert 2 <= shown < 20
    (gap,) = (gap for gap in page.contents.omissions if gap.part == "more examples")
    assert f"{shown} fit into half of 0.2 MB" in gap.reason
    with pytest.raises(InputError, match=r"two examples of this network take .* MB.*raise --most-mb to"):
        small(tmp_path, wide, (x, y), most_mb=0.07, force=True)


def test_planes_that_do_not_fit_are_left_out(tmp_path):
    page = small(tmp_path, net(width=60), planes=2, most_mb=0.066, paths=0)
    assert page.size <= 66_000
    assert not page.contents.planes
    assert any("do not fit the page" in gap.reason for gap in page.contents.omissions)


def test_a_network_that_cannot_be_read_keeps_what_needs_no_gates(tmp_path):
    class Branching(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = net()

        def forward(self, x):
            return self.inner(x) if float(x.sum().detach()) > -1e9 else x[:, :3]

    page = small(tmp_path, Branching())
    shown = page.contents
    assert (shown.gates, shown.paths, shown.planes) == ((), (), ())
    assert len(shown.examples.numbers) == 4
    reasons = {gap.part: gap.reason for gap in shown.omissions}
    assert {"gates", "paths", "planes", "half-spaces"} <= set(reasons)
    assert "cannot read this network" in reasons["gates"]
    assert "left out=gates" in repr(page)


def test_a_curved_network_keeps_its_tangent_kernel(tmp_path):
    curved = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 3))
    shown = small(tmp_path, curved, planes=1).contents
    assert [kernel.symbol for kernel in shown.kernels] == ["K"]
    assert not shown.gates
    assert any("Tanh" in gap.reason for gap in shown.omissions if gap.part == "gates")
    assert shown.abilities["gates (capture_gates)"].startswith("no: ")


def test_real_targets(tmp_path):
    shown = small(tmp_path, net(outputs=1), (X, X[:, 0] * 2), planes=1).contents
    assert shown.classes == ()
    assert shown.examples.labels == shown.examples.decisions == ()
    assert len(shown.examples.targets) == 4
    assert shown.examples.mistakes is None
    assert all(path.decision is None for paths in shown.paths for path in paths.paths)


def test_the_caller_loses_nothing(tmp_path):
    model = net().train()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    state = torch.get_rng_state()
    small(tmp_path, model)
    assert model.training
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
    assert torch.equal(state, torch.get_rng_state())


def test_half_spaces_of_a_linearly_gated_network(tmp_path):
    dlgn = gl.to_dlgn(net(), x=X[:2])
    for parameter in dlgn.parameters():
        parameter.data = torch.randn_like(parameter)
    shown = small(tmp_path, dlgn).contents
    layers = gl.half_spaces(dlgn, (4,))
    (found,) = shown.normals
    layer = layers[shown.gates[found.layer].name]
    np.testing.assert_allclose(found.normals, layer.normals().detach().numpy(), rtol=1e-6)
    np.testing.assert_allclose(found.offsets, layer.offsets.detach().numpy(), rtol=1e-6)
    assert (found.offsets != 0).all()
    assert shown.gates[found.layer].soft is not None


def test_what_was_tracked_is_a_timeline(tmp_path):
    model = net()
    tracker = gl.GateTracker(model, X[:6], kernels="off")
    for step in (0, 5):
        tracker.record(step)
        model[0].weight.data += 0.5
    plots = small(tmp_path, model, tracker=tracker).contents.timeline
    (opened,) = (plot for plot in plots if plot.title == "Open gates")
    assert opened.curves[0].y == tuple(record.active["1"] for record in tracker.records)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"data": (X[:, :2], Y)}, r"does not accept your data: examples of shape \(2,\)"),
        ({"data": (X, Y + 1)}, "label .* is 3"),
        ({"data": (X[:3], Y[:3])}, "0 test examples; give at least two"),
        ({"examples": 1}, "examples is 1; give a whole number, at least 2"),
        ({"examples": 2.5}, "examples is 2.5; give a whole number"),
        ({"planes": True}, "planes is True; give a whole number"),
        ({"shown": [30]}, "example 30 does not exist; the part 'all' of your data has 30"),
        ({"shown": [1.5]}, "1.5 is not the number of an example"),
        ({"triples": [1, 2, 3]}, "triples has 1; give three examples for each plane"),
        ({"triples": [(1.7, 2, 3)]}, "1.7 is not the number of an example"),
        ({"most_mb": float("nan")}, "most_mb is nan; give the most megabytes"),
        ({"most_mb": "20"}, "most_mb is '20'"),
        ({"model": nn.LazyLinear(3)}, "lazy layers"),
        ({"triples": [(0, 1)]}, "0, 1 are 2 examples; three make a plane"),
        ({"triples": [(0, 1, 1)]}, "does not have three different examples"),
        ({"triples": [(0, 1, 2), (3, 4, 5)]}, "6 examples are asked for by number, and 4 fit the page"),
        ({"part": "validation"}, "there is no part 'validation'"),
        ({"weights": "w.safetensors"}, "load them into your network"),
        ({"data": "no-such-data"}, "there is no data set or file 'no-such-data'"),
    ],
)
def test_refusals(tmp_path, options, message, unchecked):
    with pytest.raises(InputError, match=message):
        small(tmp_path, **options)
    assert not list(tmp_path.iterdir())


def test_files_in_the_way(tmp_path):
    path = tmp_path / "page.html"
    path.write_text("mine")
    with pytest.raises(InputError, match=r"page.html exists; give another name, or force=True"):
        small(tmp_path)
    assert path.read_text() == "mine"
    assert small(tmp_path, force=True).size > 1000
    with pytest.raises(InputError, match="cannot be written: File name too long"):
        gl.explore(net(), (X, Y), tmp_path / ("x" * 300))
    with pytest.raises(InputError, match="is a directory; give the name of a file"):
        gl.explore(net(), (X, Y), tmp_path)
    with pytest.raises(InputError, match="is no folder that you may write to"):
        gl.explore(net(), (X, Y), path / "below.html")
    with pytest.raises(InputError, match="there are no data"):
        gl.explore(net(), None, tmp_path / "other.html")
    with pytest.raises(InputError, match="is a directory without a run"):
        gl.explore(tmp_path, None, tmp_path / "other.html")


def test_planes_agree_with_the_network():
    model, x = net(width=9), X[:3].double()
    model.double()
    plane = shown_plane(model, x, (0, 1, 2), 5000, ["1"])
    assert plane.share == 1.0
    left, right, low, high = plane.bounds
    assert (plane.points[:, 0] > left).all()
    assert (plane.points[:, 1] < high).all()
    geometry = gl.regions.Plane.of_examples(x)
    generator = torch.Generator().manual_seed(3)
    sides, corner = torch.tensor([right - left, high - low]), torch.tensor([left, low])
    places = torch.rand(200, 2, generator=generator) * sides + corner
    outputs = model(geometry.at(places)).detach()
    assert set(outputs.argmax(1).tolist()) <= set(plane.outputs)
    whole = gl.regions.linear_regions_2d(model, geometry, ((left, right), (low, high)))
    assert len(whole) == len(plane.starts) - 1
    region = whole.locate(places)
    opened = gl.capture_gates(model, geometry.at(places))["1"].sum(1)
    assert plane.open_gates[region, 0].tolist() == opened.tolist()
    maps = torch.from_numpy(plane.maps)[region].double()
    found = maps[..., 0] + (maps[..., 1:] * places[:, None]).sum(2)
    torch.testing.assert_close(found, outputs[:, list(plane.outputs)], rtol=1e-5, atol=1e-5)


def test_a_limit_on_regions_makes_the_square_smaller():
    model = net(width=60).double()
    decided = model(X.double()).argmax(1)
    rows = [int((decided == label).nonzero()[0]) for label in decided.unique()[:2]]
    assert len(rows) == 2
    rows.append(next(row for row in range(30) if row not in rows))
    x = X[rows].double()
    whole = shown_plane(model, x, (0, 1, 2), 50_000, ["1"])
    fewer = len(whole.starts) // 3
    part = shown_plane(model, x, (0, 1, 2), fewer, ["1"])
    assert part.share < 1 == whole.share
    assert len(part.starts) - 1 <= fewer
    width = part.bounds[1] - part.bounds[0]
    assert width == pytest.approx(part.share * (whole.bounds[1] - whole.bounds[0]))
    # The smaller square lies around a change of the decision, on the line between two examples of different classes.
    assert whole.between is None
    assert part.between is not None
    told = []
    assert shown_plane(model, x, (0, 1, 2), 2, ["1"], told.append).share < 2.0**-7  # few regions: a small square
    shown_plane(model, x, (0, 1, 2), 50_000, ["1"], told.append)
    assert told[-1].endswith("in 1/2 of the side")
    decided = model(x).argmax(1)
    first, second = (part.points[k] for k in part.between)
    assert decided[part.between[0]] != decided[part.between[1]]
    middle = np.array([sum(part.bounds[:2]), sum(part.bounds[2:])]) / 2
    way = (middle - first) @ (second - first) / np.sum((second - first) ** 2)
    assert 0 < way < 1
    np.testing.assert_allclose(first + way * (second - first), middle, atol=1e-9)
    geometry = gl.regions.Plane.of_examples(x)
    ends = torch.from_numpy(np.stack([first + (way + step) * (second - first) for step in (-1e-6, 1e-6)]))
    assert len(set(model(geometry.at(ends)).argmax(1).tolist())) == 2


@pytest.mark.slow
@pytest.mark.usefixtures("single_precision")
def test_the_directory_of_a_study(tmp_path):
    settings = {"epochs": 2, "runs": 2, "train_size": 120, "kernels": "exact", "probes": 8, "progress": False}
    gl.study(None, "digits", out=tmp_path / "run", **settings)
    page = gl.explore(tmp_path / "run", None, tmp_path / "page.html", examples=6, paths=1, planes=0, run=0)
    shown = page.contents
    assert {"Open gates", "Score on the test examples", "ν = yᵀĤ⁻¹y"} <= {plot.title for plot in shown.timeline}
    assert "Network 0 of 2 of the study in run, after 2 epochs." in shown.remarks
    assert len(shown.gates) == 2
    with pytest.raises(InputError, match="has 2 runs, numbered from 0"):
        gl.explore(tmp_path / "run", None, tmp_path / "other.html", run=2)
    with pytest.raises(InputError, match="is a study, which names its network and data"):
        gl.explore(tmp_path / "run", "digits", tmp_path / "other.html")
    held = gl.study(net(), (X, Y), out=tmp_path / "held", decoupled=False, dependent=False, **settings)
    assert held.answer
    with pytest.raises(InputError, match="is a study of objects in Python"):
        gl.explore(tmp_path / "held", None, tmp_path / "other.html")
    (tmp_path / "empty").mkdir()
    with pytest.raises((InputError, RunError)):
        gl.explore(tmp_path / "empty", None, tmp_path / "other.html")


def test_decisions_are_those_before_a_sigmoid(tmp_path):
    model = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 1), nn.Sigmoid())
    page = small(tmp_path, model, (X, Y % 2), examples=10).contents
    right = (model(X)[:, 0] > 0.5).long()
    numbers = list(page.examples.numbers)
    assert page.examples.decisions == tuple(right[numbers].tolist())
    assert page.examples.mistakes == int((right != Y % 2).sum())
    assert 0 < page.examples.mistakes < 30
    assert any("before the network's final softmax or sigmoid" in remark for remark in page.remarks)


def test_numbers_are_the_rows_that_were_given(tmp_path):
    """Without a test part all examples are shown from, under their own numbers."""
    page = small(tmp_path, shown=np.array([25, 3]), examples=8).contents
    assert {25, 3} <= set(page.examples.numbers)
    np.testing.assert_allclose(page.examples.values, X[list(page.examples.numbers)].numpy(), rtol=1e-6)
    assert page.examples.labels == tuple(Y[list(page.examples.numbers)].tolist())
    assert not any("held out" in remark for remark in page.remarks)


def test_inputs_that_are_no_images_have_no_boxes_and_one_contribution_each(tmp_path):
    """Two channels, or a signal, are shown as a table of numbers."""
    signals = nn.Sequential(nn.Conv1d(1, 3, 5), nn.ReLU(), nn.Flatten(), nn.Linear(78, 3))
    planes = nn.Sequential(nn.Conv2d(2, 3, 3), nn.ReLU(), nn.Flatten(), nn.Linear(48, 3))
    for place, (model, shape) in enumerate(((signals, (1, 30)), (planes, (2, 6, 6)))):
        x = torch.randn(12, *shape, generator=torch.Generator().manual_seed(1))
        page = gl.explore(model, (x, Y[:12]), tmp_path / f"{place}.html", examples=3, paths=3, planes=0).contents
        paths = page.paths[0]
        assert paths.by_input.size == page.examples.values.shape[1] == x[0].numel()
        assert paths.by_input.sum() + paths.biases == pytest.approx(paths.value, rel=1e-5)
        assert all(place.box is None for path in paths.paths for place in path.places)


def test_values_of_a_piecewise_constant_network_start_at_ones(tmp_path):
    model = gl.to_dlgn(net().double(), piecewise_constant=True)
    page = small(tmp_path, model, examples=3, paths=400).contents
    for paths in page.paths:
        from_bias = sum(path.contribution for path in paths.paths if path.from_bias)
        from_ones = sum(path.contribution for path in paths.paths if not path.from_bias)
        assert paths.by_input.sum() == pytest.approx(from_ones, rel=1e-5, abs=1e-7)
        assert paths.biases == pytest.approx(from_bias, rel=1e-5, abs=1e-7)
        assert np.abs(paths.by_input).max() > 0


def test_a_regression_shows_its_outputs_and_no_decision(tmp_path):
    page = small(tmp_path, data=(X, torch.randn(30, 3, dtype=X.dtype)), triples=[(0, 1, 2)], examples=5).contents
    (plane,) = page.planes
    assert plane.outputs == (0, 1, 2)
    assert len(plane.boundary) == 0
    assert plane.between is None


def test_planes_that_were_asked_for_do_not_vanish_without_a_reason(tmp_path):
    page = small(tmp_path, nn.Linear(4, 3), triples=[(0, 1, 2)]).contents
    assert {"paths", "planes", "half-spaces"} <= {gap.part for gap in page.omissions}


def test_a_network_that_returns_single_precision_has_its_planes(tmp_path):
    class Single(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = net()

        def forward(self, x):
            return self.body(x).float()

    page = small(tmp_path, Single(), planes=1).contents
    assert len(page.planes) == 1
    assert not any("plane" in gap.part for gap in page.omissions)


def test_many_outputs_take_room(tmp_path):
    page = small(tmp_path, net(outputs=3000), examples=30, paths=0, most_mb=0.5)
    assert 2 <= len(page.contents.examples.numbers) < 30
    assert page.size <= 500_000
