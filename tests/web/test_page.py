"""The playground in a real browser: every control, freezing, time, pins, tours, links, exports, keys."""

import itertools
import json
import re
from xml.etree import ElementTree as ET

import pytest
import torch

from gatelab.models import from_playground
from gatelab.regions import linear_regions_2d
from tests.web.conftest import PAGE, address

pytestmark = [pytest.mark.browser, pytest.mark.timeout(240)]

SMALL = {"config": {"nets": [{"hidden": [5, 4]}], "data": {"points": 60}}}


def weights(net: dict, part: str) -> list:
    return [[layer["weight"], layer["bias"]] for layer in net[part]]


def choose_range(playground, selector: str, steps: int) -> None:
    """Move a slider with the keys."""
    playground.page.focus(selector)
    for _ in range(abs(steps)):
        playground.page.keyboard.press("ArrowRight" if steps > 0 else "ArrowLeft")


def test_opens_at_once_and_asks_for_nothing(playground):
    playground.open()
    assert playground.requests[0] == PAGE.as_uri()
    policy = playground.page.get_attribute("meta[http-equiv='Content-Security-Policy']", "content")
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "http" not in policy
    assert playground.page.evaluate("performance.getEntriesByType('resource').length") == 0
    # The policy is enforced, not only written.
    blocked = playground.page.evaluate("() => fetch('data:text/plain,x').then(() => 'went out', () => 'refused')")
    assert blocked == "refused"
    assert any("Content Security Policy" in message for message in playground.messages)
    playground.messages.clear()
    playground.requests.clear()


def test_controls_of_data(playground):
    page = playground.open(SMALL).page
    for name in ("circle", "spirals", "xor", "blobs", "stripes"):
        page.check(f"#data-{name}", force=True)
        assert playground.state()["config"]["data"]["name"] == name
    for control, key, steps in (("#points", "points", 1), ("#noise", "noise", 2), ("#train-share", "share", -1)):
        before = playground.state()["config"]["data"][key]
        choose_range(playground, control, steps)
        assert (playground.state()["config"]["data"][key] - before) * steps > 0
    page.click("#new-data")
    assert playground.state()["config"]["data"]["seed"] == 2


def test_controls_of_the_network(playground):
    page = playground.open(SMALL).page
    for preset in ("dgn-random", "dgn-soft", "dlgn", "dlgn-pwc", "dln", "dgn-learnt", "relu"):
        page.select_option("#preset", preset)
        assert playground.state()["config"]["nets"][0]["preset"] == preset
        playground.settled()
        assert "regions" in page.get_attribute("#plane-A", "aria-label")
    page.select_option("#preset", "dgn-learnt")
    page.fill("#learnt-at", "30")
    page.press("#learnt-at", "Enter")
    assert playground.state()["config"]["nets"][0]["learntAt"] == 30
    page.select_option("#preset", "relu")
    page.fill("#width-1", "7")
    page.press("#width-1", "Enter")
    page.click("#add-layer")
    assert playground.state()["config"]["nets"][0]["hidden"] == [7, 4, 4]
    page.click("#drop-layer")
    page.uncheck("#bias")
    choose_range(playground, "#beta", 1)
    net = playground.state()["config"]["nets"][0]
    assert (net["hidden"], net["bias"], net["beta"]) == ([7, 4], False, 10)
    for _ in range(6):
        if page.is_enabled("#add-layer"):
            page.click("#add-layer")
    assert len(playground.state()["config"]["nets"][0]["hidden"]) == 6
    assert not page.is_enabled("#add-layer")


def test_controls_of_training(playground):
    page = playground.open(SMALL).page
    page.select_option("#method", "momentum")
    choose_range(playground, "#rate", -1)
    choose_range(playground, "#batch", 2)
    page.fill("#seed", "7")
    page.press("#seed", "Enter")
    state = playground.state()
    assert state["config"]["train"] == {"method": "momentum", "rate": 0.003, "batch": 0}
    assert state["config"]["seed"] == 7
    playground.steps(3)
    # In the middle of training a change is an event, and training goes on.
    page.select_option("#method", "sgd")
    assert playground.clock() == 3
    assert [(e["type"], e["step"]) for e in playground.state()["events"]] == [("train", 3)]
    page.select_option("#speed", "0")
    page.click("#play")
    playground.wait_for_step(40)
    page.click("#play")
    playground.settled()
    reached = playground.clock()
    page.wait_for_timeout(150)
    assert playground.clock() == reached
    page.click("#reset")
    page.wait_for_function("() => document.getElementById('clock').textContent === '0'")


def test_colours_kernels_and_order(playground):
    page = playground.open(SMALL).page
    pictures = set()
    for colour in ("output", "region", "paths", "gate", "layer"):
        page.check(f"input[name=colour][value={colour}]", force=True)
        playground.settled()
        pictures.add(page.evaluate("document.getElementById('plane-A').toDataURL()"))
        assert playground.state()["view"]["colour"] == colour
    assert len(pictures) == 5
    page.select_option("#preset", "dgn-soft")
    maps = set()
    for kernel, order in itertools.product(("overlap", "path", "tangent", "value", "feature"), ("class", "angle")):
        page.select_option("#kernel-name", kernel)
        page.select_option("#kernel-order", order)
        page.wait_for_timeout(150)
        maps.add(page.evaluate("document.getElementById('kernel-map').toDataURL()"))
    assert len(maps) == 10
    page.hover("#kernel-map")
    assert re.search(r"y = .*:", page.inner_text("#kernels > p"))


@pytest.mark.parametrize("preset", ["relu", "dlgn"])
def test_frozen_parts_do_not_move_a_bit(playground, preset):
    state = {"config": {**SMALL["config"], "nets": [{"hidden": [5, 4], "preset": preset}]}, "step": 20}
    page = playground.open(state).page
    page.click("#freeze-gates-A")
    page.wait_for_selector("#freeze-gates-A[aria-pressed=true]")
    before = playground.export()["networks"][0]
    playground.steps(8)
    after = playground.export()["networks"][0]
    assert weights(after, "feature") == weights(before, "feature") != []
    assert weights(after, "value") != weights(before, "value")
    page.click("#freeze-values-A")
    page.click("#freeze-gates-A")
    page.wait_for_selector("#freeze-gates-A[aria-pressed=false]")
    playground.steps(8)
    last = playground.export()["networks"][0]
    assert weights(last, "value") == weights(after, "value")
    assert weights(last, "feature") != weights(after, "feature")
    page.click("#redraw-values-A")
    page.wait_for_timeout(200)
    drawn = playground.export()["networks"][0]
    assert weights(drawn, "value") != weights(last, "value")
    assert weights(drawn, "feature") == weights(last, "feature")
    page.click("#redraw-gates-A")
    page.wait_for_timeout(200)
    assert weights(playground.export()["networks"][0], "feature") != weights(drawn, "feature")


def test_any_moment_can_be_visited(playground):
    page = playground.open({**SMALL, "step": 25}).page
    there = playground.export()["networks"]
    page.click("#freeze-gates-A")
    playground.steps(12)
    page.fill("#scrub", "25")
    page.wait_for_function("() => document.getElementById('clock').textContent === '25'")
    assert weights(playground.export()["networks"][0], "value") == weights(there[0], "value")
    page.fill("#scrub", "3")
    page.wait_for_function("() => document.getElementById('clock').textContent === '3'")
    assert playground.export()["networks"][0]["kind"] == "relu"  # not yet split
    page.select_option("#speed", "0")
    page.click("#again")
    playground.wait_for_step(37)
    page.click("#play")
    assert playground.state()["events"][0]["step"] == 25


def test_hover_agrees_with_the_library(playground):
    page = playground.open({**SMALL, "step": 60}).page
    net = from_playground(playground.export())
    box = page.locator("#plane-A").bounding_box()
    x = torch.tensor([[0.4, -0.7]], dtype=torch.float64)
    place = [(x[0, 0].item() / 1.5 + 1) / 2 * box["width"], (1 - x[0, 1].item() / 1.5) / 2 * box["height"]]
    page.hover("#plane-A", position={"x": place[0], "y": place[1]})
    playground.settled()
    told = page.inner_text("#readout").replace("−", "-").replace(",", "")
    partition = linear_regions_2d(net, bounds=((-1.5, 1.5), (-1.5, 1.5)))
    constant, s, t = partition.maps[partition.locate(x)[0], 0].tolist()
    shown = re.search(r"ŷ = (\S+) ([+-]) (\S+) x₁ ([+-]) (\S+) x₂", told)
    assert shown is not None
    numbers = [float(shown[1]), float(shown[2] + shown[3]), float(shown[4] + shown[5])]
    assert numbers == pytest.approx([constant, s, t], rel=6e-3)  # three digits are shown
    assert f"{len(partition)} regions" in page.get_attribute("#plane-A", "aria-label")
    assert "of 20 paths are open" in told


def test_pins_paths_and_units(playground):
    page = playground.open({**SMALL, "step": 60}).page
    page.click("#plane-A", position={"x": 120, "y": 120})
    page.mouse.move(5, 5)
    page.click(".paths li:first-child button")
    page.wait_for_selector(".paths button[aria-pressed=true]")
    assert "where the chosen path is open" in page.inner_text("#stage-A .key")
    page.click("#plane-A", position={"x": 300, "y": 250})
    page.mouse.move(5, 5)
    playground.settled()
    assert "paths are open for both" in page.inner_text("#readout")
    assert len(playground.state()["view"]["pins"]) == 2
    box = page.locator("#diagram-A").bounding_box()
    # Units stand in columns: scan the first hidden one until a unit answers.
    for y in range(40, int(box["height"]), 12):
        page.mouse.click(box["x"] + box["width"] * 0.385, box["y"] + y)
        if playground.state()["view"]["unit"] is not None:
            break
    assert "Boundary of layer" in page.inner_text("#stage-A")
    page.get_by_role("button", name="Show all").click()
    assert playground.state()["view"]["unit"] is None


def test_painting_and_pasting(playground):
    page = playground.open(SMALL).page
    page.check("#brush-plus", force=True)
    page.click("#plane-A", position={"x": 30, "y": 30})
    page.check("#brush-minus", force=True)
    page.click("#plane-A", position={"x": 340, "y": 40})
    data = playground.state()["config"]["data"]
    assert data["name"] == "own"
    assert len(data["own"]) == 3 * 62
    assert [data["own"][-4], data["own"][-1]] == [1, -1]
    page.check("#brush-erase", force=True)
    page.click("#plane-A", position={"x": 340, "y": 40})
    assert len(playground.state()["config"]["data"]["own"]) < 3 * 62
    page.click("#paste")
    page.fill("#table", "1,2,3\n<img src=x onerror=alert(1)>,2,3")
    page.click("#use-table")
    assert "line 2: “<img src=x onerror=alert(1)>,2,3” is not three numbers" in page.inner_text("dialog .error")
    page.fill("#table", "a,b,c\n0,0,2\n10,5,9\n3,-4,2\n")
    page.click("#use-table")
    own = playground.state()["config"]["data"]["own"]
    assert [own[2], own[5], own[8]] == [-1, 1, -1]
    assert "scaled" in page.inner_text("#status")


def test_two_networks_side_by_side(playground):
    page = playground.open(SMALL).page
    page.click("#compare")
    page.wait_for_selector("#plane-B[aria-label*='regions']")
    page.check("#edit-B", force=True)
    page.select_option("#preset", "dgn-random")
    nets = playground.state()["config"]["nets"]
    assert [net["preset"] for net in nets] == ["relu", "dgn-random"]
    playground.steps(4)
    page.hover("#plane-B", position={"x": 80, "y": 90})
    playground.settled()
    told = page.inner_text("#readout")
    assert "Network A" in told
    assert "Network B" in told
    export = playground.export()
    assert [net["kind"] for net in export["networks"]] == ["relu", "dgn"]
    page.click("#compare")
    page.wait_for_selector("#plane-B", state="detached")


def test_a_link_rebuilds_the_very_network(playground):
    page = playground.open(SMALL).page
    page.select_option("#preset", "dlgn")
    playground.steps(3)
    page.click("#freeze-values-A")
    playground.steps(3)
    page.click("#redraw-gates-A")
    playground.steps(3)
    page.click("#plane-A", position={"x": 100, "y": 100})
    page.click("#share")
    export = playground.export()
    page.goto("about:blank")
    page.goto(f"{PAGE.as_uri()}#{address(export['state'])}")
    page.locator("#plane-A[aria-label*='regions']").wait_for()
    again = playground.export()
    assert again["networks"] == export["networks"]
    assert again["state"] == export["state"]
    playground.requests = [url for url in playground.requests if url != "about:blank"]


@pytest.mark.parametrize("state", ["nonsense", "e30", "eyJjb25maWciOnsibmV0cyI6W3siaGlkZGVuIjpbMWU5LCJ4Il19XX19"])
def test_a_damaged_link_gives_a_working_page(playground, state):
    playground.page.goto(f"{PAGE.as_uri()}#{state}")
    playground.page.locator("#plane-A[aria-label*='regions']").wait_for()
    playground.steps(1)


def test_exports(playground, tmp_path, monkeypatch, capsys):
    page = playground.open({**SMALL, "step": 40}).page
    assert playground.saved("#export-png").startswith(b"\x89PNG")
    drawing = ET.fromstring(playground.saved("#export-svg"))
    text = playground.saved()
    net = from_playground(text.decode())
    x = torch.tensor(json.loads(text)["data"]["x"], dtype=torch.float64)
    there = torch.tensor(json.loads(text)["networks"][0]["outputs"], dtype=torch.float64)
    torch.testing.assert_close(net(x).flatten(), there, rtol=1e-9, atol=1e-12)
    partition = linear_regions_2d(net, bounds=((-1.5, 1.5), (-1.5, 1.5)))
    assert len(drawing.findall(".//{http://www.w3.org/2000/svg}polygon")) == len(partition)
    page.click("#export-menu summary")
    page.click("#export-python")
    code = page.inner_text("dialog pre")
    (tmp_path / "network.json").write_bytes(text)
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "playground", "exec"), {})
    printed = capsys.readouterr().out
    assert float(re.search(r"browser: (\S+)", printed)[1]) < 1e-9
    assert f"{len(partition)} regions" in printed


TOURS = ("sum", "who", "halfspaces", "cost", "kernel", "depth")


@pytest.mark.parametrize("tour", TOURS)
def test_tours(playground, tour):
    page = playground.open().page
    page.select_option("#tours", tour)
    titles = set()
    for number in range(5):
        page.wait_for_function("() => document.querySelector('#tour .now').textContent.length > 5")
        playground.settled()
        titles.add(page.inner_text("#tour h2"))
        assert f"{number + 1} of 5" in page.inner_text("#tour")
        assert page.locator(".spot").count() == 1
        assert "NaN" not in page.inner_text("#tour")
        page.click("#tour-next" if number < 4 else "#tour-end")
    assert len(titles) == 5
    assert page.locator("#tour").is_hidden()


def test_the_first_tour_shows_both_failures(playground):
    """Freezing gates fails, freezing values fails, learnt gates with fresh values do not: in the text, live."""
    page = playground.open().page
    page.select_option("#speed", "0")
    page.click("#start-here")
    losses = []
    for step in range(5):
        if step >= 2:
            page.wait_for_function(
                "() => Number(document.querySelector('#tour .now').textContent.match(/Step (\\d+)/)?.[1]) >= 1000",
                timeout=120_000,
            )
            told = page.inner_text("#tour .now")
            losses.append([float(value) for value in re.findall(r"loss (\d[\d.]*)", told)])
        if step < 4:
            page.click("#tour-next")
    (free, gates), (_, values), (random, learnt) = losses
    assert gates > 4 * free
    assert values > 4 * free
    assert random > 2 * learnt


def test_keyboard_alone(playground):
    page = playground.open(SMALL).page
    reached = []
    page.keyboard.press("Tab")
    for _ in range(60):
        focused = "() => { const e = document.activeElement; return e.id || e.name || e.tagName }"
        reached.append(page.evaluate(focused))
        page.keyboard.press("Tab")
    for wanted in ("start-here", "tours", "compare", "share", "theme", "play", "step", "reset", "seed", "speed",
                   "preset", "width-1", "bias", "method", "rate", "freeze-gates-A", "freeze-values-A", "plane-A",
                   "diagram-A", "scrub", "again", "kernel-name", "colour"):  # fmt: skip
        assert wanted in reached, wanted
    page.focus("#step")
    page.keyboard.press("Enter")
    playground.wait_for_step(1)
    page.focus("#freeze-gates-A")
    page.keyboard.press("Space")
    page.wait_for_selector("#freeze-gates-A[aria-pressed=true]")
    page.focus("#plane-A")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Shift+ArrowUp")
    playground.settled()
    assert "output" in page.inner_text("#live")
    page.keyboard.press("Enter")
    assert playground.state()["view"]["pins"] == [[0.075, 0.375]]
    page.keyboard.press("Escape")
    assert playground.state()["view"]["pins"] == []
    page.focus("#diagram-A")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")
    assert "layer 2, unit 2" in page.inner_text("#live")
    page.keyboard.press("Enter")
    assert playground.state()["view"]["unit"] == 6


def test_theme_and_phone(playground, phone):
    page = playground.open().page
    assert page.get_attribute("html", "data-theme") == "light"
    page.click("#theme")
    assert page.get_attribute("html", "data-theme") == "dark"
    small = phone.open().page
    assert small.get_attribute("html", "data-theme") == "dark"
    assert small.evaluate("document.documentElement.scrollWidth") <= 390
    small.tap("#start-here")
    small.tap("#tour-next")
    small.tap("#tour-next")
    small.wait_for_selector("#plane-B[aria-label*='regions']")
    assert small.evaluate("document.documentElement.scrollWidth") <= 390
    plane = small.locator("#plane-B").bounding_box()
    assert plane["y"] + plane["height"] / 2 < 844 + 200  # at most a short scroll below the text
