"""The explorer in a real browser: every control, keys alone, hostile names, phone and desktop, against NumPy."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import gatelab as gl
from gatelab.data.user_data import UserData
from gatelab.lab.explore import explore
from tests.web.conftest import DESKTOP, PHONE, ROOT
from tests.web.test_accessibility import violations

pytestmark = [pytest.mark.browser, pytest.mark.timeout(240)]

HOSTILE = "</script><img src=x onerror=alert(1)>"


class Explorer:
    """An explorer page in a browser."""

    def __init__(self, page: Any, path: Path, facts: Any):
        self.page, self.path, self.facts = page, path, facts
        self.messages: list[str] = []
        self.requests: list[str] = []
        page.on("console", lambda message: self.messages.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: self.messages.append(f"error: {error}"))
        page.on("dialog", lambda dialog: self.messages.append(f"dialog: {dialog.message}"))
        page.on("request", lambda request: self.requests.append(request.url))
        page.goto(path.as_uri())
        page.locator("#card-A canvas").wait_for()

    def settled(self) -> None:
        self.page.evaluate("() => new Promise(r => requestAnimationFrame(() => requestAnimationFrame(r)))")

    def picked(self, slot: str) -> str:
        self.settled()
        return self.page.inner_text(f"#card-{slot} h3")


@pytest.fixture(scope="module")
def written(tmp_path_factory) -> tuple[Path, Any]:
    """A page with every part: a linearly gated CNN with pooling by averages, a plane, a timeline."""
    torch.manual_seed(3)
    torch.set_default_dtype(torch.float64)
    convolutions = (nn.Conv2d(1, 3, 3, padding=1), nn.ReLU(), nn.AvgPool2d(2), nn.Flatten())
    plain = nn.Sequential(*convolutions, nn.Linear(27, 6), nn.ReLU(), nn.Linear(6, 3))
    x, y = torch.rand(20, 1, 6, 6), torch.arange(20) % 3
    net = gl.to_dlgn(plain, x=x[:2])
    tracker = gl.GateTracker(net, x[:4], kernels="off")
    tracker.record(0)
    tracker.record(10)
    data = UserData("tiny <i>images</i>", x, y, x, y, (HOSTILE, "one", "two"))
    path = tmp_path_factory.mktemp("explorer") / "page.html"
    page = explore(net, data, path, examples=12, paths=3, planes=2, tracker=tracker)
    torch.set_default_dtype(torch.float32)
    return path, page.contents


def opened(chromium: Any, written: tuple[Path, Any], **options: Any) -> Iterator[Explorer]:
    context = chromium.new_context(**options)
    context.set_default_timeout(30_000)
    explorer = Explorer(context.new_page(), *written)
    yield explorer
    context.close()
    assert explorer.messages == []
    assert explorer.requests == [explorer.path.as_uri()]  # the page itself, and nothing else


@pytest.fixture
def explorer(chromium, written) -> Iterator[Explorer]:
    yield from opened(chromium, written, viewport=DESKTOP)


@pytest.fixture
def phone(chromium, written) -> Iterator[Explorer]:
    yield from opened(chromium, written, viewport=PHONE, has_touch=True, is_mobile=True, color_scheme="dark")


def bits(layer) -> np.ndarray:
    return np.unpackbits(layer.bits, axis=1, bitorder="little")[:, : int(np.prod(layer.shape))].astype(bool)


def test_what_two_examples_share(explorer):
    page, facts = explorer.page, explorer.facts
    for a, b in ((0, 5), (7, 2)):
        page.click(f"[data-example='{a}']")
        page.click(f"[data-example='{b}']", modifiers=["Shift"])
        explorer.settled()
        rows = page.locator("#shared-gates tbody tr").all_inner_texts()
        assert len(rows) == len(facts.gates)
        for row, layer in zip(rows, facts.gates, strict=True):
            first, second = bits(layer)[a], bits(layer)[b]
            name, gates, both, of_a, agree = row.split("\t")
            assert (name, int(gates), int(both)) == (layer.name, len(first), int((first & second).sum()))
            assert float(of_a.rstrip(" %")) == pytest.approx(100 * (first & second).sum() / first.sum(), rel=0.01)
            assert float(agree.rstrip(" %")) == pytest.approx(100 * (first == second).mean(), rel=0.01)
        kernel = next(kernel.values for kernel in facts.kernels if kernel.symbol == "H")
        cosine = kernel[a, b] / np.sqrt(kernel[a, a] * kernel[b, b])
        (said,) = (text for text in page.locator("#pair p").all_inner_texts() if text.startswith("The cosine of H"))
        assert float(said.rstrip(".").split()[-1].replace("−", "-")) == pytest.approx(cosine, rel=0.01)


def test_names_are_text(explorer):
    page = explorer.page
    assert page.locator("img, i:has-text('images')").count() == 0
    assert HOSTILE in page.inner_text("#picked") + page.inner_text("#filter")
    assert "tiny <i>images</i>" in page.inner_text("#subject")
    assert "tiny <i>images</i>" in page.title()


def test_every_control(explorer):
    page, facts = explorer.page, explorer.facts
    page.select_option("#filter", "1")
    ones = sum(label == 1 for label in facts.examples.labels)
    assert page.locator(".thumb:visible").count() == ones
    page.select_option("#filter", "mistakes")
    page.select_option("#filter", "all")
    page.check("#slot-C", force=True)
    page.click("[data-example='9']")
    assert f"#{facts.examples.numbers[9]}," in explorer.picked("C")
    for view in ("A", "B", "shared"):
        page.check(f"[name='gate-view'][value='{view}']", force=True)
    page.hover("#gates-0", position={"x": 5, "y": 5})
    assert "channel 0, row" in page.inner_text(".layer >> nth=0")
    for kernel in range(len(facts.kernels)):
        page.select_option("#kernel-name", str(kernel))
    for order in ("label", "decision", "number", "like"):
        page.select_option("#kernel-order", order)
    page.check("#kernel-cosine")
    page.hover("#kernel-map", position={"x": 4, "y": 4})
    explorer.settled()
    assert page.inner_text("#kernel-entry").endswith(": 1")  # an example with itself
    page.check("[name='path-view'][value='pixels']", force=True)
    explorer.settled()
    assert "all paths from each pixel" in page.inner_text("#paths")
    page.select_option("#normal-layer", "1")
    page.fill("#moment", "5")
    explorer.settled()
    assert page.inner_text("#moment-text") == "step 5"
    page.click("#theme")
    assert page.get_attribute("html", "data-theme") == "dark"
    page.click("#about summary >> nth=0")
    page.click("#about summary >> nth=1")
    assert "regions (gatelab.regions)" in page.inner_text("#about")


def test_paths_show_what_closing_does(explorer):
    page, facts = explorer.page, explorer.facts
    page.click("[data-example='4']")
    explorer.settled()
    shown = next(paths for paths in facts.paths if paths.example == 4 and paths.output == facts.examples.decisions[4])
    for number, path in enumerate(shown.paths):
        page.click(f".paths button >> nth={number}")
        explorer.settled()
        text = page.inner_text("#path-detail")
        if path.gates:
            numbers = page.locator(".check-table tbody tr").all_inner_texts()
            found = [float(row.split("\t")[1].replace("−", "-")) for row in numbers]
            assert found == pytest.approx([shown.value, path.kept, path.reacting], rel=1e-3, abs=1e-3)
        else:
            assert "passes no gate" in text


def test_planes(explorer):
    page, facts = explorer.page, explorer.facts
    plane = facts.planes[1]
    page.select_option("#plane-choice", "1")
    explorer.settled()
    regions = len(plane.starts) - 1
    assert f"{regions:,} exact regions" in page.inner_text("#planes")
    for slot, example in zip("ABC", plane.examples, strict=True):
        assert f"#{facts.examples.numbers[example]}," in explorer.picked(slot)
    for colour in ("region", "gates", f"output-{plane.outputs[0]}", "decision"):
        page.select_option("#plane-colour", colour)
        explorer.settled()
    page.focus("#plane")
    for key in ("ArrowLeft", "Shift+ArrowUp", "ArrowRight"):
        page.keyboard.press(key)
    explorer.settled()
    assert f"of {regions:,}" in page.inner_text("#plane-readout")
    other = next(k for k in range(12) if k not in plane.examples)
    page.check("#slot-C", force=True)
    page.click(f"[data-example='{other}']")
    explorer.settled()
    assert "--triple" in page.inner_text("#plane-hint")


def test_keys_alone(explorer):
    page, facts = explorer.page, explorer.facts
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the examples"
    page.focus("[data-example='0']")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("b")
    assert f"#{facts.examples.numbers[2]}," in explorer.picked("B")
    page.keyboard.press("End")
    page.keyboard.press("Enter")
    assert f"#{facts.examples.numbers[-1]}," in explorer.picked("A")
    page.focus("#kernel-map")
    for key in ("ArrowDown", "ArrowDown", "ArrowRight", "Enter"):
        page.keyboard.press(key)
    assert f"#{facts.examples.numbers[1]}," in explorer.picked("A")
    page.focus(".paths button >> nth=1")
    page.keyboard.press("Enter")
    explorer.settled()
    assert page.get_attribute(".paths button >> nth=1", "aria-pressed") == "true"
    assert page.evaluate("document.activeElement.getAttribute('aria-pressed')") == "true"  # focus stays


def test_accessible_on_desktop(explorer):
    assert violations(explorer.page) == []
    explorer.page.click("#theme")
    explorer.settled()
    assert violations(explorer.page) == []


def test_on_a_phone(phone):
    page = phone.page
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    assert violations(page) == []
    page.tap("[data-example='3']")
    assert f"#{phone.facts.examples.numbers[3]}," in phone.picked("A")


def test_a_page_without_facts_says_so(chromium):
    page = chromium.new_page()
    page.goto((ROOT / "src" / "gatelab" / "web" / "explorer.html").as_uri())
    assert "gatelab explore net.py:Net" in page.inner_text("#lead")
    page.close()
