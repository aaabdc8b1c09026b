"""Film the playground for the README, as docs/playground.gif: one network learns freely, its twin with frozen gates.

``python -m tools.playground_picture`` needs chromium and Playwright; the page must have been built (``make web``).
"""

import base64
import io
import json
import shutil
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import Page, sync_playwright

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "src" / "gatelab" / "web" / "playground.html"
PICTURE = ROOT / "docs" / "playground.gif"
STEPS = [*range(0, 60, 12), *range(60, 200, 35), *range(200, 600, 80), *range(600, 1501, 150)]
WIDTH, COLOURS = 720, 100


def state() -> dict[str, Any]:
    """Return two ReLU networks on the spirals; the gates of the second are frozen from the start."""
    net = {"preset": "relu", "hidden": [8, 8]}
    frozen = {"step": 0, "net": 1, "type": "freeze", "gates": True, "values": False}
    return {"config": {"nets": [net, net]}, "events": [frozen], "step": STEPS[-1]}


def frames(page: Page) -> list[Image.Image]:
    """Scrub through the training and take a picture at each step."""
    taken = []
    for step in STEPS:
        page.fill("#scrub", str(step))
        page.wait_for_function(
            "s => document.getElementById('clock').textContent.replace(',', '') === s", arg=str(step)
        )
        page.evaluate("() => new Promise(r => requestAnimationFrame(() => requestAnimationFrame(r)))")
        left, right = (page.locator(f"#stage-{name}").bounding_box() for name in "AB")
        key = page.locator("#stage-A .key").bounding_box()
        assert left is not None
        assert right is not None
        assert key is not None
        clip = {"x": left["x"] - 4, "y": left["y"] - 4, "width": right["x"] + right["width"] - left["x"] + 8}
        clip["height"] = key["y"] + key["height"] - left["y"] + 10
        shot = Image.open(io.BytesIO(page.screenshot(clip=clip))).convert("RGB")
        taken.append(shot.resize((WIDTH, round(shot.height * WIDTH / shot.width)), Image.Resampling.LANCZOS))
    return taken


def main() -> None:
    """Write the film."""
    told = base64.urlsafe_b64encode(json.dumps(state()).encode()).decode().rstrip("=")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1440, "height": 1700})
        page.goto(f"{PAGE.as_uri()}#{told}")
        page.locator("#plane-B[aria-label*='regions']").wait_for()
        shots = frames(page)
        browser.close()
    # One palette for all frames, from the most colourful one, or still parts would flicker.
    palette = shots[-1].quantize(COLOURS, dither=Image.Dither.NONE)
    flat = [shot.quantize(palette=palette, dither=Image.Dither.NONE) for shot in shots]
    durations = [*[160] * (len(flat) - 1), 2600]
    flat[0].save(PICTURE, save_all=True, append_images=flat[1:], duration=durations, loop=0, optimize=True)
    print(f"{PICTURE.relative_to(ROOT)}: {PICTURE.stat().st_size / 1024:.0f} KB, {len(flat)} frames")  # noqa: T201


if __name__ == "__main__":
    main()
