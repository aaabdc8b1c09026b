"""axe finds nothing: light and dark, desktop and phone, with a tour, with a dialogue, with two networks."""

import pytest

from tests.web.conftest import ROOT

pytestmark = [pytest.mark.browser, pytest.mark.timeout(240)]

AXE = ROOT / "web" / "node_modules" / "axe-core" / "axe.min.js"


def violations(page) -> list[str]:
    if not AXE.is_file():
        pytest.skip("axe-core is not installed: make web-packages")
    page.evaluate(f"() => {{ {AXE.read_text(encoding='utf-8')} }}")
    # Colours that are on their way from one theme to the other have the contrast of neither.
    page.evaluate("() => Promise.allSettled(document.getAnimations().map((animation) => animation.finished))")
    found = page.evaluate("() => axe.run(document)")
    assert len(found["passes"]) > 15  # it looked
    return [f"{v['id']}: {v['nodes'][0]['html'][:120]}" for v in found["violations"]]


def test_desktop(playground):
    page = playground.open().page
    assert violations(page) == []
    page.click("#start-here")
    page.click("#tour-next")
    page.click("#tour-next")
    page.wait_for_selector("#plane-B[aria-label*='regions']")
    page.click("#theme")
    page.hover("#plane-A", position={"x": 90, "y": 90})
    playground.settled()
    assert violations(page) == []
    page.click("#paste")
    assert violations(page) == []


def test_phone(phone):
    page = phone.open().page
    assert violations(page) == []
    page.tap("#data-panel summary")
    page.tap("#net-panel summary")
    page.tap("#train-panel summary")
    page.tap("#theme")
    assert violations(page) == []


def test_axe_can_fail(playground):
    page = playground.open().page
    page.evaluate("() => document.getElementById('seed').closest('label').replaceWith(document.getElementById('seed'))")
    assert any("label" in violation for violation in violations(page))
