"""A browser, pages that must stay silent, and the state that a page keeps in its address."""

import base64
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "src" / "gatelab" / "web" / "playground.html"
DESKTOP, PHONE = {"width": 1440, "height": 900}, {"width": 390, "height": 844}


class Playground:
    """A page of the playground, and what a user does with it."""

    def __init__(self, page: Any):
        self.page = page
        self.messages: list[str] = []
        self.requests: list[str] = []
        page.on("console", lambda message: self.messages.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: self.messages.append(f"error: {error}"))
        page.on("request", lambda request: self.requests.append(request.url))

    def open(self, state: dict[str, Any] | None = None) -> "Playground":
        self.page.goto(f"{PAGE.as_uri()}{'' if state is None else '#' + address(state)}")
        self.page.locator("#plane-A[aria-label*='regions']").wait_for()
        return self

    def state(self) -> dict[str, Any]:
        """What the address holds, after the page had time to write it."""
        self.page.wait_for_timeout(60)
        text = self.page.evaluate("location.hash.slice(1)")
        return json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))

    def wait_for_step(self, step: int) -> None:
        self.page.wait_for_function(
            "step => Number(document.getElementById('clock').textContent.replaceAll(',', '')) >= step",
            arg=step,
            timeout=60_000,
        )

    def steps(self, count: int) -> None:
        """Train by single steps."""
        before = self.clock()
        for _ in range(count):
            self.page.click("#step")
        self.wait_for_step(before + count)

    def clock(self) -> int:
        return int(self.page.inner_text("#clock").replace(",", ""))

    def saved(self, button: str = "#export-json") -> bytes:
        """What a button of the export menu saves."""
        self.page.click("#export-menu summary")
        with self.page.expect_download() as download:
            self.page.click(button)
        return Path(download.value.path()).read_bytes()

    def export(self) -> dict[str, Any]:
        return json.loads(self.saved())

    def settled(self) -> None:
        """Two frames later everything asked for has been drawn."""
        self.page.evaluate("() => new Promise(r => requestAnimationFrame(() => requestAnimationFrame(r)))")


def address(state: dict[str, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(state).encode()).decode().rstrip("=")


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    sync_api = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")
    path = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if path is None:
        pytest.skip("no chromium on this machine: apt-get install chromium")
    with sync_api.sync_playwright() as playwright:
        sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = playwright.chromium.launch(executable_path=path, args=sandbox)
        yield browser
        browser.close()


def _opened(chromium: Any, **options: Any) -> Iterator[Playground]:
    context = chromium.new_context(accept_downloads=True, **options)
    context.set_default_timeout(30_000)
    playground = Playground(context.new_page())
    yield playground
    context.close()
    # No page may say anything, or ask for anything but itself and its own worker.
    assert playground.messages == []
    assert [url for url in playground.requests if not url.startswith((PAGE.as_uri(), "blob:", "data:"))] == []


@pytest.fixture
def playground(chromium) -> Iterator[Playground]:
    yield from _opened(chromium, viewport=DESKTOP)


@pytest.fixture
def phone(chromium) -> Iterator[Playground]:
    yield from _opened(chromium, viewport=PHONE, has_touch=True, is_mobile=True, color_scheme="dark")
